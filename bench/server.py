"""The server side of the benchmark: its own database, its source tables, and the jobs of cerebro."""

from __future__ import annotations

import io
import json
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import psycopg2
from workloads import Rows, Workload

DATABASE = os.environ.get("CEREBRO_BENCH_DATABASE", "cerebro_bench")
SEED = 42
# A checkpoint that an earlier job has caused must not fall into a measured one.
_SETTLE = ("CHECKPOINT",)


def connect(database: str | None = None) -> Any:
    connection = psycopg2.connect(dbname=database or DATABASE)
    connection.autocommit = True
    return connection


def query(
    connection: Any, sql: str, values: Sequence[object] | Mapping[str, object] = ()
) -> list[tuple[Any, ...]]:
    with connection.cursor() as cursor:
        cursor.execute(sql, values or None)
        return cursor.fetchall() if cursor.description else []


def value(connection: Any, sql: str, values: Sequence[object] = ()) -> Any:
    return query(connection, sql, values)[0][0]


def make_database() -> None:
    with closing(connect(os.environ.get("PGDATABASE", "postgres"))) as connection:
        _drop_database(connection)
        query(connection, f"CREATE DATABASE {DATABASE}")
    with closing(connect()) as connection:
        query(connection, "CREATE EXTENSION cerebro CASCADE")


def drop_database() -> None:
    with closing(connect(os.environ.get("PGDATABASE", "postgres"))) as connection:
        _drop_database(connection)


def _drop_database(connection: Any) -> None:
    """Drop the benchmark's database; from PostgreSQL 13 on, this also ends its sessions."""
    force = " WITH (FORCE)" if connection.server_version >= 130000 else ""
    query(connection, f"DROP DATABASE IF EXISTS {DATABASE}{force}")


def server_process(connection: Any) -> int:
    """Return the process ID of the postmaster, from which all processes of the server descend."""
    return int(value(connection, "SELECT split_part(pg_read_file('postmaster.pid'), E'\\n', 1)"))


def load(connection: Any, workload: Workload) -> None:
    """Create the source tables and the table of architectures of a workload, with which every job starts."""
    for part, rows in zip(("train", "validation"), workload.data(), strict=True):
        load_table(connection, f"{workload.name}_{part}", rows)
    load_nets(connection, workload)


def load_nets(connection: Any, workload: Workload) -> None:
    table = f"{workload.name}_nets"
    query(connection, f"DROP TABLE IF EXISTS {table}, {table}_summary")
    given = workload.weights or [None] * len(workload.nets)
    for net, weights in zip(workload.nets, given, strict=True):
        data = None if weights is None else b"".join(array.astype("<f4").tobytes() for array in weights)
        query(connection, "SELECT cerebro.load_keras_model(%s, %s, %s)", (table, net, data))


def load_table(connection: Any, name: str, rows: Rows) -> None:
    query(connection, f"DROP TABLE IF EXISTS {name}")
    query(connection, f"CREATE TABLE {name} (id integer, x real[], y integer)")
    with connection.cursor() as cursor:
        for first in range(0, len(rows.y), 10000):
            data = binary_rows(first, rows.part(first, first + 10000))
            cursor.copy_expert(f"COPY {name} FROM STDIN (FORMAT binary)", io.BytesIO(data))
    query(connection, f"VACUUM ANALYZE {name}")


def _record(width: int) -> np.dtype:
    """Return the NumPy type of a row (integer, real[width], integer) in the binary format of COPY."""
    element = [("length", ">i4"), ("value", ">f4")]
    array = [("dimensions", ">i4"), ("nulls", ">i4"), ("type", ">i4"), ("size", ">i4"), ("lower", ">i4")]
    return np.dtype(
        [("fields", ">i2"), ("id_length", ">i4"), ("id", ">i4"), ("x_length", ">i4"), *array]
        + [("x", element, (width,)), ("y_length", ">i4"), ("y", ">i4")]
    )


_HEADER = b"PGCOPY\n\xff\r\n\0" + bytes(8)


def binary_rows(first_id: int, rows: Rows) -> bytes:
    width = rows.x.shape[1]
    table = np.zeros(len(rows.y), _record(width))
    fixed = {"fields": 3, "id_length": 4, "x_length": 20 + 8 * width, "dimensions": 1, "type": 700}
    for name, number in (fixed | {"size": width, "lower": 1, "y_length": 4}).items():
        table[name] = number
    table["id"] = first_id + np.arange(len(rows.y))
    table["x"]["length"] = 4
    table["x"]["value"] = rows.x
    table["y"] = rows.y
    return _HEADER + table.tobytes() + b"\xff\xff"


def export(connection: Any, table: str, width: int) -> Rows:
    """Return all rows of a table, read by COPY in binary format, which is the fastest to decode."""
    received = io.BytesIO()
    with connection.cursor() as cursor:
        cursor.copy_expert(f"COPY (SELECT id, x, y FROM {table}) TO STDOUT (FORMAT binary)", received)
    record = _record(width)
    data = memoryview(received.getbuffer())[len(_HEADER) : -2]
    found = np.frombuffer(data, record)
    return Rows(found["x"]["value"].astype(np.float32), found["y"].astype(np.int32))


