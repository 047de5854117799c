"""What a fit asks for, as the statements that ask for it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Union

from .errors import CerebroError
from .packing import Packed
from .run import Run
from .space import Grid, read_grid
from .statements import call, identifier, parameters

if TYPE_CHECKING:
    from .database import Database

Search = Union[str, Mapping[str, Any], None]

RANDOM = "random"
# What each method calls the number of its configs, and the most epochs that one gets.
_NAMES: Mapping[str, tuple[str | None, str]] = {
    "hyperband": (None, "R"),
    "pbt": ("population", "num_iterations"),
}
_USUAL = ("num_configs", "num_iterations")


@dataclass(frozen=True)
class FitRequest:
    """One call of `db.fit`."""

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
    options: Mapping[str, Any]

    def begin(self, db: Database) -> Run:
        """Send the statements; the run goes on in the server."""
        space = dict(self.grid)
        models = model_ids(db, space.pop("model", None))
        grid, out = read_grid(space), db.free_name(self.out or f"{self.table.table}_models")
        if self.search in (None, RANDOM):
            if self.search is None and not grid.is_finite:
                raise CerebroError(
                    "the grid has a range, so that there is no end of its configs",
                    hint='Say how to search it: search="random" or search="asha", with configs=20.',
                )
            return self._begin_all(db, models, grid, out)
        return self._begin_search(db, models, grid, out)

    def _begin_all(self, db: Database, models: Sequence[int], grid: Grid, out: str) -> Run:
        selection = db.free_name(f"{out}_configs")
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
            **self._named(self.every or self._often()),
        )
        db.rows(made)
        try:
            return self._send(db, [made, fit], out)
        except BaseException:
            db.rows(f"DROP TABLE {identifier(selection)}, {identifier(selection + '_summary')}")
            raise

    def _often(self) -> int | None:
        """Each epoch is measured, so that there are curves, unless the options decide it themselves."""
        return None if {"patience", "target", "restore_best"} & self.options.keys() else 1

    def _begin_search(self, db: Database, models: Sequence[int], grid: Grid, out: str) -> Run:
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
            db.free_name(f"{out}_best"),
            models,
            *grid.texts(),
            method,
            parameters(numbers),
            random_state=self.seed,
            **self._named(self.every),
        )
        return self._send(db, [search], out)

    def _named(self, every: int | None) -> dict[str, Any]:
        options = {**self.options, "background": True}
        if self.seed is not None:
            options.setdefault("seed", self.seed)
        return {
            "validation_table": self.validation.table if self.validation else None,
            "metrics_compute_frequency": every,
            "use_gpus": self.gpus or None,
            "name": self.name,
            "description": self.description,
            "options": options,
        }

    def _send(self, db: Database, shown: Sequence[str], out: str) -> Run:
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


def model_ids(db: Database, wanted: Any) -> list[int]:
    """The architectures of a grid: numbers as they are, models and JSON are added; without any, all."""
    if wanted is None:
        found = db.architectures.ids()
        if not found:
            raise CerebroError(
                f"there is no architecture in {db.architectures.table}",
                hint='Add one with db.architectures.add(model), or give "model" in the grid.',
            )
        return found
    models = wanted if isinstance(wanted, list | tuple) else [wanted]
    return [model if isinstance(model, int) else db.architectures.add(model) for model in models]
