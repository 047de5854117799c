"""Makes a run's search procedure from what is stored with the run, so that a resumed run has the same one."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final

from . import methods
from .automl import SearchCall
from .early_stopping import EarlyStopping
from .template import Procedure


def _automl(name: str, **arguments: Any) -> Procedure:
    return SearchCall.of(name, **arguments).procedure()


# The names of methods, and what makes a procedure from its arguments, which are plain JSON.
METHODS: Final[dict[str, Callable[..., Procedure]]] = {
    "early_stopping": EarlyStopping,
    **{name: partial(_automl, name) for name in methods.METHODS},
}


def build(spec: Mapping[str, Any]) -> Procedure:
    """A spec is {"method": …, "arguments": {…}}; of the rest the procedure knows nothing."""
    return METHODS[spec["method"]](**spec["arguments"])