@dataclass(frozen=True)
class Job:
    """The run and the seconds of one whole job of cerebro: pack, train, evaluate, and write the tables."""

    run_id: int
    seconds: float
    pack_seconds: float


@contextmanager
def session() -> Iterator[Any]:
    """Yield a connection; at the end, close it and wait until its segment sessions have ended."""
    connection = connect()
    for statement in _SETTLE:
        query(connection, statement)
    try:
        yield connection
    finally:
        connection.close()
        wait_for_end()


def wait_for_end() -> None:
    """Wait until no other session uses the benchmark's database."""
    with closing(connect()) as connection:
        while value(
            connection,
            "SELECT count(*) FROM pg_stat_activity WHERE datname = %s AND pid <> pg_backend_pid()"
            " AND backend_type = 'client backend'",
            (DATABASE,),
        ):
            time.sleep(0.1)


def make_configs(connection: Any, workload: Workload) -> None:
    name = workload.name
    drop(connection, [f"{name}_configs", f"{name}_configs_summary"])
    for config in workload.configs:
        compile_grid = (
            "{'loss': ['categorical_crossentropy'], 'metrics': ['accuracy'], 'optimizer_params_list':"
            f" [{{'optimizer': ['Adam'], 'learning_rate': [{config.learning_rate!r}]}}]}}"
        )
        query(
            connection,
            "SELECT cerebro.generate_model_configs(%s, %s, %s, %s, %s)",
            (f"{name}_nets", f"{name}_configs", [config.net + 1], compile_grid,
             f"{{'batch_size': [{config.batch_size}]}}"),
        )  # fmt: skip


def pack(connection: Any, workload: Workload, options: str) -> float:
    """Pack a workload's training and validation tables; return the seconds."""
    name = workload.name
    drop(
        connection,
        [f"{name}_{part}_packed{end}" for part in ("train", "validation") for end in ("", "_summary")],
    )
    clock = time.perf_counter()
    query(
        connection,
        "SELECT cerebro.training_preprocessor_dl(%s, %s, 'y', 'x', num_classes => %s, options => %s)",
        (f"{name}_train", f"{name}_train_packed", [workload.classes], options),
    )
    query(
        connection,
        "SELECT cerebro.validation_preprocessor_dl(%s, %s, 'y', 'x', %s)",
        (f"{name}_validation", f"{name}_validation_packed", f"{name}_train_packed"),
    )
    return time.perf_counter() - clock


def drop(connection: Any, tables: Sequence[str]) -> None:
    query(connection, f"DROP TABLE IF EXISTS {', '.join(tables)}")


def fit(
    connection: Any, workload: Workload, options: str, frequency: int | None = None, validate: bool = True
) -> tuple[int, float]:
    """Train a workload's configs on its packed tables; return the number of the run and the seconds."""
    name = workload.name
    drop(connection, [f"{name}_models", f"{name}_models_info", f"{name}_models_summary"])
    clock = time.perf_counter()
    query(
        connection,
        "SELECT cerebro.madlib_fit_multiple_model(%s, %s, %s, %s, FALSE, %s, %s, options => %s)",
        (f"{name}_train_packed", f"{name}_models", f"{name}_configs", workload.epochs,
         f"{name}_validation_packed" if validate else None, frequency, options),
    )  # fmt: skip
    seconds = time.perf_counter() - clock
    run_id = value(connection, f"SELECT run_id FROM {name}_models_summary")
    failed = query(
        connection, "SELECT failure FROM cerebro.leaderboard WHERE run_id = %s AND failure <> ''", (run_id,)
    )
    if failed:
        raise RuntimeError(f"{len(failed)} configs of {name} failed: {failed[0][0]}")
    return run_id, seconds


def job(connection: Any, workload: Workload, options: str) -> Job:
    packing = pack(connection, workload, packing_options(workload))
    run_id, training = fit(connection, workload, options)
    return Job(run_id, packing + training, packing)


def packing_options(workload: Workload, segments: int | None = None) -> str:
    options: dict[str, object] = {"seed": SEED}
    if len(workload.shape) > 1:
        options["shape"] = list(workload.shape)
    if segments is not None:
        options["segments"] = segments
    return json.dumps(options)


def accuracy(connection: Any, run_id: int) -> float:
    return value(connection, "SELECT max(value) FROM cerebro.leaderboard WHERE run_id = %s", (run_id,))


def hopped(connection: Any, run_id: int) -> int:
    """Return the bytes of all states that the visits of a run have written."""
    return value(
        connection, "SELECT sum(state_bytes)::bigint FROM cerebro.visits WHERE run_id = %s", (run_id,)
    )


def database_bytes(connection: Any) -> int:
    return value(connection, "SELECT pg_database_size(current_database())")
