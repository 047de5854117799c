"""Finds the trained model that a call means. All model references are resolved here."""

from __future__ import annotations

import json
from collections.abc import Generator, Iterable, Sequence
from contextlib import contextmanager
from typing import Any

from cerebro_plpy.database import Database
from cerebro_plpy.errors import (
    INSUFFICIENT_PRIVILEGE,
    NOT_SUPPORTED,
    UNDEFINED_COLUMN,
    UNDEFINED_TABLE,
    WRONG_OBJECT,
    WRONG_STATE,
    CerebroError,
)
from cerebro_plpy.logical.metrics import standing
from cerebro_plpy.madlib.literal import shorten
from cerebro_plpy.madlib.params import reparse_compile
from cerebro_plpy.predicting.holders import ModelHolder, RegisteredVersion, ResultTable, TrainedModel
from cerebro_plpy.registry import references
from cerebro_plpy.store import user_code
from cerebro_plpy.store.models import model_versions, models, registered_groups
from cerebro_plpy.store.names import Table, find_table, quote, resolve_table
from cerebro_plpy.store.packed import packed
from cerebro_plpy.store.related import series
from cerebro_plpy.store.runs import results

# The key of the only config of madlib_fit: it trains to the same bits as config 1 of a run of several.
ONLY = 1


def resolve(db: Database, name: str | None) -> ResultTable | RegisteredVersion:
    """Return the result table or the registered version that a model reference means.

    A name with @ means a registered model. Any other name means the model table of that name if there is one,
    and else the registered model.
    """
    if name is not None and references.is_marked(name):
        return find_registered(db, name)
    table = find_table(db, name, "model table")
    if table is None or _beside(db, table, "_summary") is None:
        held = _registered(db, str(name))
        if held is not None:
            return held
    return ResultTable(table or _refuse_absent(db, name))


def _refuse_absent(db: Database, name: str | None) -> Table:
    """Raise an error: there is neither a model table nor a registered model of this name."""
    try:
        return resolve_table(db, name, "model table")
    except CerebroError as error:
        if error.sqlstate != UNDEFINED_TABLE or references.parse(str(name)) is None:
            raise
        neither = f"No registered model that you may use is called {shorten(str(name), 63)}."
        raise CerebroError(
            error.message,
            detail=f"{error.detail} {neither}" if error.detail else neither,
            hint=error.hint,
            sqlstate=error.sqlstate,
        ) from None


def find_registered(db: Database, name: str) -> RegisteredVersion:
    """Return the registered version that a reference means, even if there is a table of the same name."""
    held = _registered(db, name)
    if held is None:
        raise model_versions.not_registered(name, _lacks(db, name))
    return held


def _lacks(db: Database, name: str) -> str | None:
    """Return a sentence saying that a model has no such alias or version as a reference names.

    Return None if the caller sees no model of this name.
    """
    reference = references.parse(name)
    aliases = {} if reference is None else model_versions.aliases(db, reference.name)
    if reference is None or not aliases:
        return None
    if reference.alias is None:
        return f"{reference.name} has no version {reference.version}."
    return f"{reference.name} has no alias {reference.alias}; it has {', '.join(sorted(aliases))}."


def _registered(db: Database, name: str) -> RegisteredVersion | None:
    reference = references.parse(name)
    if reference is None:
        return None
    found = model_versions.find(db, reference.name, reference.alias, reference.version)
    if found is None:
        return None
    return RegisteredVersion(f"{reference.name}@{found.version}", found)


