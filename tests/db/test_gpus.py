"""gpu_configuration lists the GPUs that the driver reports; use_gpus where the engine finds no GPU."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import closing

import psycopg2
import pytest

import nets
import smi
from fixtures import MakeRole
from trial import ADAM, Trial, blobs, rows_of

pytestmark = pytest.mark.fresh_caller

TENSORFLOW = "device: {0}, name: Tesla T4, pci bus id: 00000000:0{0}:00.0"
NVIDIA = "GPU {0}: Tesla T4 (UUID: GPU-{0})"


@pytest.fixture(scope="module", autouse=True)
def tables(trial: Trial) -> None:
    trial.sql(smi.FUNCTIONS)
    trial.table("blobs", "x real[], y integer", rows_of(*blobs(60, features=4)))
    trial.pack("blobs", "packed", options={"segments": 3})
    trial.model(nets.mlp(4))
    trial.select("mst", [1], [ADAM], ["batch_size=10,epochs=1"])


@pytest.fixture
def fresh(database: str) -> Iterator[Trial]:
    """A `Trial` in a new session, whose process has no changed environment variables."""
    with closing(psycopg2.connect(dbname=database)) as connection:
        connection.autocommit = True
        yield Trial(connection)


@pytest.fixture
def hosts(trial: Trial) -> list[str]:
    if trial.topology != "greenplum":
        return ["localhost"]
    query = "SELECT DISTINCT hostname FROM gp_segment_configuration WHERE content >= 0 ORDER BY 1"
    return [host for (host,) in trial.sql(query)]


@pytest.mark.parametrize(
    ("source", "described"),
    [((), TENSORFLOW), (("TensorFlow",), TENSORFLOW), (("nvidia",), NVIDIA), ((None,), TENSORFLOW)],
)
def test_every_gpu_of_a_host_has_a_row(
    fresh: Trial, hosts: list[str], source: tuple[str | None, ...], described: str
) -> None:
    with smi.command("Tesla T4", "Tesla T4") as folder:
        smi.show(fresh, folder)
        fresh.sql("DROP TABLE IF EXISTS found")
        fresh.call("gpu_configuration", "found", *source)
    rows = fresh.sql("SELECT hostname, gpu_descr FROM found ORDER BY 1, 2")
    assert rows == [(host, described.format(n)) for host in hosts for n in (0, 1)]


def test_only_gpus_that_the_server_may_see_are_listed(fresh: Trial, hosts: list[str]) -> None:
    with smi.command("A", "B", "C") as folder:
        smi.show(fresh, folder)
        smi.everywhere(fresh, "CUDA_VISIBLE_DEVICES", "2,GPU-0")
        fresh.call("gpu_configuration", "seen", "nvidia")
    assert fresh.sql("SELECT gpu_descr FROM seen ORDER BY 1") == sorted(
        [("GPU 0: A (UUID: GPU-0)",), ("GPU 2: C (UUID: GPU-2)",)] * len(hosts)
    )


def test_without_a_driver_the_table_is_empty(fresh: Trial, hosts: list[str]) -> None:
    fresh.call("gpu_configuration", "none_found")
    assert fresh.sql("SELECT * FROM none_found") == []


def test_what_a_driver_says_in_place_of_a_list_is_no_gpu(fresh: Trial) -> None:
    with smi.command() as folder:
        (folder / "nvidia-smi").write_text("#!/bin/sh\necho 'failed, because, it, could not, talk'; exit 9\n")
        smi.show(fresh, folder)
        fresh.call("gpu_configuration", "broken")
    assert fresh.sql("SELECT * FROM broken") == []


@pytest.mark.parametrize(
    ("table", "source", "sqlstate", "message"),
    [
        ("never", "amd", "22023", "source has to be one of tensorflow or nvidia, not amd"),
        ("blobs", "nvidia", "42P07", "already exists"),
        (None, "nvidia", "22004", "output table is NULL"),
    ],
)
def test_bad_calls_are_refused(
    trial: Trial, table: str | None, source: str, sqlstate: str, message: str
) -> None:
    with pytest.raises(psycopg2.Error, match=message) as caught:
        trial.call("gpu_configuration", table, source)
    assert caught.value.pgcode == sqlstate


def test_a_role_with_usage_makes_a_table_of_its_own(database: str, role: MakeRole) -> None:
    user = role()
    with closing(psycopg2.connect(dbname=database, user=user)) as connection:
        connection.autocommit = True
        caller = Trial(connection)
        caller.call("gpu_configuration", "of_mine")
        owner = caller.value("SELECT relowner::regrole::text FROM pg_class WHERE relname = 'of_mine'")
    assert owner == user


@pytest.mark.postgresql
def test_segments_share_the_gpus_of_the_server(fresh: Trial) -> None:
    """Each session is told which of the server's two GPUs to use; the engine then finds no GPU."""
    fresh.connection.notices = []
    with smi.command("Tesla T4", "Tesla T4") as folder:
        smi.show(fresh, folder)
        with pytest.raises(psycopg2.Error, match="jax finds no GPU") as caught:
            fresh.fit("packed", "never", "mst", 1, use_gpus=True, options={"backend": "jax"})
    assert caught.value.pgcode == "55000"
    # Whichever says so first.
    detail = caught.value.diag.message_detail or ""
    assert re.fullmatch("This process was given GPU-[01] of its host.", detail)
    assert "host localhost has 2 GPUs for 3 segments" in fresh.notices()
    assert fresh.sql("SELECT FROM cerebro.runs") == []
