"""Plain PostgreSQL: a segment session is a loopback connection to the same server.

The connections outlive the run: the next run of the same user session finds its rows and its compiled
models where this one left them.
"""

from __future__ import annotations

import json
import select
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

import psycopg2
import psycopg2.extensions

from cerebro_plpy.errors import (
    CONNECTION_FAILURE,
    INTERNAL,
    OUT_OF_MEMORY,
    SEGMENT_GONE,
    CerebroError,
    from_driver,
)
from cerebro_plpy.store import session
from cerebro_plpy.topology import Answer, Engine

# A control session that is lost is replaced so many times in a run.
CONTROL_RETRIES = 3
# How long to wait for answers before looking whether the caller has cancelled.
WAIT_SECONDS = 0.05
# Between two tries to open a session where the server refuses it.
REST_SECONDS = 1.0
CONTROL = -1
# On Greenplum the session is there still, and not the process of its own that it had on a segment.
SEGMENT_LOST = (SEGMENT_GONE, "57P01", "57P02", "57P03")
# Statements here are made for PostgreSQL's own planner, and small tables need no statistics at once.
_SESSION_SETTINGS_GREENPLUM = {"optimizer": "off", "gp_autostats_mode": "none"}
_SESSION_SETTINGS_14 = {"client_connection_check_interval": "1s"}

T = TypeVar("T")
Key = tuple[str, int, str, int, Any]
_pool: dict[Key, LoopbackSession] = {}


def own_pids() -> list[int]:
    """The server processes of this session's own loopback sessions."""
    return [s.connection.info.backend_pid for s in _pool.values() if not s.connection.closed]


class LoopbackSession:
    """One connection in asynchronous mode, with at most one command under way."""

    def __init__(self, target: session.Target, settings: Mapping[str, str]) -> None:
        self.connection = psycopg2.connect(_dsn(target, settings), async_=1)
        self._cursor: Any = None
        self.busy = False
        self.opened = False

    def ready(self) -> bool:
        """Move the connection on without blocking; true when what was begun has ended."""
        return self.connection.poll() == psycopg2.extensions.POLL_OK

    def poll(self) -> int:
        """The same for a caller that waits for this alone: the server's error is raised as ours."""
        try:
            return self.connection.poll()
        except psycopg2.Error as error:
            if not self.opened:
                raise
            self.busy = False
            raise _error_of(self, error) from None

    def begin(self, name: str, request: Mapping[str, Any]) -> None:
        self._send(session.COMMAND, name, json.dumps(request))

    def _send(self, statement: str, *values: str) -> None:
        try:
            self._cursor = self.connection.cursor()
            self._cursor.execute(statement, values)
        except psycopg2.Error as error:
            raise _error_of(self, error) from None
        self.busy = True

    def result(self) -> Mapping[str, Any]:
        self.busy = False
        return json.loads(self._cursor.fetchone()[0])

    def alive(self) -> bool:
        """Whether an idle connection still has its server side."""
        if self.connection.closed or self.busy:
            return False
        return not select.select([self.connection], [], [], 0)[0]

    def stop(self) -> None:
        try:
            if self.busy:
                self.connection.cancel()
        except psycopg2.Error:
            pass
        finally:
            self.connection.close()


def _settings(target: session.Target, idle_minutes: int, slot: int) -> Mapping[str, str]:
    settings = session.SETTINGS | ({} if slot == CONTROL else session.VISIT_SETTINGS)
    if target.is_greenplum:
        settings |= _SESSION_SETTINGS_GREENPLUM
    if target.server_version >= 140000:
        settings |= _SESSION_SETTINGS_14 | {"idle_session_timeout": f"{idle_minutes}min"}
    return settings


