"""A run in one session while a person steers it from another session, and a script of the person's calls."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import psycopg2
import pytest

import nets
from fixtures import Connection, execute
from trial import SGD, Trial, blobs, rows_of

FEATURES = 12
SLOWER = SGD.replace("0.1", "0.01")
LONG, QUICK = "batch_size=1,epochs=600", "batch_size=50,epochs=1"


def make_tables(trial: Trial) -> None:
    """Create a packed table and the selection tables `long`, whose config 1 trains for long, and `one`."""
    trial.table("blobs", "x real[], y integer", rows_of(*blobs(400, features=FEATURES)))
    trial.pack("blobs", "packed", options={"segments": 4})
    trial.model(nets.mlp(FEATURES))
    trial.select("long", [1], [SGD], [LONG, QUICK])
    trial.sql("INSERT INTO long VALUES (3, 1, %s, %s)", SLOWER, QUICK)
    trial.select("one", [1], [SGD.replace("0.1", "0.2")], [QUICK])


class Run:
    """A run on the connection of `trial`, and the connection of the person who steers it."""

    def __init__(self, trial: Trial, person: Connection) -> None:
        self.trial = trial
        self.person = person
        self.pool = ThreadPoolExecutor(1)
        self.call: Future[int] | None = None
        self.run_id = 0
        # A session's first call loads the extension's code, and the run must not end meanwhile.
        self.refused("pause")

    def start(self, out: str, selection: str = "long", epochs: int = 1, **options: Any) -> int:
        before = self.ask("SELECT coalesce(max(run_id), 0) FROM cerebro.runs")
        more = {"backend": "jax", **options}
        self.call = self.pool.submit(self.trial.fit, "packed", out, selection, epochs, options=more)
        self.until(lambda: self.ask("SELECT coalesce(max(run_id), 0) FROM cerebro.runs") > before)
        self.run_id = self.ask("SELECT coalesce(max(run_id), 0) FROM cerebro.runs")
        return self.run_id

    def ask(self, query: str, *values: object) -> Any:
        return execute(self.person, query, *values)[0][0]

    def steer(self, call: str, *values: object) -> Any:
        """Call a function of cerebro for the run, and return the first column of its result."""
        places = "".join(", %s" for _ in values)
        return [
            row[0] for row in execute(self.person, f"SELECT cerebro.{call}(%s{places})", self.run_id, *values)
        ]

    def refused(self, call: str, *values: object) -> str:
        with pytest.raises(psycopg2.Error) as caught:
            self.steer(call, *values)
        return f"{caught.value.pgcode} {caught.value.diag.message_primary}".replace("cerebro: ", "")

    def until(self, condition: Callable[[], bool]) -> None:
        deadline = time.monotonic() + 120
        while not condition():
            assert time.monotonic() < deadline, "it never came to be"
            if self.call is not None and self.call.done():
                self.call.result()
            time.sleep(0.01)

    def status(self, mst_key: int) -> str:
        query = "SELECT status FROM cerebro.progress WHERE run_id = %s AND mst_key = %s"
        return self.ask(query, self.run_id, mst_key)

    def answered(self) -> None:
        """Wait until the run has acted on all requests of the person."""
        self.until(lambda: not execute(self.person, "SELECT 1 FROM cerebro._decided WHERE pending"))

    def end(self) -> None:
        assert self.call is not None
        self.call.result(timeout=120)


def script(run: Run, halfway: Callable[[], None] = lambda: None) -> None:
    """Steer a run while config 1 trains, and leave the run paused.

    The result is the same whenever the run acts on each request. `halfway` is called between two requests.
    """
    run.steer("set_epochs", 1, 1000)
    run.until(lambda: [run.status(key) for key in (2, 3)] == ["finished", "finished"])
    run.steer("pause")
    assert run.steer("clone_config", 2, SLOWER) == [4]
    assert run.steer("clone_config", 4, None, None, False) == [5]
    assert run.steer("clone_config", 2, None, None, False) == [6]
    assert run.steer("add_configs", "one") == [7]
    halfway()
    run.steer("set_epochs", 3, 3)
    run.steer("delete_config", 5)
    run.steer("stop_config", 6)
    run.steer("delete_config", 1)


def left(connection: Connection, out: str) -> dict[str, Any]:
    """Return the weights, metrics and progress of all configs of a run, without times."""
    return {
        "model": sorted(
            (k, bytes(w)) for k, w in execute(connection, f"SELECT mst_key, model_weights FROM {out}")
        ),
        "info": execute(
            connection,
            f"SELECT mst_key, compile_params, fit_params, status, reason, training_loss, training_metrics"
            f" FROM {out}_info ORDER BY mst_key",
        ),
        "progress": execute(
            connection,
            "SELECT mst_key, status, epochs, cloned_from, visits_total, asked FROM cerebro.progress"
            f" WHERE run_id = (SELECT run_id FROM {out}_summary) ORDER BY mst_key",
        ),
    }
