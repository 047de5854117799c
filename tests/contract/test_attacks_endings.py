"""No session works on after its call was cancelled, and no session that ends crashes the server."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass

import psycopg2
import pytest

from fixtures import Connection, execute
from stage import FITTED, SGD, Stage, connect, stage

pytestmark = [pytest.mark.slow, pytest.mark.postgresql]

SESSIONS = (
    "SELECT application_name FROM pg_stat_activity WHERE application_name LIKE 'cerebro%'"
    " AND datname = current_database()"
)
# Cancelled by then; and what is cancelled has so long to end, on a busy machine.
TIMEOUT, PATIENCE = 15, 60
# Exit handlers run in the reverse order of their registration: this one would run first, and crash.
CRASHES_AT_ITS_END = """
DO LANGUAGE plpython3u $$
import ctypes
from cerebro_plpy.engine.backends import runtime
runtime.start("jax", 1, False)
libc = ctypes.CDLL(None)
libc.on_exit(libc.abort, None)
$$
"""


def layer(kind: str, **config: object) -> dict[str, object]:
    return {"module": "keras.layers", "class_name": kind, "config": config}


def net(*layers: dict[str, object]) -> str:
    first, last = layer("InputLayer", batch_shape=[None, 4]), layer("Dense", units=2, activation="softmax")
    config = {"name": "net", "layers": [first, *layers, last]}
    return json.dumps({"module": "keras", "class_name": "Sequential", "config": config})


MANY_LAYERS = net(*[layer("Dense", units=1)] * 20_000)
MANY_STEPS = net(layer("RepeatVector", n=1_000_000), layer("LSTM", units=1, unroll=True))


@dataclass(frozen=True)
class Scene:
    stage: Stage
    login: Connection

    def sessions(self) -> list[tuple[str]]:
        return self.stage.sql(SESSIONS)


@pytest.fixture(scope="module")
def scene(database: str) -> Iterator[Scene]:
    with stage(database) as made:
        mallory = made.role("mallory")
        made.lab(mallory, "lab")
        with closing(connect(database, mallory)) as login:
            yield Scene(made, login)


def fit(login: Connection, architectures: str) -> None:
    execute(
        login,
        f"SELECT cerebro.madlib_fit('lab.packed', 'lab.m', 'lab.{architectures}', 1, %s, %s, 1)",
        SGD, FITTED,
    )  # fmt: skip


def test_a_check_of_an_endless_net_ends_with_its_call(scene: Scene) -> None:
    execute(scene.login, f"SET statement_timeout = '{TIMEOUT}s'")
    with pytest.raises(psycopg2.errors.QueryCanceled):
        execute(scene.login, "SELECT cerebro.load_keras_model('lab.endless', %s)", MANY_LAYERS)
    execute(scene.login, "RESET statement_timeout")
    until_ended(scene)


def test_a_visit_of_an_endless_net_ends_with_its_call(scene: Scene) -> None:
    """The net passes the check at once, but the visit would unroll a million steps, which takes hours."""
    execute(scene.login, "SELECT cerebro.load_keras_model('lab.unrolled', %s)", MANY_STEPS)
    execute(scene.login, f"SET statement_timeout = '{TIMEOUT}s'")
    with pytest.raises(psycopg2.errors.QueryCanceled):
        fit(scene.login, "unrolled")
    execute(scene.login, "RESET statement_timeout")
    until_ended(scene)


def until_ended(scene: Scene) -> None:
    """Wait until all sessions of the extension are idle; fail if one still works after `PATIENCE` seconds."""
    deadline = time.monotonic() + PATIENCE
    while left := [name for (name,) in scene.sessions() if name != "cerebro idle"]:
        assert time.monotonic() < deadline, left
        time.sleep(0.2)


def test_a_session_that_ends_takes_no_other_along(scene: Scene, database: str) -> None:
    """A session is terminated in which an exit handler of a library would crash the process.

    If the handler ran, the server would end all sessions. Libraries may register handlers at any time.
    """
    with closing(connect(database)) as ending:
        execute(ending, "SELECT cerebro.version()")
        execute(ending, CRASHES_AT_ITS_END)
        pid = ending.info.backend_pid
        scene.stage.sql("SELECT pg_terminate_backend(%s)", pid)
        deadline = time.monotonic() + PATIENCE
        while scene.stage.sql("SELECT 1 FROM pg_stat_activity WHERE pid = %s", pid):
            assert time.monotonic() < deadline
            time.sleep(0.1)
    # The server would have ended all sessions by now.
    time.sleep(1)
    assert scene.stage.sql("SELECT 1") == [(1,)]
