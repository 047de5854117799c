"""Plain PostgreSQL: a segment session is a loopback connection to the same server.

The connections outlive the run: the next run of the same user session finds its rows and its compiled
models where this one left them.
"""

from __future__ import annotations

import os
import select
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, ParamSpec, TypeVar

import psycopg2
import psycopg2.extensions

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
from cerebro_plpy.errors import OUT_OF_MEMORY, TOO_MANY_CONNECTIONS, CerebroError
from cerebro_plpy.store import session
from cerebro_plpy.store.runs.drivers import Behind
from cerebro_plpy.topology import Answer, holding, tell_not_kept
from cerebro_plpy.topology.loopback import (
    CONTROL,
    WAIT_SECONDS,
    LoopbackSession,
    SessionLost,
    check_server,
    check_superuser,
    error_of,
    refused,
    settings_of,
    wait_for,
)

# How often a run replaces a lost control session.
CONTROL_RETRIES = 3
# Between two tries to open a session where the server refuses it.
REST_SECONDS = 1.0

T = TypeVar("T")
P = ParamSpec("P")
Key = tuple[str, int, str, int, Any]


class _Pool(dict[Key, LoopbackSession]):
    """The open sessions of this session, also between runs."""


def own_pids() -> list[int]:
    """Return the server processes of this session's own loopback sessions."""
    return [
        s.connection.info.backend_pid for s in memory.get_instance(_Pool).values() if not s.connection.closed
    ]


def list_started(role: str) -> list[tuple[str, int]]:
    """Return engine and threads of the first segment's open sessions, those without GPUs."""
    found = memory.get_instance(_Pool).items()
    return [
        (backend, threads)
        for (own, slot, backend, threads, gpus), there in found
        if (own, slot, gpus) == (role, 0, False) and not there.busy and there.alive()
    ]


@dataclass(frozen=True)
class Bounds:
    """The bounds that the sessions of a run must keep to."""

    idle_minutes: int
    # How long a run that goes on waits for a new session.
    patience: float
    look_seconds: int
    # Whether the process that decides is itself a session that was opened for the run.
    background: bool
    most_sessions: Callable[[], int | None]
    room: Callable[[], session.Room]


