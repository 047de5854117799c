"""The functions that a superuser has registered, and that the current call may name.

They are known only during one call: the call opens a scope, in which no function is known at first.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Generator, Iterable, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from typing import Final

from cerebro_plpy import memory
from cerebro_plpy.errors import INSUFFICIENT_PRIVILEGE, CerebroError

LOSS, METRIC, LAYER = "loss", "metric", "layer"
KINDS: Final = (LOSS, METRIC, LAYER)


@dataclass(frozen=True)
class Function:
    """One version of a registered function.

    Its digest is computed from its name, kind, `higher_is_better` and source.
    """

    name: str
    kind: str
    digest: str
    higher_is_better: bool | None = None
    usable: bool = True


class _Scopes:
    """The functions that are known in each nested scope, the innermost scope last.

    If a function has several versions, its first version is used unless a call names another version.
    """

    def __init__(self) -> None:
        self.functions: list[Sequence[Function]] = [()]


# The last function of a scope for texts that were checked earlier: it matches any name.
_ANY: Final = Function("", "", "")


@contextmanager
def scope(functions: Iterable[Function] = ()) -> Generator[None]:
    """Make only the given functions known within the `with` block."""
    memory.get_instance(_Scopes).functions.append(tuple(functions))
    try:
        yield
    finally:
        memory.get_instance(_Scopes).functions.pop()


def let_be_known(functions: Iterable[Function]) -> None:
    """Make only the given functions known until the end of the current scope."""
    memory.get_instance(_Scopes).functions[-1] = tuple(functions)


def checked_before() -> AbstractContextManager[None]:
    """Return a scope for texts that were checked earlier. It checks no rights, and knows every name."""
    return scope([*(replace(function, usable=True) for function in known()), _ANY])


def known() -> Sequence[Function]:
    return memory.get_instance(_Scopes).functions[-1]


def find(name: str, kinds: Sequence[str], digest: str | None = None) -> Function | None:
    """Return the function with this name and one of these kinds; None if there is none.

    With a `digest`, return the version that has it, otherwise the first version. Raise an error if the caller
    may not use the function.
    """
    for function in known():
        if function is _ANY:
            return Function(name, kinds[0], "")
        if function.name == name and digest in (None, function.digest):
            if function.kind not in kinds:
                return None
            if not function.usable:
                raise denied(name)
            return function
    return None


def digest(name: str, kind: str, higher_is_better: bool | None, source: str) -> str:
    return hashlib.sha256(json.dumps([name, kind, higher_is_better, source]).encode()).hexdigest()


def denied(name: str) -> CerebroError:
    return CerebroError(
        f"permission denied for the registered function {name}",
        hint=f"A superuser may give it: SELECT cerebro.grant_function('{name}', 'role').",
        sqlstate=INSUFFICIENT_PRIVILEGE,
    )
