"""Assigns the GPUs of hosts to the segments of a run, each with a share of the GPU's memory."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

from cerebro_plpy.errors import WRONG_STATE, CerebroError

# The rest of a GPU's memory is what the driver takes for each process, beside what frameworks ask for.
USABLE = 0.9
# PostgreSQL is one host, and MADlib calls it so.
HERE = "localhost"


class Place(Protocol):
    """A segment's host with its GPUs; the segment is number `place` of the `peers` segments on the host."""

    @property
    def host(self) -> str: ...
    @property
    def content(self) -> int: ...
    @property
    def place(self) -> int: ...
    @property
    def peers(self) -> int: ...
    @property
    def gpus(self) -> Sequence[Mapping[str, Any]]: ...


@dataclass(frozen=True)
class Seat:
    """A `Place` on a server that is a single host, such as PostgreSQL."""

    host: str
    content: int
    place: int
    peers: int
    gpus: Sequence[Mapping[str, Any]]


class GpuShare(NamedTuple):
    """The share of a GPU that a segment's process gets; `content` is the segment's content id."""

    device: str
    fraction: float
    memory_mb: int | None
    content: int

    def told(self) -> Mapping[str, Any]:
        """Return the fields of the share that the process itself needs."""
        return {"device": self.device, "fraction": self.fraction, "memory_mb": self.memory_mb}


def deal(places: Sequence[Place]) -> tuple[GpuShare, ...]:
    """Return a share of a GPU for each place; the segments of a host take its GPUs in turn."""
    _check(places)
    chosen = list(_choose(places))
    users = Counter((place.host, gpu["id"]) for place, gpu in zip(places, chosen, strict=True))
    shares: list[GpuShare] = []
    for place, gpu in zip(places, chosen, strict=True):
        fraction = round(USABLE / users[place.host, gpu["id"]], 4)
        memory = None if gpu["memory_mb"] is None else int(gpu["memory_mb"] * fraction)
        shares.append(GpuShare(gpu["id"], fraction, memory, place.content))
    return tuple(shares)


def _choose(places: Sequence[Place]) -> Iterator[Mapping[str, Any]]:
    """Yield a GPU for each place: the segments of a host take its GPUs in turn.

    If `places` has a place twice, its second turn comes after the first turns of all segments of its host.
    """
    before: Counter[int] = Counter()
    for place in places:
        turn = before[place.content]
        before[place.content] += 1
        yield place.gpus[(place.place + turn * place.peers) % len(place.gpus)]


def _check(places: Sequence[Place]) -> None:
    lacking: dict[str, list[int]] = defaultdict(list)
    for place in places:
        if not place.gpus and place.content not in lacking[place.host]:
            lacking[place.host].append(place.content)
    without = {host: found for host, found in lacking.items() if found}
    if without:
        named = "; ".join(f"{host} (segments {_listed(found)})" for host, found in sorted(without.items()))
        raise CerebroError(
            f"use_gpus is true, but Host(s) are missing gpus: {named}",
            detail="GPUs are what nvidia-smi lists for the user that the server runs as.",
            hint="Set use_gpus to FALSE, or pack the rows with distribution_rules => 'gpu_segments'."
            " cerebro.segments_ready() shows the GPUs of each segment.",
            sqlstate=WRONG_STATE,
        )


def _listed(numbers: Sequence[int]) -> str:
    return ", ".join(map(str, sorted(numbers)))


def crowded(places: Sequence[Place]) -> list[str]:
    """Return a warning for each host that has fewer GPUs than segments."""
    segments = Counter(place.host for place in places)
    gpus = {place.host: len(place.gpus) for place in places}
    return [
        f"host {host} has {gpus[host]} GPUs for {number} segments: some share one, and its memory"
        for host, number in sorted(segments.items())
        if 0 < gpus[host] < number
    ]
