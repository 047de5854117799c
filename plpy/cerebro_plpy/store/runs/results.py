"""SQL on the result tables that a run leaves to its caller: MADlib's tables and columns, then ours."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from cerebro_plpy.database import Database
from cerebro_plpy.errors import DATA_CORRUPTED, UNDEFINED_COLUMN, UNDEFINED_TABLE, WRONG_OBJECT, CerebroError
from cerebro_plpy.store import plain
from cerebro_plpy.store.dialect import HEAP, distributed
from cerebro_plpy.store.names import Table, TargetTable, find_missing_columns
from cerebro_plpy.store.packed.groups import FALLBACK
from cerebro_plpy.store.packed.packed import FEATURES
from cerebro_plpy.store.user_code import FIRST_OF_USERS

ResultColumns = Sequence[tuple[str, str]]

# Names of tables stand in the summaries as they were written in the call; here, by column, so that they are
# found whatever the search_path.
QUALIFIED = ("qualified_names", "jsonb")
# In a cross-validated run: the fold that a model has not seen, and where such models are kept, its config.
FOLD, CONFIG_KEY = "fold", "config_key"
# In the summary of an ensemble of models by fold: how many there are. Together they have seen all rows.
FOLDS = ("folds", "integer")
# The columns that make groups, where each has models of its own.
GROUP_BY = ("group_by", "text[]")
_MODEL: ResultColumns = (
    ("mst_key", "integer"),
    ("model_weights", "bytea"),
    ("model_arch", "json"),
    ("__dist_key__", "integer"),
)
_HISTORY: ResultColumns = (
    ("model_size", "double precision"),
    ("metrics_elapsed_time", "double precision[]"),
    ("metrics_type", "text[]"),
    ("loss_type", "text"),
    ("training_metrics_final", "double precision"),
    ("training_loss_final", "double precision"),
    ("training_metrics", "double precision[]"),
    ("training_loss", "double precision[]"),
    ("validation_metrics_final", "double precision"),
    ("validation_loss_final", "double precision"),
    ("validation_metrics", "double precision[]"),
    ("validation_loss", "double precision[]"),
)
_INFO: ResultColumns = (
    ("mst_key", "integer PRIMARY KEY"),
    ("model_id", "integer"),
    ("compile_params", "text"),
    ("fit_params", "text"),
    ("model_type", "text"),
    *_HISTORY,
    ("status", "text"),
    ("reason", "text"),
    ("backend", "text"),
)
# A search has MADlib's columns for it before ours; s and i are Hyperband's.
_AUTOML_INFO: ResultColumns = (*_INFO[:-3], ("metrics_iters", "integer[]"))
_BRACKET: ResultColumns = (("s", "integer"), ("i", "integer"))
_AUTOML_SUMMARY: ResultColumns = (
    ("source_table", "text"),
    ("validation_table", "text"),
    ("model", "text"),
    ("model_info", "text"),
    ("dependent_varname", "text[]"),
    ("independent_varname", "text[]"),
    ("model_arch_table", "text"),
    ("model_selection_table", "text"),
    ("automl_method", "text"),
    ("automl_params", "text"),
    ("random_state", "text"),
    ("object_table", "text"),
    ("use_gpus", "boolean"),
    ("metrics_compute_frequency", "integer"),
    ("name", "text"),
    ("description", "text"),
    ("start_training_time", "timestamp"),
    ("end_training_time", "timestamp"),
    ("madlib_version", "text"),
    ("num_classes", "integer[]"),
    ("dependent_vartype", "text[]"),
    ("normalizing_const", "real"),
    ("run_id", "bigint"),
    ("seed", "bigint"),
    ("segments", "integer"),
    QUALIFIED,
    FEATURES,
)
_SUMMARY: ResultColumns = (
    ("source_table", "text"),
    ("validation_table", "text"),
    ("model", "text"),
    ("model_info", "text"),
    ("dependent_varname", "text[]"),
    ("independent_varname", "text[]"),
    ("model_arch_table", "text"),
    ("model_selection_table", "text"),
    ("object_table", "text"),
    ("num_iterations", "integer"),
    ("metrics_compute_frequency", "integer"),
    ("warm_start", "boolean"),
    ("name", "text"),
    ("description", "text"),
    ("start_training_time", "timestamp"),
    ("end_training_time", "timestamp"),
    ("madlib_version", "text"),
    ("num_classes", "integer[]"),
    ("dependent_vartype", "text[]"),
    ("normalizing_const", "real"),
    ("metrics_iters", "integer[]"),
    ("run_id", "bigint"),
    ("seed", "bigint"),
    ("segments", "integer"),
    QUALIFIED,
    FEATURES,
)

# The tables of a single model: the summary has what <out>_info has for several.
_SINGLE: ResultColumns = (("model_weights", "bytea"), ("model_arch", "json"))
_SINGLE_SUMMARY: ResultColumns = (
    ("source_table", "text"),
    ("model", "text"),
    ("dependent_varname", "text[]"),
    ("independent_varname", "text[]"),
    ("model_arch_table", "text"),
    ("model_id", "integer"),
    ("compile_params", "text"),
    ("fit_params", "text"),
    ("num_iterations", "integer"),
    ("validation_table", "text"),
    ("object_table", "text"),
    ("metrics_compute_frequency", "integer"),
    ("name", "text"),
    ("description", "text"),
    ("model_type", "text"),
    ("model_size", "double precision"),
    ("start_training_time", "timestamp"),
    ("end_training_time", "timestamp"),
    ("metrics_elapsed_time", "double precision[]"),
    ("madlib_version", "text"),
    ("num_classes", "integer[]"),
    ("dependent_vartype", "text[]"),
    ("normalizing_const", "real"),
    *_HISTORY[2:],
    ("metrics_iters", "integer[]"),
    ("backend", "text"),
    ("run_id", "bigint"),
    ("seed", "bigint"),
    ("segments", "integer"),
    QUALIFIED,
    FEATURES,
)
_EVALUATION: ResultColumns = (
    ("loss", "double precision"),
    ("metric", "double precision"),
    ("metrics_type", "text[]"),
    ("loss_type", "text"),
)


def columns_of_one(classes: Mapping[str, str]) -> list[ResultColumns]:
    """Return the columns of a single model's two tables; `classes` has the types of class_values columns."""
    return [_SINGLE, _with_classes(_SINGLE_SUMMARY, classes, "backend")]


