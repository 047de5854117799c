"""The base class of search methods: a method has parameters, and makes the procedure of a search.

Each method is a class in the file of its procedure. `methods.py` lists all methods.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar, Final, TypeAlias

from cerebro_plpy.errors import CerebroError
from cerebro_plpy.logical.search.sampling import Listed, Sampler
from cerebro_plpy.logical.search.template import Procedure
from cerebro_plpy.madlib.spaces.grid import MOST_CONFIGS, GridRow, distinct, random_choices, to_row
from cerebro_plpy.madlib.spaces.space import Choice, Space

WHO: Final = "madlib_keras_automl"

Params: TypeAlias = dict[str, int | str]
# Pairs of parameters of which the first is at most as large as the second.
_AT_MOST = (
    ("min_iterations", "num_iterations"),
    ("interval", "num_iterations"),
    ("near_best", "num_configs"),
)


@dataclass(frozen=True)
class Rung:
    """Rung `i` of bracket `s`: its number of configs, `n_i`, and the epoch up to which they train, `r_i`."""

    s: int
    i: int
    n_i: int
    r_i: int


@dataclass(frozen=True)
class Draws:
    """A source of configs for a procedure: first the given ones, then configs drawn from the space."""

    space: Space
    random_state: int
    segments: int
    # The configs that come before those that are drawn.
    first: Sequence[GridRow] = ()
    # How many of them are not the search's own.
    added: int = 0
    # The configs by their number: a search on many groups draws the same configs for each group.
    _drawn: dict[int, list[GridRow]] = field(default_factory=dict)

    def rows(self, count: int) -> list[GridRow]:
        if count not in self._drawn:
            rows = distinct(self.first)
            if len(rows) < count:
                rows = distinct([*rows, *map(to_row, self.choices(count))])
            self._drawn[count] = rows[:count]
        return self._drawn[count]

    def choices(self, count: int) -> list[Choice]:
        if count > MOST_CONFIGS:
            raise CerebroError(
                f"{WHO}: the search has {count} configs", detail=f"At most {MOST_CONFIGS} are possible."
            )
        return random_choices(self.space, count, self.random_state)

    def sampler(self, count: int, guided: bool) -> Sampler:
        if not guided:
            return Listed(self.rows(count))
        from cerebro_plpy.logical.search.procedures.tpe import Tpe

        return Tpe(self.space, self.random_state, count)


@dataclass(frozen=True)
class SearchMethod(ABC):
    """A method by which an automl call searches, with a value for each of its parameters.

    If its first rungs are parts of a pass over the rows, a pass has `parts` epochs, and the parameters count
    passes. Otherwise they count epochs.
    """

    params: Params
    parts: int = 1

    name: ClassVar[str]
    defaults: ClassVar[Params]
    # The least values of parameters; 1 where nothing is said.
    least: ClassVar[Mapping[str, int]] = {}
    # MADlib's message for an unknown parameter.
    invalid: ClassVar[str | None] = None
    has_brackets: ClassVar[bool] = False
    # Whether the method compares configs after epochs that it chooses, and so after parts of a pass as well.
    has_rungs: ClassVar[bool] = False

    @property
    def proposes(self) -> bool:
        """Whether the configs of the method depend on measurements."""
        return False

    @property
    def takes_configs(self) -> bool:
        """Whether the method can begin with configs that the call names."""
        return not self.proposes

    def number(self, key: str) -> int:
        value = self.params[key]
        if isinstance(value, str):
            raise TypeError(f"{key} is {value}")
        return value

    def text(self) -> str:
        """Return the parameters as text, as in a call: `name=value` pairs."""
        return ", ".join(f"{key}={value}" for key, value in self.params.items())

    @property
    def epochs(self) -> int:
        """The largest number of epochs that a config may get."""
        return self.number("num_iterations") * self.parts

    def check(self) -> None:
        """Raise an error if a parameter is too small, or if two parameters contradict each other."""
        for key, value in self.params.items():
            least = self.least.get(key, 1)
            if isinstance(value, int) and value < least:
                raise CerebroError(
                    f"{WHO}: {key} in 'automl_params' is {value}", detail=f"It must be at least {least}."
                )
        for small, large in _AT_MOST:
            if small in self.params and self.number(small) > self.number(large):
                raise CerebroError(
                    f"{WHO}: {small} in 'automl_params' is {self.params[small]},"
                    f" more than {large} = {self.params[large]}"
                )

    def limited(self, most: int) -> SearchMethod:
        """Return the method with at most `most` configs. Raise an error if it needs more configs."""
        return self.resized(min(most, self.number("num_configs")))

    def resized(self, configs: int) -> SearchMethod:
        """Return the method with the given number of configs."""
        return replace(self, params={**self.params, "num_configs": configs})

    def rung_of(self, mst_key: int, epochs: int) -> Rung | None:
        """Return the last rung that a config has reached; None if the method has no brackets."""
        return None

    @abstractmethod
    def procedure(self, draws: Draws) -> Procedure: ...


def in_epochs(passes: Iterable[int], parts: int, eta: int) -> list[int]:
    """Return the epochs of rungs: 1 and its multiples by `eta` within the first pass, then these passes.

    A pass over the rows has `parts` epochs.
    """
    epochs: list[int] = []
    part = 1
    while part < parts:
        epochs.append(part)
        part *= eta
    return [*epochs, *(number * parts for number in passes)]


def refuse_above(most: int, configs: int) -> None:
    if configs > most:
        raise CerebroError(f"{WHO}: the search has {configs} configs, and max_configs is {most}")
