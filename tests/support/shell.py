"""Runs the command `cerebro` in a process of its own, and sends requests to the dashboard that it serves."""

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
    """The exit status of a command, its standard output and its standard error."""

    code: int
    out: str
    err: str

    @property
    def rows(self) -> Any:
        return json.loads(self.out)


def environment(database: str, user: str | None = None) -> dict[str, str]:
    """Return the environment for the command: this process's own, with the client, a database and a user."""
    own = {"PGDATABASE": database, "PYTHONPATH": str(CLIENT), **({"PGUSER": user} if user else {})}
    return {**os.environ, **own}


def cerebro(*arguments: str | Path, database: str = "", user: str | None = None, typed: str = "") -> Done:
    """Run `cerebro` with arguments, with `typed` as standard input, and return its status and output."""
    done = subprocess.run(
        [sys.executable, CLIENT / "bin" / "cerebro", *arguments],
        input=typed, capture_output=True, text=True, env=environment(database, user), timeout=120,
        check=False,
    )  # fmt: skip
    return Done(done.returncode, done.stdout, done.stderr)


class Page:
    """The address and token of a dashboard that is being served, and requests to it."""

    def __init__(self, address: str) -> None:
        parts = urllib.parse.urlsplit(address)
        self.address = address
        self.host, self.port = parts.hostname or "", parts.port or 0
        self.token = urllib.parse.parse_qs(parts.query)["token"][0]
        self.said = ""  # on its error stream, once it has ended

    def ask(
        self, path: str, *, method: str = "GET", body: object = None, headers: Mapping[str, str] | None = None
    ) -> tuple[int, dict[str, str], str]:
        """Send a request, with the token unless `headers` overrides it; return status, headers and body."""
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
    """Create a program that stands for a browser: it writes its argument to `asked`.

    The argument is the URL of a file; the program copies this file to `way-in.html`.
    """
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
    """Serve the dashboard until the end of the block; `browser` is the program that is told to open it."""
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
