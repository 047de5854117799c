"""Products derived from Greenplum: how they are recognized, and which builds are refused."""

from __future__ import annotations

import ctypes
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import cast

import pytest

from cerebro_plpy.database import Database
from cerebro_plpy.errors import NOT_SUPPORTED, CerebroError
from cerebro_plpy.store.cluster import before_statement, gangs
from cerebro_plpy.store.session import read_banner

ROOT = Path(__file__).resolve().parents[2]
BUILT_BY = " on x86_64-pc-linux-gnu, compiled by gcc (GCC) 11.5.0 20240719 (Red Hat 11.5.0-5), 64-bit"
BANNERS = {
    "PostgreSQL 12.12 (Greenplum Database 7.0.0-beta.0+dev.1 build dev)": {"Greenplum": "7.0.0-beta.0+dev.1"},
    "PostgreSQL 12.12 (Greenplum Database 7.4.0-WHPG build 1)": {"Greenplum": "7.4.0-WHPG"},
    "PostgreSQL 19beta1 (Greenplum Database) 19.0.0": {"Greenplum": "19.0.0"},
    "PostgreSQL 14.4 (Apache Cloudberry 2.1.0-incubating build 1)": {"Apache Cloudberry": "2.1.0-incubating"},
    "PostgreSQL 12.22 (Greengage Database 7.3.0 build 1)": {"Greengage": "7.3.0"},
    "PostgreSQL 12.12": {},
}
LINE = "2 0 p p s u 7001 sdw1 10.0.0.11"


@pytest.mark.parametrize("banner", BANNERS)
def test_a_banner_names_the_product_and_its_version(banner: str) -> None:
    assert read_banner(banner + BUILT_BY) == BANNERS[banner]


RELEASED = set(re.findall(r"^file (\S+)", (ROOT / "migrations/released.txt").read_text(), re.M))
SOURCES = [
    *(file for file in (ROOT / "migrations").glob("*.sql") if file.name not in RELEASED),
    *(ROOT / "sql").rglob("*.sql"),
    *(ROOT / "plpy").rglob("*.py"),
    *(ROOT / "tests").rglob("*.py"),
    ROOT / "Makefile",
]


def test_no_banner_decides_what_a_server_is() -> None:
    asks = re.compile(r"version\(\)[^\n]*(LIKE|~) *'|in [^\n]*SELECT version\(\)")
    assert len(SOURCES) > 500
    own = Path(__file__)
    assert [str(file) for file in SOURCES if file != own and asks.search(file.read_text())] == []


Becomes = Callable[..., None]


@pytest.fixture
def becomes(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Becomes]:
    """A function that makes this process look like a coordinator in which symbols of the server are missing.

    `missing` are the names of these symbols, and `lines` the segments that the coordinator knows.
    """

    def become(*missing: str, lines: str = LINE) -> None:
        dump = tmp_path / "dump"
        dump.write_text(lines + "\n")
        monkeypatch.setattr(before_statement, "ROLE", ctypes.c_int(before_statement.DISPATCH))
        monkeypatch.setattr(before_statement, "MISSING", missing)
        monkeypatch.setattr(before_statement, "_SEGMENTS", str(dump))
        monkeypatch.setattr(before_statement, "_has_processes", lambda: True)

    yield become


def test_a_build_that_can_be_checked_is_not_refused(becomes: Becomes) -> None:
    becomes(lines=f"1 -1 p p n u 7000 mdw mdw\n{LINE}")
    assert before_statement.lacks() == []
    assert before_statement.why_not("madlib_fit") is None
    assert before_statement._primaries() == [(0, "10.0.0.11", 7001)]
    gangs.refuse_unknown_server()


@pytest.mark.parametrize(
    ("missing", "lines", "named"),
    [
        (("cdbcomponent_activeQEsExist",), LINE, "cdbcomponent_activeQEsExist"),
        (("cdbcomponent_qesExist", "object_access_hook"), LINE, "cdbcomponent_qesExist, object_access_hook"),
        ((), f"{LINE} rack1", f"gpsegconfig_dump in the form of Greenplum 7 (it has: {LINE} rack1)"),
        ((), "2 zero p p s u 7001 sdw1 sdw1", "(it has: 2 zero p p s u 7001 sdw1 sdw1)"),
    ],
)
def test_a_build_that_cannot_be_checked_is_refused_and_named(
    becomes: Becomes, missing: tuple[str, ...], lines: str, named: str
) -> None:
    becomes(*missing, lines=lines)
    with pytest.raises(CerebroError) as caught:
        gangs.refuse_unknown_server()
    assert caught.value.sqlstate == NOT_SUPPORTED
    assert named.replace("gpsegconfig_dump", before_statement._SEGMENTS) in (caught.value.detail or "")
    refused = before_statement.why_not("madlib_fit")
    assert refused is not None and refused["detail"] == caught.value.detail
    assert before_statement.why_not(before_statement.DIAGNOSE) is None


def test_a_segment_is_no_coordinator(becomes: Becomes) -> None:
    becomes("cdbcomponent_activeQEsExist")
    assert before_statement.ROLE is not None
    before_statement.ROLE.value = before_statement.EXECUTE
    gangs.refuse_unknown_server()


class ClusterOfAnotherKind:
    """A fake database that says it is Greenplum, although its processes do not know their role."""

    def query(self, *_: object) -> list[dict[str, bool]]:
        return [{"is_greenplum": True}]


def test_a_cluster_whose_processes_do_not_know_their_role_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gangs, "is_greenplum", lambda db: db.query()[0]["is_greenplum"])
    with pytest.raises(CerebroError, match="does not tell a session") as caught:
        gangs.learn_segments(cast(Database, ClusterOfAnotherKind()))
    assert "Gp_role" in (caught.value.detail or "")
