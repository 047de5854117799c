"""The error that a caller gets if a cluster's segments do not answer or refuse segment sessions."""

from __future__ import annotations

import psycopg2
import pytest

from cerebro_plpy.cluster import sessions
from cerebro_plpy.store.session import LoginTarget

TARGET = LoginTarget(None, "/tmp", "5432", "lab", "gpadmin", 120012, {})


@pytest.mark.parametrize(
    ("error", "message", "blamed"),
    [
        (
            sessions.SegmentsAway("no resources acquired"),
            "not all segments",
            "gp_segment_configuration",
        ),
        (psycopg2.OperationalError("no pg_hba.conf entry"), "refuses the segment sessions", "pg_hba.conf"),
    ],
)
def test_the_hint_blames_what_is_to_blame(error: psycopg2.Error, message: str, blamed: str) -> None:
    told = sessions.refused(TARGET, error)
    assert message in told.message
    assert blamed in (told.hint or "")
    assert ("pg_hba.conf" in (told.hint or "")) == (blamed == "pg_hba.conf")
    assert str(error) in (told.detail or "")
