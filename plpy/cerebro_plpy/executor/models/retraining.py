"""cerebro.retrain: train a model again, and promote the new version if it answers better.

Both versions are compared on rows on which neither was trained.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import astuple, dataclass
from functools import partial
from typing import Any

import numpy as np

from cerebro_plpy.database import Database, worded
from cerebro_plpy.errors import NOT_SUPPORTED, UNDEFINED_COLUMN, WRONG_STATE, CerebroError
from cerebro_plpy.executor.calls import forecasting, train
from cerebro_plpy.executor.calls.forecasting import Backtest, ForecastOrder
from cerebro_plpy.executor.ensembles import ensemble
from cerebro_plpy.executor.models import (
    aliases,
    continuing,
    lineage,
    named_tables,
    registering,
    retraining_forecasts,
)
from cerebro_plpy.executor.related.retraining import find_source, keep_relations
from cerebro_plpy.forecasting import backtest
from cerebro_plpy.forecasting.document import read_forecast
from cerebro_plpy.logical.options import Validator, boolean, drop_nulls, is_number, one_of, parse_options
from cerebro_plpy.madlib.nearest import unknown
from cerebro_plpy.predicting.examining import scoring
from cerebro_plpy.predicting.examining.labeled import check_columns, find_judge
from cerebro_plpy.registry import references
from cerebro_plpy.relations.recipe import read as read_relations
from cerebro_plpy.store import names, session
from cerebro_plpy.store.models import model_versions, retraining
from cerebro_plpy.store.models.retraining import APPENDED, JUDGED_BY, RELATIONS
from cerebro_plpy.store.names import Table
from cerebro_plpy.store.packed import packed, source_rows
from cerebro_plpy.store.related import series

NEVER, ALWAYS, IF_BETTER = "never", "always", "if_better"
# The rows kept for comparing: their share of all rows, the most, and the fewest that allow a verdict.
JUDGED_SHARE, MOST_JUDGED, LEAST_JUDGED = 0.1, 25_000, 30
# Of this many rows, a random split keeps enough for comparing in 99 of 100 cases.
ENOUGH_ROWS = 450
# The pattern of a temporary table of a retraining in a message, and the tables with models.
_OWN_TABLE = re.compile(rf'"?pg_temp(?:_[0-9]+)?"?\."?({retraining.PREFIX}[a-z_]*)"?')
_OF_MODELS = [retraining.MODELS + end for end in ("", ensemble.SUFFIX, "_best", "_nets", "_summary", "_info")]
# The name of the source in messages if the call names no table.
_OF_QUERY = "the rows of its query"
# The standard deviations that a normal distribution exceeds in one of twenty cases.
NOISE = 1.645


@dataclass(frozen=True)
class Retraining:
    """The outcome of a retraining: the new version, whether the alias points at it now, and the reason."""

    version: int
    promoted: bool
    previous: int
    metric: str
    # None if the two versions cannot be compared.
    value: float | None
    previous_value: float | None
    judged_rows: int
    reason: str


@dataclass(frozen=True)
class RetrainCall:
    """The arguments of cerebro.retrain, unchecked."""

    name: str | None
    source: str | None
    budget: str | None
    promote: str | None
    alias: str | None
    options: str | None


# Options of a retraining itself, beside those of cerebro.train.
OWN: Mapping[str, Validator] = {"append": boolean(), "warm_start": boolean()}


@dataclass(frozen=True)
class RowsTraining:
    """A training of cerebro.train that is to be repeated: its recipe, the rows, and the call that trains."""

    recipe: Mapping[str, Any]
    source: Table
    call: train.TrainCall
    # Tables of earlier rows that train as well, but are not used for comparing.
    before: Sequence[Table]
    warm_start: bool


@dataclass(frozen=True)
class CheckedRetraining:
    """A retraining whose arguments are checked: the version, the alias, and the training to repeat."""

    name: str
    version: int
    alias: str
    when: str
    training: RowsTraining | ForecastOrder


@dataclass(frozen=True)
class Verdict:
    """The comparison of two models on the same rows: mean errors, and the gain, real if above `noise`."""

    metric: str
    value: float
    previous_value: float
    rows: int
    gain: float
    noise: float


def retrain(db: Database, call: RetrainCall) -> Iterator[tuple[object, ...]]:
    """Train a model again by its recipe, register the new version, and promote it if it is better."""
    with worded(partial(_name_own, str(call.name), _OF_QUERY)):
        asked = check(db, call)
    with worded(partial(_name_own, asked.name, _show_source(asked))):
        found = _retrain(db, asked)
    return iter([astuple(found)])


def _name_own(model: str, source: str, message: str) -> str:
    """Return a message in which names of temporary tables are replaced by what the tables stand for."""

    def name(table: re.Match[str]) -> str:
        return f"the new version of {model}" if table[1] in _OF_MODELS else source

    return _OWN_TABLE.sub(name, message)


def _show_source(asked: CheckedRetraining) -> str:
    source = asked.training.source
    return _OF_QUERY if names.is_temporary(source.schema) else source.quoted


def _retrain(db: Database, asked: CheckedRetraining) -> Retraining:
    known, training = asked.name, asked.training
    if isinstance(training, RowsTraining):
        _train_rows(db, training, f"{known}@{asked.version}")
        version, previous = _add_version(db, asked)
        metric = scoring.find_deciding(training.recipe["options"])
        verdict = _compare(db, f"{known}@{version}", f"{known}@{previous}", metric)
    else:
        tested = forecasting.train_series(db, training)
        version, previous = _add_version(db, asked)
        verdict = _compare_forecasts(db, tested, training.source, f"{known}@{previous}")
    retraining.drop_temporary(db)
    found = _decide(verdict, version, previous, asked.when)
    if not found.promoted and verdict.rows and _may_have_seen(db, known, previous):
        db.notice(
            f"{known}@{previous} may have been trained on rows that judge, since cerebro.retrain has not made"
            " it: then it looks too good"
        )
    if found.promoted:
        aliases.point(db, known, asked.alias, version)
    return found


def _may_have_seen(db: Database, known: str, version: int) -> bool:
    """Return whether a version may have been trained on the rows that judge, as it was registered by hand."""
    recipe = model_versions.lineage(db, known, version).get(lineage.RECIPE)
    return isinstance(recipe, dict) and JUDGED_BY not in recipe


def _add_version(db: Database, asked: CheckedRetraining) -> tuple[int, int]:
    """Register the trained model; return the new version, and the version at which the alias points."""
    # Until here, other sessions may move the alias; now the model is locked.
    aliases.begin_change(db, asked.name)
    previous = aliases.version_of(db, asked.name, asked.alias)
    comment = f"retrained on {_show_source(asked)}"
    return registering.add_version(db, asked.name, _result(db), comment=comment), previous


def _train_rows(db: Database, asked: RowsTraining, version: str) -> None:
    """Train on the present rows, except the rows that are kept for comparing the versions."""
    recipe, table = asked.recipe, asked.source
    labelled, *before = (
        source_rows.with_values(one, packed.columns_of(db, one)[recipe["target"]])
        for one in (table, *asked.before)
    )
    known = packed.columns_of(db, table)
    deciding = {name: known[name].element for name in _list_deciding(recipe) if name in known}
    rows = retraining.split(
        db,
        labelled,
        deciding,
        JUDGED_SHARE,
        min(JUDGED_SHARE, MOST_JUDGED / max(1, source_rows.count(db, labelled))),
        before=before,
        listed=_common(db, [table, *asked.before]),
    )
    if rows < LEAST_JUDGED:
        raise CerebroError(
            f"{table.quoted} has too few rows: {rows} of them are left to compare two models",
            detail="Chance leaves about a tenth of the rows, all of the same values or none,"
            f" and {LEAST_JUDGED} are needed.",
            hint=f"Give a table with at least {ENOUGH_ROWS} different rows.",
            sqlstate=WRONG_STATE,
        )
    keep_relations(db, recipe)
    if asked.warm_start:
        continuing.train_on(db, version, asked.call, round(session.seconds(db, str(asked.call.budget))))
    else:
        train.train(db, asked.call)


def _list_deciding(recipe: Mapping[str, Any]) -> list[str]:
    """Return the columns whose values say whether a row is set apart, for all versions that are retrained.

    Of related tables, these are the key and the cut-off: columns of an entity have today's values.
    """
    if recipe.get(RELATIONS) is not None:
        related = read_relations(json.dumps(recipe[RELATIONS]))
        return [*related.key, related.cutoff]
    return [*recipe.get(JUDGED_BY, recipe["inputs"]), recipe["target"]]


def check(db: Database, call: RetrainCall) -> CheckedRetraining:
    """Return the checked arguments of a retraining.

    For a model over related tables, the check computes the features of the rows, in a temporary table.
    """
    known = aliases.check_change(db, call.name)
    when = one_of(NEVER, ALWAYS, IF_BETTER)("promote", call.promote)
    moved = references.check_name(call.alias, "an alias")
    version = aliases.version_of(db, known, moved)
    origin = model_versions.lineage(db, known, version)
    if series.LINEAGE in origin:
        training = _check_forecast(db, call, origin[series.LINEAGE], known, version)
    else:
        training = _check_rows(db, call, _recipe(origin, f"{known}@{version}"), known, version)
    return CheckedRetraining(known, version, moved, when, training)


def _check_forecast(
    db: Database, call: RetrainCall, document: Mapping[str, Any], known: str, version: int
) -> ForecastOrder:
    found = read_forecast(json.dumps(document), f"{known}@{version}")
    table = names.resolve_table(db, call.source or found.source, "source table")
    if call.source is None:
        named_tables.check(db, [table], known, version)
    return retraining_forecasts.check(db, found, table, budget=call.budget, options=call.options)


def _check_rows(
    db: Database, call: RetrainCall, earlier: Mapping[str, Any], name: str, version: int
) -> RowsTraining:
    own, options = _own_options(call.options)
    if own.get("warm_start"):
        continuing.check_options(json.loads(options))
    table, recipe = find_source(db, earlier, call.source, name, version)
    if own.get("append"):
        recipe = {**recipe, APPENDED: _sources(earlier, table)}
    else:
        recipe = {key: value for key, value in recipe.items() if key != APPENDED}
    before = [names.resolve_table(db, one, "table of earlier rows") for one in recipe.get(APPENDED, ())]
    named_tables.check(db, before if call.source is not None else [table, *before], name, version)
    train_call = _call(db, recipe, [table, *before], call.budget, options)
    retraining.check_alike(db, [table, *before], _common(db, [table, *before]))
    # At the end, the old version answers rows of the table too, to be compared with the new version.
    check_columns(db, f"{name}@{version}", table)
    return RowsTraining(
        recipe=recipe,
        source=table,
        call=train_call,
        before=before,
        warm_start=own.get("warm_start", False),
    )


def _own_options(text: str | None) -> tuple[Mapping[str, Any], str]:
    """Return the options that only cerebro.retrain has, and the options for cerebro.train as JSON text."""
    parse_options(text, {**train.OPTIONS, **OWN})
    given = json.loads(text or "{}")
    others = {key: value for key, value in given.items() if key not in OWN}
    return {key: value for key, value in given.items() if key in OWN}, json.dumps(others)


def _sources(recipe: Mapping[str, Any], table: Table) -> list[str]:
    """Return the tables on whose rows the version was trained, except `table`, which has the new rows."""
    if recipe.get(RELATIONS) is not None:
        raise CerebroError(
            "option append cannot be used with features of related tables",
            detail="Their features are made anew for all of them.",
            hint="Leave append out, and give labels of all rows.",
            sqlstate=NOT_SUPPORTED,
        )
    return [one for one in (*recipe.get(APPENDED, ()), recipe["source"]) if one != table.quoted]


def _recipe(origin: Mapping[str, Any], version: str) -> Mapping[str, Any]:
    """Return the call of cerebro.train that trained a version; raise an error if it is not known."""
    recipe = origin.get(lineage.RECIPE)
    if recipe is None:
        raise CerebroError(
            f"how {version} was trained is not known: it does not come from cerebro.train",
            hint="Register a model of cerebro.train as the next version; that one can be retrained.",
            sqlstate=WRONG_STATE,
        )
    if not _is_recipe(recipe):
        raise CerebroError(
            f"what {version} says of its training is no call of cerebro.train",
            hint="Register a model of cerebro.train as the next version; that one can be retrained.",
            sqlstate=WRONG_STATE,
        )
    return recipe


def _is_recipe(found: object) -> bool:
    """Return whether a document has the form of a recipe, since any role may have written it."""
    if not isinstance(found, dict):
        return False
    texts = [found.get("source"), found.get("target")]
    for listed in (found.get("inputs"), found.get(APPENDED, []), found.get(JUDGED_BY, [])):
        if not isinstance(listed, list):
            return False
        texts += listed
    is_whole = isinstance(found.get("options"), dict) and is_number(found.get("seconds"))
    return is_whole and all(isinstance(text, str) for text in texts)


def _common(db: Database, tables: Sequence[Table]) -> list[str]:
    """Return the names of the columns that all tables have."""
    first, *others = (packed.columns_of(db, table) for table in tables)
    return [column for column in first if all(column in known for known in others)]


def _call(
    db: Database, recipe: Mapping[str, Any], tables: Sequence[Table], budget: str | None, options: str
) -> train.TrainCall:
    """Return the call of cerebro.train that trains again, on the recipe's columns.

    The source of this call lacks the rows that are kept for comparing the versions.
    """
    asked = json.loads(options)
    # An option that is null takes that of the recipe away.
    given = drop_nulls({**recipe["options"], **asked})
    for one, other in (("single", "folds"), ("folds", "single")):
        # Only what the call itself says of both can contradict.
        if asked.get(one) and other not in asked:
            given.pop(other, None)
    # The source of the earlier training may have had other columns to leave out.
    left_out = asked.get("exclude") or []
    columns = [packed.columns_of(db, table) for table in tables]
    everything = {name for known in columns for name in known}
    for name in left_out:
        if name not in everything:
            message = f'option exclude names "{name}", and {tables[0].quoted} has no such column'
            raise unknown(message, name, everything)
    inputs = [name for name in recipe["inputs"] if name not in left_out]
    used = [*inputs, recipe["target"]]
    for table, known in zip(tables, columns, strict=True):
        missing = [column for column in used if column not in known]
        if missing:
            raise CerebroError(
                f'{table.quoted} has no column "{missing[0]}", on which the model was trained',
                hint="Give a table or view that has all columns of the recipe.",
                sqlstate=UNDEFINED_COLUMN,
            )
    weight = given.get("weight")
    given.pop("exclude", None)
    others = [column for column in _common(db, tables) if column not in (*used, weight)]
    if others:
        given["exclude"] = others
    seconds = recipe["seconds"] if budget is None else round(session.seconds(db, budget))
    judged_by = recipe.get(JUDGED_BY, recipe["inputs"])
    kept = {**recipe, "options": given, "inputs": inputs, JUDGED_BY: judged_by, "seconds": seconds}
    return train.TrainCall(
        source_table=retraining.temporary(retraining.LEARNED),
        target=names.quote(recipe["target"]),
        name=retraining.temporary(retraining.MODELS),
        budget=f"{seconds} seconds",
        options=json.dumps(given),
        recipe=kept,
    )


def _result(db: Database) -> str:
    """Return the table of the model just trained: of the ensemble if one was made, else the model table."""
    joined = retraining.temporary(retraining.MODELS + ensemble.SUFFIX)
    return joined if names.find_table(db, joined) else retraining.temporary(retraining.MODELS)


def _compare(db: Database, candidate: str, previous: str, asked: str | None) -> Verdict:
    """Return the comparison of two models on the rows that both can answer.

    If the metric `asked` is not defined for single rows, the default metric is used instead.
    """
    (metric, new), (other, old) = (_errors(db, reference, asked) for reference in (candidate, previous))
    # A version that learned classes and one that learned a quantity have no metric in common.
    common = sorted(new.keys() & old.keys()) if metric == other else []
    if not common:
        return Verdict(metric, math.nan, math.nan, rows=0, gain=0.0, noise=math.inf)
    ours, theirs = (np.array([errors[number] for number in common]) for errors in (new, old))
    value, before = (
        scoring.shown(metric, scoring.error_of(metric, float(errors.mean()))) for errors in (ours, theirs)
    )
    return _judge(metric, (value, before), len(common), theirs - ours)


def _compare_forecasts(db: Database, tested: Backtest, source: Table, previous: str) -> Verdict:
    """Return the comparison of two forecasts by the errors in their windows, series by series."""
    found = retraining_forecasts.compare(db, tested, source, previous)
    values = [float(errors.mean()) if len(errors) else math.nan for errors in (found.new, found.previous)]
    gains = backtest.find_gains(found.new, found.previous, found.blocks)
    return _judge(retraining_forecasts.METRIC, (values[0], values[1]), len(found.new), gains)


def _judge(metric: str, values: tuple[float, float], rows: int, gains: np.ndarray) -> Verdict:
    spread = float(gains.std(ddof=1)) / math.sqrt(len(gains)) if len(gains) > 1 else math.inf
    gain = float(gains.mean()) if len(gains) else 0.0
    return Verdict(metric, *values, rows=rows, gain=gain, noise=NOISE * spread)


def _errors(db: Database, reference: str, asked: str | None) -> tuple[str, Mapping[str, float]]:
    """Return the metric used, and a model's error in each row kept for comparing, by the row's number."""
    judge = find_judge(db, reference, retraining.temporary(retraining.JUDGED), None, [retraining.NUMBER])
    metric = scoring.check_metric(asked if asked in scoring.EACH else None, judge.is_classes)
    found: dict[str, float] = {}
    strange = 0
    for rows in judge.read_all():
        (errors,) = judge.measure([metric], rows.labels, judge.answer(rows.inputs))
        strange += sum(not judge.knows(label) for label in rows.labels)
        found.update(zip((str(key) for (key,) in rows.texts), errors.tolist(), strict=True))
    if strange:
        rows = f"{strange} of {len(found)} rows"
        db.notice(f"{reference} does not know the class of {rows}: they count as wrong answers")
    return metric, found


def _decide(verdict: Verdict, version: int, previous: int, when: str) -> Retraining:
    better = verdict.gain > verdict.noise
    if better:
        reason = "it is better by more than noise"
    elif verdict.gain > 0:
        reason = "it is better, but by no more than noise"
    elif verdict.rows:
        reason = "it is not better"
    else:
        reason = "there is nothing on which both can be compared"
    if when != IF_BETTER:
        reason = f'promote is "{when}"; {reason}'
    return Retraining(
        version=version,
        promoted=when == ALWAYS or (when == IF_BETTER and better),
        previous=previous,
        metric=verdict.metric,
        value=None if math.isnan(verdict.value) else verdict.value,
        previous_value=None if math.isnan(verdict.previous_value) else verdict.previous_value,
        judged_rows=verdict.rows,
        reason=reason,
    )
