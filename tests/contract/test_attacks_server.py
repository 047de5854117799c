"""What administrators do to a server while others train: publications of all tables."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from stage import Stage, stage


@pytest.fixture
def made(database: str) -> Iterator[Stage]:
    with stage(database) as made:
        made.lab(made.role("mallory"), "lab")
        yield made


def test_a_publication_of_all_tables_stops_no_run(made: Stage, greenplum: bool) -> None:
    """The server refuses to change and remove rows of tables without a key then."""
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
