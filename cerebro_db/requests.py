"""What a fit asks for, as the statements that ask for it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from .errors import CerebroError
from .packing import Packed
from .run import Run
from .space import Grid, read_grid
from .statements import call, parameters, table_name

if TYPE_CHECKING:
    from .architectures import Home

Search = str | Mapping[str, Any] | None

RANDOM = "random"
# What each method calls the number of its configs, and the most epochs that one gets.
_NAMES: Mapping[str, tuple[str | None, str]] = {
    "hyperband": (None, "R"),
    "pbt": ("population", "num_iterations"),
}
_USUAL = ("num_configs", "num_iterations")


@dataclass(frozen=True)
class FitRequest:
    """One call of `db.fit`; in the background it is begun, else it is over when it comes back."""

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
        """Send the statements."""
        space = dict(self.grid)
        models = db.architectures.chosen(space.pop("model", None))
        grid, out = read_grid(space), db.free_name(self.out or table_name(self.table.table, "_models"))
        if self.search in (None, RANDOM):
            if self.search is None and not grid.is_finite:
                raise CerebroError(
                    "the grid has a range, so its configs have no end",
                    hint='Say how to search it: search="random" or search="asha", with configs=20.',
                )
            return self._begin_all(db, models, grid, out)
        return self._begin_search(db, models, grid, out)

    def _begin_all(self, db: Home, models: Sequence[int], grid: Grid, out: str) -> Run:
        selection = db.free_name(table_name(out, "_configs"))
        made = call(
            "generate_model_configs",
            db.architectures.table,
            selection,
            models,
            *grid.texts(),
            search_type=self.search,
            num_configs=self.configs,
            random_state=self.seed if self.search == RANDOM else None,
        )
        fit = call(
            "madlib_fit_multiple_model",
            self.table.table,
            out,
            selection,
            self.epochs,
            # Each epoch is measured, so that there are curves.
            **self._named(self.every or 1),
        )
        db.rows(made)
        try:
            return self._send(db, [made, fit])
        except CerebroError:
            db.rows(f"DROP TABLE {selection}, {table_name(selection, '_summary')}")
            raise

    def _begin_search(self, db: Home, models: Sequence[int], grid: Grid, out: str) -> Run:
        method, given = _method(self.search)
        number, most = _NAMES.get(method, _USUAL)
        if self.configs is not None and number is None:
            raise CerebroError(
                f"how many configs {method} trains follows from epochs", hint="Leave configs out."
            )
        numbers = {**({number: self.configs} if number else {}), most: self.epochs, **given}
        search = call(
            "madlib_keras_automl",
            self.table.table,
            out,
            db.architectures.table,
            db.free_name(table_name(out, "_best")),
            models,
            *grid.texts(),
            method,
            parameters(numbers),
            random_state=self.seed,
            **self._named(self.every),
        )
        return self._send(db, [search])

    def _named(self, every: int | None) -> dict[str, Any]:
        options = dict(self.options)
        if self.background:
            options["background"] = True
        if self.seed is not None:
            options.setdefault("seed", self.seed)
        return {
            "validation_table": self.validation.table if self.validation else None,
            "metrics_compute_frequency": every,
            "use_gpus": self.gpus or None,
            "name": self.name,
            "description": self.description,
            "options": options or None,
        }

    def _send(self, db: Home, shown: Sequence[str]) -> Run:
        begun = db.transaction([shown[-1], "SELECT cerebro.last_run() AS run_id"])
        return Run(db, begun[0]["run_id"], statements=tuple(shown), packed=self.table)


def _method(search: Search) -> tuple[str, dict[str, Any]]:
    if isinstance(search, str):
        return search, {}
    given = dict(search or {})
    if "method" not in given:
        raise CerebroError(
            f"the search {given} names no method", hint='Write for example {"method": "asha", "eta": 3}.'
        )
    return str(given.pop("method")), given
