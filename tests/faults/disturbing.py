"""Begins calls in threads, so that a test can disturb their sessions meanwhile."""

from __future__ import annotations

import threading
from collections.abc import Callable

import psycopg2

from fixtures import Connection
from trial import Trial

_AT_WORK = (
    "SELECT pid FROM pg_stat_activity WHERE application_name LIKE 'cerebro visit%run=%' AND state = 'active'"
)


def begun(
    connection: Connection, do: Callable[[Trial], object]
) -> tuple[threading.Thread, list[psycopg2.Error]]:
    """Begin a call in a thread, and return the thread and a list that gets the error of the call, if any."""
    failed: list[psycopg2.Error] = []
    connection.notices = []

    def run() -> None:
        try:
            do(Trial(connection))
        except psycopg2.Error as error:
            failed.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    return thread, failed


def run_begun(
    looking: Trial, connection: Connection, do: Callable[[Trial], object], visits: int
) -> tuple[threading.Thread, list[psycopg2.Error]]:
    """Begin a run in a thread as `begun` does, and return when the run has made at least `visits` visits."""
    runs = looking.value("SELECT count(*) FROM cerebro.runs")
    thread, failed = begun(connection, do)
    done = "SELECT visits_done FROM cerebro.runs ORDER BY run_id DESC LIMIT 1"
    while looking.value("SELECT count(*) FROM cerebro.runs") == runs or looking.value(done) < visits:
        assert thread.is_alive()
    return thread, failed


def session_at_work(looking: Trial, thread: threading.Thread) -> int:
    """Wait until a segment session is in a visit, and return its process number."""
    while not (found := looking.sql(_AT_WORK)):
        assert thread.is_alive()
    return found[0][0]
