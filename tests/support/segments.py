"""Greenplum's segments, as tests need them."""

from __future__ import annotations

import time

import psycopg2

from trial import Trial


def answered(trial: Trial) -> None:
    """Wait until all segments answer again."""
    deadline = time.monotonic() + 60
    while True:
        try:
            trial.sql("SELECT count(*) FROM gp_dist_random('gp_id')")
            return
        except psycopg2.Error:
            assert time.monotonic() < deadline
            time.sleep(0.5)
