"""cerebro.predict: predicts one row at a time inside any query. The session keeps the model between rows.

A kept model is used only while its row in the model table has not changed since the model was read. Each
statement checks this with the caller's own rights, so a caller who may not read the model gets no answer.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from cerebro_plpy import memory
from cerebro_plpy.database import Database
from cerebro_plpy.engine.plain.layers import NotHere as NotHere
from cerebro_plpy.errors import (
    DATATYPE_MISMATCH,
    NULL_NOT_ALLOWED,
    UNDEFINED_COLUMN,
    UNDEFINED_TABLE,
    CerebroError,
)
from cerebro_plpy.features.array_rows import fit_shape
from cerebro_plpy.madlib import registered
from cerebro_plpy.madlib.literal import shorten
from cerebro_plpy.predicting import choices, group_holders, models, trained
from cerebro_plpy.predicting.answering import ready as readiness
from cerebro_plpy.predicting.answering.one_of_groups import KeptGroups
from cerebro_plpy.predicting.answering.ready import Features, Kept, RowAnswer
from cerebro_plpy.predicting.holders import RegisteredVersion
from cerebro_plpy.predicting.outputs import Output
from cerebro_plpy.predicting.trained import find_model
from cerebro_plpy.store import names, session
from cerebro_plpy.store.models import functions

# class, probability and prediction, as for an array, and the probability of each class as JSON
BestAnswer = tuple[str | None, float | None, float | None, str | None]
NO_ANSWER: BestAnswer = (None, None, None, None)

KEPT_MODELS = 64
KEPT_BYTES = 1 << 30


# "table" with the oid of a model table, or "version" with the version_id of a registered model.
ModelPlace = tuple[str, int]


class _KeptModels(dict[tuple[ModelPlace, int | None, bool], Kept | KeptGroups]):
    """Models that the session keeps, in the order in which they were read.

    The key is the place of the model, its `mst_key`, and whether rows are given as JSON.
    """


class _Meant(dict[tuple[str, int | None, bool], tuple[tuple[Any, ...], Kept | KeptGroups]]):
    """The models that references mean.

    The key is the reference, its `mst_key`, and whether rows are given as JSON. Each model is kept with the
    statement and the search_path in which it was resolved.
    """


def predict_array(kept: Kept | KeptGroups, model: str | int, features: Features) -> RowAnswer:
    """Return the answer of a kept model for one row, given as an array."""
    if isinstance(kept, KeptGroups):
        raise kept.needs_rows()
    if kept.by_columns:
        raise CerebroError(
            f"{model} was trained on columns, and is given an array",
            hint="Give it the row: FROM customers c, cerebro.predict('model', c).",
        )
    if kept.last is None or kept.last[0] != features:
        kept.last = (features, _answer(kept, features))
    return kept.last[1]


def ready(model: str | int | None, mst_key: int | None, *, by_row: bool = True) -> Kept | KeptGroups | None:
    """Return the model if the current statement has already checked it, else None.

    `model` is the oid of a model table, or any other reference as text; `by_row` says that rows are given as
    JSON. A returned model needs no further check.
    """
    if isinstance(model, str):
        meant = memory.get_instance(_Meant).get((model, mst_key, by_row))
        return meant[1] if meant is not None and meant[0] == _moment() else None
    kept = memory.get_instance(_KeptModels).get((("table", model or 0), mst_key, by_row))
    return kept if kept is not None and kept.looked == session.statement() else None


def _moment() -> tuple[Any, ...]:
    return session.statement(), session.path()


def make_ready(
    db: Database,
    model: str | int | None,
    mst_key: int | None,
    features: Features | None = None,
    *,
    by_engine: bool = False,
) -> Kept | KeptGroups:
    """Return the model that a reference means, ready to answer; without an `mst_key`, the best config.

    With `features`, the model is made ready for arrays of their shape; without, for rows that are given as
    JSON. With `by_engine`, an engine answers even where NumPy could.
    """
    if model is None:
        raise CerebroError("model is NULL", sqlstate=NULL_NOT_ALLOWED)
    sample = None if features is None else partial(_values, features)
    try:
        place, name = _place(db, model)
        kept = _kept(db, place, name, mst_key, sample)
        if by_engine:
            kept = _keep(db, place, name, mst_key, sample, by_engine=True)
            kept.looked = session.statement()
    except CerebroError as error:
        if error.sqlstate == UNDEFINED_TABLE:
            error.hint = db.server.find_absence_hint() or error.hint
        raise
    return kept


def remember(model: str | int | None, mst_key: int | None, kept: Kept | KeptGroups, *, by_row: bool) -> None:
    """Remember, until the statement ends, which model the reference `model` means.

    `by_row` says whether it answers rows that are given as JSON.
    """
    if isinstance(model, str):
        meant = memory.get_instance(_Meant)
        if len(meant) >= KEPT_MODELS:
            meant.clear()
        meant[model, mst_key, by_row] = _moment(), kept


def _place(db: Database, model: str | int) -> tuple[ModelPlace, str]:
    """Return where the model of a reference is stored, and the name by which it is found there."""
    if isinstance(model, int):
        return ("table", model), names.name_of(db, model, "model table")
    holder = trained.resolve(db, model)
    if isinstance(holder, RegisteredVersion):
        return ("version", holder.found.version_id), holder.name
    return ("table", holder.table.oid), holder.name


def check_features(features: Features | None) -> Features:
    if features is None:
        raise CerebroError(
            "features is NULL",
            hint="Leave such rows out (WHERE … IS NOT NULL), or fill them with coalesce().",
            sqlstate=NULL_NOT_ALLOWED,
        )
    return features


def predict_row(kept: Kept | KeptGroups, row: str | None) -> BestAnswer:
    """Return the answer of a kept model for one row, given as JSON."""
    given = parse_row(kept, row)
    one = kept.of_row(given) if isinstance(kept, KeptGroups) else kept
    if one is None or one.rows is None:
        return NO_ANSWER
    return name_answer(one.output, one.forward(one.rows.encode(given))[0])


def parse_row(kept: Kept | KeptGroups, row: str | None) -> dict[str, Any]:
    """Return the values of a row, given as JSON, by column name."""
    if row is None:
        raise CerebroError("the row is NULL", sqlstate=NULL_NOT_ALLOWED)
    given = kept.parse(row)
    if not isinstance(given, dict):
        raise _no_row(given, row)
    return given


def _no_row(given: object, text: str) -> CerebroError:
    """Return the error for a value that is not a row. Its hint says how to predict such a value."""
    if isinstance(given, list):
        return CerebroError(
            f"an array is given where a row is expected: {shorten(text, 60)}",
            detail="Without the key of a config, cerebro.predict takes a row of a table or query.",
            hint="Give the key before the array: cerebro.predict('model', 1, features). It is NULL for the"
            " only model of a table.",
            sqlstate=DATATYPE_MISMATCH,
        )
    return CerebroError(
        f"a single value is given where a row is expected: {shorten(text, 60)}",
        hint="Give the row by the name of its table: FROM customers c, cerebro.predict('model', c). If the"
        " table has a column c, write c.*.",
        sqlstate=DATATYPE_MISMATCH,
    )


def _kept(
    db: Database,
    place: ModelPlace,
    name: str,
    mst_key: int | None,
    sample: Callable[[], np.ndarray] | None,
) -> Kept | KeptGroups:
    """Return the kept model, after checking that it is unchanged and that the caller may use its functions.

    A model that fails the check is read again, and made ready for arrays like `sample()`, or for rows given
    as JSON if `sample` is None. Each statement makes the check only once.
    """
    kept, at = memory.get_instance(_KeptModels).get((place, mst_key, sample is None)), session.statement()
    if kept is not None and kept.looked == at:
        return kept
    if kept is None or not _unchanged(db, kept) or not _may_use(db, kept):
        kept = _keep(db, place, name, mst_key, sample)
    kept.looked = at
    return kept


def _may_use(db: Database, kept: Kept | KeptGroups) -> bool:
    """Return whether the caller may still use the registered functions that the model consists of."""
    if not kept.functions:
        return True
    functions.begin(db)
    return set(kept.functions) <= {known.digest for known in registered.known() if known.usable}


def _unchanged(db: Database, kept: Kept | KeptGroups) -> bool:
    try:
        if isinstance(kept, KeptGroups):
            return kept.is_unchanged(db)
        return kept.version is not None and kept.version.is_unchanged(db)
    except CerebroError as error:
        # Another kind of table has the name now; looking it up anew says what is wrong.
        if error.sqlstate in (UNDEFINED_TABLE, UNDEFINED_COLUMN):
            return False
        raise


def _keep(
    db: Database,
    place: ModelPlace,
    name: str,
    mst_key: int | None,
    sample: Callable[[], np.ndarray] | None,
    *,
    by_engine: bool = False,
) -> Kept | KeptGroups:
    found = group_holders.find_groups(db, name, mst_key)
    if found is None:
        return _keep_one(db, place, name, mst_key, sample, by_engine=by_engine)
    key = (place, mst_key, sample is None)
    memory.get_instance(_KeptModels).pop(key, None)
    kept = KeptGroups.read(db, found, by_engine=by_engine)
    _make_room(kept.nbytes)
    memory.get_instance(_KeptModels)[key] = kept
    return kept


def _keep_one(
    db: Database,
    place: ModelPlace,
    name: str,
    mst_key: int | None,
    sample: Callable[[], np.ndarray] | None,
    *,
    by_engine: bool,
) -> Kept:
    key = (place, mst_key, sample is None)
    memory.get_instance(_KeptModels).pop(key, None)
    found = find_model(db, name, mst_key)
    version = found.holder.mark(db, found.mst_key)
    with trained.tell_of_forecast(db, found.holder):
        made = readiness.make(db, name, models.trained(db, found), sample, by_engine=by_engine)
    kept = replace(made, version=version)
    _make_room(kept.nbytes)
    memory.get_instance(_KeptModels)[key] = kept
    return kept


def _make_room(nbytes: int) -> None:
    """Forget the models that were read longest ago, until there is room for one model of `nbytes` bytes."""
    models_kept = memory.get_instance(_KeptModels)
    while models_kept and (
        len(models_kept) >= KEPT_MODELS or sum(k.nbytes for k in models_kept.values()) + nbytes > KEPT_BYTES
    ):
        del models_kept[next(iter(models_kept))]


def _values(features: Features) -> np.ndarray:
    if isinstance(features, bytes):
        return np.frombuffer(features, np.uint8).astype(np.float32)
    return np.array(features, np.float32)


def _answer(kept: Kept, features: Features) -> RowAnswer:
    values = _values(features)
    if values.shape != kept.wanted:
        values = values.reshape(fit_shape(values.shape, kept.wanted, values.ndim == 1, "features"))
    if kept.divisor != 1:
        values /= kept.divisor
    if not np.isfinite(values).all():
        raise _not_finite(features)
    return name_answer(kept.output, kept.forward([values[np.newaxis]])[0])[:3]


def name_answer(output: Output, result: np.ndarray) -> BestAnswer:
    """Return what a net's output for one row means: class, probability, prediction, and a JSON text.

    The JSON text has the probability of each class.
    """
    if output.values is None:
        return None, None, float(result.reshape(-1)[0]), None
    if output.logits is not None or output.is_binary:
        result = choices.probabilities(result, output.logits, output.is_binary)
    # Python's lists, which for a few classes are faster than arrays.
    likely: list[float] = result[0].tolist()[: len(output.values)]
    most = max(likely)
    if most != most:
        # The first is NaN, which counts as less than any number. If all are NaN, the first is the answer.
        most = max((share for share in likely if share == share), default=most)
    place = likely.index(most) if most == most else 0
    write = repr if math.isfinite(sum(likely)) else _write_share
    shown = ", ".join([f"{value}: {write(share)}" for value, share in zip(output.shown, likely, strict=True)])
    return output.values[place], most, None, f"{{{shown}}}"


def _write_share(share: float) -> str:
    """Return a number as JSON.

    As in to_jsonb, NaN and infinity become texts, since JSON has no such numbers.
    """
    return repr(share) if math.isfinite(share) else f'"{json.dumps(share)}"'


def _not_finite(features: Features) -> CerebroError:
    has_null = any(value is None for value in np.array(features, object).ravel())
    return CerebroError(
        "features has NULL elements" if has_null else "features holds NaN, infinity or too large values",
        hint="Leave such rows out, or replace the values.",
        sqlstate=NULL_NOT_ALLOWED if has_null else "22023",
    )
