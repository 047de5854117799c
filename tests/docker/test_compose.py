"""docker/compose.yaml: the server, the demo and the live page start, and data survive `down` and `up`."""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest

pytestmark = pytest.mark.docker

FILE = Path(__file__).resolve().parents[2] / "docker" / "compose.yaml"
Compose = Callable[..., str]


@pytest.fixture(scope="module")
def compose(image: None) -> Iterator[Compose]:
    """Yield a function that runs a command of `docker compose` on the test's own project, on free ports."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        page_port = str(free.getsockname()[1])
    environment = {**os.environ, "PORT": "0", "PAGE_PORT": page_port}

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
    said = compose("run", "--rm", "demo")
    assert "Leaderboard: the best five of sixteen" in said
    assert "Go on: docker compose" in said and "make psql" not in said
    before = psql(compose, "SELECT md5(string_agg(md5(model_weights), '' ORDER BY mst_key)) FROM demo.models")
    compose("down")
    compose("up", "--detach", "--wait", "server")
    assert before == psql(
        compose, "SELECT md5(string_agg(md5(model_weights), '' ORDER BY mst_key)) FROM demo.models"
    )


def test_only_this_machine_can_reach_it(compose: Compose) -> None:
    compose("up", "--detach", "--wait", "server", "page")
    assert compose("port", "server", "5432").startswith("127.0.0.1:")
    assert compose("port", "page", "8787").startswith("127.0.0.1:")


@pytest.mark.doors("page", "watch compare")
def test_the_live_page_shows_the_runs_to_who_has_its_token(compose: Compose) -> None:
    compose("up", "--detach", "--wait", "server", "page")
    address = "http://" + compose("port", "page", "8787").strip()
    port = address.rpartition(":")[2]
    deadline = time.monotonic() + 60
    while not (found := re.search(rf"localhost:{port}/\?token=(\S+)", compose("logs", "page"))):
        assert time.monotonic() < deadline
        time.sleep(0.5)
    assert "other machines" not in compose("logs", "page")
    with pytest.raises(HTTPError, match="401"):
        urlopen(f"{address}/api/overview")
    asked = Request(f"{address}/api/overview", headers={"Authorization": f"Bearer {found[1]}"})
    assert json.loads(urlopen(asked).read())
