"""All search methods, by name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from cerebro_plpy.errors import NOT_SUPPORTED, CerebroError
from cerebro_plpy.logical.budget import MOST_EPOCHS
from cerebro_plpy.logical.search.method import WHO, Params, SearchMethod
from cerebro_plpy.logical.search.procedures.asha import AshaMethod
from cerebro_plpy.logical.search.procedures.hyperband import HyperbandMethod
from cerebro_plpy.logical.search.procedures.hyperopt import HyperoptMethod
from cerebro_plpy.logical.search.procedures.median import MedianMethod, TpeMethod
from cerebro_plpy.logical.search.procedures.pbt import PbtMethod
from cerebro_plpy.madlib.literal import Value, read_arguments, shorten
from cerebro_plpy.madlib.nearest import unknown

LARGEST: Final = 10_000
# The default of eta where rungs are parts of a pass: a sixteenth of the rows, a quarter, all.
ETA_OF_PARTS: Final = 4
METHODS: Final[Mapping[str, type[SearchMethod]]] = {
    method.name: method
    for method in (HyperbandMethod, HyperoptMethod, AshaMethod, MedianMethod, TpeMethod, PbtMethod)
}


def read_method(name: str | None, params: str | None, parts: int | None = None) -> SearchMethod:
    """Return the search method of a call, by its name and parameters.

    Parameters not given have their defaults. If the first rungs are to be parts of a pass over the rows,
    `parts` is the number of parts that a pass has.
    """
    chosen = (name or HyperbandMethod.name).strip().lower()
    kind = METHODS.get(chosen)
    if kind is None:
        # MADlib's message, and after it the methods that MADlib does not have.
        others = "', '".join(sorted(METHODS.keys() - {HyperbandMethod.name, HyperoptMethod.name}))
        message = f"{WHO}: The chosen automl method must be 'hyperband' or 'hyperopt', or one of '{others}'"
        raise unknown(f"{message}; it is '{shorten(name, 60)}'", chosen, METHODS)
    given = _read_params(kind, params) if params and params.strip() else {}
    if parts is None:
        found = kind({**kind.defaults, **given})
    else:
        found = _in_parts(kind, given, parts)
    found.check()
    return found


def _in_parts(kind: type[SearchMethod], given: Params, parts: int) -> SearchMethod:
    if not kind.has_rungs:
        raise CerebroError(
            f"{WHO}: {kind.name} has no rungs, so option rung_by cannot be rows",
            hint="Leave it out, or search by asha or hyperband.",
            sqlstate=NOT_SUPPORTED,
        )
    if parts > MOST_EPOCHS // LARGEST:
        raise CerebroError(
            f"option epochs_per_pass is {parts}",
            detail=f"With rung_by rows, it must be at most {MOST_EPOCHS // LARGEST}.",
        )
    # With one part, the rungs are passes, as without the option.
    eta: Params = {"eta": ETA_OF_PARTS} if parts > 1 else {}
    return kind({**kind.defaults, **eta, **given}, parts)


def _read_params(kind: type[SearchMethod], text: str) -> Params:
    values = {_spelling(kind, key): value for key, value in read_arguments(text).items()}
    for key in values:
        if key not in kind.defaults:
            message = kind.invalid or f"{shorten(key, 60)} is no parameter of {kind.name}"
            raise unknown(f"{WHO}: {message}", key, kind.defaults)
    return {
        key: _algorithm(value) if key == "algorithm" else _whole(key, value) for key, value in values.items()
    }


def _spelling(kind: type[SearchMethod], key: str) -> str:
    """Return a parameter's name as the method spells it.

    Case does not count: MADlib's `R` may be written `r`.
    """
    return next((known for known in kind.defaults if known.lower() == key.lower()), key)


def _algorithm(value: Value) -> str:
    name = str(value).lower()
    if name not in ("tpe", "rand"):
        raise CerebroError(
            f"{WHO}: valid algorithm 'automl_params' for hyperopt: 'rand', 'tpe'",
            detail=f"It is {shorten(value, 60)}.",
        )
    return name


def _whole(key: str, value: Value) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or abs(value) > LARGEST:
        raise CerebroError(
            f"{WHO}: {key} in 'automl_params' is {shorten(value, 60)}",
            detail=f"It must be an integer of at most {LARGEST}.",
        )
    return value
