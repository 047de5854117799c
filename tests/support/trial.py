"""Helpers for tests that train: they create tables, pack them, load architectures and configs, and train."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import psycopg2
import pytest
from psycopg2.extras import execute_values

from fixtures import CITUS_WORKERS, IS_GREENPLUM, Connection, Rows, execute
from nets import CLASSES, FEATURES

ADAM = "loss='categorical_crossentropy',optimizer='Adam(lr=0.01)',metrics=['accuracy']"
SGD = "loss='categorical_crossentropy',optimizer='SGD(lr=0.1)',metrics=['accuracy']"


class Trial:
    """Helpers that train and predict on one connection.

    All runs use one thread, so a later run can use the segment sessions of the first.
    """

    def __init__(self, connection: Connection) -> None:
        self.connection = connection

    def sql(self, query: str, *values: object) -> Rows:
        return execute(self.connection, query, *values)

    def value(self, query: str, *values: object) -> Any:
        return self.sql(query, *values)[0][0]

    def table(self, name: str, columns: str, rows: Iterable[Sequence[Any]]) -> None:
        self.sql(f"CREATE TABLE {name} ({columns})")
        with self.connection.cursor() as cursor:
            execute_values(cursor, f"INSERT INTO {name} VALUES %s", list(rows), page_size=1000)

    @property
    def topology(self) -> str:
        """The topology that runs on this server normally have: "greenplum", "citus" or "local"."""
        if self.value(IS_GREENPLUM):
            return "greenplum"
        return "citus" if CITUS_WORKERS else "local"

    def buffers(self, packed: str) -> Iterator[tuple[int, np.ndarray, np.ndarray]]:
        """Yield the segment, features and labels of each buffer of a packed table.

        Segments are numbered from 0 here, since their keys in the table may be any numbers.
        """
        query = f"SELECT __dist_key__, x, x_shape, y, y_shape FROM {packed} ORDER BY buffer_id"
        segments: dict[int, int] = {}
        for key, x, x_shape, y, y_shape in self.sql(query):
            segment = segments.setdefault(key, len(segments))
            yield segment, np.frombuffer(x, "<f4").reshape(x_shape), np.frombuffer(y, "<i2").reshape(y_shape)

    def pack(self, source: str, packed: str, y: str = "y", x: str = "x", **more: Any) -> None:
        options = {"segments": 2, **more.pop("options", {})}
        self.call("training_preprocessor_dl", source, packed, y, x, options=options, **more)

    def pack_validation(self, source: str, packed: str, training: str, y: str = "y", x: str = "x") -> None:
        self.call("validation_preprocessor_dl", source, packed, y, x, training)

    def model(self, model_arch: str, table: str = "arch", weights: bytes | None = None) -> int:
        """Load an architecture into a table, and return its model_id."""
        self.call("load_keras_model", table, model_arch, weights)
        return self.value(f"SELECT max(model_id) FROM {table}")

    def select(
        self,
        name: str,
        models: Sequence[int],
        compiles: Sequence[str],
        fits: Sequence[str],
        arch: str = "arch",
    ) -> None:
        self.sql(
            "SELECT cerebro.load_model_selection_table(%s, %s, %s::int[], %s::varchar[], %s::varchar[])",
            arch, name, list(models), list(compiles), list(fits),
        )  # fmt: skip

    def keep(self, name: str, selection: str, keys: Sequence[int]) -> None:
        """Create a model selection table with the configs `keys` of another one; mst_keys do not change."""
        self.sql(f"CREATE TABLE {name} AS SELECT * FROM {selection} WHERE mst_key = ANY (%s)", list(keys))
        self.sql(f"CREATE TABLE {name}_summary AS SELECT * FROM {selection}_summary")

    def fit(self, packed: str, out: str, selection: str, epochs: int, **more: Any) -> int:
        """Train the configs of a model selection table, and return the run_id."""
        options = {"threads": 1, "seed": 7, **more.pop("options", {})}
        self.call("madlib_fit_multiple_model", packed, out, selection, epochs, options=options, **more)
        return self.value(f"SELECT run_id FROM {out}_summary")

    def weights(self, out: str) -> dict[int, bytes]:
        return {key: bytes(data) for key, data in self.sql(f"SELECT mst_key, model_weights FROM {out}")}

    def count_shared(self, run_id: int) -> int:
        """Count the visits of a run that were not the first visit in their transaction.

        Transaction ids may repeat on different segments, so they are compared within a segment only.
        """
        return self.value(
            "SELECT count(*) - count(DISTINCT (segment, xmin::text)) FROM cerebro._visit WHERE run_id = %s",
            run_id,
        )

    def read_row(self, query: str, *values: object) -> dict[str, Any]:
        """Return the only row of a query as a dictionary by column name."""
        with self.connection.cursor() as cursor:
            cursor.execute(query, values or None)
            names = [column.name for column in cursor.description or []]
            (row,) = cursor.fetchall()
            return dict(zip(names, row, strict=True))

    def predicted(self, model: str, source: str, mst_key: int = 1) -> Rows:
        """Return x, y, the predicted class and its probability for each row of `source`, in the order of x.

        On Greenplum, madlib_predict computes the predictions; elsewhere, cerebro.predict in a query.
        """
        if self.topology != "greenplum":
            by_row = (
                f"SELECT s.x, s.y, p.class, p.probability FROM {source} AS s, cerebro.predict(%s, %s, x) AS p"
            )
            return self.sql(f"{by_row} ORDER BY x", model, mst_key)
        self.sql("DROP TABLE IF EXISTS numbered, predicted")
        self.sql(f"CREATE TABLE numbered AS SELECT row_number() OVER () AS id, * FROM {source}")
        self.call("madlib_predict", model, "numbered", "id", "x", "predicted", "response", mst_key=mst_key)
        return self.sql("SELECT x, y, class_value, prob FROM numbered JOIN predicted USING (id) ORDER BY x")

    def server_has(self, package: str) -> bool:
        """Return whether the server's Python finds a package on the path that the extension sets."""
        self.sql("SELECT cerebro._boot()")
        self.sql(
            "CREATE OR REPLACE FUNCTION has(package text) RETURNS boolean LANGUAGE plpython3u AS"
            " $$from importlib.util import find_spec; return find_spec(package) is not None$$"
        )
        return bool(self.value("SELECT has(%s)", package))

    def notices(self) -> str:
        """Return the server's notices since the last call."""
        said = "".join(self.connection.notices)
        self.connection.notices.clear()
        return said

    def call(
        self, function: str, *values: Any, options: Mapping[str, Any] | None = None, **named: Any
    ) -> None:
        """Call a function of the extension; `options` is passed as JSON."""
        if options is not None:
            named["options"] = json.dumps(options)
        places = ["%s"] * len(values) + [f"{name} => %s" for name in named]
        self.sql(f"SELECT cerebro.{function}({', '.join(places)})", *values, *named.values())