def find_model(
    db: Database, name: str | None, mst_key: int | None, *, takes_forecast: bool = False
) -> TrainedModel:
    """Return the model that a reference means.

    Of a table with several models, it is the model of config `mst_key`, or of the best config if that is
    None. Raise an error for a registered forecast unless `takes_forecast`: its net alone does not give its
    answers.
    """
    holder = resolve(db, name)
    if isinstance(holder, RegisteredVersion):
        if not takes_forecast and is_forecast(db, holder):
            raise _refuse_forecast(holder.name)
        return _of_version(db, holder, mst_key)
    table = holder.table
    summary = _beside(db, table, "_summary")
    if summary is None:
        raise CerebroError(
            f"table {quote(table.schema, table.name + '_summary')} does not exist",
            detail=f"{table.quoted} is not a model table without it.",
            hint="A model table that is renamed needs its _summary and its _info to be renamed with it.",
            sqlstate=UNDEFINED_TABLE,
        )
    several = results.holds_several(db, table)
    info = _beside(db, table, "_info") if several else None
    _check_rights(db, [one for one in (table, summary, info) if one is not None])
    results.check_summary(db, table, summary)
    row = results.summary_row(db, summary.quoted)
    if not several:
        # An _info table with this name, such as one left over when other tables were dropped, is ignored.
        return _single(db, table, row, mst_key)
    if info is None:
        raise CerebroError(
            f"table {quote(table.schema, table.name + '_info')} does not exist",
            detail=f"{table.quoted} holds models of madlib_fit_multiple_model, which are described there.",
            hint="A model table that is renamed needs its _summary and its _info to be renamed with it.",
            sqlstate=UNDEFINED_TABLE,
        )
    if row.get(results.GROUP_BY[0]):
        raise _holds_groups(table.quoted, row[results.GROUP_BY[0]])
    return one_of_many(db, table, info, row, best_key(db, info) if mst_key is None else mst_key)


def is_forecast(db: Database, holder: ModelHolder) -> bool:
    """Return whether a registered version is a forecast, or whether a model table holds the nets of one."""
    if isinstance(holder, RegisteredVersion):
        return series.LINEAGE in json.loads(holder.read(db).lineage)
    beside = _beside(db, holder.weights_table(db), series.SUFFIX)
    return beside is not None and series.DOCUMENT in packed.columns_of(db, beside)


def _refuse_forecast(name: str) -> CerebroError:
    return CerebroError(
        f"{name} is a forecast, and this function takes a model of rows",
        detail="A forecast goes on from the newest rows of each series.",
        hint=f"Use cerebro.forecast('{name}'). How good it is, cerebro.train_forecast and cerebro.retrain"
        " measure by backtests.",
        sqlstate=WRONG_OBJECT,
    )


@contextmanager
def tell_of_forecast(db: Database, holder: ModelHolder) -> Generator[None]:
    """If the block fails because rows do not fit a net of a forecast, raise an error that says so."""
    try:
        yield
    except CerebroError as error:
        if error.sqlstate in (UNDEFINED_COLUMN, NOT_SUPPORTED) and is_forecast(db, holder):
            raise _refuse_forecast(holder.name) from error
        raise


def _holds_groups(name: str, columns: Iterable[str]) -> CerebroError:
    return CerebroError(
        f"{name} holds models of groups, and this call takes the model of one table of rows",
        detail=f"Its groups are those of {', '.join(columns)}.",
        sqlstate=NOT_SUPPORTED,
    )


def group_tables(db: Database, table: Table) -> tuple[Table, Table, list[str]] | None:
    """Return the table if it holds models of groups, with its info table and its group columns; else None."""
    summary, info = _beside(db, table, "_summary"), _beside(db, table, "_info")
    if summary is None or info is None:
        return None
    _check_rights(db, [table, summary, info])
    columns = results.summary_row(db, summary.quoted).get(results.GROUP_BY[0])
    if columns and (cast := user_code.find_casts(db, table, columns)):
        raise CerebroError(
            f"column {', '.join(cast)} of {table.quoted} is of a type with a cast of its own to JSON or text",
            detail="To read its values would run the cast's function with your rights.",
            hint="Cast the column to text in a view, and pack that.",
            sqlstate=NOT_SUPPORTED,
        )
    return (table, info, columns) if columns else None


def _check_rights(db: Database, tables: Sequence[Table]) -> None:
    check_readable(
        db,
        tables,
        instead="Name the model table itself.",
        why="A model answers with the rights of the role that runs the query. A view lends none:"
        " the server runs a view's functions as whoever queries it.",
        hint="The owner gives all that it takes: "
        f"SELECT cerebro.grant_model_access('{tables[0].quoted}', 'role').",
    )
    user_code.refuse_code(db, tables)