def columns_of_many(
    classes: Mapping[str, str], *, folds: Sequence[str] = (), groups: Mapping[str, str] | None = None
) -> list[ResultColumns]:
    """Return the columns of several models' three tables; with folds or groups, a config has several rows."""
    first = [*(dict.fromkeys(folds, "integer") or groups or {}).items()]
    first += [(FALLBACK, "boolean")] if groups else []
    info = [*first, ("mst_key", "integer"), *_INFO[1:]] if first else _INFO
    model = [*first, *_MODEL] if groups else _MODEL
    summary = [*_SUMMARY, GROUP_BY] if groups else _SUMMARY
    return [model, info, _with_classes(summary, classes, "dependent_vartype")]


def columns_of_search(
    classes: Mapping[str, str], *, brackets: bool, groups: Mapping[str, str]
) -> list[ResultColumns]:
    """Return the columns of a search's three tables; on groups, a config has a row for each group."""
    first = [*groups.items(), (FALLBACK, "boolean")] if groups else []
    key = ("mst_key", "integer" if groups else "integer PRIMARY KEY")
    summary = [*_AUTOML_SUMMARY, GROUP_BY] if groups else _AUTOML_SUMMARY
    return [
        [*first, key, *_MODEL[1:]],
        [*first, key, *_AUTOML_INFO[1:], *(_BRACKET if brackets else ()), *_INFO[-3:]],
        _with_classes(summary, classes, "dependent_vartype"),
    ]


def _with_classes(columns: ResultColumns, classes: Mapping[str, str], before: str) -> ResultColumns:
    place = [name for name, _ in columns].index(before)
    return [*columns[:place], *classes.items(), *columns[place:]]


def create(db: Database, target: TargetTable, columns: ResultColumns) -> None:
    """Create a result table with these columns."""
    _create(db, target, columns)
    if "model_weights" in dict(columns):
        db.query(f"ALTER TABLE {target.quoted} ALTER COLUMN model_weights SET STORAGE EXTERNAL")


def create_evaluation(db: Database, target: TargetTable, groups: Mapping[str, str] | None = None) -> None:
    of_groups = [*groups.items(), (FALLBACK, "boolean"), ("mst_key", "integer")] if groups else []
    _create(db, target, [*of_groups, *_EVALUATION])


