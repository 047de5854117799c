"""The numbers of an optimizer that compiled code takes as inputs.

Configs that differ only in these numbers share the code. On JAX, a number that is listed here gives the same
bits as an input and as a constant. Clip norms and weight decay do not, so they stay constants, as does every
number that is not listed. On TensorFlow, which optimizes its graphs around constants, all stay constants.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from cerebro_plpy.madlib.nearest import fold

if TYPE_CHECKING:
    from cerebro_plpy.madlib.params import CompileParams

# The numbers by optimizer, and whether Keras' default for each is other than zero.
_INPUTS: Final[Mapping[str, Mapping[str, bool]]] = {
    "sgd": {"momentum": False},
    "adam": {"beta_1": True, "beta_2": True, "epsilon": True},
    "adamw": {"beta_1": True, "beta_2": True, "epsilon": True},
    "rmsprop": {"rho": True},
}
# In these precisions, a number is rounded once as a constant, but twice as an input.
_OTHER_PRECISIONS: Final = ("float16", "float64")


def inputs_of(params: CompileParams, backend: str, architecture_json: str) -> tuple[str, ...]:
    """Return the names of the optimizer's numbers that compiled code takes as inputs.

    A number that is zero is a constant, because Keras may compute something else with zero.
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
