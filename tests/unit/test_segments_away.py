"""The error that a caller gets if a cluster's nodes do not answer or refuse segment sessions."""

from __future__ import annotations

import psycopg2
import pytest

from cerebro_plpy.citus.sessions import CitusTopology
from cerebro_plpy.cluster.sessions import GreenplumTopology
from cerebro_plpy.store.session import LoginTarget
from cerebro_plpy.topology.nodes import ClusterTopology, NodesAway

TARGET = LoginTarget(None, "/tmp", "5432", "lab", "gpadmin", 120012, {})


@pytest.mark.parametrize(
    ("of", "error", "message", "blamed"),
    [
        (GreenplumTopology, NodesAway("no resources"), "not all segments", "gp_segment_configuration"),
        (CitusTopology, NodesAway("no answer"), "not all nodes", "citus_check_cluster_node_health"),
        (
            GreenplumTopology,
            psycopg2.OperationalError("no pg_hba.conf entry"),
            "refuses the segment sessions",
            "pg_hba.conf",
        ),
    ],
)
def test_the_hint_blames_what_is_to_blame(
    of: type[ClusterTopology], error: psycopg2.Error, message: str, blamed: str
) -> None:
    told = of.refuse(TARGET, error)
    assert message in told.message
    assert blamed in (told.hint or "")
    assert ("pg_hba.conf" in (told.hint or "")) == (blamed == "pg_hba.conf")
    assert str(error) in (told.detail or "")