def automl_columns() -> list[str]:
    return [name for name, _ in _AUTOML_SUMMARY]


def _create(db: Database, target: TargetTable, columns: ResultColumns) -> None:
    listed = ", ".join(f"{_quote(name)} {type_}" for name, type_ in columns)
    # A table of models, or one with this key alone, is not small.
    by_key = "model_weights" in dict(columns) and "mst_key" in dict(columns) or columns[0][0] == "mst_key"
    how = "BY (mst_key)" if by_key else "REPLICATED"
    if "model_weights" in dict(columns) and FALLBACK in dict(columns):
        # Thousands of groups have the same config.
        how = "BY (__dist_key__)"
    db.query(f"CREATE TABLE {target.quoted} ({listed}){HEAP}{distributed(db, how)}")


def create_gpu_configuration(db: Database, target: TargetTable, rows: Sequence[tuple[str, str]]) -> None:
    """Create MADlib's table of hosts and their GPUs, with these rows."""
    _create(db, target, (("hostname", "text"), ("gpu_descr", "text")))
    db.query(
        f"INSERT INTO {target.quoted} SELECT * FROM ROWS FROM (pg_catalog.unnest($1), pg_catalog.unnest($2))",
        ["text[]", "text[]"],
        [[host for host, _ in rows], [described for _, described in rows]],
    )


def holds_several(db: Database, model: Table) -> bool:
    """Return whether a model table holds several models, each with a key (mst_key).

    Only the table's own columns decide this, since a table beside it may be left over from another run.
    """
    missing = find_missing_columns(db, model, ["model_weights", "model_arch", "mst_key"])
    if missing and missing != ["mst_key"]:
        raise CerebroError(
            f"table {model.quoted} is not a model table: it has no column {missing[0]}",
            sqlstate=UNDEFINED_COLUMN,
        )
    return not missing


def check_summary(db: Database, model: Table, summary: Table) -> None:
    """Raise an error if one of the two tables is for a single model and the other is for several."""
    of_several = bool(find_missing_columns(db, summary, ["compile_params"]))
    if holds_several(db, model) != of_several:
        raise CerebroError(
            f"table {summary.quoted} is not the summary of {model.quoted}",
            detail=f"It describes {'several models' if of_several else 'a single model'}, and the table holds"
            f" {'a single one' if of_several else 'several'}.",
            hint="Was one of them dropped without the other? Train anew, under another name.",
            sqlstate=WRONG_OBJECT,
        )


def add_model(
    db: Database, quoted: str, mst_key: int, weights: bytes | None, model_arch: str, key: int
) -> None:
    db.query(
        f"INSERT INTO {quoted} (mst_key, model_weights, model_arch, __dist_key__) VALUES ($1, $2, $3, $4)",
        ["integer", "bytea", "json", "integer"],
        [mst_key, weights, model_arch, key],
    )


def add_models_of_groups(
    db: Database,
    quoted: str,
    *,
    columns: Sequence[str],
    keys: Sequence[int],
    groups: Sequence[str | None],
    weights: Sequence[bytes | None],
    nets: Sequence[str],
    places: Sequence[int],
) -> None:
    """Insert models of groups; `groups` has each group's key as JSON, or None for the model of all rows."""
    names = ", ".join(map(_quote, columns))
    made = ", ".join(f"g.{_quote(name)}" for name in columns)
    db.query(
        f"INSERT INTO {quoted} ({names}, {FALLBACK}, mst_key, model_weights, model_arch, __dist_key__)"
        f" SELECT {made}, m.key IS NULL, m.mst_key, m.weights, ($4::text[])[m.net]::json, m.place"
        " FROM ROWS FROM (unnest($1), unnest($2), unnest($3), unnest($5), unnest($6))"
        " AS m (mst_key, key, weights, net, place),"
        f" LATERAL jsonb_populate_record(NULL::{quoted}, coalesce(m.key, '{{}}')::jsonb) AS g",
        ["integer[]", "text[]", "bytea[]", "text[]", "integer[]", "integer[]"],
        [
            list(keys),
            list(groups),
            list(weights),
            kinds := list(dict.fromkeys(nets)),
            [kinds.index(net) + 1 for net in nets],
            list(places),
        ],
    )


