"""Topologies: where the segments of a run are, and how commands reach them.

A topology opens sessions, sends them commands (`commands.py`) and returns their answers. The executor knows
nothing else about where a run is carried out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

from cerebro_plpy.commands import BesideRows, Command, ConfigCommand, CreateRun, Engine, HoldRun
from cerebro_plpy.errors import CerebroError
from cerebro_plpy.programs import NOT_KEPT
from cerebro_plpy.store.runs.drivers import Behind


def tell_not_kept(say: Callable[[str], None], answers: Iterable[Mapping[str, Any]]) -> None:
    """Tell the caller why compiled programs are not kept for other sessions, if answers give a reason."""
    for reason in sorted({answer["not_kept"] for answer in answers if "not_kept" in answer}):
        say(f"{NOT_KEPT}: {reason}")


def holding(run_id: int, new: CreateRun | None, behind: Behind) -> HoldRun | CreateRun:
    """Return the command that records the processes `behind` a run and, given `new`, first writes the run."""
    return HoldRun(run_id=run_id, behind=behind) if new is None else replace(new, behind=behind)


@dataclass(frozen=True)
class Answer:
    """The answer to a command that was sent to a segment; `lost` says that the session was lost."""

    segment: int
    result: Mapping[str, Any] | None
    error: CerebroError | None
    lost: bool = False


class Topology(Protocol):
    name: str
    # Whether a run is deleted if its call fails, since the caller's transaction has made its packed tables.
    ends_with_transaction: bool

    def open(self, engines: Sequence[Engine], segments: int) -> None:
        """Open a session for each segment and each engine, unless they are open, and start the engines."""
        ...

    def hold(self, run_id: int, new: CreateRun | None = None) -> None:
        """Record that these sessions drive a run; first write the run if `new` is given.

        Raise an error if another session drives the run.
        """
        ...

    def let_go(self) -> None:
        """Record that these sessions no longer drive the run, and have them drop the run's rows."""
        ...

    def command(self, command: Command) -> Mapping[str, Any]:
        """Send a command to the control session, wait, and return the answer."""
        ...

    def ask(self, backend: str, command: BesideRows) -> Mapping[str, Any]:
        """Send a command to a session whose engine is `backend`, wait, and return the answer."""
        ...

    def free(self, segment: int) -> bool:
        """Return whether the session that works for a segment has no command to carry out."""
        ...

    def submit(self, backend: str, command: ConfigCommand) -> None:
        """Send a command to the session of its segment, without waiting; `answers()` returns its answer."""
        ...

    def background(self, command: Command) -> None:
        """Queue a command for the control session, without waiting; `finish_background()` waits for it."""
        ...

    def finish_background(self) -> None: ...

    def answers(self) -> list[Answer]:
        """Wait a moment, and return the answers of the submitted commands that have ended."""
        ...

    def stop(self) -> None:
        """Cancel and end all segment sessions, because the call was cancelled or has failed."""
        ...

    def close(self) -> None:
        """End all sessions, the control session included."""
        ...
