"""What writes something down: a statement, and what it is given as JSON.

On Greenplum it is not always Python that runs it (cluster/coordinator.py).
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from cerebro_plpy.database import Database, as_owner

Writing = tuple[str, Any]
TELL = (
    "SELECT pg_catalog.pg_notify('cerebro_run', told)"
    " FROM pg_catalog.json_array_elements_text($1::json) AS told"
)


def given(name: str, kind: str) -> str:
    """A value of the JSON object that a statement is given."""
    return f"($1::json->>'{name}')::{kind}"


@as_owner
def write(db: Database, writings: Sequence[Writing]) -> None:
    for statement, about in writings:
        db.query(statement, ["text"], [json.dumps(about)])
