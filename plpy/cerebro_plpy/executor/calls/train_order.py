"""The checked arguments of cerebro.train, and the SQL statements that users would write instead of it."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from cerebro_plpy.database import Database
from cerebro_plpy.errors import CerebroError
from cerebro_plpy.executor.calls import nets
from cerebro_plpy.executor.starting import request as requests
from cerebro_plpy.nets import points
from cerebro_plpy.nets.fitting import STANDARD, TargetScale
from cerebro_plpy.predicting.examining import scoring
from cerebro_plpy.store import dialect, names
from cerebro_plpy.store.packed import packed
from cerebro_plpy.topology.choose import RowsToHand

CONFIGS, EPOCHS = 12, 81
LEAST_SECONDS = 1
# The most values that are packed for each second of the budget: of larger tables, only so many rows are used,
# since a search sees no more of them.
PACKED_VALUES = 250_000
# So many elements of arrays are packed in the time of one value of another column.
ELEMENTS = 32


@dataclass(frozen=True)
class TrainOrder:
    """The checked arguments of cerebro.train: source, target, name of the tables, options and budget.

    The budget counts from `began`, on the monotonic clock.
    """

    source: str
    target: str
    name: str
    given: Mapping[str, Any]
    seconds: int
    recipe: Mapping[str, Any] | None
    began: float = field(default_factory=time.monotonic)
    # How long packing took, if another call has packed the rows.
    packing_seconds: float = 0.0

    def table(self, suffix: str) -> str:
        return names.with_suffix(self.name, suffix)

    @property
    def seed(self) -> int:
        return self.given.get("seed", 1)

    @property
    def named_nets(self) -> list[tuple[str, str | None]]:
        """The nets of the option `nets`, each with its parameters as JSON; None stands for the usual ones."""
        named = self.given.get("nets", [])
        found: list[tuple[str, str | None]] = []
        for net in named if isinstance(named, list) else [named]:
            with_params = net.items() if isinstance(net, dict) else [(net, None)]
            found += [(name, None if params is None else json.dumps(params)) for name, params in with_params]
        return found

    def check_nets(self) -> None:
        """Raise an error if the option `nets` has an unknown name or parameter, before any row is read."""
        for net, params in self.named_nets:
            points.check(net, params)

    @property
    def target_scale(self) -> TargetScale:
        said = self.scale_params
        return TargetScale(said.get(nets.SCALE, STANDARD), said.get(nets.CLAMP, False))

    @property
    def scale_params(self) -> Mapping[str, Any]:
        """The options `target_scale` and `clamp` of the call, which say how nets learn a quantity."""
        return {key: self.given[key] for key in (nets.SCALE, nets.CLAMP) if key in self.given}

    @property
    def metric(self) -> str | None:
        """The metric by which models are compared; None if the call names none."""
        return scoring.find_deciding(self.given)

    @property
    def configs(self) -> int:
        """The number of configs with which the search begins."""
        return self.given.get("configs", CONFIGS)

    @property
    def epochs(self) -> int:
        """The largest number of epochs for which a config is trained."""
        return self.given.get("epochs", EPOCHS)

    def choose_share(self, rows: int, columns: int, elements: int) -> float:
        """Return the share of a table's rows to use: 1, or less if packing all takes too much of the budget.

        `elements` is the number of a row's elements in arrays, which are packed many at once.
        Raise an error if it is less, and the call asks for folds, which are made of all rows.
        """
        values = max(1, rows) * (max(1, columns) + elements / ELEMENTS)
        share = min(1.0, float(f"{PACKED_VALUES * self.seconds / values:.2g}"))
        if share < 1 and self.given.get("folds"):
            raise CerebroError(
                f"option folds is given, and {rows} rows are too many for a budget of {self.seconds} s",
                hint=f"Leave folds out, or give {math.ceil(self.seconds / share)} seconds.",
            )
        return share

    def hand(self, rows: int) -> RowsToHand:
        """Return the number of rows, and how often the search trains on them.

        Both decide how many sessions the search gets.
        """
        return RowsToHand(rows, self.epochs * self.configs)

    def read_packed(self, db: Database, end: str = "") -> requests.Data:
        """Return the packed table of the training rows or, with `end`, the one whose name has this ending."""
        table = names.resolve_table(db, self.table("_packed" + end), "packed table")
        return requests.Data(table, packed.summary(db, table.schema, table.name))


def write_statement(
    function: str, arguments: Sequence[Any], options: Mapping[str, Any] | None, **named: str
) -> str:
    """Return the SQL statement that calls a function; `named` has arguments as SQL text, by name."""
    shown = [dialect.literal(one) for one in arguments]
    shown += [f"{name} => {value}" for name, value in named.items()]
    if options is not None:
        shown.append(f"options => {dialect.literal(json.dumps(options))}")
    return dialect.call_text(function, shown)
