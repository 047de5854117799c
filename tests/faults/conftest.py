"""Fixture of the fault tests: a harness with one private server for all rounds."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from harness import Harness
from scratch import server


@pytest.fixture(scope="session")
def harness() -> Iterator[Harness]:
    with server() as made:
        prepared = Harness(made, seed=4)
        prepared.prepare(["jax"])
        yield prepared
