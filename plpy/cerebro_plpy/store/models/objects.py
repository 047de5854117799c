"""SQL on object tables; all of it runs with the caller's rights, and the functions in rows are never read."""

from __future__ import annotations

from cerebro_plpy.database import Database
from cerebro_plpy.errors import UNDEFINED_COLUMN, CerebroError
from cerebro_plpy.store.dialect import distributed
from cerebro_plpy.store.names import Table, TargetTable, find_missing_columns


def create(db: Database, target: TargetTable) -> None:
    db.query(
        f"CREATE TABLE {target.quoted} (id serial, name text PRIMARY KEY, description text, object bytea)"
        + distributed(db, "BY (name)")
    )
    db.query(f"COMMENT ON TABLE {target.quoted} IS 'Names of functions; cerebro.functions has their source'")


def check(db: Database, table: Table) -> None:
    missing = find_missing_columns(db, table, ["id", "name", "description", "object"])
    if missing:
        raise CerebroError(
            f"table {table.quoted} is not an object table: it has no column {', '.join(missing)}",
            hint="Make one with cerebro.load_custom_function or cerebro.load_top_k_accuracy_function.",
            sqlstate=UNDEFINED_COLUMN,
        )


def add(db: Database, quoted: str, name: str, description: str | None, serialized: bytes | None) -> bool:
    """Insert a row into an object table; return False if the table has a row of that name."""
    added = db.query(
        f"INSERT INTO {quoted} (name, description, object) VALUES ($1, $2, $3)"
        " ON CONFLICT DO NOTHING RETURNING name",
        ["text", "text", "bytea"],
        [name, description, serialized],
    )
    return bool(added)


def delete(db: Database, quoted: str, function: int | str) -> bool:
    """Delete a row by its id or name, and drop the table if it was the last row; return False if there is no
    such row."""
    column, kind = ("id", "integer") if isinstance(function, int) else ("name", "text")
    gone = db.query(f"DELETE FROM {quoted} WHERE {column} = $1 RETURNING name", [kind], [function])
    if gone and not db.query(f"SELECT FROM {quoted} LIMIT 1"):
        db.query(f"DROP TABLE {quoted}")
    return bool(gone)
