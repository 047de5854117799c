"""Chooses the frozen layers of a net to compute once; their outputs then feed the layers that train.

`engine/models/trunk.py` finds the trunk: the layers whose outputs no training changes. The choice is the
set of its layers that saves the most operations, contains the sources of each of its layers, and has
outputs that fit the memory budget. Only facts decide, and results have the same bits as with the whole
net.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

# An output is an array of float32.
NUMBER_BYTES = 4
# With fewer operations than these to be saved in all, or a smaller share of a row's, making the programs of
# trunk and head takes longer than it saves.
LEAST_OPERATIONS, LEAST_SHARE = 2e10, 0.2
# Training takes this many times the operations of a forward pass.
TRAINING = 3
# If an engine merges the arithmetic on both sides of a cut, an earlier cut may still be possible.
MOST_CANDIDATES = 3
# A trunk of more layers is computed in each pass. If the search takes longer, its result may not be the best.
MOST_LAYERS, MOST_SECONDS = 1000, 5.0


@dataclass(frozen=True)
class LayerCost:
    """A layer of a trunk with its cost for one row, as an engine describes it."""

    name: str
    sources: Sequence[int]
    leaves: bool
    work: Mapping[str, float]
    numbers: int

    @property
    def operations(self) -> float:
        return operations(self.work)


def operations(work: Mapping[str, float]) -> float:
    """Return the number of arithmetic operations for one row, given its costs by name."""
    return sum(cost for name, cost in work.items() if name not in ("layers", "steps", "numbers", "kept"))


@dataclass(frozen=True)
class TrunkChoice:
    """The layers to compute once, with their costs for one row; outputs of the layers `leaving` are kept."""

    names: Sequence[str]
    leaving: Sequence[str]
    work: Mapping[str, float]
    row_bytes: int

    @property
    def operations(self) -> float:
        return operations(self.work)

    @property
    def leaving_key(self) -> str:
        return " ".join([*self.names, str(self.operations), str(self.row_bytes)])


@dataclass(frozen=True)
class Use:
    """The use of a net by a run: the number of passes over the rows, and of different batch sizes."""

    operations: float
    passes: int
    batch_sizes: int
    rows: int
    budget_bytes: int

    @property
    def row_budget(self) -> float:
        """The bytes of memory available for the kept outputs of one row."""
        return self.budget_bytes / max(1, self.rows * self.batch_sizes)


def candidates(trunk: Sequence[LayerCost], use: Use) -> list[TrunkChoice]:
    """Return the best choice of layers, then choices that cut the net earlier; empty if no choice pays."""
    found: list[TrunkChoice] = []
    barred: set[int] = set()
    while len(found) < MOST_CANDIDATES:
        inside = _best(trunk, use.row_budget, barred)
        chosen = choice(trunk, inside)
        if not inside or not _pays(chosen, use):
            break
        found.append(chosen)
        barred |= {place for place in inside if trunk[place].name in chosen.leaving and trunk[place].sources}
    return found


def _pays(chosen: TrunkChoice, use: Use) -> bool:
    saved = chosen.operations * use.rows * (use.passes - 2 * use.batch_sizes)
    share = chosen.operations / (chosen.operations + TRAINING * (use.operations - chosen.operations))
    return saved >= LEAST_OPERATIONS and share >= LEAST_SHARE


def _best(trunk: Sequence[LayerCost], row_budget: float, barred: set[int]) -> list[int]:
    """Return the indexes of the layers to compute once, found exactly by integer programming.

    Each layer has one unknown for being computed once and one for its output being kept. If a layer is
    computed once, so are its sources. If another layer uses its output, the output is kept. All kept outputs
    of a row fit `row_budget`, and layers in `barred` are not computed once.
    """
    try:
        scipy: Any = importlib.import_module("scipy.optimize")
    except ImportError:
        # Not needed for anything else: without it nets are computed whole.
        return []
    count = len(trunk)
    if not 0 < count <= MOST_LAYERS:
        return []
    taken = [[child for child in range(count) if place in trunk[child].sources] for place in range(count)]
    rows: list[np.ndarray] = []
    for place, layer in enumerate(trunk):
        for source in layer.sources:
            rows.append(_row(count, {source: 1, place: -1}))
        for child in taken[place]:
            rows.append(_row(count, {count + place: 1, place: -1, child: 1}))
        if layer.leaves:
            rows.append(_row(count, {count + place: 1, place: -1}))
    sizes = np.array([layer.numbers * NUMBER_BYTES for layer in trunk], float)
    saved = np.array([layer.operations for layer in trunk])
    # Among choices that save the same, prefer the smallest outputs, then the largest set.
    value = saved / max(1.0, saved.max()) + 1e-6
    cost = np.concatenate([-value, sizes / max(1.0, sizes.sum()) * 1e-6])
    fits = scipy.LinearConstraint(np.concatenate([np.zeros(count), sizes])[np.newaxis], ub=row_budget)
    holds = scipy.LinearConstraint(np.array(rows), lb=0) if rows else None
    # Inputs are there anyway.
    lower = np.array([0.0 if layer.sources else 1.0 for layer in trunk] + [0.0] * count)
    upper = np.array([0.0 if place in barred else 1.0 for place in range(count)] + [1.0] * count)
    found = scipy.milp(
        cost,
        integrality=np.ones(2 * count),
        bounds=scipy.Bounds(lower, upper),
        constraints=[fits, *([holds] if holds is not None else [])],
        options={"mip_rel_gap": 0, "time_limit": MOST_SECONDS},
    )
    if found.x is None:
        return []
    inside = [place for place in range(count) if found.x[place] > 0.5]
    return inside if any(trunk[place].operations for place in inside) else []


def _row(count: int, values: Mapping[int, float]) -> np.ndarray:
    row = np.zeros(2 * count)
    for place, value in values.items():
        row[place] = value
    return row


def choice(trunk: Sequence[LayerCost], inside: Sequence[int]) -> TrunkChoice:
    """Return the choice in which the layers at these indexes of the trunk are computed once."""
    chosen = set(inside)
    work: dict[str, float] = {}
    for place in inside:
        for family, operations in trunk[place].work.items():
            work[family] = work.get(family, 0.0) + operations
    leaving = [place for place in inside if _leaves(trunk, place, chosen)]
    return TrunkChoice(
        names=[trunk[place].name for place in inside],
        leaving=[trunk[place].name for place in leaving],
        work=work,
        row_bytes=sum(trunk[place].numbers * NUMBER_BYTES for place in leaving),
    )


def _leaves(trunk: Sequence[LayerCost], place: int, inside: set[int]) -> bool:
    return trunk[place].leaves or any(
        place in layer.sources for other, layer in enumerate(trunk) if other not in inside
    )
