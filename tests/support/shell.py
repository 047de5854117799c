"""The command `cerebro` as a shell has it, and the page that it serves."""

from __future__ import annotations

import http.client
import json
import os
import subprocess
import sys
import urllib.parse
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

CLIENT = Path(__file__).resolve().parents[2] / ".local" / "client"


class Done(NamedTuple):
    """How a command ended and what it printed."""

    code: int
    out: str
    err: str

    @property
    def rows(self) -> Any:
        return json.loads(self.out)


def environment(database: str, user: str | None = None) -> dict[str, str]:
    """Return the environment of a user's shell: the client's wheel, and the PG* variables."""
    own = {"PGDATABASE": database, "PYTHONPATH": str(CLIENT), **({"PGUSER": user} if user else {})}
    return {**os.environ, **own}


def cerebro(*arguments: str | Path, database: str = "", user: str | None = None, typed: str = "") -> Done:
    """Run one command to its end."""
    done = subprocess.run(
        [sys.executable, CLIENT / "bin" / "cerebro", *arguments],
        input=typed, capture_output=True, text=True, env=environment(database, user), timeout=120,
        check=False,
    )  # fmt: skip
    return Done(done.returncode, done.stdout, done.stderr)


class Page:
    """A live page, for programs: its address, and requests as a browser or another site may send them."""

    def __init__(self, address: str) -> None:
        parts = urllib.parse.urlsplit(address)
        self.address = address
        self.host, self.port = parts.hostname or "", parts.port or 0
        self.token = urllib.parse.parse_qs(parts.query)["token"][0]
        self.said = ""  # on its error stream, once it has ended

    def ask(
        self, path: str, *, method: str = "GET", body: object = None, headers: Mapping[str, str] | None = None
    ) -> tuple[int, dict[str, str], str]:
        """Send a request with the token, unless the headers say otherwise."""
        sent = {"Authorization": f"Bearer {self.token}", **(headers or {})}
        connection = http.client.HTTPConnection(self.host, self.port, timeout=60)
        try:
            content = body if isinstance(body, str) else json.dumps(body)
            connection.request(method, path, None if body is None else content, sent)
            answer = connection.getresponse()
            return answer.status, dict(answer.getheaders()), answer.read().decode()
        finally:
            connection.close()


def fake_browser(folder: Path) -> Path:
    """A browser that keeps what it was asked to open, and the file that this is."""
    program = folder / "browser"
    program.write_text(
        f'#!/bin/sh\nprintf \'%s\' "$1" > {folder}/asked\ncp -p "${{1#file://}}" {folder}/way-in.part\n'
        f"mv {folder}/way-in.part {folder}/way-in.html\n"
    )
    program.chmod(0o755)
    return program


@contextmanager
def dashboard(
    database: str, user: str | None = None, port: int = 0, token: str | None = None,
    host: str = "127.0.0.1", browser: Path | None = None,
) -> Iterator[Page]:  # fmt: skip
    """Serve the page as long as the block lasts; `browser` is the program that gets it to open."""
    own = {"CEREBRO_DASHBOARD_TOKEN": token} if token else {}
    opened = ["--browser"] if browser else ["--no-browser"]
    own |= {"BROWSER": str(browser)} if browser else {}
    process = subprocess.Popen(
        [sys.executable, CLIENT / "bin" / "cerebro", "dashboard", *opened, f"--port={port}", "--host", host],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        env={**environment(database, user), "PYTHONUNBUFFERED": "1", **own},
    )  # fmt: skip
    try:
        assert process.stdout is not None and process.stderr is not None
        first = process.stdout.readline()
        assert "http://" in first, first + process.stderr.read()
        page = Page(first.split()[-1])
        yield page
    finally:
        process.terminate()
        _, said = process.communicate(timeout=30)
    page.said = said
