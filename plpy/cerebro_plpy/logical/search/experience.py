"""Experience: the configs that were best in a role's earlier searches on similar tables.

Everything is computed from what was stored with these searches, so the same searches give the same configs.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from cerebro_plpy.madlib.literal import read_arguments
from cerebro_plpy.madlib.params import UNFREEZE, WEIGHTED
from cerebro_plpy.madlib.spaces.grid import GridRow, Meanings
from cerebro_plpy.madlib.spaces.render import render_row

# Tables are similar if `measure_distance` returns at most this number of doublings.
MOST_DOUBLINGS: Final = 5.0
# The most searches that configs are taken from; the most configs, and their share of a new search's configs.
MOST_SEARCHES: Final = 10
MOST_CONFIGS, SHARE = 8, 1 / 3
# Fit parameters that belong to the classes of a table and to the layers of a net.
_OF_TABLE_AND_NET: Final = (WEIGHTED, UNFREEZE)


@dataclass(frozen=True)
class TableFacts:
    """The facts of a packed table by which it is compared with other tables."""

    rows: int
    # The number of classes of each output; 0 for a quantity.
    outputs: Sequence[int]
    # How many columns there are of each kind; empty where the inputs were packed as they are.
    columns: Mapping[str, int] = field(default_factory=dict[str, int])
    # The shapes of inputs that were packed as they are.
    shapes: Sequence[Sequence[int]] = field(default_factory=list[Sequence[int]])

    def measure_distance(self, other: TableFacts) -> float:
        """Return how much two tables differ: the doublings between their counts, summed up.

        For example, 1000 and 4000 rows are two doublings apart. Return infinity if their inputs or outputs
        are of different kinds.
        """
        if self._form != other._form:
            return math.inf
        kinds = sorted({*self.columns, *other.columns})
        pairs = [
            (self.rows, other.rows),
            *zip(self.outputs, other.outputs, strict=True),
            *((self.columns.get(kind, 0), other.columns.get(kind, 0)) for kind in kinds),
            *(
                pair
                for ours, theirs in zip(self.shapes, other.shapes, strict=True)
                for pair in zip(ours, theirs, strict=True)
            ),
        ]
        return math.fsum(abs(math.log2((ours + 1) / (theirs + 1))) for ours, theirs in pairs)

    @property
    def _form(self) -> tuple[object, ...]:
        return [n > 0 for n in self.outputs], bool(self.columns), [len(shape) for shape in self.shapes]


@dataclass(frozen=True)
class EarlierSearch:
    """A search that has ended: facts of its table, its nets by model_id, and its configs, the best first."""

    run_id: int
    facts: TableFacts
    nets: Mapping[int, str]
    configs: Sequence[GridRow] = ()


def find_nearest(ours: TableFacts, known: Sequence[EarlierSearch]) -> list[EarlierSearch]:
    """Return the searches on similar tables, the most similar first. Among equals, the latest comes first."""
    near = [(ours.measure_distance(search.facts), -search.run_id, search) for search in known]
    alike = sorted((one for one in near if one[0] <= MOST_DOUBLINGS), key=lambda one: one[:2])
    return [search for _, _, search in alike[:MOST_SEARCHES]]


def choose_configs(
    nearest: Sequence[EarlierSearch], nets: Mapping[int, str], examples: Mapping[int, GridRow], most: int
) -> tuple[list[GridRow], list[int]]:
    """Return at most `most` configs of earlier searches for the given nets, and the runs of these searches.

    The best config of each search comes first, then the second of each, and so on. A config keeps its
    optimizer and its fit parameters. Its loss and metrics are those of the config
    in `examples` that has its net.
    """
    own = {name: model_id for model_id, name in sorted(nets.items(), reverse=True)}
    meanings = Meanings()
    found: dict[tuple[int, str, str], GridRow] = {}
    used: set[int] = set()
    for search, config in _take_in_turn(nearest):
        if len(found) == most:
            break
        model_id = own.get(search.nets.get(config.model_id, ""))
        if model_id is not None:
            row = _move(config, examples[model_id])
            found.setdefault(meanings.make_key(row), row)
            used.add(search.run_id)
    return list(found.values()), sorted(used)


def _take_in_turn(nearest: Sequence[EarlierSearch]) -> Iterator[tuple[EarlierSearch, GridRow]]:
    for place in range(max((len(search.configs) for search in nearest), default=0)):
        for search in nearest:
            if place < len(search.configs):
                yield search, search.configs[place]


def _move(config: GridRow, example: GridRow) -> GridRow:
    """Return a config of an earlier search as a config of a new search.

    The optimizer and the fit parameters stay, but for weights of classes and layers to unfreeze; these, the
    net and the other compile parameters are those of `example`.
    """
    theirs, ours = read_arguments(config.compile_params), read_arguments(example.compile_params)
    compiled = {**ours, **({"optimizer": theirs["optimizer"]} if "optimizer" in theirs else {})}
    return GridRow(example.model_id, render_row(compiled), _adapt(config.fit_params, example.fit_params))


def _adapt(fit_params: str, example: str) -> str:
    """Return the fit parameters with those of `example` that belong to its table and its net."""
    theirs, ours = read_arguments(fit_params), read_arguments(example)
    if all(theirs.get(key) == ours.get(key) for key in _OF_TABLE_AND_NET):
        return fit_params
    others = {key: value for key, value in theirs.items() if key not in _OF_TABLE_AND_NET}
    return render_row({**others, **{key: ours[key] for key in _OF_TABLE_AND_NET if key in ours}})
