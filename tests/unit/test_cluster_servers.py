"""On Greenplum, how a segment's process reaches other segments' servers, and how many cores it uses."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from cerebro_plpy.cluster.server import threads_on
from cerebro_plpy.store.cluster import places, servers
from cerebro_plpy.store.cluster.places import Address, Processors

OWN = Address("sdw1", "10.0.0.1", 6000)
DB: Any = None


def reached(monkeypatch: pytest.MonkeyPatch, own: Address, *others: Address) -> Sequence[Any]:
    monkeypatch.setattr(servers, "is_greenplum", lambda db: True)
    monkeypatch.setattr(places, "servers", lambda db, keys: [own, *others])
    return servers.where(DB, 1, list(range(len(others))))


def test_a_host_is_known_by_its_name_whatever_its_addresses(monkeypatch: pytest.MonkeyPatch) -> None:
    others = (OWN, Address("sdw1", "10.0.1.1", 6001), Address("sdw2", "10.0.0.2", 6000))
    assert reached(monkeypatch, OWN, *others) == [
        None, ("10.0.1.1", 6001, True), ("10.0.0.2", 6000, False)
    ]  # fmt: skip


def test_containers_of_one_name_are_told_apart_by_their_addresses(monkeypatch: pytest.MonkeyPatch) -> None:
    own, beside, same_port, like_beside = (
        Address("box", address, port, named_alone=False)
        for address, port in (("10.0.0.1", 6000), ("10.0.0.1", 6001), ("10.0.0.2", 6000), ("10.0.0.2", 6001))
    )
    assert reached(monkeypatch, own, own, beside, same_port, like_beside) == [
        None, ("10.0.0.1", 6001, True), ("10.0.0.2", 6000, False), ("10.0.0.2", 6001, False)
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("has_socket", "same_host", "by_socket"),
    [(True, True, True), (True, False, False), (False, True, False)],
)
def test_a_server_is_reached_by_its_socket_if_that_is_in_our_folder(
    tmp_path: Path, has_socket: bool, same_host: bool, by_socket: bool
) -> None:
    if has_socket:
        (tmp_path / ".s.PGSQL.6001").touch()
    own = servers.Login(str(tmp_path), "6000", "lab", "gpadmin", "")
    other = servers.other_server(own, "10.0.1.1", 6001, same_host)
    assert (other.host, other.port) == (str(tmp_path) if by_socket else "10.0.1.1", "6001")
    assert other.dbname == own.dbname


@pytest.mark.parametrize(
    ("hosts", "segments", "at_a_time", "threads"),
    [
        ([(2, 3)], 3, None, 1),
        ([(16, 4)], 4, None, 4),
        ([(16, 4)], 4, 1, 16),
        ([(32, 4), (32, 4)], 8, None, 8),
        ([(32, 4), (32, 4)], 2, None, 32),
        ([(32, 4), (8, 4)], 8, None, 2),
        ([(32, 4), (32, 4)], 8, 2, 16),
        ([(4, 8)], 16, None, 1),
    ],
)
def test_threads_follow_from_the_cores_of_the_segments_hosts(
    hosts: list[tuple[int, int]], segments: int, at_a_time: int | None, threads: int
) -> None:
    assert threads_on([Processors(*host) for host in hosts], segments, at_a_time) == threads


class Catalog:
    """A fake coordinator without segments on its host, which counts the queries to segments."""

    asked = 0

    def query(self, sql: str, *_: object) -> list[dict[str, Any]]:
        return [
            {"host": "mdw", "segments": 0, "own": True},
            {"host": "sdw1", "segments": 4, "own": False},
            {"host": "sdw2", "segments": 4, "own": False},
        ]


def test_hosts_are_asked_once_for_their_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    db: Any = Catalog()

    def hosts(db: Any) -> dict[str, dict[str, int]]:
        db.asked += 1
        return {"sdw1": {"cores": 32}, "sdw2": {"cores": 16}}

    monkeypatch.setattr(places, "hosts", hosts)
    monkeypatch.setattr(places.memory, "get_instance", functools.cache(lambda kind: kind()))
    for _ in range(2):
        assert places.processors(db) == [Processors(32, 4), Processors(16, 4)]
    assert db.asked == 1
