"""The commands in the guides of the shell and of the live page print what the guides show below them."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from pages import missing, without_numbers
from programs import program
from shell import CLIENT, environment

ROOT = Path(__file__).resolve().parents[3]
PAGES = ("shell", "dashboard")
MARK = "-- example "
# All commands of the guides run once, in the set-up of the first test: a busy machine takes minutes for that.
ALL_SECONDS = 800
pytestmark = [pytest.mark.slow, pytest.mark.timeout(ALL_SECONDS + 60)]
SETTINGS = "INSERT INTO cerebro.settings VALUES ('segments', '2'), ('threads', '1'), ('backend', 'jax')"
# `cerebro dashboard` runs until Ctrl-C; this function interrupts it once it has printed its address.
PRELUDE = """
cerebro() {
    if [ "$1" != dashboard ]; then command cerebro "$@"; return; fi
    command cerebro "$@" --no-browser --port 0 > page & local pid=$!
    for _ in $(seq 200); do [ "$(wc -l < page)" -lt 2 ] || break; sleep 0.1; done
    cat page; kill -INT $pid; wait $pid
}
"""


class Example(NamedTuple):
    """A block of commands in a guide, and the output that the guide shows for it, or None."""

    page: str
    line: int
    commands: str
    output: str | None

    @property
    def name(self) -> str:
        return f"{self.page}:{self.line}"


def examples(page: str) -> list[Example]:
    text = (ROOT / "docs" / "guide" / f"{page}.md").read_text()
    blocks = re.finditer(r"^```sh\n(.*?)^```\n(?:\n```text\n(.*?)^```\n)?", text, re.S | re.M)
    return [Example(page, text[: b.start()].count("\n") + 1, b.group(1), b.group(2)) for b in blocks]


EXAMPLES = [example for page in PAGES for example in examples(page)]


@pytest.fixture(scope="module")
def outputs(database: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """Run all examples in one shell, and yield the output of each by the example's name."""
    lines = [PRELUDE, f'psql -qc "{SETTINGS}"']
    for example in EXAMPLES:
        lines += [f"echo '{MARK}{example.name}'", example.commands]
    path = os.pathsep.join([str(CLIENT / "bin"), str(Path(program("psql")).parent), os.environ["PATH"]])
    shown = subprocess.run(
        ["bash", "-u"], input="\n".join(lines), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        cwd=tmp_path_factory.mktemp("shell"), timeout=ALL_SECONDS, check=False,
        env={**environment(database), "PATH": path, "TF_CPP_MIN_LOG_LEVEL": "3"},
    ).stdout  # fmt: skip
    parts = re.split(rf"^{re.escape(MARK)}(.*)\n", shown, flags=re.M)
    yield dict(zip(parts[1::2], parts[2::2], strict=True))


def readable(output: str) -> list[str]:
    """Return the lines of an output without numbers and notices about waiting, which differ each time."""
    told = map(without_numbers, output.splitlines())
    return [line for line in told if line and not line.startswith("NOTICE: waiting for")]


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example.name)
def test_commands_print_what_the_guide_says(example: Example, outputs: dict[str, str]) -> None:
    shown = readable(outputs[example.name])
    assert not [line for line in shown if "Traceback" in line], "\n".join(shown)
    if example.output is None:
        assert not [line for line in shown if line.startswith(("ERROR", "bash:", "Usage"))], "\n".join(shown)
    else:
        assert missing(readable(example.output), shown) is None, "\n".join(shown)
