"""Makes a run's search procedure from what is stored with the run, so that a resumed run has the same one."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final

from cerebro_plpy.logical.search import methods
from cerebro_plpy.logical.search.automl import SearchCall
from cerebro_plpy.logical.search.procedures.early_stopping import EarlyStopping
from cerebro_plpy.logical.search.procedures.groups import PER_GROUP, AllGroups, PerGroup
from cerebro_plpy.logical.search.template import Procedure


def _early_stopping(**arguments: Any) -> Callable[[], Procedure]:
    return partial(EarlyStopping, **arguments)


def _automl(name: str, **arguments: Any) -> Callable[[], Procedure]:
    return SearchCall.from_arguments(name, **arguments).maker()


# Stops the configs of a fit, and brings none.
EARLY_STOPPING: Final = "early_stopping"
# The names of methods, and what makes procedures from their arguments, which are plain JSON.
METHODS: Final[dict[str, Callable[..., Callable[[], Procedure]]]] = {
    EARLY_STOPPING: _early_stopping,
    **{name: partial(_automl, name) for name in methods.METHODS},
}


def brings_configs(spec: Mapping[str, Any] | None) -> bool:
    """Return whether a run's configs come while it goes on."""
    return spec is not None and spec["method"] != EARLY_STOPPING


def build(spec: Mapping[str, Any], rows_of_groups: Mapping[int, int] | None = None) -> Procedure:
    """Make the procedure of a spec, {"method": …, "arguments": {…}}. A search on groups has a "scope" in its
    spec and is given the groups' numbers of rows; the procedure knows nothing of either."""
    make = METHODS[spec["method"]](**spec["arguments"])
    scope = spec.get("scope")
    if scope is None or rows_of_groups is None:
        return make()
    return PerGroup(list(rows_of_groups), make) if scope == PER_GROUP else AllGroups(rows_of_groups, make())
