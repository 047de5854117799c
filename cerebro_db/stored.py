"""Reads tables that a run names, safely: their owner may have put something else in their place."""

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
# Plain ones and partitioned ones.
_KINDS = ("r", "p")
# What COPY writes otherwise than it is.
_ESCAPED = re.compile(r"\\(.)", re.DOTALL)
_CHARACTERS = {"b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}


def table(db: Server, name: str) -> str:
    """Return the name of a table that a run names; refuse what is no table.

    A view in its place would run its owner's functions with the rights of whoever reads it, who named no view
    but a run. What one owns oneself may be anything.
    """
    for found in db.look(_TABLE, name):
        check_kind(found, name)
    return name


def check_kind(found: Row, name: str) -> None:
    """Refuse what is no table and not the caller's own, by its row in the catalog."""
    if found["kind"] not in _KINDS and not found["own"]:
        raise CerebroError(
            f"{name} is no longer a table, and somebody else owns it",
            hint="What is there now would run with your rights. Ask its owner for the table.",
            sqlstate="42809",
        )


def check_of_run(db: Server, models: str, run_id: int) -> None:
    """Refuse a table that holds the models of another run."""
    summary = table(db, table_name(models, "_summary"))
    for found in db.rows(f"SELECT run_id FROM {summary}"):
        if found["run_id"] != run_id:
            raise CerebroError(
                f"{models} has the models of run {found['run_id']}, and no longer those of run {run_id}",
                hint="Name the other run, or train again under another name.",
                sqlstate="55000",
            )


def key_in(db: Server, models: str, mst_key: int) -> int | None:
    """Return the key that a config has in a table of models; the table of one model has none."""
    return mst_key if "mst_key" in _columns(db, models) else None


def architecture(db: Server, models: str, mst_key: int) -> str | None:
    """Return the architecture of a config in a table of models, if it has one."""
    key = key_in(db, models, mst_key)
    rows = _copied(db, models, ["model_arch"] if key is None else ["mst_key", "model_arch"])
    return next((fields[-1] for fields in rows if key is None or fields[0] == str(key)), None)


def specification(db: Server, models: str) -> dict[str, Any] | None:
    """Return what the columns of the training rows became, with the classes; None if not prepared."""
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
    """Return the rows of a table, as text.

    They are taken by COPY, as pg_dump takes rows: this reads tables alone, and runs nothing that is its
    owner's.
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
    """Return the architecture as the server takes it: parts on its list, of a size that it trains."""
    name = f"pg_temp.cerebro_checked_{secrets.token_hex(6)}"
    with db.session() as connection:
        link.execute(connection, call("load_keras_model", name, architecture), quietly=True)
        found = link.look(connection, f"SELECT model_arch::text AS model_arch FROM {name}")
        link.execute(connection, f"DROP TABLE {name}", quietly=True)
    return found[0]["model_arch"]
