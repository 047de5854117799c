"""Searches through SQL."""

from __future__ import annotations

import psycopg2
import pytest

from trial import Trial


def test_hyperband_schedule_is_madlibs(trial: Trial) -> None:
    trial.sql("SELECT cerebro.hyperband_schedule('schedule_table', 81)")
    assert trial.sql("SELECT s, i, n_i, r_i FROM schedule_table ORDER BY s DESC, i") == [
        (4, 0, 81, 1), (4, 1, 27, 3), (4, 2, 9, 9), (4, 3, 3, 27), (4, 4, 1, 81),
        (3, 0, 27, 3), (3, 1, 9, 9), (3, 2, 3, 27), (3, 3, 1, 81),
        (2, 0, 9, 9), (2, 1, 3, 27), (2, 2, 1, 81), (1, 0, 6, 27), (1, 1, 2, 81), (0, 0, 5, 81),
    ]  # fmt: skip
    with pytest.raises(psycopg2.errors.UniqueViolation):
        trial.sql("INSERT INTO schedule_table VALUES (4, 0, 1, 1)")
    with pytest.raises(psycopg2.errors.DuplicateTable):
        trial.sql("SELECT cerebro.hyperband_schedule('schedule_table', 81)")


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ("2", "hyperband_schedule: R should not be less than eta"),
        ("9, 1", "hyperband_schedule: eta must be greater than 1"),
        ("9, 3, 3", "hyperband_schedule: skip_last must be non-negative and less than 3"),
        ("NULL", "hyperband_schedule: r is NULL"),
    ],
)
def test_faults_of_a_schedule_leave_no_table(trial: Trial, arguments: str, text: str) -> None:
    with pytest.raises(psycopg2.Error, match=text):
        trial.sql(f"SELECT cerebro.hyperband_schedule('no_schedule', {arguments})")
    assert trial.value("SELECT to_regclass('no_schedule')") is None
