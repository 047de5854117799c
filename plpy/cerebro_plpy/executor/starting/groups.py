"""Train each config separately on each group of a packed table."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import count, product

from cerebro_plpy.database import Database
from cerebro_plpy.errors import NOT_SUPPORTED, CerebroError
from cerebro_plpy.executor.starting import request as requests
from cerebro_plpy.logical.budget import Limits
from cerebro_plpy.logical.options import EVEN, ROWS, FitOptions
from cerebro_plpy.logical.search.method import SearchMethod
from cerebro_plpy.logical.search.procedures.groups import ALL_GROUPS, PER_GROUP
from cerebro_plpy.madlib.params import BALANCED, Call, parse_fit, reparse_compile
from cerebro_plpy.packing.columns import class_counts
from cerebro_plpy.store import session
from cerebro_plpy.store.packed import groups
from cerebro_plpy.store.packed.groups import GroupRow, Groups

_PACK_AGAIN = "Pack it with cerebro.validation_preprocessor_dl and this source table."


def read_groups(db: Database, source: requests.Data) -> Groups | None:
    """Return the groups of a packed table, read with the caller's rights; None if it has no groups."""
    if source.summary.group_by is None:
        return None
    read = partial(groups.read_groups, db, source.table, source.summary.group_by)
    return db.as_caller(session.current_user(db), read)


def check_validation(db: Database, found: Groups, validation: requests.Data) -> None:
    """Raise an error if the validation table has a group that the source lacks or has on other segments.

    Send a notice if groups have no validation rows.
    """
    theirs = read_groups(db, validation)
    if theirs is None:
        raise CerebroError(
            f"validation table {validation.table.quoted} was not packed in groups", hint=_PACK_AGAIN
        )
    for number, group in theirs.rows.items():
        ours = found.rows.get(number)
        if ours is None or ours.key != group.key or not {*group.segments} <= {*ours.segments}:
            raise CerebroError(
                f"validation table {validation.table.quoted} has a group that the source table has not:"
                f" {group.shown}",
                hint=_PACK_AGAIN,
            )
    without = len(found.rows) - len(theirs.rows)
    if without:
        db.notice(f"{without} of {len(found.rows)} groups have no validation rows: training rows rank them")


def check_of_run(db: Database, found: Groups, given: FitOptions, validation: requests.Data | None) -> None:
    """Check the groups of validation rows; send a notice if groups get no model of their own."""
    if validation is not None:
        check_validation(db, found, validation)
    tell_of_left_out(db, found, given)


def expanded(
    configs: Sequence[requests.Chosen], found: Groups | None, given: FitOptions
) -> list[requests.Chosen]:
    """Return each config once for each group that is trained, with an `mst_key` that no given config has.

    With the option `fallback`, the given configs come first and are trained on all rows.
    """
    if found is None:
        return list(configs)
    numbers = count(max((config.mst_key for config in configs), default=0) + 1)
    trained = [number for number, group in found.rows.items() if why_left_out(group, given.limits) is None]
    if not trained and not given.fallback:
        raise _none_trained(found)
    return [
        *(configs if given.fallback else ()),
        *(requests.of_group(config, next(numbers), number) for config, number in product(configs, trained)),
    ]


def _none_trained(found: Groups) -> CerebroError:
    return CerebroError(
        f"none of {len(found.rows)} groups has the rows and classes that the options ask for",
        hint='Lower min_rows or min_classes, or train a model of all rows: {"fallback": true}.',
    )


def to_search(db: Database, source: requests.Data, given: FitOptions) -> Groups | None:
    """Return the groups of the table on which a search trains, or None if it was not packed in groups.

    Raise an error for options that do not suit a search on such a table.
    """
    found = read_groups(db, source)
    if found is None:
        if given.search is not None:
            raise CerebroError(
                "option search is for tables that were packed in groups",
                hint="Leave it out: the search is one of all rows.",
                sqlstate=NOT_SUPPORTED,
            )
        return None
    if given.experience:
        raise CerebroError(
            "option experience is for tables that were not packed in groups",
            hint="Leave it out, or name configs with option try_first.",
            sqlstate=NOT_SUPPORTED,
        )
    if given.fallback:
        raise CerebroError(
            "option fallback is for fits: a search trains each config on groups alone",
            hint="Train the best config with madlib_fit_multiple_model.",
            sqlstate=NOT_SUPPORTED,
        )
    if all(why_left_out(group, given.limits) is not None for group in found.rows.values()):
        raise _none_trained(found)
    return found


def why_left_out(group: GroupRow, limits: Limits) -> str | None:
    """Return the reason why a group gets no model of its own, or None if it gets one."""
    if group.rows < (limits.min_rows or 1):
        return f"{group.rows} row{_s(group.rows)}, fewer than min_rows {limits.min_rows}"
    if group.classes is not None and group.classes < (limits.min_classes or 1):
        return f"{group.classes} class{_s(group.classes, 'es')}, fewer than min_classes {limits.min_classes}"
    return None


def _s(number: int, ending: str = "s") -> str:
    return "" if number == 1 else ending