def add_single_model(db: Database, quoted: str, weights: bytes | None, model_arch: str) -> None:
    db.query(
        f"INSERT INTO {quoted} (model_weights, model_arch) VALUES ($1, $2)",
        ["bytea", "json"],
        [weights, model_arch],
    )


def add_row(db: Database, quoted: str, row: Mapping[str, Any]) -> None:
    add_rows(db, quoted, [row])


def add_summary(
    db: Database,
    quoted: str,
    row: Mapping[str, Any],
    types: Mapping[str, str],
    values: Sequence[Sequence[str | None] | None],
) -> None:
    """Insert the row of a summary, with its class_values columns, each in its own type.

    This takes one statement: if a publication covers all tables, a table without a key cannot be updated.
    """
    given = [f"${number}::{type_}" for number, type_ in enumerate(types.values(), 2)]
    names = ", ".join(map(_quote, row))
    db.query(
        f"INSERT INTO {quoted} ({', '.join([names, *map(_quote, types)])})"
        f" SELECT {', '.join([names, *given])} FROM jsonb_populate_record(NULL::{quoted}, $1)",
        ["jsonb", *["text[]"] * len(types)],
        [json.dumps(_without_nan(row)), *values[: len(types)]],
    )


def add_rows(db: Database, quoted: str, rows: Sequence[Mapping[str, Any]]) -> None:
    """Insert rows that all have the same columns, given by name; arrays and numbers are sent as JSON."""
    if not rows:
        return
    names = ", ".join(_quote(name) for name in rows[0])
    db.query(
        f"INSERT INTO {quoted} ({names}) SELECT {names} FROM jsonb_populate_recordset(NULL::{quoted}, $1)",
        ["jsonb"],
        [json.dumps([_without_nan(row) for row in rows])],
    )


def _without_nan(value: Any) -> Any:
    """Return a value with NaN and infinities as texts, which PostgreSQL can read: JSON has none of them."""
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, Mapping):
        return {key: _without_nan(item) for key, item in value.items()}
    return [_without_nan(item) for item in value] if isinstance(value, list) else value