def _dsn(target: session.Target, settings: Mapping[str, str]) -> str:
    options = " ".join(f"-c {name}={value}" for name, value in settings.items())
    own = {"options": options, "application_name": session.IDLE, "connect_timeout": "10"}
    if target.connection:
        return psycopg2.extensions.make_dsn(target.connection, **own)
    place = {"host": target.host, "port": target.port, "dbname": target.dbname, "user": target.user}
    return psycopg2.extensions.make_dsn(**place, **own)


class SegmentsAway(psycopg2.OperationalError):
    """A session is there, and a segment of the cluster does not answer it."""


class SessionLost(CerebroError):
    """A session has ended, and nobody knows whether what it was told is committed."""


def _error_of(of: LoopbackSession, error: psycopg2.Error) -> CerebroError:
    known = from_driver(error, INTERNAL)
    if not _is_lost(of, error):
        return known
    return SessionLost(known.message, detail=known.detail, hint=known.hint, sqlstate=known.sqlstate)


def _is_lost(of: LoopbackSession, error: psycopg2.Error) -> bool:
    """Whether the session is gone and not just the command; FATAL may come before the stream ends."""
    fatal = error.diag.severity_nonlocalized in ("FATAL", "PANIC") or error.pgcode in SEGMENT_LOST
    return fatal or bool(of.connection.closed) or error.pgcode is None


def leave_running(
    target: session.Target, request: Mapping[str, Any], taken_up: Callable[[], bool], tick: Callable[[], None]
) -> None:
    """Have a session of its own drive a run, and let go of it as soon as it does."""
    settings = _settings(target, 1, CONTROL)
    # That nobody listens any more is no reason to end.
    alone = {"client_connection_check_interval": "0"} if target.server_version >= 140000 else {}
    there = LoopbackSession(target, {**settings, **alone})
    try:
        wait_for([there], tick)
        check_superuser(there)
        there.begin("drive", request)
        while not taken_up():
            if there.poll() == psycopg2.extensions.POLL_OK:
                there.result()
                return
            select.select([there.connection], [], [], WAIT_SECONDS)
            tick()
    except psycopg2.Error as error:
        raise _refused(target, error) from None
    finally:
        there.connection.close()


def check_superuser(opened: LoopbackSession) -> None:
    """Only a superuser's session can become a run's caller."""
    if opened.connection.info.parameter_status("is_superuser") != "on":
        raise psycopg2.OperationalError("the role that logs in is no superuser")
    opened.opened = True


def wait_for(sessions: Sequence[LoopbackSession], tick: Callable[[], None]) -> None:
    """Wait until none of these has anything under way."""
    waiting = list(sessions)
    while waiting:
        states = {s: s.poll() for s in waiting}
        waiting = [s for s, state in states.items() if state != psycopg2.extensions.POLL_OK]
        if waiting:
            writers = [s.connection for s in waiting if states[s] == psycopg2.extensions.POLL_WRITE]
            select.select([s.connection for s in waiting], writers, [], WAIT_SECONDS)
            tick()


