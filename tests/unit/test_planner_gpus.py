"""The GPUs of each host are assigned to the segments of a run."""

from __future__ import annotations

from typing import Any

import pytest

from cerebro_plpy.errors import WRONG_STATE, CerebroError
from cerebro_plpy.planner import gpus
from cerebro_plpy.planner.gpus import Seat


def devices(number: int, memory: int | None = 16000) -> list[dict[str, Any]]:
    return [{"id": f"GPU-{n}", "memory_mb": memory} for n in range(number)]


def host(name: str, segments: int, number: int, first: int = 0, memory: int | None = 16000) -> list[Seat]:
    """Return the segments of one host that has `number` GPUs; their content ids begin with `first`."""
    return [Seat(name, first + n, n, segments, devices(number, memory)) for n in range(segments)]


def test_the_segments_of_a_host_have_its_gpus_in_turn() -> None:
    shares = gpus.deal(host("a", 5, 2))
    assert [share.device for share in shares] == ["GPU-0", "GPU-1", "GPU-0", "GPU-1", "GPU-0"]


def test_each_host_is_dealt_its_own() -> None:
    shares = gpus.deal([*host("a", 2, 2), *host("b", 2, 1, first=2)])
    assert [(share.content, share.device, share.fraction) for share in shares] == [
        (0, "GPU-0", 0.9), (1, "GPU-1", 0.9), (2, "GPU-0", 0.45), (3, "GPU-0", 0.45),
    ]  # fmt: skip


def test_a_gpus_memory_is_divided_among_those_that_share_it() -> None:
    shares = gpus.deal(host("a", 5, 2))
    assert [share.fraction for share in shares] == [0.3, 0.45, 0.3, 0.45, 0.3]
    assert [share.memory_mb for share in shares] == [4800, 7200, 4800, 7200, 4800]
    assert sum(share.fraction for share in shares) == pytest.approx(2 * gpus.USABLE)


def test_memory_that_the_driver_does_not_tell_stays_unknown() -> None:
    assert [share.memory_mb for share in gpus.deal(host("a", 2, 1, memory=None))] == [None, None]


def test_a_run_on_one_segment_has_the_gpu_of_its_place() -> None:
    (share,) = gpus.deal([host("a", 4, 4)[2]])
    assert share == ("GPU-2", 0.9, 14400, 2)


def test_more_segments_than_places_use_the_gpus_that_are_left() -> None:
    twice = host("a", 2, 4) * 2
    assert [share.device for share in gpus.deal(twice)] == ["GPU-0", "GPU-1", "GPU-2", "GPU-3"]
    thrice = host("a", 2, 4) * 3
    assert [share.fraction for share in gpus.deal(thrice)] == [0.45, 0.45, 0.9, 0.9, 0.45, 0.45]


def test_hosts_without_gpus_are_refused_by_their_names() -> None:
    with pytest.raises(CerebroError) as caught:
        gpus.deal([*host("a", 2, 1), *host("c", 2, 0, first=4) * 2, *host("b", 1, 0, first=2)])
    assert caught.value.message.endswith("Host(s) are missing gpus: b (segments 2); c (segments 4, 5)")
    assert caught.value.sqlstate == WRONG_STATE
    assert "gpu_segments" in (caught.value.hint or "")


def test_hosts_with_fewer_gpus_than_segments_are_named() -> None:
    assert gpus.crowded([*host("a", 2, 2), *host("b", 3, 1, first=2)]) == [
        "host b has 1 GPUs for 3 segments: some share one, and its memory"
    ]
    assert gpus.crowded([host("b", 3, 1)[2]]) == []
