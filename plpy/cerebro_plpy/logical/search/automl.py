"""The searches of automl calls, in the form in which they are stored with their runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Any, cast

from cerebro_plpy.errors import NOT_SUPPORTED, CerebroError
from cerebro_plpy.logical import options
from cerebro_plpy.logical.search.method import WHO, Draws, Params, SearchMethod
from cerebro_plpy.logical.search.methods import METHODS
from cerebro_plpy.logical.search.template import Procedure
from cerebro_plpy.madlib.params import parse_compile, parse_fit
from cerebro_plpy.madlib.spaces.grid import GridRow, distinct, examples, open_space
from cerebro_plpy.madlib.spaces.space import Space

_OF_CONFIG = ("model_id", "compile_params", "fit_params")


def read_first(key: str, value: object) -> list[GridRow]:
    """Return the configs in the option try_first, which a search tries before the configs that it draws."""
    if not isinstance(value, list):
        raise options.wrong(key, value, f"a list of configs, each with {', '.join(_OF_CONFIG)}")
    return [_read_config(f"{key}[{number}]", one) for number, one in enumerate(cast("list[object]", value))]


def _read_config(key: str, value: Any) -> GridRow:
    if not isinstance(value, dict) or set(cast("dict[str, Any]", value)) != set(_OF_CONFIG):
        raise options.wrong(key, cast("object", value), f"a config with {', '.join(_OF_CONFIG)}")
    given = cast("dict[str, Any]", value)
    options.integer(0)(f"{key}.model_id", given["model_id"])
    for name in _OF_CONFIG[1:]:
        if not isinstance(given[name], str):
            raise options.wrong(f"{key}.{name}", given[name], "a text, as in a model selection table")
    found = GridRow(*(given[name] for name in _OF_CONFIG))
    parse_compile(found.compile_params, require_optimizer=True)
    parse_fit(found.fit_params)
    return found


def refuse_proposing(method: SearchMethod, option: str) -> CerebroError:
    """Return the error for giving `option`, which names configs, to a method that proposes configs itself."""
    return CerebroError(
        f"{WHO}: {method.name} proposes configs by what it has measured, so option {option} cannot be given",
        hint="Leave it out, or search by asha, median or hyperband.",
        sqlstate=NOT_SUPPORTED,
    )


@dataclass(frozen=True)
class SearchCall:
    """A search, in the form in which it is stored. The same search always makes the same procedure."""

    method: SearchMethod
    model_ids: Sequence[int]
    compile_grid: str
    fit_grid: str
    random_state: int
    segments: int
    # The configs that are tried before those that are drawn.
    first: Sequence[GridRow] = ()
    # How many of `first` come from earlier searches, in addition to the search's own configs.
    added: int = 0

    @staticmethod
    def from_arguments(
        name: str, params: Params, first: Sequence[Mapping[str, Any]] = (), parts: int = 1, **others: Any
    ) -> SearchCall:
        """Return the search by the method `name`; `others` are further values of the property `arguments`."""
        # Searches that were stored before there was a parameter go by its default.
        method = METHODS[name]({**METHODS[name].defaults, **params}, parts)
        return SearchCall(method, first=[GridRow(**row) for row in first], **others)

    @property
    def arguments(self) -> dict[str, Any]:
        """The values of the search as plain JSON, without the name of its method."""
        others = {name: value for name, value in vars(self).items() if name != "method"}
        if not self.added:
            # As in searches that were stored before there was such a number.
            del others["added"]
        if self.method.parts > 1:
            others["parts"] = self.method.parts
        first = list(map(asdict, self.first))
        return {**others, "params": self.method.params, "model_ids": list(self.model_ids), "first": first}

    def examples(self) -> list[GridRow]:
        """Return example configs of the search, with which architectures and data are checked."""
        drawn = examples(self._space())
        return list(dict.fromkeys([*drawn, *self.first]))

    def with_before(self, found: Sequence[GridRow], most: int | None) -> SearchCall:
        """Return the search with the configs `found` before its own configs.

        A method with the parameter num_configs gets them in addition, but at most `most` configs in all. In
        other methods, they replace the last configs.
        """
        configs = self.method.params.get("num_configs")
        if not isinstance(configs, int):
            return replace(self, first=[*found, *self.first])
        together = distinct([*found, *self._draws().rows(configs)])[:most]
        method = self.method.resized(len(together))
        return replace(self, first=together, added=len(distinct(found)), method=method)

    def _space(self) -> Space:
        return open_space(self.model_ids, self.compile_grid, self.fit_grid)

    def _draws(self) -> Draws:
        return Draws(self._space(), self.random_state, self.segments, self.first, self.added)

    def limited(self, most: int | None) -> SearchCall:
        """Return the search with at most `most` configs."""
        return self if most is None else replace(self, method=self.method.limited(most))

    def check_first(self) -> None:
        """Raise an error if the option try_first has more configs than the search has room for."""
        given, room = len(distinct(self.first)), self.method.params.get("num_configs")
        if isinstance(room, int) and given > room:
            raise CerebroError(
                f"option try_first has {given} configs, and num_configs is {room}",
                hint="Give a larger num_configs, or fewer configs.",
            )

    def procedure(self) -> Procedure:
        """Return a procedure of the search.

        Raise an error if the values of the search do not fit together.
        """
        if self.first and not self.method.takes_configs:
            raise refuse_proposing(self.method, "try_first")
        strangers = {row.model_id for row in self.first} - set(self.model_ids)
        if strangers:
            raise CerebroError(
                f"option try_first has a config of model_id {min(strangers)}, which is not in model_id_list"
            )
        return self.maker()()

    def maker(self) -> Callable[[], Procedure]:
        """Return a function that makes a procedure of the search each time it is called."""
        return partial(self.method.procedure, self._draws())
