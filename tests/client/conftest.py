"""Fixtures of the client's tests: one database for all tests, a client with warm sessions, and a run."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator

import pytest

# Set before Keras is loaded, so that TensorFlow logs little.
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import cerebro_db
from cerebro_db import Database, Packed, Run

import nets
from cars import CARS, GRID

# The fixtures of a worker make the tables cars…, prices… and nets….
DROP_ALL_BUT_SHARED = """DO $$
DECLARE made text := (SELECT string_agg(oid::regclass::text, ', ') FROM pg_class
    WHERE relnamespace = 'public'::regnamespace AND relkind IN ('r', 'p')
    AND relname !~ '^(cars|prices|nets)');
BEGIN
    IF made IS NOT NULL THEN EXECUTE 'DROP TABLE ' || made || ' CASCADE'; END IF;
END $$"""


@pytest.fixture(autouse=True)
def ctrl_c() -> Iterator[None]:
    """Let SIGINT raise KeyboardInterrupt, even if the process that started the tests ignores SIGINT."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.fixture(scope="session")
def shared_client(client_database: str) -> Iterator[Database]:
    """Yield a client of the database that the client's tests share, and make the table `cars` there."""
    with cerebro_db.connect(f"postgresql:///{client_database}") as db:
        db.rows("INSERT INTO cerebro.settings VALUES ('segments', '2'), ('threads', '1')")
        db.rows(CARS)
        yield db


@pytest.fixture(scope="module")
def client(shared_client: Database) -> Iterator[Database]:
    """Yield the client; drop the module's tables afterwards, so that the next module can use their names."""
    yield shared_client
    shared_client.rows(DROP_ALL_BUT_SHARED)


@pytest.fixture(scope="session")
def packed(shared_client: Database) -> Packed:
    """A packed table of the cars, with the price as label."""
    return shared_client.pack("cars", x=["weight", "power"], y="price")


@pytest.fixture(scope="session")
def model(shared_client: Database) -> int:
    """The model_id of an architecture that predicts prices."""
    return shared_client.architectures.add(nets.mlp(2, 8, 1, "linear"), name="prices")


@pytest.fixture(scope="session")
def run(shared_client: Database, packed: Packed, model: int) -> Run:
    """A finished run on the prices of the cars."""
    return shared_client.fit(packed, {**GRID, "model": model}, epochs=3, seed=1, name="prices", wait=True)
