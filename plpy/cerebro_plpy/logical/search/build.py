"""Makes the search procedure of a run from what is stored with the run.

When the run is resumed, it thus gets the same procedure again.
"""

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


# The method that only stops configs of a fit, and adds none.
EARLY_STOPPING: Final = "early_stopping"
# By the name of each method: a function of its arguments (plain JSON) that returns a maker of procedures.
METHODS: Final[dict[str, Callable[..., Callable[[], Procedure]]]] = {
    EARLY_STOPPING: _early_stopping,
    **{name: partial(_automl, name) for name in methods.METHODS},
}


def brings_configs(spec: Mapping[str, Any] | None) -> bool:
    """Return whether the stored search of a run adds configs to it while it goes on."""
    return spec is not None and spec["method"] != EARLY_STOPPING


def build(spec: Mapping[str, Any], rows_of_groups: Mapping[int, int] | None = None) -> Procedure:
    """Return the procedure of a stored search, {"method": …, "arguments": {…}}.

    A search on a table in groups also has a "scope", and needs `rows_of_groups`. The method's own procedure
    needs neither: another procedure wraps it, and searches for each group or for all groups together.
    """
    make = METHODS[spec["method"]](**spec["arguments"])
    scope = spec.get("scope")
    if scope is None or rows_of_groups is None:
        return make()
    return PerGroup(list(rows_of_groups), make) if scope == PER_GROUP else AllGroups(rows_of_groups, make())
