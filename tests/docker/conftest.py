"""Builds the container image once for all tests; skips the tests if no Docker engine answers."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import docker
import docker.errors
import pytest

from containers import PASSWORD, Server, container

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="session")
def engine() -> None:
    try:
        docker.from_env().ping()
    except docker.errors.DockerException as error:
        pytest.skip(f"no Docker engine answers: {error}")


@pytest.fixture(scope="session")
def image(engine: None) -> None:
    """Build the image; the environment variable BASE names the image to build on, as for `make docker`."""
    done = subprocess.run(["make", "-s", "docker"], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.fixture(scope="session")
def server(image: None) -> Iterator[Server]:
    """Start a container that all tests of the session share, and yield it when it is healthy."""
    with container(POSTGRES_PASSWORD=PASSWORD) as started:
        started.wait_until("healthy")
        yield started
