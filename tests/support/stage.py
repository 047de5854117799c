"""Roles, small tables and models for tests of rights, and matrices of results as text."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path

import psycopg2
import pytest
from psycopg2 import sql as syntax

import nets
from fixtures import Connection, Rows, execute

ARCHITECTURE = nets.mlp(4, 2, 2)
WEIGHTS = bytes(64)
SGD = "loss='categorical_crossentropy',optimizer='SGD(lr=0.1)',metrics=['accuracy']"
FITTED = "batch_size=8,epochs=1"

_TABLES = """
CREATE TABLE {0}.rows AS
    SELECT g AS id, array[g, g % 3, g % 2, 1]::real[] AS x, g % 2 AS y FROM generate_series(1, 12) AS g;
CREATE TABLE {0}.held AS
    SELECT g AS id, array[g, g % 3, g % 2, 1]::real[] AS x, g % 2 AS y FROM generate_series(13, 16) AS g;
"""
# One segment and JAX, whose sessions start fastest: what is tested here is who may do it.
_SETTINGS = "INSERT INTO cerebro.settings VALUES ('backend', 'jax'), ('segments', '1'), ('threads', '1')"


def connect(dbname: str, user: str | None = None) -> Connection:
    connection = psycopg2.connect(dbname=dbname, user=user)
    connection.autocommit = True
    connection.notices = []
    return connection


def unique(purpose: str) -> str:
    return f"cerebro_{purpose}_{os.getpid()}"


class Stage:
    """A superuser's connection that acts as different roles in turn, and the roles it has created."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self.roles: list[str] = []
        execute(connection, _SETTINGS)

    def sql(self, query: str, *values: object) -> Rows:
        return execute(self.connection, query, *values)

    def value(self, query: str, *values: object) -> object:
        return self.sql(query, *values)[0][0]

    def role(self, name: str, attributes: str = "", *, usage: bool = True) -> str:
        """Create a login role that is dropped with the stage, and return its full name."""
        full = unique(name)
        self.named("DROP ROLE IF EXISTS {0}", full)
        self.named(f"CREATE ROLE {{0}} LOGIN {attributes}", full)
        self.roles.append(full)
        if usage:
            self.sql("SELECT cerebro.grant_usage(%s)", full)
        return full

    def named(self, statement: str, *names: str) -> Rows:
        """Run statements, after replacing `{0}`, `{1}` and so on with the names, quoted as identifiers."""
        return execute(self.connection, syntax.SQL(statement).format(*map(syntax.Identifier, names)))

    @contextmanager
    def acting(self, role: str) -> Iterator[None]:
        """Run the block as a role, by SET SESSION AUTHORIZATION."""
        self.named("SET SESSION AUTHORIZATION {0}", role)
        try:
            yield
        finally:
            self.sql("RESET SESSION AUTHORIZATION")

    def lab(self, owner: str, schema: str) -> None:
        """Create a schema of a role, with tables of rows, packed tables, architectures and configs."""
        # In two steps: Greenplum's segments ask the owner for the right to make it.
        self.named("CREATE SCHEMA {1}; ALTER SCHEMA {1} OWNER TO {0}", owner, schema)
        with self.acting(owner):
            self.named(_TABLES, schema)
            place = syntax.Identifier(schema).as_string(self.connection)
            one = "options => '{\"segments\": 1}'"
            self.sql(
                f"SELECT cerebro.training_preprocessor_dl('{place}.rows', '{place}.packed', 'y', 'x', {one})"
            )
            self.sql(
                f"SELECT cerebro.validation_preprocessor_dl('{place}.held', '{place}.packed_val', 'y', 'x',"
                f" '{place}.packed')"
            )
            self.sql(f"SELECT cerebro.load_keras_model('{place}.arch', %s)", ARCHITECTURE)
            self.sql(f"SELECT cerebro.load_keras_model('{place}.arch', %s, %s)", ARCHITECTURE, WEIGHTS)
            self.sql(
                f"SELECT cerebro.load_model_selection_table('{place}.arch', '{place}.mst', ARRAY[1], %s, %s)",
                [SGD], [FITTED],
            )  # fmt: skip

    def arm(self, role: str, attempts: Iterable[str]) -> None:
        """Insert the statements to try into `attack.attempts`, and grant a role all rights on `attack`."""
        for number, statement in enumerate(attempts):
            self.sql("INSERT INTO attack.attempts VALUES (%s, %s)", number, statement)
        for what in ("SCHEMA attack", "ALL TABLES IN SCHEMA attack", "ALL SEQUENCES IN SCHEMA attack"):
            self.named(f"GRANT ALL ON {what} TO {{0}}", role)

    def fit(self, schema: str = "lab", out: str = "m", source: str = "packed") -> int:
        """Train the only config of a schema that `lab` made, and return the run_id."""
        place = syntax.Identifier(schema).as_string(self.connection)
        self.sql(
            f"SELECT cerebro.madlib_fit_multiple_model('{place}.{source}', '{place}.{out}', '{place}.mst', 1,"
            " options => '{\"seed\": 3}')"
        )
        return int(str(self.value(f"SELECT run_id FROM {place}.{out}_summary")))

    def attempt(self, role: str, *statements: str, level: str = "READ COMMITTED") -> str:
        """Run statements as a role, roll them back, and return "ok" or the SQLSTATE of the error."""
        with self.acting(role):
            self.sql(f"BEGIN ISOLATION LEVEL {level}")
            try:
                for statement in statements:
                    self.sql(statement)
                return "ok"
            except psycopg2.Error as error:
                return error.pgcode or str(error)
            finally:
                self.sql("ROLLBACK")


@contextmanager
def stage(dbname: str) -> Iterator[Stage]:
    """Yield a stage in a database; drop its roles, with all that they own, at the end of the block."""
    with closing(connect(dbname)) as connection:
        made = Stage(connection)
        yield made
        roles = made.roles
    with closing(connect(dbname)) as connection:
        for name in reversed(roles):
            for statement in ("DROP OWNED BY {0} CASCADE", "DROP ROLE {0}"):
                execute(connection, syntax.SQL(statement).format(syntax.Identifier(name)))


def table(head: str, rows: dict[str, dict[str, str]], first: str) -> str:
    """Return a matrix as text with aligned columns, below the comment `head`; `first` is the first header."""
    columns = list(next(iter(rows.values())))
    lines = [
        [first, *columns],
        *([name, *(cells[column] for column in columns)] for name, cells in rows.items()),
    ]
    widths = [max(len(line[number]) for line in lines) for number in range(len(columns) + 1)]
    text = "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
        for line in lines
    )
    comment = "\n".join(f"# {line}" for line in head.splitlines())
    return f"{comment}\n\n{text}\n"


def compare(file: Path, found: str, without: Sequence[str] = ()) -> None:
    """Assert that a text equals the expected file, or write this file if CEREBRO_UPDATE is set.

    Lines of the file that begin with a text in `without` are ignored: the server lacks these features.
    """
    if os.environ.get("CEREBRO_UPDATE"):
        file.parent.mkdir(exist_ok=True)
        file.write_text(found)
        return
    if not file.exists():
        pytest.fail(f"{file} is missing: run once with CEREBRO_UPDATE=1 and review it")
    lines = [line for line in file.read_text().splitlines() if not line.startswith(tuple(without))]
    # A line that is left out may have been the one that made a column so wide.
    assert [line.split() for line in found.splitlines()] == [line.split() for line in lines]
