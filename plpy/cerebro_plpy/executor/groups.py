"""A table in groups: each config is trained on each group by itself."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import count, product

from cerebro_plpy.database import Database
from cerebro_plpy.errors import NOT_SUPPORTED, CerebroError
from cerebro_plpy.executor import request as requests
from cerebro_plpy.logical.options import AUTO, EVEN, FitOptions
from cerebro_plpy.madlib.params import BALANCED
from cerebro_plpy.store import groups, session
from cerebro_plpy.store.groups import Groups
from cerebro_plpy.store.names import quote


def of(db: Database, source: requests.Data) -> Groups | None:
    """The groups of a packed table, as the caller may read them."""
    if source.summary.group_by is None:
        return None
    table = quote(source.table.schema, source.table.name + groups.SUFFIX)
    role = session.current_user(db)
    read = partial(groups.read, db, source.table.quoted, table, source.summary.group_by)
    return db.as_caller(role, read)


def expanded(configs: Sequence[requests.Chosen], found: Groups | None) -> list[requests.Chosen]:
    """Each config once for each group; no number of these is that of a config in the table."""
    if found is None:
        return list(configs)
    numbers = count(max((config.mst_key for config in configs), default=0) + 1)
    return [
        replace(config, mst_key=next(numbers), config_key=config.mst_key, group_id=number)
        for config, number in product(configs, found.rows)
    ]


def check(
    given: FitOptions, source: requests.Data, *, validation: requests.Data | None, warm_start: bool
) -> None:
    """What a run of groups does not do."""
    if source.summary.group_by is None:
        refuse_options(given)
        return
    refused: Mapping[str, bool] = {
        "a validation table": validation is not None,
        "warm_start": warm_start,
        "option cross_validate": given.cross_validate is not None,
        "option hybrid": given.hybrid is not None,
        "option patience": given.patience is not None,
        "option target": given.target is not None,
        "option restore_best": bool(given.restore_best),
        "option max_visits": given.max_visits is not None,
        "option order": given.order == EVEN,
        "option background": bool(given.background),
        "option replay": given.replay is not None,
        "option plan": given.plan is not None,
        'backend "auto"': given.backend == AUTO,
    }
    for what, there in refused.items():
        if there:
            raise CerebroError(
                f"{source.table.quoted} was packed in groups, and a run of groups takes no"
                f" {what.removeprefix('a ')} yet",
                hint="Leave it out, or pack the rows without group_by.",
                sqlstate=NOT_SUPPORTED,
            )


def check_class_weights(configs: Sequence[requests.Chosen]) -> None:
    """What classes count by their rows is not known of each group."""
    for config in configs:
        if config.group_id is not None and BALANCED in config.fit_params:
            raise CerebroError(
                f"config {config.key}: class_weight '{BALANCED}' is not there for groups yet",
                hint="Say what each class counts, such as class_weight={0: 1.0, 1: 2.0}.",
                sqlstate=NOT_SUPPORTED,
            )


def refuse_options(given: FitOptions) -> None:
    """What only a run of groups takes."""
    for name in ("fuse", "checkpoint_every"):
        if getattr(given, name) is not None:
            raise CerebroError(
                f"option {name} is for runs of groups",
                hint='Leave it out, or pack the rows with options {"group_by": …}.',
                sqlstate=NOT_SUPPORTED,
            )


def refuse_planning(request: requests.Request) -> None:
    if request.groups is not None:
        raise unplanned(request.source.table.quoted)


def unplanned(table: str) -> CerebroError:
    """Estimates know nothing of groups yet."""
    return CerebroError(
        f"{table} was packed in groups, and a run of groups cannot be explained yet",
        hint="cerebro.progress shows how far it is.",
        sqlstate=NOT_SUPPORTED,
    )


def refuse(source: requests.Data) -> None:
    """A call that trains other than every config on every group."""
    if source.summary.group_by is not None:
        raise CerebroError(
            f"{source.table.quoted} was packed in groups, and this call trains no groups",
            hint="Train them with madlib_fit_multiple_model, or pack the rows without group_by.",
            sqlstate=NOT_SUPPORTED,
        )
