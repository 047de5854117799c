"""The topology of PostgreSQL: segment sessions are loopback connections to the same server.

The connections stay open after a run, so that the next run of the caller's session finds the compiled models
in their memory.
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
# The pause between two tries to open a session that the server refuses.
REST_SECONDS = 1.0

T = TypeVar("T")
P = ParamSpec("P")
Key = tuple[str, int, str, int, Any]


class _Pool(dict[Key, LoopbackSession]):
    """The loopback sessions that this session has open, during and between runs."""


def own_pids() -> list[int]:
    """Return the process ids of the loopback sessions that this session has open."""
    return [
        s.connection.info.backend_pid for s in memory.get_instance(_Pool).values() if not s.connection.closed
    ]


def list_started(role: str) -> list[tuple[str, int]]:
    """Return the engine and threads of each idle session that works for `role` on the first segment.

    Sessions with GPUs are left out.
    """
    return [(backend, threads) for slot, backend, threads in _list_idle(role) if slot == 0]


def count_started(role: str, backend: str | None) -> int:
    """Return for how many segments an idle session with this engine, but without a GPU, works for `role`."""
    return len({slot for slot, engine, _ in _list_idle(role) if engine == backend})


def _list_idle(role: str) -> list[tuple[int, str, int]]:
    """Return the segment, engine and threads of each idle session without a GPU that works for `role`."""
    return [
        (slot, backend, threads)
        for (own, slot, backend, threads, gpus), there in memory.get_instance(_Pool).items()
        if own == role and not gpus and not there.busy and there.alive()
    ]


@dataclass(frozen=True)
class Bounds:
    """The limits for a run's sessions: their number, idle time, and how long the run waits for a new one."""

    idle_minutes: int
    # How many seconds a run that has begun waits for a new session.
    patience: float
    look_seconds: int
    # Whether the driving session is itself a loopback session, opened for a run in the background.
    background: bool
    most_sessions: Callable[[], int | None]
    room: Callable[[], session.Room]


class LocalTopology:
    """A topology of loopback sessions: a control session, and a session for each segment and engine."""

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
        """Open all sessions that are not open yet, and start their engines at the same time."""
        self._insist(self._open, engines, segments)

    def has(self, engines: Sequence[Engine], segments: int) -> bool:
        """Return whether a session is open and idle for each of these engines and each segment."""
        self._engines = {engine.backend: engine for engine in engines}
        self._slots = segments
        found = [self._pool.get(key) for key in self._wanted()]
        return all(there is not None and not there.busy and there.alive() for there in found)

    def begin_opening(self, engines: Sequence[Engine], segments: int) -> None:
        """Open all missing sessions, and begin to start their engines; `open()` waits for them."""
        self._insist(self._begin_opening, engines, segments)

    def _open(self, engines: Sequence[Engine], segments: int) -> None:
        sessions = self._begin_opening(engines, segments)
        self._finish(sessions)
        tell_not_kept(self._say, [started.result() for started in sessions])

    def _begin_opening(self, engines: Sequence[Engine], segments: int) -> list[LoopbackSession]:
        for key in [k for k, s in self._pool.items() if k[0] == self._role and s.busy and not s.starts]:
            # The session still has the command of an earlier call that was cancelled.
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
        """Tell the caller how many sessions start, with which engines, since this takes seconds."""
        number = self._count_missing(self._wanted())
        if number:
            self._say(
                f"starting {number} session{'s' if number > 1 else ''} with {' and '.join(self._engines)}"
            )

    def _fit_in(self) -> None:
        """Reduce the number of segment sessions to what the free connections allow.

        Raise an error if too few connections are free even for one.
        """
        room = self._bounds.room()
        if self._missing() > room.free and self._stop_others():
            room = self._bounds.room()
        while (missing := self._missing()) > room.free and self._slots > 1:
            self._slots -= 1
        check_room(room, missing)

    def _stop_others(self) -> bool:
        """End the open sessions that this run does not use; return whether there were any."""
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
        """Close sessions beyond the allowed number, since another run may have opened some meanwhile."""
        over = min(0, self._bounds.room().free)
        allowed = max(1, min(self._bounds.most_sessions() or self._slots, self._slots + over))
        for key in [k for k in self._wanted() if k[1] >= allowed]:
            self._pool.pop(key).stop()
        self._slots = min(self._slots, allowed)

    def hold(self, run_id: int, new: CreateRun | None = None) -> None:
        self.command(holding(run_id, new, self._behind()))
        self._held = run_id

    def _behind(self) -> Behind:
        """Return the process ids of this session, which drives the run, and of its segment sessions."""
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
        """Have the segment sessions drop the run's rows; they keep their compiled models."""
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
        """Ignore the loss of a session in a `with` block that has the session drop rows.

        A lost session has no rows any more.
        """
        try:
            yield
        except SessionLost:
            self._forget(there)

    def command(self, command: Command) -> Mapping[str, Any]:
        self.finish_background()
        return self._insist(self._tell_control, command)

    def _insist(self, work: Callable[P, T], *arguments: P.args, **named: P.kwargs) -> T:
        """Call `work` and return its result; if a session is lost, call it again, a few times at most.

        The work must be safe to repeat.
        """
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
        """Send a command to the first segment's session with this engine, wait, and return the answer."""
        return self._insist(self._tell_first, backend, command)

    def free(self, segment: int) -> bool:
        return segment % self._slots not in {busy % self._slots for busy in self._running}

    def submit(self, backend: str, command: ConfigCommand) -> None:
        running = self._session(self._key(command.segment % self._slots, backend))
        self._running[command.segment] = running
        try:
            self._finish([running])
            # With the engine, because a session that replaces a lost session must start it first.
            running.begin(Sent(command, self._engines[backend]))
        except SessionLost:
            # The session ended while it was idle; `answers` reports it as lost.
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
            # Replace a session whose memory has run out.
            self._forget(running)
        return Answer(segment, None, known, lost)

    def finish_background(self) -> None:
        while self._queue:
            self._drain()
            if self._queue:
                select.select([self._control().connection], [], [], WAIT_SECONDS)
                self._tick()

    def stop(self) -> None:
        """Cancel and close all segment sessions; the control session stays, to write how the run ended."""
        self._tick = lambda: None
        del self._queue[1:]
        self._running.clear()
        for key in [key for key in self._pool if key[0] == self._role and key[1] != CONTROL]:
            self._pool.pop(key).stop()

    def close(self) -> None:
        for key in [key for key in self._pool if key[0] == self._role]:
            self._pool.pop(key).stop()

    def _drain(self) -> None:
        """Read the control session's answer if there is one, and send the next queued command.

        If the session is lost, the next call sends the command again.
        """
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
        """Return the control session. If it is a new one, first have it record again who drives the run."""
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
        # A run that has begun waits a while if the server has no room for a new session.
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
            # A malformed stored connection string raises ProgrammingError, whose text shows parts of it.
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
        """Close sessions that differ from `key` only in threads or GPUs, except the newest of them.

        One is kept because calls may alternate between two numbers of threads. If the setting "sessions" is a
        limit, none is kept.
        """
        others = [other for other in self._pool if other[:3] == key[:3] and other != key]
        for other in others[:-1] if self._keeps_others else others:
            self._pool.pop(other).stop()

    def _refusal(self, error: psycopg2.Error) -> CerebroError:
        """Return the error of the extension for a session that could not be opened."""
        return refused(self._target, error)

    def _rest(self) -> None:
        """Wait a second; raise an error if the caller cancels or the server ends meanwhile."""
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
        """Wait until all these sessions have ended their command or login; on a cancel, close them."""

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
