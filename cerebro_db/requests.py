"""Builds and sends the SQL statements of one `Database.fit` call."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from cerebro_db import plan
from cerebro_db.errors import CerebroError
from cerebro_db.packing import Packed
from cerebro_db.plan import Plan
from cerebro_db.run import Run
from cerebro_db.space import Grid, read_grid
from cerebro_db.statements import call, parameters, table_name

if TYPE_CHECKING:
    from cerebro_db.architectures import Home

Search = str | Mapping[str, Any] | None

RANDOM = "random"
# For each method, its parameters for the number of configs and for the most epochs of a config.
_NAMES: Mapping[str, tuple[str | None, str]] = {
    "hyperband": (None, "R"),
    "pbt": ("population", "num_iterations"),
}
_USUAL = ("num_configs", "num_iterations")


@dataclass(frozen=True)
class FitRequest:
    """The arguments of one `Database.fit` call. With `background`, `begin` returns before the run is over."""

    table: Packed
    grid: dict[str, Any]
    epochs: int
    validation: Packed | None
    search: Search
    configs: int | None
    seed: int | None
    out: str | None
    every: int | None
    name: str | None
    description: str | None
    gpus: bool
    background: bool
    options: Mapping[str, Any]

    def begin(self, db: Home) -> Run:
        """Send the statements that begin the run, and return the run."""
        out = db.free_name(self.out or table_name(self.table.table, "_models"))
        if not self._trains_all:
            return self._send(db, [self._searching(db, "madlib_keras_automl", out=out)])
        selection = db.free_name(table_name(out, "_configs"))
        made = self._making(db, selection)
        named = self._named(self._every, names_run=True)
        fit = call("madlib_fit_multiple_model", self.table.table, out, selection, self.epochs, **named)
        db.rows(made)
        try:
            return self._send(db, [made, fit])
        except CerebroError:
            _drop(db, selection)
            raise

    def explain(self, db: Home) -> Plan:
        """Return the plan of the run without starting it. A table of the grid's configs exists meanwhile."""
        if not self._trains_all:
            return plan.explain(db, lambda form: self._searching(db, "explain_automl", format=form))
        selection = db.free_name(table_name(self.table.table, "_explained"))
        db.rows(self._making(db, selection))
        try:
            return plan.explain(db, lambda form: self._explaining(selection, form))
        finally:
            _drop(db, selection)

    def _explaining(self, selection: str, form: str) -> str:
        named = self._named(self._every, format=form)
        return call("explain_fit", self.table.table, selection, self.epochs, **named)

    @property
    def _trains_all(self) -> bool:
        return self.search in (None, RANDOM)

    @property
    def _every(self) -> int:
        """The number of epochs between evaluations: by default 1, for learning curves with every epoch."""
        return self.every or 1

    def _space(self, db: Home) -> tuple[Sequence[int], Grid]:
        space = dict(self.grid)
        models = db.architectures.chosen(space.pop("model", None))
        grid = read_grid(space)
        if self.search is None and not grid.is_finite:
            raise CerebroError(
                "the grid has a range, so its configs have no end",
                hint='Say how to search it: search="random" or search="asha", with configs=20.',
                shell='Say how to search it: [search] with method = "random" or "asha", and configs = 20.',
            )
        return models, grid

    def _making(self, db: Home, selection: str) -> str:
        """Return the statement that creates the model selection table `selection` with the grid's configs."""
        models, grid = self._space(db)
        return call(
            "generate_model_configs",
            db.architectures.table,
            selection,
            models,
            *grid.texts(),
            search_type=self.search,
            num_configs=self.configs,
            random_state=self.seed if self.search == RANDOM else None,
        )

    def _searching(self, db: Home, function: str, out: str | None = None, **more: Any) -> str:
        """Return the call of `function` for a search. A function that only explains has no `out`."""
        models, grid = self._space(db)
        method, given = _method(self.search)
        number, most = _NAMES.get(method, _USUAL)
        if self.configs is not None and number is None:
            raise CerebroError(
                f"how many configs {method} trains follows from epochs", hint="Leave configs out."
            )
        numbers = {**({number: self.configs} if number else {}), most: self.epochs, **given}
        architectures = db.architectures.table
        tables = (
            [architectures] if out is None else [out, architectures, db.free_name(table_name(out, "_best"))]
        )
        return call(
            function,
            self.table.table,
            *tables,
            models,
            *grid.texts(),
            method,
            parameters(numbers),
            random_state=self.seed,
            **self._named(self.every, names_run=out is not None, **more),
        )

    def _named(self, every: int | None, names_run: bool = False, **more: Any) -> dict[str, Any]:
        options = dict(self.options)
        if self.background and names_run:
            options["background"] = True
        if self.seed is not None:
            options.setdefault("seed", self.seed)
        return {
            "validation_table": self.validation.table if self.validation else None,
            "metrics_compute_frequency": every,
            "use_gpus": self.gpus or None,
            **({"name": self.name, "description": self.description} if names_run else {}),
            "options": options or None,
            **more,
        }

    def _send(self, db: Home, shown: Sequence[str]) -> Run:
        begun = db.transaction([shown[-1], "SELECT cerebro.last_run() AS run_id"])
        return Run(db, begun[0]["run_id"], statements=tuple(shown), packed=self.table)


def _drop(db: Home, selection: str) -> None:
    db.rows(f"DROP TABLE {selection}, {table_name(selection, '_summary')}")


def _method(search: Search) -> tuple[str, dict[str, Any]]:
    if isinstance(search, str):
        return search, {}
    given = dict(search or {})
    if "method" not in given:
        raise CerebroError(
            f"the search {given} names no method",
            hint='Write for example {"method": "asha", "eta": 3}.',
            shell='Write for example [search] with method = "asha" and eta = 3.',
        )
    return str(given.pop("method")), given
