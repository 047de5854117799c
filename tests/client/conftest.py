"""One database for all tests of the client, whose sessions stay warm, with rows to learn from."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator

import pytest

# Before Keras is loaded anywhere: its engine talks a lot.
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import cerebro_db
from cerebro_db import Database, Packed, Run

import nets
from cars import CARS, GRID


@pytest.fixture(autouse=True)
def ctrl_c() -> Iterator[None]:
    """Have SIGINT interrupt, as in a terminal: whatever starts the tests may ignore it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.fixture(scope="session")
def client(client_database: str) -> Iterator[Database]:
    """A client of that database, which holds the table `cars`."""
    with cerebro_db.connect(f"postgresql:///{client_database}") as db:
        db.rows("INSERT INTO cerebro.settings VALUES ('segments', '2'), ('threads', '1')")
        db.rows(CARS)
        yield db


@pytest.fixture(scope="session")
def packed(client: Database) -> Packed:
    """The prices of the cars, packed."""
    return client.pack("cars", x=["weight", "power"], y="price")


@pytest.fixture(scope="session")
def model(client: Database) -> int:
    """An architecture for prices."""
    return client.architectures.add(nets.mlp(2, 8, 1, "linear"), name="prices")


@pytest.fixture(scope="session")
def run(client: Database, packed: Packed, model: int) -> Run:
    """A run that is over."""
    return client.fit(packed, {**GRID, "model": model}, epochs=3, seed=1, name="prices", wait=True)