def _quote(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def weights_from(db: Database, table: str, key_column: str | None, key: int | None) -> bytes:
    """Return the weights in a user's table, read with the caller's rights; raise an error if it has none."""
    condition = f" WHERE {key_column} = $1" if key_column else " WHERE $1::integer IS NULL"
    rows = db.query(f"SELECT model_weights AS weights FROM {table}{condition}", ["integer"], [key])
    if not rows or rows[0]["weights"] is None:
        raise CerebroError(f"there are no weights to start from in {table}", sqlstate=UNDEFINED_TABLE)
    return rows[0]["weights"]


def trained_config(db: Database, info: str, mst_key: int) -> Mapping[str, Any] | None:
    """Return a config's parameters by its key, or None; on groups, a row that has a model is preferred."""
    rows = db.query(
        f"SELECT i.mst_key, i.model_id, i.compile_params, i.fit_params, i.status, i.backend"
        f" FROM {info} AS i WHERE i.mst_key = $1 ORDER BY i.model_size IS NULL LIMIT 1",
        ["integer"],
        [mst_key],
    )
    return rows[0] if rows else None


def measured(db: Database, info: str) -> list[Mapping[str, Any]]:
    """Return each config that has a model, with its last loss and metric, on validation rows if any."""
    return db.query(
        "SELECT i.mst_key, i.compile_params,"
        " CASE WHEN v.used THEN i.validation_loss_final ELSE i.training_loss_final END AS loss,"
        " CASE WHEN v.used THEN i.validation_metrics_final ELSE i.training_metrics_final END AS metric"
        f" FROM {info} AS i, (SELECT count(validation_loss_final) > 0 AS used FROM {info}) AS v"
        " WHERE i.model_size IS NOT NULL AND i.compile_params IS NOT NULL AND i.mst_key IS NOT NULL"
    )


def ranked(db: Database, info: str, arch_table: str) -> list[Mapping[str, Any]]:
    """Return a search's configs that have models, with their nets' names and their last measurements."""
    return db.query(
        "SELECT i.mst_key, coalesce(a.name, 'model ' || i.model_id) AS net, i.compile_params,"
        " i.compile_params || ', ' || i.fit_params AS params, i.metrics_type[1] AS metric,"
        " coalesce(i.validation_metrics_final, i.training_metrics_final) AS value,"
        " coalesce(i.validation_loss_final, i.training_loss_final) AS loss"
        f" FROM {info} AS i LEFT JOIN {arch_table} AS a USING (model_id) WHERE i.model_size IS NOT NULL"
    )


def trained_models(db: Database, info: str) -> dict[int, int]:
    """Return the model_id of each config in the table that describes a run's models, by the config's key."""
    rows = db.query(f"SELECT mst_key, model_id FROM {info} ORDER BY mst_key")
    return {row["mst_key"]: row["model_id"] for row in rows}


def engines_of(db: Database, info: str) -> dict[int, str]:
    """Return the engine of each architecture in the table that describes a run's models, by `model_id`."""
    rows = db.query(f"SELECT DISTINCT model_id, backend FROM {info} WHERE backend IS NOT NULL")
    return {row["model_id"]: row["backend"] for row in rows}


@dataclass(frozen=True)
class Stored:
    model_arch: str
    has_weights: bool


def stored_model(db: Database, model: str, mst_key: int | None) -> Stored | None:
    """Return one model of a model table, or None; without `mst_key`, the table holds a single model."""
    condition = " WHERE mst_key = $1" if mst_key is not None else " WHERE $1::integer IS NULL"
    rows = db.query(
        "SELECT model_arch::text AS model_arch, model_weights IS NOT NULL AS has_weights"
        f" FROM {model}{condition}",
        ["integer"],
        [mst_key],
    )
    return Stored(**rows[0]) if rows else None


def summary_row(db: Database, summary: str) -> Mapping[str, Any]:
    """Return a summary's only row as values of JSON; raise an error if no run can have written it."""
    found = _plain_row(db, summary)
    if found is None:
        raise CerebroError(f"table {summary} is empty", sqlstate=UNDEFINED_TABLE)
    _check_row(summary, found)
    return found


def config_row(db: Database, info: str, mst_key: int) -> Mapping[str, Any]:
    """Return a config's row in the table that describes models, as values of JSON; empty if there is none."""
    return _plain_row(db, info, f" WHERE mst_key = {int(mst_key)} ORDER BY model_size IS NULL LIMIT 1") or {}


def _plain_row(db: Database, table: str, condition: str = "") -> Mapping[str, Any] | None:
    """Return the first row of a table as values of JSON, or None.

    Columns of types that users have made are left out, since a cast to JSON could be anybody's code.
    """
    known = db.query(
        "SELECT attname::text AS name FROM pg_catalog.pg_attribute"
        " WHERE attrelid = pg_catalog.to_regclass($1)"
        f" AND attnum > 0 AND NOT attisdropped AND atttypid < {FIRST_OF_USERS} ORDER BY attnum",
        ["text"],
        [table],
    )
    listed = ", ".join(_quote(row["name"]) for row in known)
    rows = db.query(f"SELECT {plain.as_json('s')} AS row FROM (SELECT {listed} FROM {table}{condition}) AS s")
    return json.loads(rows[0]["row"]) if rows else None


def _check_row(summary: str, row: Mapping[str, Any]) -> None:
    """Raise an error if no run can have written this row of a summary."""
    names, divisor = row.get("dependent_varname"), row.get("normalizing_const")
    listed = isinstance(names, list) and names and all(isinstance(name, str) for name in names)
    if not listed or not (divisor is None or isinstance(divisor, int | float)):
        raise CerebroError(
            f"table {summary} is damaged: no run has written what it holds",
            detail=f"dependent_varname is {json.dumps(names)}, normalizing_const is {json.dumps(divisor)}.",
            hint="Train again, or restore the table.",
            sqlstate=DATA_CORRUPTED,
        )


def empty(db: Database, quoted: str) -> None:
    """Remove all rows of a table."""
    db.query(f"TRUNCATE TABLE {quoted}")


def keys_with_weights(db: Database, model: str) -> list[Mapping[str, Any]]:
    return db.query(f"SELECT mst_key FROM {model} WHERE model_weights IS NOT NULL")


def named_table(summary: Mapping[str, Any], column: str) -> str | None:
    """Return the name of a table from a column of a summary; the qualified name, if the summary has one."""
    qualified = summary.get("qualified_names")
    found = (qualified if isinstance(qualified, Mapping) else {}).get(column) or summary.get(column)
    return found if isinstance(found, str) else None