class LocalTopology:
    """The segments of one run as loopback sessions."""

    name = "local"
    ends_with_transaction = False
    kind = LoopbackSession

    def __init__(
        self,
        role: str,
        target: session.LoginTarget,
        bounds: Bounds,
        tick: Callable[[], None],
        say: Callable[[str], None],
    ) -> None:
        self._role = role
        self._pool = memory.get_instance(_Pool)
        self._bounds = bounds
        self._slots = 1
        self._keeps_others = True
        self._target = target
        self._tick = tick
        self._say = say
        self._engines: dict[str, Engine] = {}
        self._queue: list[Command] = []
        self._running: dict[int, LoopbackSession] = {}
        self._held: int | None = None
        self._control_losses = 0

    def open(self, engines: Sequence[Engine], segments: int) -> None:
        """Open what is not open yet; the servers' answers and the engines' imports go side by side."""
        self._insist(self._open, engines, segments)

    def has(self, engines: Sequence[Engine], segments: int) -> bool:
        """Return whether all sessions that these need are open already, and have nothing under way."""
        self._engines = {engine.backend: engine for engine in engines}
        self._slots = segments
        found = [self._pool.get(key) for key in self._wanted()]
        return all(there is not None and not there.busy and there.alive() for there in found)

    def begin_opening(self, engines: Sequence[Engine], segments: int) -> None:
        """Begin to open what is not open yet, and do not wait: `open` does so later."""
        self._insist(self._begin_opening, engines, segments)

    def _open(self, engines: Sequence[Engine], segments: int) -> None:
        sessions = self._begin_opening(engines, segments)
        self._finish(sessions)
        tell_not_kept(self._say, [started.result() for started in sessions])

    def _begin_opening(self, engines: Sequence[Engine], segments: int) -> list[LoopbackSession]:
        for key in [k for k, s in self._pool.items() if k[0] == self._role and s.busy and not s.starts]:
            # What an earlier call had under way when it was cancelled.
            self._pool.pop(key).stop()
        self._engines = {engine.backend: engine for engine in engines}
        most = self._bounds.most_sessions()
        self._slots = max(1, min(segments, most or segments))
        self._keeps_others = most is None
        opens = self._missing() > 0
        if opens:
            self._fit_in()
        self._control()
        self._tell_what_starts()
        for key in self._wanted():
            self._session(key)
        if opens:
            self._make_room()
        sessions = {key: self._session(key) for key in self._wanted()}
        for key, started in sessions.items():
            if not started.busy:
                started.begin(Sent(StartEngine(segment=key[1], commits=True), self._engines[key[2]]))
        return list(sessions.values())

    def _tell_what_starts(self) -> None:
        """Tell the caller which sessions start, since engines take seconds to come up."""
        number = self._count_missing(self._wanted())
        if number:
            self._say(
                f"starting {number} session{'s' if number > 1 else ''} with {' and '.join(self._engines)}"
            )

    def _fit_in(self) -> None:
        """Take as many sessions as there is room for; raise an error if a run cannot do with them."""
        room = self._bounds.room()
        if self._missing() > room.free and self._stop_others():
            room = self._bounds.room()
        while (missing := self._missing()) > room.free and self._slots > 1:
            self._slots -= 1
        check_room(room, missing)

    def _stop_others(self) -> bool:
        """End the idle sessions that this run has no use for; return whether there were any."""
        wanted = [self._key(CONTROL, ""), *self._wanted()]
        others = [key for key in self._pool if key[0] == self._role and key not in wanted]
        for key in others:
            self._pool.pop(key).stop()
        return bool(others)

    def _missing(self) -> int:
        return self._count_missing([self._key(CONTROL, ""), *self._wanted()])

    def _count_missing(self, keys: Sequence[Key]) -> int:
        there = [self._pool[key] for key in keys if key in self._pool]
        return len(keys) - sum(own.busy or own.alive() for own in there)

    def _wanted(self) -> list[Key]:
        return [self._key(slot, backend) for slot in range(self._slots) for backend in self._engines]

    def _make_room(self) -> None:
        """Close sessions beyond what is allowed: another run may have opened its own at the same moment."""
        over = min(0, self._bounds.room().free)
        allowed = max(1, min(self._bounds.most_sessions() or self._slots, self._slots + over))
        for key in [k for k in self._wanted() if k[1] >= allowed]:
            self._pool.pop(key).stop()
        self._slots = min(self._slots, allowed)

    def hold(self, run_id: int, new: CreateRun | None = None) -> None:
        self.command(holding(run_id, new, self._behind()))
        self._held = run_id

    def _behind(self) -> Behind:
        """Return the processes behind a run; this one decides."""
        own = [s for key, s in self._pool.items() if key[0] == self._role and key[1] != CONTROL]
        pids = [s.connection.info.backend_pid for s in own if not s.connection.closed]
        own_pid = os.getpid()
        sessions = [*pids, own_pid] if self._bounds.background else pids
        return Behind(own_pid, sessions)

    def let_go(self) -> None:
        if self._held is not None:
            self.command(LetGo(run_id=self._held))
        self._held = None
        self._give_back()

    def _give_back(self) -> None:
        """Have the sessions keep their compiled models, and no rows."""
        asked = {key: self._pool[key] for key in self._wanted() if key in self._pool}
        for key, there in asked.items():
            with self._losing(there):
                there.begin(Sent(GiveBack(segment=key[1]), self._engines[key[2]]))
        for there in asked.values():
            with self._losing(there):
                if there.busy:
                    self._finish([there])
                    there.result()

    @contextmanager
    def _losing(self, there: LoopbackSession) -> Iterator[None]:
        """Do without a session that is lost: it has given back everything."""
        try:
            yield
        except SessionLost:
            self._forget(there)

    def command(self, command: Command) -> Mapping[str, Any]:
        self.finish_background()
        return self._insist(self._tell_control, command)

    def _insist(self, work: Callable[P, T], *arguments: P.args, **named: P.kwargs) -> T:
        """Do work again if its session is lost: what was committed then is not done twice."""
        for _ in range(CONTROL_RETRIES):
            try:
                return work(*arguments, **named)
            except SessionLost:
                continue
        return work(*arguments, **named)

    def _tell_control(self, command: Command) -> Mapping[str, Any]:
        return self._do(self._control(), Sent(command))

    def _tell_first(self, backend: str, command: BesideRows) -> Mapping[str, Any]:
        return self._do(self._session(self._key(0, backend)), Sent(command, self._engines[backend]))

    def _do(self, there: LoopbackSession, sent: Sent) -> Mapping[str, Any]:
        try:
            there.begin(sent)
            self._finish([there])
            return there.result()
        except SessionLost:
            self._forget(there)
            raise

    def ask(self, backend: str, command: BesideRows) -> Mapping[str, Any]:
        """Do something in the first segment's session, which has Keras, and wait for it."""
        return self._insist(self._tell_first, backend, command)

    def free(self, segment: int) -> bool:
        return segment % self._slots not in {busy % self._slots for busy in self._running}

    def submit(self, backend: str, command: ConfigCommand) -> None:
        running = self._session(self._key(command.segment % self._slots, backend))
        self._running[command.segment] = running
        try:
            self._finish([running])
            # The engine goes along: a session that replaces a lost one must start it first.
            running.begin(Sent(command, self._engines[backend]))
        except SessionLost:
            # It died while it was idle: `answers` reports it as lost.
            running.close()

    def background(self, command: Command) -> None:
        self._queue.append(command)
        self._drain()

    def answers(self) -> list[Answer]:
        watched = [s.connection for s in self._running.values()]
        if not any(connection.closed for connection in watched):
            select.select(watched, [], [], WAIT_SECONDS)
        self._drain()
        found = [self._answer(segment, running) for segment, running in self._running.items()]
        ended = [answer for answer in found if answer is not None]
        for answer in ended:
            del self._running[answer.segment]
        return ended

    def _answer(self, segment: int, running: LoopbackSession) -> Answer | None:
        try:
            return Answer(segment, running.result(), None) if running.ready() else None
        except psycopg2.Error as error:
            known = error_of(running, error)
        except CerebroError as error:
            known = error
        running.busy = False
        lost = isinstance(known, SessionLost)
        if lost or known.sqlstate == OUT_OF_MEMORY:
            # A session whose memory has run out is better replaced.
            self._forget(running)
        return Answer(segment, None, known, lost)

    def finish_background(self) -> None:
        while self._queue:
            self._drain()
            if self._queue:
                select.select([self._control().connection], [], [], WAIT_SECONDS)
                self._tick()

    def stop(self) -> None:
        """Cancel and close every segment session; the control session stays for the last word."""
        self._tick = lambda: None
        del self._queue[1:]
        self._running.clear()
        for key in [key for key in self._pool if key[0] == self._role and key[1] != CONTROL]:
            self._pool.pop(key).stop()

    def close(self) -> None:
        for key in [key for key in self._pool if key[0] == self._role]:
            self._pool.pop(key).stop()

    def _drain(self) -> None:
        """Let the control session go on with its queue; begin again what a lost one had begun."""
        control = self._control()
        try:
            if control.busy:
                if not control.ready():
                    return
                control.result()
                self._queue.pop(0)
            if self._queue:
                control.begin(Sent(self._queue[0]))
        except (psycopg2.Error, SessionLost) as error:
            self._take_control_error(control, error)

    def _take_control_error(self, control: LoopbackSession, error: psycopg2.Error | SessionLost) -> None:
        known = error_of(control, error) if isinstance(error, psycopg2.Error) else error
        self._forget(control)
        self._control_losses += 1
        if not isinstance(known, SessionLost) or self._control_losses > CONTROL_RETRIES:
            raise known from None

    def _control(self) -> LoopbackSession:
        """Return the control session; one that replaces a lost one first takes its place behind the run."""
        key = self._key(CONTROL, "")
        before = self._pool.get(key)
        control = self._session(key)
        if control is not before and self._held is not None:
            self._do(control, Sent(holding(self._held, None, self._behind())))
        return control

    def _key(self, slot: int, backend: str) -> Key:
        engine = self._engines.get(backend, Engine(backend, 0, False))
        return (self._role, slot, backend, engine.threads, engine.use_gpus)

    def _session(self, key: Key) -> LoopbackSession:
        found = self._pool.get(key)
        if found is not None and (found.busy or found.alive()):
            found.look_seconds = self._bounds.look_seconds
            return found
        if found is not None:
            self._pool.pop(key).stop()
        self._keep_one_other(key)
        # A run that goes on waits a while for a server that has no room for a new session.
        deadline = time.monotonic() + (self._bounds.patience if self._held is not None else 0.0)
        while True:
            try:
                room = self._bounds.room()
                if room.free > 0:
                    opened = self._opened(key)
                    opened.look_seconds = self._bounds.look_seconds
                    break
                if time.monotonic() >= deadline:
                    check_room(room, 1)
            # A stored string that cannot be read is a ProgrammingError, whose text has parts of it.
            except psycopg2.Error as error:
                if (failed := self._pool.pop(key, None)) is not None:
                    failed.close()
                if time.monotonic() >= deadline:
                    raise self._refusal(error) from None
            self._rest()
        if self._held is not None and key[1] != CONTROL:
            self.command(holding(self._held, None, self._behind()))
        return opened

    def _keep_one_other(self, key: Key) -> None:
        """Keep the sessions with one other number of threads: calls with either may take turns.

        If an administrator has said how many there may be, keep only those that are used.
        """
        others = [other for other in self._pool if other[:3] == key[:3] and other != key]
        for other in others[:-1] if self._keeps_others else others:
            self._pool.pop(other).stop()

    def _refusal(self, error: psycopg2.Error) -> CerebroError:
        """Return the error for a session that could not be opened."""
        return refused(self._target, error)

    def _rest(self) -> None:
        """Rest a second, in which nothing is asked of the server but whether the caller has cancelled."""
        until = time.monotonic() + REST_SECONDS
        while time.monotonic() < until:
            time.sleep(WAIT_SECONDS)
            check_server()
            self._tick()

    def _opened(self, key: Key) -> LoopbackSession:
        target = self._target if key[1] == CONTROL else self._target.of_segment(key[1])
        settings = settings_of(target, self._bounds.idle_minutes, key[1])
        self._pool[key] = self.kind(target, settings)
        self._finish([self._pool[key]])
        check_superuser(self._pool[key])
        return self._pool[key]

    def _forget(self, lost: LoopbackSession) -> None:
        for key in [key for key, value in self._pool.items() if value is lost]:
            self._pool.pop(key).stop()

    def _finish(self, sessions: Sequence[LoopbackSession]) -> None:
        """Wait until none of these has anything under way, looking for a cancel meanwhile."""

        def tick() -> None:
            try:
                self._tick()
            except BaseException:
                self.close()
                raise

        wait_for(sessions, tick)


def check_room(room: session.Room, needed: int) -> None:
    if needed > room.free:
        free = max(0, room.free)
        raise CerebroError(
            f"there is no room for the sessions of a run: it needs {needed} more, and {free} are free",
            detail=f"The bound is {room.bound}: {room.most}.",
            hint="Wait for other sessions to end, or have an administrator raise the bound.",
            sqlstate=TOO_MANY_CONNECTIONS,
        )
