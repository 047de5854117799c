"""Reads the tables of a run safely: their owner may have replaced a table, for example by a view."""

from __future__ import annotations

import io
import json
import re
import secrets
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from psycopg2.extensions import UNICODEARRAY

from cerebro_db import link
from cerebro_db.errors import CerebroError
from cerebro_db.link import Row
from cerebro_db.statements import call, table_name

if TYPE_CHECKING:
    from cerebro_db.protocols import Server

_TABLE = """
SELECT relkind::text AS kind, pg_get_userbyid(relowner) = current_user AS own
FROM pg_class WHERE oid = to_regclass(%s)
"""
_COLUMNS = """
SELECT attname::text AS name FROM pg_attribute
WHERE attrelid = to_regclass(%s) AND attnum > 0 AND NOT attisdropped
"""
_FEATURES = "feature_specification"
_CLASSES = "_class_values"
# Plain tables and partitioned tables.
_KINDS = ("r", "p")
# Characters that COPY escapes with a backslash.
_ESCAPED = re.compile(r"\\(.)", re.DOTALL)
_CHARACTERS = {"b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}


def table(db: Server, name: str) -> str:
    """Return `name`; raise CerebroError if it names another role's object that is no table.

    A view in place of the table would run its owner's functions with the rights of the caller, who has named
    only a run. An object of the caller's own may be of any kind.
    """
    for found in db.look(_TABLE, name):
        check_kind(found, name)
    return name


def check_kind(found: Row, name: str) -> None:
    """Raise CerebroError if `found`, a row of pg_class, is another role's object that is no table."""
    if found["kind"] not in _KINDS and not found["own"]:
        raise CerebroError(
            f"{name} is no longer a table, and somebody else owns it",
            hint="What is there now would run with your rights. Ask its owner for the table.",
            sqlstate="42809",
        )


def check_of_run(db: Server, models: str, run_id: int) -> None:
    """Raise CerebroError if the model table `models` holds the models of another run."""
    summary = table(db, table_name(models, "_summary"))
    for found in db.rows(f"SELECT run_id FROM {summary}"):
        if found["run_id"] != run_id:
            raise CerebroError(
                f"{models} has the models of run {found['run_id']}, and no longer those of run {run_id}",
                hint="Name the other run, or train again under another name.",
                sqlstate="55000",
            )


def key_in(db: Server, models: str, mst_key: int) -> int | None:
    """Return `mst_key`, or None if the model table has no such column because it holds one model."""
    return mst_key if "mst_key" in _columns(db, models) else None


def architecture(db: Server, models: str, mst_key: int) -> str | None:
    """Return the architecture of a config in a model table, or None if the table has no such config."""
    key = key_in(db, models, mst_key)
    rows = _copied(db, models, ["model_arch"] if key is None else ["mst_key", "model_arch"])
    return next((fields[-1] for fields in rows if key is None or fields[0] == str(key)), None)


def specification(db: Server, models: str) -> dict[str, Any] | None:
    """Return the feature specification of a model table, with the class values; None if it has none."""
    summary = table_name(models, "_summary")
    columns = _columns(db, summary)
    if _FEATURES not in columns:
        return None
    classes = [name for name in columns if name.endswith(_CLASSES)]
    (found, *values), *_ = _copied(db, summary, [_FEATURES, *classes])
    if found is None:
        return None
    names = [name.removesuffix(_CLASSES) for name in classes]
    with db.session() as connection, connection.cursor() as cursor:
        read = [UNICODEARRAY(text, cursor) for text in values]
    return {**json.loads(found), "classes": dict(zip(names, read, strict=True))}


def _columns(db: Server, name: str) -> list[str]:
    return [row["name"] for row in db.look(_COLUMNS, table(db, name))]


def _copied(db: Server, name: str, columns: Sequence[str]) -> list[list[str | None]]:
    """Return the values of some columns of a table as text, read with COPY.

    Like pg_dump, this can read only tables, and runs no code of the table's owner.
    """
    rows = io.StringIO(newline="\n")
    listed = ", ".join('"' + column.replace('"', '""') + '"' for column in columns)
    with db.session() as connection, link.setting(connection, "row_security", "off"):
        link.copy(connection, f"COPY {name} ({listed}) TO STDOUT", rows)
    return [[_field(text) for text in line.split("\t")] for line in rows.getvalue().split("\n")[:-1]]


def _field(text: str) -> str | None:
    return None if text == r"\N" else _ESCAPED.sub(_character, text)


def _character(escape: re.Match[str]) -> str:
    return _CHARACTERS.get(escape[1], escape[1])


def checked(db: Server, architecture: str) -> str:
    """Return an architecture's JSON as the server has checked it; raise CerebroError if it is refused."""
    name = f"pg_temp.cerebro_checked_{secrets.token_hex(6)}"
    with db.session() as connection:
        link.execute(connection, call("load_keras_model", name, architecture), quietly=True)
        found = link.look(connection, f"SELECT model_arch::text AS model_arch FROM {name}")
        link.execute(connection, f"DROP TABLE {name}", quietly=True)
    return found[0]["model_arch"]