def tell_of_left_out(db: Database, found: Groups, given: FitOptions) -> None:
    few = sum(why_left_out(group, given.limits) is not None for group in found.rows.values())
    if few:
        instead = "the models of all rows answer for them" if given.fallback else "they get no model"
        db.notice(f"{few} of {len(found.rows)} groups have too few rows or classes: {instead}")


def left_out(request: requests.Request) -> dict[int, str]:
    """Return the groups that get no model of their own, by number, each with the reason."""
    rows = request.groups.rows if request.groups else {}
    reasons = {number: why_left_out(group, request.limits) for number, group in rows.items()}
    return {number: reason for number, reason in reasons.items() if reason is not None}


def rows_trained(request: requests.Request) -> dict[int, int] | None:
    """Return the groups that get models of their own, by number, each with its number of rows.

    Return None if the run is not on groups.
    """
    if request.groups is None:
        return None
    few = left_out(request)
    return {number: group.rows for number, group in request.groups.rows.items() if number not in few}


def scope(method: SearchMethod, given: FitOptions) -> str:
    """Return how a search on groups decides: for each group separately, or for all groups at once.

    Raise an error if the search method cannot search groups separately and the call asks for that.
    """
    found = given.search or (ALL_GROUPS if method.proposes else PER_GROUP)
    if found == PER_GROUP and method.proposes:
        raise CerebroError(
            f"{method.name} proposes configs by what it has measured: groups that are searched one by one"
            " would get different ones",
            hint=f'Write {{"search": "{ALL_GROUPS}"}}: it is told the mean of all groups, weighted by rows.',
            sqlstate=NOT_SUPPORTED,
        )
    return found


def check(given: FitOptions, source: requests.Data) -> None:
    """Raise an error for options that a run on groups does not support.

    If the source was not packed in groups, raise an error for options that only a run on groups supports.
    """
    if source.summary.group_by is None:
        refuse_options(given)
        return
    refused: Mapping[str, bool] = {
        "option cross_validate": given.cross_validate is not None,
        "option hybrid": given.hybrid is not None,
        "option order": given.order == EVEN,
        "option rung_by": given.rung_by == ROWS,
        "option epochs_per_pass": given.epochs_per_pass is not None,
        "option training_metrics": given.training_metrics is False,
    }
    for what, there in refused.items():
        if there:
            raise CerebroError(
                f"{source.table.quoted} was packed in groups, and a run of groups takes no {what} yet",
                hint="Leave it out, or pack the rows without group_by.",
                sqlstate=NOT_SUPPORTED,
            )


def refuse_balanced(fit_grid: str) -> None:
    """Raise an error if the fit grid of a search on groups has balanced class weights.

    Classes are counted only when a run begins, and a search adds configs later.
    """
    if BALANCED in fit_grid:
        raise CerebroError(
            f"class_weight '{BALANCED}' is for fits on groups, not for searches",
            hint="Say what each class counts, such as class_weight={0: 1.0, 1: 2.0}.",
            sqlstate=NOT_SUPPORTED,
        )


def with_class_counts(db: Database, request: requests.Request) -> requests.Request:
    """Return the request with the class counts of each group, if a config has balanced class weights."""
    if request.groups is None or not any(BALANCED in config.fit_params for config in request.configs):
        return request
    source = request.source
    read = partial(class_counts.of_groups, db, source.table, source.summary)
    counted = db.as_caller(session.current_user(db), read)
    return replace(request, class_counts={number: json.dumps(found) for number, found in counted.items()})


def check_epochs(request: requests.Request, configs: Sequence[requests.Chosen]) -> None:
    """Raise an error for fit parameters that change the training between epochs where this is not supported.

    `anneal_at` cannot be combined with a learning rate schedule. On groups, neither `anneal_at` nor
    `unfreeze_at` is supported.
    """
    for config in configs:
        fit = parse_fit(config.fit_params)
        optimizer = reparse_compile(config.compile_params).optimizer
        inner = optimizer.get("inner_optimizer")
        rate = (inner if isinstance(inner, Call) else optimizer).get("learning_rate")
        if fit.anneal_at is not None and isinstance(rate, Call):
            raise CerebroError(
                f"config {config.key}: anneal_at and {rate.name} both change the learning rate",
                hint="Leave one of them out.",
            )
        if request.groups is not None and fit.anneal_at is not None:
            raise CerebroError(
                f"config {config.key}: anneal_at is not there for groups",
                hint="Use a schedule, such as learning_rate=CosineDecay(0.01, decay_steps=1000).",
                sqlstate=NOT_SUPPORTED,
            )
        if request.groups is not None and fit.unfreeze_at is not None:
            raise CerebroError(
                f"config {config.key}: unfreeze_at is not there for groups",
                hint="Train first with frozen layers, then load the weights with other layers frozen.",
                sqlstate=NOT_SUPPORTED,
            )


def refuse_options(given: FitOptions) -> None:
    """Raise an error for options that only a run on groups supports."""
    for name in ("checkpoint_every", "min_rows", "min_classes", "fallback", "groups"):
        if getattr(given, name) is not None:
            raise CerebroError(
                f"option {name} is for runs of groups",
                hint='Leave it out, or pack the rows with options {"group_by": …}.',
                sqlstate=NOT_SUPPORTED,
            )
