"""The Docker commands in README.md and docs/container.md work as they are written there."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

pytestmark = pytest.mark.docker

ROOT = Path(__file__).resolve().parents[2]
# A project of the test's own, on any free port.
OWN = {"COMPOSE_PROJECT_NAME": "cerebro-guide", "PORT": "0", "PAGE_PORT": "0"}


def commands(page: str) -> str:
    blocks = re.findall(r"^```sh\n(.*?)^```\n", (ROOT / page).read_text(), re.S | re.M)
    return "".join(block for block in blocks if "docker" in block)


def shell(script: str) -> subprocess.CompletedProcess[str]:
    command = ["bash", "-euo", "pipefail", "-c", script]
    return subprocess.run(command, cwd=ROOT, env={**os.environ, **OWN}, capture_output=True, text=True)


@pytest.fixture
def cleared(image: None) -> Iterator[None]:
    yield
    shell("docker compose -f docker/compose.yaml --profile demo down --volumes --rmi local")
    shell("docker rm --force --volumes my-cerebro; docker volume rm --force my-cerebro")


@pytest.mark.parametrize("page", ["README.md", "docs/container.md"])
def test_the_commands_do_what_the_page_says(cleared: None, page: str) -> None:
    done = shell(commands(page))
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Leaderboard: the best five of sixteen" in done.stdout
