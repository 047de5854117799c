"""SQL on users' architecture tables and model selection tables; all of it runs with the caller's rights."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from cerebro_plpy.database import Database
from cerebro_plpy.errors import UNDEFINED_COLUMN, WRONG_STATE, CerebroError
from cerebro_plpy.madlib.spaces.grid import GridRow
from cerebro_plpy.store import session, user_code
from cerebro_plpy.store.dialect import HEAP, distributed
from cerebro_plpy.store.names import Table, TargetTable, find_missing_columns, target

_ARCH_COLUMNS = ("model_id", "model_arch", "model_weights", "name", "description")


def create_architectures(db: Database, target: TargetTable) -> None:
    db.query(
        f"CREATE TABLE {target.quoted} (model_id integer PRIMARY KEY, model_arch json NOT NULL,"
        " model_weights bytea, name text, description text, __internal_madlib_id__ text)"
        + HEAP
        + distributed(db, "BY (model_id)")
    )
    db.query(f"COMMENT ON TABLE {target.quoted} IS 'Architectures for cerebro.madlib_fit_multiple_model'")


def check_architectures(db: Database, table: Table) -> None:
    missing = find_missing_columns(db, table, _ARCH_COLUMNS)
    if missing:
        raise CerebroError(
            f"table {table.quoted} is not an architecture table: it has no column {', '.join(missing)}",
            hint="Make one with cerebro.load_keras_model.",
            sqlstate=UNDEFINED_COLUMN,
        )


def add_architecture(
    db: Database,
    quoted: str,
    model_arch: str,
    weights: bytes | None,
    name: str | None,
    description: str | None,
) -> int:
    """Insert an architecture into an architecture table, and return its model_id."""
    db.query(f"LOCK TABLE {quoted} IN SHARE ROW EXCLUSIVE MODE")
    return db.query(
        f"INSERT INTO {quoted} (model_id, model_arch, model_weights, name, description)"
        f" SELECT COALESCE(max(model_id), 0) + 1, $1, $2, $3, $4 FROM {quoted}"
        " RETURNING model_id",
        ["json", "bytea", "text", "text"],
        [model_arch, weights, name, description],
    )[0]["model_id"]


def delete_architecture(db: Database, table: Table, model_id: int) -> None:
    """Delete an architecture, and drop the table if it was the last one; raise an error if there is none with
    this id."""
    gone = db.query(
        f"DELETE FROM {table.quoted} WHERE model_id = $1 RETURNING model_id", ["integer"], [model_id]
    )
    if not gone:
        raise CerebroError(f"Model id {model_id} not found", detail=f"Looked in {table.quoted}.")
    if not db.query(f"SELECT FROM {table.quoted} LIMIT 1"):
        db.query(f"DROP TABLE {table.quoted}")


@dataclass(frozen=True)
class Architecture:
    model_id: int
    model_arch: str
    has_weights: bool
    name: str | None = None


def architectures(db: Database, table: Table, model_ids: Sequence[int]) -> list[Architecture]:
    """Return the architectures with these ids; raise an error for an id that is missing."""
    check_architectures(db, table)
    user_code.refuse_code(db, [table])
    rows = db.query(
        "SELECT model_id, model_arch::text AS model_arch, model_weights IS NOT NULL AS has_weights, name"
        f" FROM {table.quoted} WHERE model_id = ANY ($1) ORDER BY model_id",
        ["integer[]"],
        [list(model_ids)],
    )
    found = {row["model_id"] for row in rows}
    missing = sorted(set(model_ids) - found)
    if missing:
        raise CerebroError(
            f"One or more model_id of ({', '.join(map(str, missing))}) not found in table {table.quoted}",
            hint="cerebro.load_keras_model adds architectures.",
        )
    return [Architecture(**row) for row in rows]


def create_selection(db: Database, selection: TargetTable) -> None:
    db.query(
        f"CREATE TABLE {selection.quoted} (mst_key serial PRIMARY KEY, model_id integer NOT NULL,"
        " compile_params varchar NOT NULL, fit_params varchar NOT NULL,"
        " UNIQUE (model_id, compile_params, fit_params))" + HEAP + distributed(db, "REPLICATED")
        # No one key would do for both constraints.
    )


def add_selection(db: Database, quoted: str, configs: Iterable[GridRow]) -> None:
    rows = list(configs)
    db.query(
        f"INSERT INTO {quoted} (model_id, compile_params, fit_params)"
        " SELECT * FROM ROWS FROM (pg_catalog.unnest($1), pg_catalog.unnest($2), pg_catalog.unnest($3))",
        ["integer[]", "text[]", "text[]"],
        [[c.model_id for c in rows], [c.compile_params for c in rows], [c.fit_params for c in rows]],
    )


def add_selected(db: Database, quoted: str, chosen: Selected) -> None:
    """Insert a config into a model selection table under the key that it has in `chosen`; rows that are added
    later get larger keys."""
    db.query(
        f"INSERT INTO {quoted} (mst_key, model_id, compile_params, fit_params) VALUES ($1, $2, $3, $4)",
        ["integer", "integer", "text", "text"],
        list(vars(chosen).values()),
    )
    db.query(
        "SELECT pg_catalog.setval(pg_catalog.pg_get_serial_sequence($1, 'mst_key'), $2)",
        ["text", "bigint"],
        [quoted, chosen.mst_key],
    )


def create_selection_summary(
    db: Database, selection: TargetTable, arch_table: Table, spelled: str, object_table: str | None
) -> None:
    """Create the summary of a model selection table. It has the name of the architecture table twice: as the
    user wrote it (`spelled`), and qualified."""
    summary = target(db, selection.schema, selection.name + "_summary").quoted
    db.query(
        f"CREATE TABLE {summary} (model_arch_table varchar, object_table varchar, qualified_names jsonb)"
        + HEAP
        + distributed(db, "REPLICATED")
    )
    db.query(
        f"INSERT INTO {summary} (model_arch_table, object_table, qualified_names) VALUES ($1, $2, $3)",
        ["text", "text", "jsonb"],
        [spelled, object_table, json.dumps({"model_arch_table": arch_table.quoted})],
    )


def create_schedule(db: Database, quoted: str, rungs: Sequence[tuple[int, int, int, int]]) -> None:
    """Create a table of the rungs of all of Hyperband's brackets, with MADlib's columns."""
    db.query(
        f"CREATE TABLE {quoted} (s integer, i integer, n_i integer, r_i integer, UNIQUE (s, i))"
        + HEAP
        + distributed(db, "BY (s, i)")
    )
    db.query(
        f"INSERT INTO {quoted} SELECT * FROM ROWS FROM (pg_catalog.unnest($1), pg_catalog.unnest($2),"
        " pg_catalog.unnest($3), pg_catalog.unnest($4))",
        ["integer[]"] * 4,
        [list(column) for column in zip(*rungs, strict=True)],
    )


@dataclass(frozen=True)
class Selected:
    mst_key: int
    model_id: int
    compile_params: str
    fit_params: str


def selection(db: Database, table: Table) -> list[Selected]:
    user_code.refuse_code(db, [table])
    rows = db.query(
        "SELECT mst_key, model_id, compile_params::text AS compile_params, fit_params::text AS fit_params"
        f" FROM {table.quoted} ORDER BY mst_key"
    )
    if not rows:
        raise CerebroError(
            f"model selection table {table.quoted} is empty",
            hint="Fill it with cerebro.load_model_selection_table() or cerebro.generate_model_configs().",
            sqlstate=WRONG_STATE,
        )
    return [Selected(**row) for row in rows]


@dataclass(frozen=True)
class SelectionTables:
    """The tables that are named in the summary of a model selection table."""

    arch_table: str
    arch_spelled: str
    object_table: str | None


def selection_tables(db: Database, summary: Table) -> SelectionTables:
    user_code.refuse_code(db, [summary])
    rows = db.query(
        "SELECT s.model_arch_table::text AS spelled, s.object_table::text AS objects,"
        " pg_catalog.to_jsonb(s)->'qualified_names'->>'model_arch_table' AS name"
        f" FROM {summary.quoted} AS s"
    )
    if not rows:
        raise CerebroError(f"table {summary.quoted} is empty", sqlstate=WRONG_STATE)
    row = rows[0]
    return SelectionTables(row["name"] or row["spelled"], row["spelled"], row["objects"])


def owns(db: Database, table: Table) -> bool:
    return db.query(
        "SELECT pg_has_role(c.relowner, 'USAGE') AS owns FROM pg_class AS c WHERE c.oid = $1",
        ["oid"],
        [table.oid],
    )[0]["owns"]


def has_storage(db: Database, table: Table) -> bool:
    """Return whether a relation is a table, and not a view."""
    return bool(
        db.query("SELECT FROM pg_class WHERE oid = $1 AND relkind IN ('r', 'p')", ["oid"], [table.oid])
    )


def unreadable(db: Database, tables: Sequence[Table]) -> list[str]:
    """Return the names of the tables in which the caller may read no column, and of the schemas that the
    caller may not use."""
    rows = db.query(
        "SELECT format('%I.%I', n.nspname, c.relname) AS name FROM pg_class AS c JOIN pg_namespace AS n"
        " ON n.oid = c.relnamespace WHERE c.oid = ANY ($1::oid[])"
        " AND NOT has_any_column_privilege(c.oid, 'SELECT') UNION ALL"
        " SELECT DISTINCT format('schema %I', n.nspname) FROM pg_class AS c JOIN pg_namespace AS n"
        " ON n.oid = c.relnamespace WHERE c.oid = ANY ($1::oid[])"
        " AND NOT has_schema_privilege(n.oid, 'USAGE')",
        ["oid[]"],
        [[table.oid for table in tables]],
    )
    return [row["name"] for row in rows]


def hidden_from(db: Database, role: str, tables: Sequence[Table]) -> list[str]:
    """Return the names of the tables in which a role may not read all rows; all of them if there is no such
    role."""
    rows = db.query(
        "SELECT format('%I.%I', n.nspname, c.relname) AS name FROM pg_class AS c JOIN pg_namespace AS n"
        " ON n.oid = c.relnamespace LEFT JOIN pg_roles AS r ON r.rolname = $2 WHERE c.oid = ANY ($1::oid[])"
        " AND (r.oid IS NULL OR NOT has_schema_privilege(r.oid, n.oid, 'USAGE')"
        " OR NOT has_table_privilege(r.oid, c.oid, 'SELECT') OR c.relrowsecurity AND NOT r.rolsuper"
        " AND NOT r.rolbypassrls AND (c.relforcerowsecurity OR NOT pg_has_role(r.oid, c.relowner, 'USAGE')))",
        ["oid[]", "text"],
        [[table.oid for table in tables], role],
    )
    return [row["name"] for row in rows]


def is_own(db: Database, table: Table) -> bool:
    """Return whether the caller is the owner of a table, and not just a member of the owner."""
    return owner(db, table) == session.current_user(db)


def owner(db: Database, table: Table) -> str:
    """Return the role that owns a table."""
    return db.query(
        "SELECT pg_get_userbyid(c.relowner)::text AS found FROM pg_class AS c WHERE c.oid = $1::oid",
        ["oid"],
        [table.oid],
    )[0]["found"]


def strange_views(db: Database, tables: Sequence[Table]) -> list[str]:
    """Return the names of relations that are not tables and have another owner, such as views: reading one
    would run its owner's code as the caller."""
    rows = db.query(
        "SELECT c.oid::regclass::text AS name FROM pg_class AS c WHERE c.oid = ANY ($1::oid[])"
        " AND c.relkind NOT IN ('r', 'p') AND pg_get_userbyid(c.relowner) <> current_user",
        ["oid[]"],
        [[table.oid for table in tables]],
    )
    return [row["name"] for row in rows]
