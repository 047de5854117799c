"""docker/compose.yaml: the server and the demo, and that data survive `down` and `up`."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

pytestmark = pytest.mark.docker

FILE = Path(__file__).resolve().parents[2] / "docker" / "compose.yaml"
Compose = Callable[..., str]


@pytest.fixture(scope="module")
def compose(image: None) -> Iterator[Compose]:
    """Run a command of compose on a project of the test's own, on any free port."""
    environment = {**os.environ, "PORT": "0", "PAGE_PORT": "0"}

    def run(*command: str) -> str:
        done = subprocess.run(
            ["docker", "compose", "-f", FILE, "-p", "cerebro-test", "--profile", "demo", *command],
            env=environment, capture_output=True, text=True,
        )  # fmt: skip
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    yield run
    run("down", "--volumes", "--rmi", "local", "--timeout", "30")


def psql(compose: Compose, query: str) -> str:
    return compose("exec", "-T", "server", "psql", "-U", "postgres", "-XAtc", query).strip()


@pytest.mark.doors("container", "predict")
def test_the_demo_trains_and_its_data_survive_down_and_up(compose: Compose) -> None:
    compose("up", "--detach", "--wait", "server")
    assert "Leaderboard: the best five of sixteen" in compose("run", "--rm", "demo")
    before = psql(compose, "SELECT md5(string_agg(md5(model_weights), '' ORDER BY mst_key)) FROM demo.models")
    compose("down")
    compose("up", "--detach", "--wait", "server")
    assert before == psql(
        compose, "SELECT md5(string_agg(md5(model_weights), '' ORDER BY mst_key)) FROM demo.models"
    )


def test_only_this_machine_can_reach_it(compose: Compose) -> None:
    assert compose("port", "server", "5432").startswith("127.0.0.1:")
