"""Checks the tables that a retraining reads because the version, and not the call, names them."""

from __future__ import annotations

from collections.abc import Sequence

from cerebro_plpy.database import Database
from cerebro_plpy.errors import INSUFFICIENT_PRIVILEGE, CerebroError
from cerebro_plpy.predicting.trained import check_readable
from cerebro_plpy.store import session
from cerebro_plpy.store.models import model_versions, models
from cerebro_plpy.store.names import Table

_NAME_IT = "Name what you trust: source => 'a table or view'."


def check(db: Database, tables: Sequence[Table], name: str, version: int) -> None:
    """Raise an error for tables that a retraining should not read with the caller's rights.

    These are views of other roles, and tables with rows hidden from the role that registered the version.
    """
    check_readable(
        db,
        tables,
        instead=_NAME_IT,
        why="The version was trained on these rows, and you read them with your own rights.",
    )
    check_known(db, tables, name, version, _NAME_IT)


def check_known(db: Database, tables: Sequence[Table], name: str, version: int, instead: str) -> None:
    """Raise an error for tables of which the role that registered a version may not read all rows.

    This role may have written the recipe, and it sees the new version, which would reveal such rows.
    `instead` is the hint of the error.
    """
    role = model_versions.registered_by(db, name, version)
    if role is None or role == session.current_user(db):
        return
    hidden = models.hidden_from(db, role, tables)
    if hidden:
        raise CerebroError(
            f"{name}@{version} names {', '.join(hidden)}, and role {role}, which registered it, may not read"
            " all rows of it",
            detail="The new version would tell that role of these rows.",
            hint=instead,
            sqlstate=INSUFFICIENT_PRIVILEGE,
        )
