"""A publication of all tables stops no run, and a summary with a wrong number of segments is refused."""

from __future__ import annotations

from collections.abc import Iterator

import psycopg2
import pytest

from stage import Stage, stage


@pytest.fixture(scope="module")
def made(database: str) -> Iterator[Stage]:
    with stage(database) as made:
        made.lab(made.role("mallory"), "lab")
        yield made


def test_a_publication_of_all_tables_stops_no_run(made: Stage, greenplum: bool) -> None:
    """While such a publication exists, the server refuses UPDATE and DELETE on tables without a key."""
    if greenplum:
        pytest.skip("Greenplum has no publications")
    made.sql("CREATE PUBLICATION everything FOR ALL TABLES")
    try:
        with made.acting(made.roles[0]):
            run_id = made.fit()
            assert made.sql("SELECT y_class_values FROM lab.m_summary") == [([0, 1],)]
            made.sql("SELECT cerebro.forget(%s)", run_id)
        assert made.sql("SELECT FROM cerebro._run_event WHERE run_id = %s", run_id) == []
    finally:
        made.sql("DROP PUBLICATION everything")


@pytest.mark.parametrize("number", [-5, 0, None])
def test_a_summary_with_a_forged_number_of_segments_is_refused(made: Stage, number: int | None) -> None:
    made.sql("UPDATE lab.packed_summary SET segments = %s", number)
    with made.acting(made.roles[0]), pytest.raises(psycopg2.Error) as caught:
        made.fit()
    assert caught.value.pgcode == "55000"
    assert "segments" in str(caught.value)
