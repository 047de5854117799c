"""Passes numbers of an optimizer to a compiled step of JAX as inputs, in place of constants.

Keras reads the numbers from the optimizer while a step is traced. Meanwhile they are objects that compare as
numbers do; where Keras computes with them, they are inputs of the program. The functions take the `names` of
these numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np


class GivenNumber:
    """A number of an optimizer that is an input of a compiled program.

    In comparisons it has the value of the config for which the program is compiled. A number that is zero
    never becomes an input, since Keras may compute something else with zero.
    """

    dtype = "float32"
    shape = ()

    def __init__(self, value: float, number: Any, rest: Any) -> None:
        self._value, self._number, self._rest = value, number, rest

    def __jax_array__(self) -> Any:
        return self._number

    def __rsub__(self, other: float) -> Any:
        """Return one minus the number, computed with more digits than the program has, as for a constant."""
        if other != 1:
            raise NotImplementedError(f"{other} less a number that is given")
        return self._rest

    def __bool__(self) -> bool:
        return bool(self._value)

    def __gt__(self, other: float) -> bool:
        return self._value > other

    def __eq__(self, other: object) -> bool:
        return self._value == other

    def __ne__(self, other: object) -> bool:
        return self._value != other


def numbers(optimizer: Any, names: Sequence[str]) -> np.ndarray:
    """Return an optimizer's numbers as programs take them: each number, and one minus the number.

    Steps use both, and one minus the number is computed here with more digits than a program has.
    """
    values = [float(getattr(optimizer, name)) for name in names]
    return np.array([[value, 1 - value] for value in values], np.float32).reshape(-1, 2)


def with_given(model: Any, names: Sequence[str]) -> Callable[[Any, Any, Any], Any]:
    """Return Keras' train step as a function of a state, of an optimizer's `numbers`, and of a batch."""

    def step(state: Any, given: Any, data: Any) -> Any:
        with given_to(model.optimizer, names, given):
            return model.train_step(state, data)

    return step


@contextmanager
def given_to(optimizer: Any, names: Sequence[str], given: Any) -> Iterator[None]:
    """Within the `with` block, let an optimizer compute with `given`, which is an input of the program."""
    constants = {name: getattr(optimizer, name) for name in names}
    try:
        for place, (name, value) in enumerate(constants.items()):
            setattr(optimizer, name, GivenNumber(value, given[place, 0], given[place, 1]))
        yield
    finally:
        for name, value in constants.items():
            setattr(optimizer, name, value)
