"""Runs whose configs share visits, killed and resumed: committed visits stay, and the bits are the same."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import closing

import pytest

import nets
from disturbing import run_begun, session_at_work
from scratch import Server, kill, server
from trial import Trial, blobs, rows_of

pytestmark = [pytest.mark.slow, pytest.mark.postgresql]

FEATURES, EPOCHS, CONFIGS = 6, 40, 8


@pytest.fixture(scope="module")
def scratch() -> Iterator[Server]:
    with server() as made:
        with closing(made.connect()) as connection:
            connection.notices = []
            trial = Trial(connection)
            trial.table("blobs", "x real[], y integer", rows_of(*blobs(400, features=FEATURES)))
            trial.pack("blobs", "packed")
            trial.model(nets.mlp(FEATURES))
            rates = [f"optimizer='Adam(lr={0.001 * (1 + n)})'" for n in range(CONFIGS)]
            compiled = [f"loss='categorical_crossentropy',metrics=['accuracy'],{rate}" for rate in rates]
            trial.select("configs", [1], compiled, ["batch_size=10"])
            fit(trial, "off", "off")
            fit(trial, "fast", "fast")
            fit(trial, "tensorflow_off", "off", "tensorflow")
        yield made


def fit(trial: Trial, out: str, fuse: str, backend: str = "jax") -> None:
    trial.fit("packed", out, "configs", EPOCHS, options={"backend": backend, "fuse": fuse})


@pytest.mark.parametrize(
    ("fuse", "backend", "whole"),
    [
        ("exact", "jax", False),
        ("exact", "jax", True),
        ("fast", "jax", False),
        ("exact", "tensorflow", False),
    ],
)
def test_what_is_killed_goes_on_to_the_same_bits(
    scratch: Server, fuse: str, backend: str, whole: bool
) -> None:
    out = f"killed_{backend}_{fuse}_{whole}".lower()
    expected = "fast" if fuse == "fast" else "off" if backend == "jax" else f"{backend}_off"
    with closing(scratch.connect()) as caller, closing(scratch.connect()) as person:
        looking = Trial(person)
        thread, failed = run_begun(looking, caller, lambda trial: fit(trial, out, fuse, backend), visits=100)
        if whole:
            scratch.kill_all()
        else:
            kill(session_at_work(looking, thread), signal.SIGKILL)
        thread.join()
        assert failed
    scratch.ensure_up()
    with closing(scratch.connect()) as person:
        person.notices = []
        trial = Trial(person)
        trial.sql("SELECT cerebro.resume(%s)", trial.value("SELECT max(run_id) FROM cerebro.runs"))
        assert trial.weights(out) == trial.weights(expected)
