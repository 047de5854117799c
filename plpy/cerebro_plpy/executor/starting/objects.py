"""MADlib's object tables, which list functions by name. Their content is never executed.

A function's name in a config means a registered function or one of this package, whatever such a table says.
"""

from __future__ import annotations

import base64
import importlib.util
import sys

from cerebro_plpy.database import Database
from cerebro_plpy.errors import (
    DUPLICATE_OBJECT,
    NOT_SUPPORTED,
    NULL_NOT_ALLOWED,
    UNDEFINED_OBJECT,
    UNDEFINED_TABLE,
    CerebroError,
)
from cerebro_plpy.executor.starting import functions
from cerebro_plpy.executor.starting import request as requests
from cerebro_plpy.madlib.literal import shorten
from cerebro_plpy.store import dialect
from cerebro_plpy.store.models import functions as registry
from cerebro_plpy.store.models import objects
from cerebro_plpy.store.names import check_writable, resolve_table, target_table

WHAT = "object table"
MOST_K = 99_999


def load_custom(
    db: Database,
    table_name: str | None,
    serialized: bytes | None,
    name: str | None,
    description: str | None,
) -> None:
    """Register a function that was serialized by dill, and add it to an object table."""
    registry.check_superuser(db, "load serialized functions")
    if serialized is None or name is None:
        raise CerebroError("object and name cannot be NULL", sqlstate=NULL_NOT_ALLOWED)
    _check_dill(name)
    functions.check_name(name)
    source = (
        "# What load_custom_function was given: an object that dill has serialized.\n"
        f"import base64\nimport dill\n\n{name} = dill.loads(base64.b64decode(\n"
        f'    "{base64.b64encode(serialized).decode()}"\n))\n'
    )
    _add(
        db,
        table_name=table_name,
        name=name,
        description=description,
        serialized=serialized,
    )
    functions.register_either(db, name, source, description)
    db.notice(f"{name} is registered: cerebro.grant_function lets other roles use it")


def _check_dill(name: str) -> None:
    if importlib.util.find_spec("dill") is None:
        raise CerebroError(
            'serialized functions need the Python package "dill", which is missing on the server',
            detail=f"Python {sys.version.split()[0]} looked in: {', '.join(filter(None, sys.path))}.",
            hint="Register the function's source, which needs no package:"
            f" SELECT cerebro.register_function({dialect.literal(shorten(name, 60))}, $$def …$$, 'loss').",
            sqlstate=NOT_SUPPORTED,
        )


def load_top_k(db: Database, table_name: str | None, k: int | None) -> None:
    """Add top-k accuracy, a metric of this package, to an object table."""
    if k is None:
        raise CerebroError("k is NULL", sqlstate=NULL_NOT_ALLOWED)
    if not 1 <= k <= MOST_K:
        raise CerebroError(f"k is {k}", detail=f"It must be at least 1 and at most {MOST_K}.")
    description = f"whether the true class is among the {k} most likely ones"
    _add(
        db,
        table_name=table_name,
        name=f"top_{k}_accuracy",
        description=description,
        serialized=None,
    )


def _add(
    db: Database,
    table_name: str | None,
    name: str,
    description: str | None,
    serialized: bytes | None,
) -> None:
    check_writable(db, "a change of a table of functions")
    try:
        quoted = requests.object_table(db, table_name)
    except CerebroError as error:
        if error.sqlstate != UNDEFINED_TABLE:
            raise
        quoted = None
    if quoted is None:
        target = target_table(db, table_name, WHAT)
        objects.create(db, target)
        quoted = target.quoted
    if not objects.add(db, quoted, name, description, serialized):
        raise CerebroError(f"Function '{name}' already exists in {quoted}", sqlstate=DUPLICATE_OBJECT)


def delete(db: Database, table_name: str | None, function: int | str | None) -> None:
    """Delete a function from an object table, by its id or name; drop the table if it is empty then."""
    if function is None:
        raise CerebroError("id or name is NULL", sqlstate=NULL_NOT_ALLOWED)
    check_writable(db, "a change of a table of functions")
    table = resolve_table(db, table_name, WHAT)
    objects.check(db, table)
    if not objects.delete(db, table.quoted, function):
        raise CerebroError(
            f"function {shorten(function, 80)} is not in {table.quoted}", sqlstate=UNDEFINED_OBJECT
        )


def update_table(db: Database, table_name: str | None) -> None:
    """Check that an object table can be used. It never needs an update, since nothing in it is unpickled."""
    table = resolve_table(db, table_name, WHAT)
    objects.check(db, table)
    db.notice(f"{table.quoted} needs no update")
