"""No other session: the caller's own backend plays every segment in turn."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from cerebro_plpy.database import Database
from cerebro_plpy.errors import QUERY_CANCELED, CerebroError
from cerebro_plpy.topology import EMPTY, Answer, Engine


class InlineTopology:
    """Commands run where they are submitted, so there is never more than one under way."""

    name = "inline"

    def __init__(self, db: Database) -> None:
        self._run = db.run_here
        self._answers: list[Answer] = []
        self._engines: dict[str, Mapping[str, Any]] = {}
        self._held: int | None = None

    def open(self, engines: Mapping[str, Engine], segments: int) -> None:
        self._engines = {
            backend: {"backend": backend, "threads": threads, "use_gpus": use_gpus}
            for backend, (threads, use_gpus) in engines.items()
        }
        for engine in self._engines.values():
            self._run("start", {"engine": engine})

    def hold(self, run_id: int, name: str = "hold_run", request: Mapping[str, Any] = EMPTY) -> None:
        self._run(name, {**request, "run_id": run_id, "driver": os.getpid(), "sessions": []})
        self._held = run_id

    def let_go(self) -> None:
        if self._held is not None:
            self._run("let_go", {"run_id": self._held})
            for backend in self._engines:
                self.ask(backend, "give_back", {})
        self._held = None

    def command(self, name: str, request: Mapping[str, Any]) -> Mapping[str, Any]:
        return self._run(name, request)

    def ask(self, backend: str, name: str, request: Mapping[str, Any]) -> Mapping[str, Any]:
        return self._run(name, {**request, "engine": self._engines[backend]})

    def free(self, segment: int) -> bool:
        return not self._answers

    def submit(self, segment: int, backend: str, name: str, request: Mapping[str, Any]) -> None:
        try:
            self._answers.append(Answer(segment, self.ask(backend, name, request), None))
        except CerebroError as error:
            if error.sqlstate == QUERY_CANCELED:
                raise
            self._answers.append(Answer(segment, None, error))

    def background(self, name: str, request: Mapping[str, Any]) -> None:
        self._run(name, request)

    def finish_background(self) -> None:
        pass

    def answers(self) -> list[Answer]:
        answers, self._answers = self._answers, []
        return answers

    def stop(self) -> None:
        pass

    def close(self) -> None:
        pass