# Once a run has completed enough visits, the trigger makes further ones wait until the caller is cancelled.
_GATE = """
CREATE FUNCTION public.wait_at_gate() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF (SELECT count(*) FROM cerebro._visit WHERE run_id > {after}) >= {at_visits} THEN
        PERFORM pg_advisory_lock_shared({key}), pg_advisory_unlock_shared({key});
    END IF;
    RETURN NULL;
END $$;
CREATE TRIGGER gate BEFORE INSERT ON cerebro._visit FOR EACH STATEMENT EXECUTE FUNCTION public.wait_at_gate();
"""
_NO_GATE = "DROP TRIGGER gate ON cerebro._visit; DROP FUNCTION public.wait_at_gate()"
_GATE_KEY = 715517


@contextmanager
def cancelled(trial: Trial, at_visits: int) -> Iterator[None]:
    """Cancel the statement of the connection once its run has completed `at_visits` visits.

    A trigger makes the run wait for the cancel, so that it cannot finish first; Greenplum has none.
    """
    after = trial.value("SELECT max(run_id) FROM cerebro._run") or 0
    pid = trial.connection.info.backend_pid
    has_gate = not trial.value(IS_GREENPLUM)
    watcher = psycopg2.connect(trial.connection.dsn)
    watcher.autocommit = True
    over = threading.Event()

    def watch() -> None:
        while not over.wait(0.01):
            (visits,) = execute(watcher, "SELECT count(*) FROM cerebro._visit WHERE run_id > %s", after)
            if visits[0] >= at_visits:
                execute(watcher, "SELECT pg_cancel_backend(%s)", pid)
                break
        execute(watcher, "SELECT pg_advisory_unlock_all()")

    if has_gate:
        execute(watcher, "SELECT pg_advisory_lock(%s)", _GATE_KEY)
        execute(watcher, _GATE.format(after=after, at_visits=at_visits, key=_GATE_KEY))
    thread = threading.Thread(target=watch)
    thread.start()
    try:
        with pytest.raises(psycopg2.errors.QueryCanceled):
            yield
    finally:
        over.set()
        thread.join()
        if has_gate:
            execute(watcher, _NO_GATE)
        watcher.close()


def blobs(
    rows: int, seed: int = 0, features: int = FEATURES, classes: int = CLASSES
) -> tuple[np.ndarray, np.ndarray]:
    """Return random rows and their classes, which a small net can learn, though not perfectly."""
    random = np.random.default_rng(seed)
    centres = np.random.default_rng(99).normal(size=(classes, features))
    labels = random.integers(0, classes, rows)
    noise = random.normal(scale=3.0, size=(rows, features))
    return (centres[labels] + noise).astype(np.float32), labels


def like_a_cluster(trial: Trial, features: int) -> None:
    """Create the table of segment keys that Greenplum would have, and a packed table of random rows."""
    trial.sql("CREATE TABLE cerebro._segment_key AS SELECT generate_series(0, 9) AS dist_key")
    x, y = blobs(120, features=features)
    trial.table("blobs", "x real[], y integer", rows_of(x, y))
    trial.pack("blobs", "packed", buffer_size=25)


def rows_of(features: np.ndarray, labels: np.ndarray) -> list[tuple[list[float], int]]:
    return [(x.tolist(), int(y)) for x, y in zip(features, labels, strict=True)]
