"""Topologies: where segments are and how a command reaches them.

A topology opens sessions, sends them commands (`commands.py`) and tells which have answered. The executor
knows nothing more of where it runs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

from cerebro_plpy.commands import BesideRows, Command, ConfigCommand, CreateRun, Engine, HoldRun
from cerebro_plpy.errors import CerebroError
from cerebro_plpy.store.runs.drivers import Behind


def tell_not_kept(say: Callable[[str], None], answers: Iterable[Mapping[str, Any]]) -> None:
    """Tell why the programs that sessions compile are lost when they end, where they were to be kept."""
    for reason in sorted({answer["not_kept"] for answer in answers if "not_kept" in answer}):
        say(f"compiled programs are not kept for other sessions: {reason}")


def holding(run_id: int, new: CreateRun | None, behind: Behind) -> HoldRun | CreateRun:
    """Return the command by which these sessions stand behind a run."""
    return HoldRun(run_id=run_id, behind=behind) if new is None else replace(new, behind=behind)


@dataclass(frozen=True)
class Answer:
    """The outcome of a command that was sent to a segment."""

    segment: int
    result: Mapping[str, Any] | None
    error: CerebroError | None
    lost: bool = False


class Topology(Protocol):
    name: str
    # Whether nothing is to be left of a run whose call fails, since its tables are gone then.
    ends_with_transaction: bool

    def open(self, engines: Sequence[Engine], segments: int) -> None:
        """Make a session ready for each segment and engine."""
        ...

    def hold(self, run_id: int, new: CreateRun | None = None) -> None:
        """Stand behind a run from now on, `new` or existing; raise an error if another session does."""
        ...

    def let_go(self) -> None:
        """No longer stand behind a run."""
        ...

    def command(self, command: Command) -> Mapping[str, Any]:
        """Carry out a command in the control session and wait for it."""
        ...

    def ask(self, backend: str, command: BesideRows) -> Mapping[str, Any]:
        """Carry out a command where Keras runs on this backend and wait for it."""
        ...

    def free(self, segment: int) -> bool:
        """Whether the session that serves a segment has nothing under way."""
        ...

    def submit(self, backend: str, command: ConfigCommand) -> None:
        """Begin a command on its segment."""
        ...

    def background(self, command: Command) -> None:
        """Carry out a command off the hot path, some time before `finish_background` returns."""
        ...

    def finish_background(self) -> None: ...

    def answers(self) -> list[Answer]:
        """Wait a moment for commands to end; return the answers of those that have."""
        ...

    def stop(self) -> None:
        """End every segment session at once, since the call was cancelled or has failed."""
        ...

    def close(self) -> None:
        """End the control session as well."""
        ...
