"""use_gpus on a cluster: which process gets which GPU, and which calls are refused.

An nvidia-smi made by the tests lists GPUs that do not exist.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import psycopg2
import pytest

import nets
import smi
from trial import ADAM, Trial, blobs, rows_of

pytestmark = pytest.mark.greenplum
PLACES = """
SELECT content::integer, hostname, (row_number() OVER (PARTITION BY hostname ORDER BY content) - 1)::integer
FROM gp_segment_configuration WHERE content >= 0 AND role = 'p' ORDER BY content
"""


@pytest.fixture(scope="module")
def places(trial: Trial) -> dict[int, tuple[str, int]]:
    """Return the host of each segment, and the segment's number among the segments of that host."""
    return {content: (host, place) for content, host, place in trial.sql(PLACES)}


@pytest.fixture(scope="module", autouse=True)
def tables(trial: Trial, places: dict[int, tuple[str, int]]) -> None:
    trial.sql(smi.FUNCTIONS)
    trial.table("blobs", "x real[], y integer", rows_of(*blobs(90, features=4)))
    trial.sql("CREATE TABLE fresh AS SELECT row_number() OVER () AS id, x FROM blobs DISTRIBUTED BY (id)")
    trial.pack("blobs", "packed", options={"segments": len(places)})
    trial.model(nets.mlp(4))
    trial.select("mst", [1], [ADAM], ["batch_size=10,epochs=1"])
    trial.fit("packed", "base", "mst", 1, options={"backend": "jax"})


@pytest.fixture
def caller(database: str) -> Iterator[Trial]:
    with closing(psycopg2.connect(dbname=database)) as connection:
        connection.autocommit = True
        connection.notices = []
        yield Trial(connection)


@pytest.fixture(scope="module")
def two_gpus() -> Iterator[Path]:
    with smi.command("Tesla T4", "Tesla T4") as folder:
        yield folder


def fit(trial: Trial, packed: str) -> psycopg2.Error:
    """Train with use_gpus, which must fail because there is no GPU, and return the error."""
    with pytest.raises(psycopg2.Error) as caught:
        trial.fit(packed, "never", "mst", 1, use_gpus=True, options={"backend": "jax"})
    assert caught.value.pgcode == "55000"
    assert trial.sql("SELECT FROM cerebro.runs WHERE model_table LIKE '%never%'") == []
    at_rest(trial)
    return caught.value


def at_rest(trial: Trial) -> None:
    """Wait until none of this database's sessions works for the extension any more.

    The first engine that fails ends the call while other sessions still work, and a database whose sessions
    work cannot be dropped.
    """
    deadline = time.monotonic() + 120
    while trial.sql(
        "SELECT FROM pg_stat_activity WHERE datname = current_database() AND application_name LIKE 'cerebro%'"
        " AND state = 'active' AND pid <> pg_backend_pid()"
    ):
        assert time.monotonic() < deadline
        time.sleep(0.1)


def predict(trial: Trial) -> psycopg2.Error:
    with pytest.raises(psycopg2.Error) as caught:
        trial.call("madlib_predict", "base", "fresh", "id", "x", "never", "prob", True, 1)
    assert caught.value.pgcode == "55000"
    return caught.value


def test_hosts_without_gpus_are_refused_before_any_work(
    caller: Trial, places: dict[int, tuple[str, int]]
) -> None:
    for error in (fit(caller, "packed"), predict(caller)):
        assert "Host(s) are missing gpus:" in str(error)
        for host in {host for host, _ in places.values()}:
            own = ", ".join(str(content) for content, (at, _) in places.items() if at == host)
            assert f"{host} (segments {own})" in str(error)
        assert "gpu_segments" in (error.diag.message_hint or "")


def test_rows_can_be_dealt_to_the_segments_with_gpus_alone(caller: Trial, two_gpus: Path) -> None:
    smi.show(caller, two_gpus, contents=[1])
    assert "(segments 1)" not in str(fit(caller, "packed"))
    caller.pack("blobs", "on_gpus", options={"segments": 1}, distribution_rules="gpu_segments")
    assert caller.sql("SELECT DISTINCT gp_segment_id FROM on_gpus") == [(1,)]


def test_the_engine_starts_where_the_rows_are(caller: Trial, two_gpus: Path) -> None:
    """The engine starts on segment 1, which has the rows, not on the cluster's first segment.

    Within one transaction the caller's own processes train, so they can be asked for their environment.
    """
    smi.show(caller, two_gpus, contents=[1])
    caller.connection.autocommit = False
    caller.pack("blobs", "unseen", options={"segments": 1}, distribution_rules="gpu_segments")
    with pytest.raises(psycopg2.Error, match="jax finds no GPU") as caught:
        caller.fit("unseen", "never", "mst", 1, use_gpus=True, options={"backend": "jax"})
    assert "This process was given GPU-" in (caught.value.diag.message_detail or "")
    caller.connection.rollback()
    told = caller.sql("SELECT gp_segment_id, variable('CUDA_VISIBLE_DEVICES') FROM gp_dist_random('gp_id')")
    assert [content for content, device in told if device is not None] == [1]


def test_a_segments_process_has_the_gpu_of_its_place(
    caller: Trial, places: dict[int, tuple[str, int]], two_gpus: Path
) -> None:
    smi.show(caller, two_gpus)
    for content, (_, place) in places.items():
        caller.sql(
            f"CREATE TABLE only_{content} AS SELECT dbid FROM gp_segment_configuration"
            f" WHERE content = {content} AND role = 'p'"
        )
        rules = f"only_{content}"
        caller.pack("blobs", f"on_{content}", options={"segments": 1}, distribution_rules=rules)
        error = fit(caller, f"on_{content}")
        assert f"given GPU-{place % 2} of its host" in (error.diag.message_detail or "")


def test_predicting_processes_share_the_gpus_of_their_host(
    caller: Trial, places: dict[int, tuple[str, int]], two_gpus: Path
) -> None:
    """The processes belong to the caller's session, so it can read their environment."""
    smi.show(caller, two_gpus)
    assert "finds no GPU" in str(predict(caller))
    told = caller.sql(
        "SELECT gp_segment_id, variable('CUDA_VISIBLE_DEVICES'),"
        " variable('XLA_PYTHON_CLIENT_MEM_FRACTION')::float FROM gp_dist_random('gp_id') ORDER BY 1"
    )
    assert [(content, device) for content, device, _ in told] == [
        (content, f"GPU-{place % 2}") for content, (_, place) in places.items()
    ]
    parts: dict[tuple[str, str], float] = {}
    for content, device, fraction in told:
        host = places[content][0]
        parts[host, device] = parts.get((host, device), 0) + fraction
    assert all(total == pytest.approx(0.9, abs=0.001) for total in parts.values())
    # The variable that limits a process to its GPU does not shorten the list of a host's GPUs.
    smi.show(caller, two_gpus)
    caller.call("gpu_configuration", "still_all")
    assert caller.value("SELECT count(*) FROM still_all") == 2 * len({host for host, _ in places.values()})


def test_segments_that_share_a_gpu_are_warned_of(
    caller: Trial, places: dict[int, tuple[str, int]], two_gpus: Path
) -> None:
    smi.show(caller, two_gpus)
    fit(caller, "packed")
    said = caller.notices()
    for host in {host for host, _ in places.values()}:
        number = sum(at == host for at, _ in places.values())
        assert (f"host {host} has 2 GPUs for {number} segments" in said) == (number > 2)
