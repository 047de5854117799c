"""The image, built once for all tests; where no Docker engine answers, they are skipped."""

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
    """The variable BASE names the image to build on, as for `make docker`."""
    done = subprocess.run(["make", "-s", "docker"], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.fixture(scope="session")
def server(image: None) -> Iterator[Server]:
    """A container that several tests use."""
    with container(POSTGRES_PASSWORD=PASSWORD) as started:
        started.wait_until("healthy")
        yield started
