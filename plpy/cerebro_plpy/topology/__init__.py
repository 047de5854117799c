"""Where segments are and how a command reaches them.

A topology opens sessions, sends them commands (JSON in, JSON out, one transaction each) and tells which have
answered. The executor knows nothing more of where it runs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from cerebro_plpy.errors import CerebroError

# The threads of a backend, and whether it uses GPUs; or, segment by segment, what of which.
EMPTY: Mapping[str, Any] = {}
Engine = tuple[int, bool | tuple[tuple[Any, ...], ...]]


@dataclass(frozen=True)
class Answer:
    """What became of a command that was sent to a segment."""

    segment: int
    result: Mapping[str, Any] | None
    error: CerebroError | None
    lost: bool = False


class Topology(Protocol):
    name: str

    def open(self, engines: Mapping[str, Engine], segments: int) -> None:
        """Make the sessions ready: for each segment one per backend, with its threads and use of GPUs."""
        ...

    def hold(self, run_id: int, name: str = "hold_run", request: Mapping[str, Any] = EMPTY) -> None:
        """Stand behind a run from now on, by this command; an error if another session does."""
        ...

    def let_go(self) -> None:
        """Stand behind no run any more."""
        ...

    def command(self, name: str, request: Mapping[str, Any]) -> Mapping[str, Any]:
        """Do something in the control session and wait for it."""
        ...

    def ask(self, backend: str, name: str, request: Mapping[str, Any]) -> Mapping[str, Any]:
        """Do something where Keras is loaded and wait for it."""
        ...

    def free(self, segment: int) -> bool:
        """Whether the session that serves a segment has nothing under way."""
        ...

    def submit(self, segment: int, backend: str, name: str, request: Mapping[str, Any]) -> None:
        """Begin a command on a segment."""
        ...

    def background(self, name: str, request: Mapping[str, Any]) -> None:
        """Do something off the hot path, some time before `finish_background` returns."""
        ...

    def finish_background(self) -> None: ...

    def answers(self) -> list[Answer]:
        """Wait a moment for commands to end."""
        ...

    def stop(self) -> None:
        """End every segment session at once, since the call was cancelled or has failed."""
        ...

    def close(self) -> None:
        """End the control session as well."""
        ...
