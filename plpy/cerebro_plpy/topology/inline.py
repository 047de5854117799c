"""The topology without other sessions: the caller's session does the work of all segments in turn."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from cerebro_plpy import memory
from cerebro_plpy.commands import (
    BesideRows,
    Command,
    ConfigCommand,
    CreateRun,
    Engine,
    GiveBack,
    LetGo,
    Sent,
    StartEngine,
)
from cerebro_plpy.database import Database
from cerebro_plpy.errors import QUERY_CANCELED, CerebroError
from cerebro_plpy.store.runs.drivers import Behind
from cerebro_plpy.topology import Answer, holding, tell_not_kept


class _InlineEngines(list[str]):
    """The engines that inline topologies have started in this session; there is at most one."""


def find_started() -> str | None:
    """Return the engine, at most one, that this session has started for its own work, or None."""
    return next(iter(memory.get_instance(_InlineEngines)), None)


class InlineTopology:
    """A topology that carries out each command in the caller's session as soon as it is submitted."""

    name = "inline"
    ends_with_transaction = False

    def __init__(self, db: Database) -> None:
        self._db = db
        self._answers: list[Answer] = []
        self._engines: dict[str, Engine] = {}
        self._held: int | None = None

    def open(self, engines: Sequence[Engine], segments: int) -> None:
        self._engines = {engine.backend: engine for engine in engines}
        if self._engines and "keras" not in sys.modules:
            self._db.notice(f"starting {' and '.join(self._engines)} in this session")
        tell_not_kept(self._db.notice, [self.ask(backend, StartEngine()) for backend in self._engines])
        memory.get_instance(_InlineEngines).extend(self._engines)

    def hold(self, run_id: int, new: CreateRun | None = None) -> None:
        self.command(holding(run_id, new, Behind(os.getpid(), [])))
        self._held = run_id

    def let_go(self) -> None:
        if self._held is not None:
            self.command(LetGo(run_id=self._held))
            for backend in self._engines:
                self.ask(backend, GiveBack())
        self._held = None

    def command(self, command: Command) -> Mapping[str, Any]:
        return self._db.run_here(Sent(command))

    def ask(self, backend: str, command: BesideRows) -> Mapping[str, Any]:
        return self._db.run_here(Sent(command, self._engines[backend]))

    def free(self, segment: int) -> bool:
        return not self._answers

    def submit(self, backend: str, command: ConfigCommand) -> None:
        try:
            self._answers.append(Answer(command.segment, self.ask(backend, command), None))
        except CerebroError as error:
            if error.sqlstate == QUERY_CANCELED:
                raise
            self._answers.append(Answer(command.segment, None, error))

    def background(self, command: Command) -> None:
        self.command(command)

    def finish_background(self) -> None:
        pass

    def answers(self) -> list[Answer]:
        answers, self._answers = self._answers, []
        return answers

    def stop(self) -> None:
        pass

    def close(self) -> None:
        pass