def check_readable(
    db: Database, tables: Sequence[Table], *, instead: str, why: str, hint: str | None = None
) -> None:
    """Raise an error if the caller may not read a table, or if somebody else owns a view among the tables.

    Reading such a view would run its owner's code. `instead` is the hint of the error about a view; `why` and
    `hint` are the detail and the hint of the error about missing rights.
    """
    strange = models.strange_views(db, tables)
    if strange:
        raise CerebroError(
            f"{', '.join(strange)} is no table, and somebody else owns it",
            detail="To read it would run its owner's code with your rights.",
            hint=instead,
            sqlstate=WRONG_OBJECT,
        )
    missing = models.unreadable(db, tables)
    if missing:
        raise CerebroError(
            f"permission denied for {', '.join(missing)}",
            detail=why,
            hint=hint,
            sqlstate=INSUFFICIENT_PRIVILEGE,
        )


def best_key(db: Database, info: Table) -> int:
    """Return the `mst_key` of the config that the leaderboard ranks first."""
    ranked = [
        (standing(reparse_compile(row["compile_params"]), row["metric"], row["loss"]), row["mst_key"])
        for row in results.measured(db, info.quoted)
    ]
    if not ranked:
        raise CerebroError(f"no config of {info.quoted} has a model", sqlstate=WRONG_STATE)
    return min(ranked)[1]


def _beside(db: Database, table: Table, suffix: str) -> Table | None:
    return find_table(db, quote(table.schema, table.name + suffix))


def _of_version(db: Database, holder: RegisteredVersion, mst_key: int | None) -> TrainedModel:
    if mst_key is not None:
        raise CerebroError(
            f"mst_key {mst_key} was given, but {holder.name} is a single model", hint="Leave mst_key out."
        )
    held = holder.read(db)
    about = json.loads(held.about)
    if (groups := registered_groups.read(about)) is not None:
        raise _holds_groups(holder.name, groups.columns)
    selected = models.Selected(ONLY, about["model_id"], held.compile_params, held.fit_params)
    stored = results.Stored(held.model_arch, has_weights=True)
    return TrainedModel(
        holder=holder, mst_key=None, selected=selected, stored=stored, run_id=None, backend=held.backend
    )


def _single(db: Database, table: Table, row: Any, mst_key: int | None) -> TrainedModel:
    if mst_key is not None:
        raise CerebroError(
            f"mst_key {mst_key} was given, but {table.quoted} holds a single model",
            hint="Leave mst_key out, or name a table of madlib_fit_multiple_model.",
        )
    stored = results.stored_model(db, table.quoted, None)
    if stored is None:
        raise CerebroError(f"model table {table.quoted} is empty", sqlstate=WRONG_STATE)
    selected = models.Selected(ONLY, row["model_id"], row["compile_params"], row["fit_params"])
    return TrainedModel(
        holder=ResultTable(table),
        mst_key=None,
        selected=selected,
        stored=stored,
        run_id=row.get("run_id"),
        backend=row.get("backend"),
    )


def one_of_many(db: Database, table: Table, info: Table, row: Any, mst_key: int) -> TrainedModel:
    """Return the model of config `mst_key` from a table of several models; `row` is the table's summary."""
    config = results.trained_config(db, info.quoted, mst_key)
    if config is None:
        raise CerebroError(f"mst_key {mst_key} is not in {info.quoted}", hint=_keys_of(db, info))
    stored = results.stored_model(db, table.quoted, mst_key)
    if stored is None:
        raise CerebroError(
            f"config {mst_key} of {table.quoted} has no model: it {config['status']}", sqlstate=WRONG_STATE
        )
    selected = models.Selected(mst_key, config["model_id"], config["compile_params"], config["fit_params"])
    return TrainedModel(
        holder=ResultTable(table),
        mst_key=mst_key,
        selected=selected,
        stored=stored,
        run_id=row.get("run_id"),
        backend=config["backend"],
    )


def _keys_of(db: Database, info: Table) -> str:
    keys = [str(key) for key in results.trained_models(db, info.quoted)]
    return f"Give {'one of ' if len(keys) > 1 else ''}{', '.join(keys)}."
