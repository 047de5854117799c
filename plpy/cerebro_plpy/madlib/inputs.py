"""Numbers of an optimizer that compiled code takes as inputs, so that configs which differ in them share it.

On JAX these give the same bits as constants do. Clip norms and weight decay do not, and stay constants, as
does all that is not listed; so do all of them on TensorFlow, which optimizes its graphs around constants.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from cerebro_plpy.madlib.nearest import fold

if TYPE_CHECKING:
    from cerebro_plpy.madlib.params import CompileParams

# By optimizer; whether Keras has a number other than zero where none is said.
_INPUTS: Final[Mapping[str, Mapping[str, bool]]] = {
    "sgd": {"momentum": False},
    "adam": {"beta_1": True, "beta_2": True, "epsilon": True},
    "adamw": {"beta_1": True, "beta_2": True, "epsilon": True},
    "rmsprop": {"rho": True},
}
# In these precisions, a number is rounded once as a constant, but twice as an input.
_OTHER_PRECISIONS: Final = ("float16", "float64")


def inputs_of(params: CompileParams, backend: str, architecture_json: str) -> tuple[str, ...]:
    """Return the numbers of a config's optimizer that code takes as inputs.

    Zero is none of them: with it Keras may do other things.
    """
    if backend != "jax" or any(precision in architecture_json for precision in _OTHER_PRECISIONS):
        return ()
    said = dict(params.optimizer.kwargs)
    if said.get("use_ema") or said.get("loss_scale_factor"):
        return ()
    usual = _INPUTS.get(fold(params.optimizer.name), {})
    return tuple(name for name, there in usual.items() if _is_number(said.get(name), there))


def _is_number(value: object, usually: bool) -> bool:
    if value is None:
        return usually
    return isinstance(value, int | float) and not isinstance(value, bool) and value != 0
