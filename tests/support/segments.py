"""Helpers for tests that lose sessions or segments: they wait for segments, visits and interrupted runs."""

from __future__ import annotations

import time
from concurrent.futures import Future

import psycopg2

from fixtures import Connection, execute
from trial import Trial


def answered(trial: Trial, query: str = "SELECT count(*) FROM gp_dist_random('gp_id')") -> None:
    """Wait until a query succeeds; the default query asks all segments of Greenplum."""
    deadline = time.monotonic() + 60
    while True:
        try:
            trial.sql(query)
            return
        except psycopg2.Error:
            assert time.monotonic() < deadline
            time.sleep(0.5)


def kill_a_visit(other: Connection, run: Future[int]) -> bool:
    """Wait for a visit after the first epoch, and end its session; return False if the run ends first."""
    while not run.done():
        killed = execute(
            other,
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database()"
            " AND application_name ~ '^cerebro visit .* epoch=[2-4]' LIMIT 1",
        )
        if killed:
            return True
        time.sleep(0.005)
    return False


def first_visit(watching: Connection, run: Future[int], table: str) -> tuple[int, int]:
    """Wait for the first visit of the run that creates `table`, and return its segment and process id."""
    while not run.done():
        found = execute(
            watching,
            "SELECT v.segment, v.pid FROM cerebro.visits AS v JOIN cerebro.runs AS r USING (run_id)"
            " WHERE r.model_table LIKE %s ORDER BY v.ended_at LIMIT 1",
            f"%{table}%",
        )
        if found:
            return found[0]
        time.sleep(0.02)
    raise AssertionError("the run was over before anybody saw a visit")


def interrupted(trial: Trial, table: str) -> int:
    """Wait until the run that creates `table` has the status "interrupted", and return its run_id."""
    runs = "SELECT run_id, status FROM cerebro.runs WHERE model_table LIKE %s"
    deadline = time.monotonic() + 60
    while (found := trial.sql(runs, f"%{table}%")[0])[1] == "running":
        assert time.monotonic() < deadline
        time.sleep(0.2)
    assert found[1] == "interrupted"
    return found[0]