class LocalTopology:
    """The segments of one run as loopback sessions."""

    name = "local"
    kind = LoopbackSession

    def __init__(
        self,
        role: str,
        target: session.Target,
        idle_minutes: int,
        most_sessions: Callable[[], int | None],
        patience: float,
        tick: Callable[[], None],
    ) -> None:
        self._role = role
        self._patience = patience
        self._most_sessions = most_sessions
        self._slots = 1
        self._target = target
        self._idle_minutes = idle_minutes
        self._tick = tick
        self._engines: dict[str, Engine] = {}
        self._queue: list[tuple[str, Mapping[str, Any]]] = []
        self._running: dict[int, LoopbackSession] = {}
        self._held: int | None = None
        self._control_losses = 0

    def open(self, engines: Mapping[str, Engine], segments: int) -> None:
        """Open what is not open yet; the servers' answers and the engines' imports go side by side."""
        self._insist(lambda: self._open(engines, segments))

    def _open(self, engines: Mapping[str, Engine], segments: int) -> None:
        for key in [k for k, s in _pool.items() if k[0] == self._role and s.busy]:
            # What an earlier call had under way when it was cancelled.
            _pool.pop(key).stop()
        self._engines = dict(engines)
        self._slots = max(1, min(segments, self._most_sessions() or segments))
        self._control()
        for key in self._wanted():
            self._session(key)
        self._make_room()
        sessions = {key: self._session(key) for key in self._wanted()}
        for key, started in sessions.items():
            started.begin("start", self._with_engine(key[2], {"segment": key[1], "commits": True}))
        self._finish(list(sessions.values()))
        for started in sessions.values():
            started.result()

    def _wanted(self) -> list[Key]:
        return [self._key(slot, backend) for slot in range(self._slots) for backend in self._engines]

    def _make_room(self) -> None:
        """Another run may have opened its sessions at the same moment: both close what is too much."""
        allowed = self._most_sessions() or self._slots
        for key in [k for k in self._wanted() if k[1] >= allowed]:
            _pool.pop(key).stop()
        self._slots = min(self._slots, allowed)

    def hold(self, run_id: int) -> None:
        self.command("hold_run", {"run_id": run_id})
        self._held = run_id

    def let_go(self) -> None:
        if self._held is not None:
            self.command("let_go", {"run_id": self._held})
        self._held = None
        self._give_back()

    def _give_back(self) -> None:
        """Have the sessions keep their compiled models, and no rows."""
        asked = {key: _pool[key] for key in self._wanted() if key in _pool}
        for key, there in asked.items():
            with self._losing(there):
                there.begin("give_back", self._with_engine(key[2], {"segment": key[1]}))
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

    def command(self, name: str, request: Mapping[str, Any]) -> Mapping[str, Any]:
        self.finish_background()
        return self._insist(lambda: self._do(self._control(), name, request))

    def _insist(self, work: Callable[[], T]) -> T:
        """Do something again when its session is lost: what was committed then is not done twice."""
        for _ in range(CONTROL_RETRIES):
            try:
                return work()
            except SessionLost:
                continue
        return work()

    def _do(self, there: LoopbackSession, name: str, request: Mapping[str, Any]) -> Mapping[str, Any]:
        try:
            there.begin(name, request)
            self._finish([there])
            return there.result()
        except SessionLost:
            self._forget(there)
            raise

    def ask(self, backend: str, name: str, request: Mapping[str, Any]) -> Mapping[str, Any]:
        """Do something in the first segment's session, which has Keras, and wait for it."""
        asked = self._with_engine(backend, request)
        return self._insist(lambda: self._do(self._session(self._key(0, backend)), name, asked))

    def free(self, segment: int) -> bool:
        return segment % self._slots not in {busy % self._slots for busy in self._running}

    def submit(self, segment: int, backend: str, name: str, request: Mapping[str, Any]) -> None:
        running = self._session(self._key(segment % self._slots, backend))
        self._running[segment] = running
        try:
            self._finish([running])
            running.begin(name, self._with_engine(backend, request))
        except SessionLost:
            # It died while it was idle: `answers` reports it as lost.
            running.connection.close()

    def background(self, name: str, request: Mapping[str, Any]) -> None:
        self._queue.append((name, request))
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
            known, lost = from_driver(error, INTERNAL), _is_lost(running, error)
        except CerebroError as error:
            known, lost = error, isinstance(error, SessionLost)
        running.busy = False
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
        for key in [key for key in _pool if key[0] == self._role and key[1] != CONTROL]:
            _pool.pop(key).stop()

    def close(self) -> None:
        for key in [key for key in _pool if key[0] == self._role]:
            _pool.pop(key).stop()

    def _drain(self) -> None:
        """Let the control session go on with its queue; what a lost one had begun is begun again."""
        control = self._control()
        try:
            if control.busy:
                if not control.ready():
                    return
                control.result()
                self._queue.pop(0)
            if self._queue:
                control.begin(*self._queue[0])
        except (psycopg2.Error, SessionLost) as error:
            self._take_control_error(control, error)

    def _take_control_error(self, control: LoopbackSession, error: psycopg2.Error | SessionLost) -> None:
        known = _error_of(control, error) if isinstance(error, psycopg2.Error) else error
        self._forget(control)
        self._control_losses += 1
        if not isinstance(known, SessionLost) or self._control_losses > CONTROL_RETRIES:
            raise known from None

    def _control(self) -> LoopbackSession:
        """The control session; one that replaces a lost one first takes its place behind the run."""
        key = self._key(CONTROL, "")
        before = _pool.get(key)
        control = self._session(key)
        if control is not before and self._held is not None:
            self._do(control, "hold_run", {"run_id": self._held})
        return control

    def _with_engine(self, backend: str, request: Mapping[str, Any]) -> Mapping[str, Any]:
        """A session that replaces a lost one has to start its engine first, so each command names it."""
        threads, use_gpus = self._engines[backend]
        return {**request, "engine": {"backend": backend, "threads": threads, "use_gpus": use_gpus}}

    def _key(self, slot: int, backend: str) -> Key:
        threads, use_gpus = self._engines.get(backend, (0, False))
        return (self._role, slot, backend, threads, use_gpus)

    def _session(self, key: Key) -> LoopbackSession:
        found = _pool.get(key)
        if found is not None and (found.busy or found.alive()):
            return found
        for other in [k for k in _pool if k[:3] == key[:3]]:
            _pool.pop(other).stop()
        # A run that goes on waits a while for a server that has no room for a new session.
        deadline = time.monotonic() + (self._patience if self._held is not None else 0.0)
        while True:
            try:
                return self._opened(key)
            # A stored string that cannot be read is a ProgrammingError, whose text has parts of it.
            except psycopg2.Error as error:
                _pool.pop(key, None)
                if time.monotonic() >= deadline:
                    raise _refused(self._target, error) from None
            self._rest()

    def _rest(self) -> None:
        """A second in which nothing is asked of the server but whether the caller has cancelled."""
        until = time.monotonic() + REST_SECONDS
        while time.monotonic() < until:
            time.sleep(WAIT_SECONDS)
            self._tick()

    def _opened(self, key: Key) -> LoopbackSession:
        settings = _settings(self._target, self._idle_minutes, key[1])
        _pool[key] = self.kind(self._target, settings)
        self._finish([_pool[key]])
        check_superuser(_pool[key])
        return _pool[key]

    def _forget(self, lost: LoopbackSession) -> None:
        for key in [key for key, value in _pool.items() if value is lost]:
            _pool.pop(key).stop()

    def _finish(self, sessions: Sequence[LoopbackSession]) -> None:
        """Wait until none of these has anything under way, looking for a cancel meanwhile."""

        def tick() -> None:
            try:
                self._tick()
            except BaseException:
                self.close()
                raise

        wait_for(sessions, tick)


def _refused(target: session.Target, error: psycopg2.Error) -> CerebroError:
    reason = str(error).strip().splitlines()[-1] if str(error).strip() else "no reason given"
    if isinstance(error, SegmentsAway):
        return CerebroError(
            "not all segments of the cluster answer",
            detail=reason,
            hint="gp_segment_configuration and the logs of the segments say which do not. When all answer,"
            " cerebro.resume goes on with the run.",
            sqlstate=SEGMENT_GONE,
        )
    return CerebroError(
        "this server refuses the segment sessions that a run needs",
        detail=f"The login over the local socket was answered: {_without_secrets(target, reason)}",
        hint="Let the owner of the extension log in over the local socket (pg_hba.conf, method peer), or"
        " have an administrator store a connection string: INSERT INTO"
        " cerebro.settings VALUES ('connection', '…').",
        sqlstate=CONNECTION_FAILURE,
    )


def _without_secrets(target: session.Target, reason: str) -> str:
    """A user must not learn a stored connection string from a message."""
    return "the stored connection string does not work" if target.connection else reason
