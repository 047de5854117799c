"""Docker containers of the project's image, each removed when its test ends."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from typing import Any

import psycopg2

from fixtures import Connection, Rows, execute

# The companion that clears up after killed test runs is an image to be pulled; the tests end what they start.
os.environ.setdefault("TESTCONTAINERS_RYUK_DISABLED", "true")
from testcontainers.core.container import DockerContainer

IMAGE = "cerebro-db"
PASSWORD = "geheimes-Wort"
PATIENCE = 120
# The server runs with a read-only root file system and without any capability of root.
CONFINED = {
    "read_only": True,
    "cap_drop": ["ALL"],
    "security_opt": ["no-new-privileges:true"],
}


class Server:
    """A running Docker container of the project's image."""

    def __init__(self, started: DockerContainer) -> None:
        self._started = started

    @property
    def container(self) -> Any:
        found = self._started.get_wrapped_container()
        found.reload()
        return found

    @property
    def logs(self) -> str:
        return self.container.logs().decode()

    def shell(self, command: str) -> str:
        done = self.container.exec_run(["bash", "-c", command])
        assert done.exit_code == 0, done.output.decode()
        return done.output.decode().strip()

    def wait_until(self, status: str) -> None:
        """Wait until the container or its health check has the status, for example "exited" or "healthy"."""
        deadline = time.monotonic() + PATIENCE
        while status not in ((found := self.container).status, found.health):
            assert time.monotonic() < deadline, f"not {status} but {found.status}:\n{self.logs}"
            time.sleep(0.2)

    def exit_code(self) -> int:
        return self.container.wait(timeout=PATIENCE)["StatusCode"]

    def open(self, dbname: str = "postgres", user: str = "postgres", password: str = PASSWORD) -> Connection:
        # After a restart the port is another one.
        port = self.container.ports["5432/tcp"][0]["HostPort"]
        host = self._started.get_container_host_ip()
        connection = psycopg2.connect(
            host=host, port=port, dbname=dbname, user=user, password=password, connect_timeout=10
        )
        connection.autocommit = True
        return connection

    def sql(self, query: str, *values: object, dbname: str = "postgres", user: str = "postgres") -> Rows:
        with closing(self.open(dbname, user)) as connection:
            return execute(connection, query, *values)


@contextmanager
def container(*, files: Mapping[str, str] | None = None, **env: str) -> Iterator[Server]:
    """Start a container with restricted rights, and stop it at the end of the block.

    `files` maps paths on this machine to paths in the container, where they are mounted.
    """
    made = DockerContainer(IMAGE, env=env).with_exposed_ports(5432).with_kwargs(**CONFINED)
    for folder in ("/tmp", "/var/run/postgresql"):
        made.with_tmpfs_mount(folder)
    for here, there in (files or {}).items():
        made.with_volume_mapping(here, there)
    with made as started:
        yield Server(started)
