"""The fault harness: start a run, hurt it at a random moment, resume it, compare every bit.

    python tests/faults/harness.py [--rounds 200] [--seed 1] [--first 1] [--only WORDS]

The rounds follow from the seed, but for what the server's timing decides; --first goes on from a
later one, --only plays those of some faults alone.
"""

from __future__ import annotations

import argparse
import random
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import psycopg2

if __name__ == "__main__":
    sys.path[:0] = [str(Path(__file__).resolve().parents[1] / "support")]

import kinds
import workload
from fixtures import Connection, Rows, execute, setting
from scratch import Server, end_in_order, server, wait_until

# A session that is left alone looks once a second whether its caller is still there.
SETTLED = 10.0
TENSORFLOW_SHARE = 0.15


class Call(threading.Thread):
    """A thread that makes one fit on a connection of its own."""

    def __init__(
        self,
        connection: Connection,
        out: str,
        backend: str,
        rolls_back: bool,
        job: workload.Job = workload.SMALL,
        stays: bool = False,
    ) -> None:
        super().__init__(daemon=True)
        self.connection = connection
        self.out = out
        self.backend = backend
        self.rolls_back = rolls_back
        self.job = job
        self.stays = stays
        self.pid = connection.info.backend_pid
        self.error: psycopg2.Error | None = None

    def run(self) -> None:
        try:
            if self.rolls_back:
                execute(self.connection, "BEGIN")
            workload.fit(self.connection, self.out, self.backend, self.job)
            if self.rolls_back:
                execute(self.connection, "ROLLBACK")
        except psycopg2.Error as error:
            self.error = error
        finally:
            if not self.stays:
                self.connection.close()


@dataclass(frozen=True)
class Round:
    """A round: which fault struck a run, after how many visits, and how the run ended."""

    number: int
    kind: kinds.Kind
    backend: str
    visits: int
    error: str | None
    resumed: bool
    bits: int
    seconds: float

    def __str__(self) -> str:
        what = "resumed" if self.resumed else "went on" if self.error is None else "begun again"
        return (
            f"{self.number:4}  {self.kind.name} ({self.backend}, after {self.visits} visits): {what},"
            f" {self.bits} bits equal, {self.seconds:.1f} s"
        )


@dataclass(frozen=True)
class Reference:
    """The results, visits and states that an undisturbed run of a job leaves, and the seconds it took."""

    left: workload.Left
    visits: Rows
    states: Rows
    seconds: float


@dataclass
class Harness:
    """Plays rounds on one server: strikes a run with a fault, and compares its end with a reference."""

    server: Server
    seed: int
    backends: list[str] = field(default_factory=list)
    references: dict[tuple[str, str], Reference] = field(default_factory=dict)

    def prepare(self, backends: Sequence[str]) -> None:
        """Make the tables, and train the reference of the small job on each of the backends."""
        workload.prepare(self.server)
        for backend in backends:
            self.refer_to(backend)

    def refer_to(self, backend: str) -> None:
        """Let rounds use a backend (`jax` or `tensorflow`) too, and train the small job on it."""
        self.backends.append(backend)
        self.reference(workload.SMALL, backend)

    def reference(self, job: workload.Job, backend: str) -> Reference:
        """Return the reference of a job on a backend; the first call for this pair trains it."""
        if (job.name, backend) not in self.references:
            with closing(self.server.connect()) as connection:
                begun = time.monotonic()
                workload.fit(connection, "reference", backend, job)
                seconds = time.monotonic() - begun
                left = workload.left(connection, "reference", job)
                run_id = execute(connection, "SELECT run_id FROM reference_summary")[0][0]
                visits, states = workload.logged(connection, run_id)
                assert execute(connection, job.proof, run_id) == [(True,)], f"no run of {job.name}"
                if job is workload.SMALL:
                    workload.check_visits(connection, run_id)
                workload.drop(connection, "reference")
            self.references[job.name, backend] = Reference(left, visits, states, seconds)
        return self.references[job.name, backend]

    @contextmanager
    def short(self) -> Iterator[None]:
        """Use one segment session for both segments: the start of sessions takes half of a round's time."""
        with setting(self.server.sql, "sessions", "1"):
            yield

    def offered(self) -> list[kinds.Kind]:
        return [k for k in kinds.EVERY if self.server.disk is not None or not k.needs_mount]

    def plan(self, rounds: int) -> list[kinds.Kind]:
        """Return the kind of fault of each round: every kind once in random order, then kinds at random."""
        chosen = random.Random(self.seed)
        offered = self.offered()
        order = chosen.sample(offered, len(offered))
        return [*order, *chosen.choices(offered, k=max(0, rounds - len(order)))][:rounds]

    def play(self, rounds: int, first: int = 1, only: str = "") -> Iterator[Round]:
        for number, kind in enumerate(self.plan(rounds), 1):
            if number >= first and only in kind.name:
                yield self.round(number, kind)

    def round(self, number: int, kind: kinds.Kind) -> Round:
        begun = time.monotonic()
        chosen = random.Random(f"{self.seed} {number}")
        backend = "tensorflow" if chosen.random() < TENSORFLOW_SHARE else "jax"
        backend = backend if backend in self.backends and not kind.job.jax_only else "jax"
        reference = self.reference(kind.job, backend)
        out = f"out_{number}"
        with kind.around(self.server):
            call, visits = self._disturb(kind, out, backend, reference, chosen)
            self.server.ensure_up()
        run_id = self._look(kind, call, out)
        if run_id is not None and kind.damages:
            kinds.damage(self.server, run_id, chosen)
        resumed = call.error is not None or kind.rolls_back
        with closing(self.server.connect()) as connection:
            if run_id is None:
                workload.fit(connection, out, backend, kind.job)
            elif resumed:
                execute(connection, "SELECT cerebro.resume(%s)", run_id)
        bits = self._compare(out, kind.job, reference)
        error = None if call.error is None else type(call.error).__name__
        seconds = time.monotonic() - begun
        return Round(number, kind, backend, visits, error, resumed and run_id is not None, bits, seconds)

    def _disturb(
        self, kind: kinds.Kind, out: str, backend: str, reference: Reference, chosen: random.Random
    ) -> tuple[Call, int]:
        """Start a run, strike at a random moment, and return the call and its visits up to the strike."""
        connection = self.server.connect()
        if kind.times_out:
            patience = 1000 * reference.seconds * chosen.uniform(0.2, 1.0)
            execute(connection, f"SET statement_timeout = {patience:.0f}")
        call = Call(connection, out, backend, kind.rolls_back, kind.job)
        visits = len(reference.visits)
        moment = chosen.randrange(-visits // 8, visits * 15 // 16)
        pause = chosen.uniform(0, 0.03) if moment > 0 else chosen.uniform(0, 0.8 * reference.seconds)
        call.start()
        while call.is_alive() and self.visits(out) < moment:
            time.sleep(0.005)
        call.join(pause)
        visits = self.visits(out)
        kind.strike(kinds.Scene(self.server, call.pid, chosen))
        call.join(workload.PATIENCE)
        assert not call.is_alive(), f"the caller hangs after: {kind.name}"
        return call, visits

    def visits(self, out: str) -> int:
        query = "SELECT count(*) FROM cerebro._visit JOIN cerebro._run USING (run_id) WHERE model_table ~ %s"
        return self.server.sql(query, f"\\m{out}\\M")[0][0]

    def run_of(self, out: str) -> int | None:
        query = "SELECT max(run_id) FROM cerebro._run WHERE model_table ~ %s"
        return self.server.sql(query, f"\\m{out}\\M")[0][0]

    def _look(self, kind: kinds.Kind, call: Call, out: str) -> int | None:
        """Check status and tables of the struck run, and return its number, or None if it has not begun."""
        run_id = self.run_of(out)
        if call.error is None:
            assert kind.expected != kinds.ENDED or self._was_late(run_id), f"{kind.name}: the call went on"
        else:
            assert kind.expected != kinds.UNDISTURBED, f"{kind.name}: {call.error}"
        if call.error is not None or kind.rolls_back:
            assert not self.server.sql("SELECT FROM pg_class WHERE relname ~ %s", f"^{out}")
        if run_id is not None:
            ended = ("finished",) if call.error is None else ("interrupted", "failed", "finished")
            wait_until(lambda: self._status(run_id) in ended, f"run {run_id} to be {ended}", SETTLED)
        return run_id

    def _was_late(self, run_id: int | None) -> bool:
        """Return whether the run had finished, so that the fault came too late to end it."""
        return run_id is not None and self._status(run_id) == "finished"

    def _status(self, run_id: int) -> str:
        return self.server.sql("SELECT status FROM cerebro.runs WHERE run_id = %s", run_id)[0][0]

    def _compare(self, out: str, job: workload.Job, reference: Reference) -> int:
        """Check that a run equals the reference, drop all that it left, and return its number of bits."""
        with closing(self.server.connect()) as connection:
            found = workload.left(connection, out, job)
            assert found == reference.left, "the result is not that of the undisturbed run"
            run_id = execute(connection, f"SELECT run_id FROM {out}_summary")[0][0]
            assert workload.logged(connection, run_id) == (reference.visits, reference.states)
            self.check_leftovers(connection)
            workload.drop(connection, out)
            execute(connection, "SELECT cerebro.forget(%s)", run_id)
        return found.bits

    def check_leftovers(self, connection: Connection) -> None:
        """Check that no orphaned row, session, lock, temporary file or prepared transaction is left."""
        orphans = "SELECT count(*) FROM cerebro.{} WHERE run_id NOT IN (SELECT run_id FROM cerebro._run)"
        for table in ("_state", "_visit", "_evaluation", "_metric", "_config", "_run_event", "_failure"):
            assert execute(connection, orphans.format(table)) == [(0,)], table
        for what, query in LEFTOVERS.items():
            wait_until(lambda q=query: execute(connection, q) == [(0,)], f"no {what}", SETTLED)


LEFTOVERS = {
    "sessions": "SELECT count(*) FROM pg_stat_activity WHERE application_name LIKE 'cerebro%'",
    "advisory locks": "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'",
    "temporary files": "SELECT count(*) FROM pg_ls_tmpdir()",
    "prepared transactions": "SELECT count(*) FROM pg_prepared_xacts",
}


def report(rounds: Sequence[Round]) -> str:
    """Return a report: totals, and for each fault the number of its rounds and of resumed ones."""
    counted = Counter(round.kind.name for round in rounds)
    resumed = Counter(round.kind.name for round in rounds if round.resumed)
    lines = [f"{number:5} {resumed[name]:8}  {name}" for name, number in sorted(counted.items())]
    total = sum(round.bits for round in rounds)
    return "\n".join(
        [
            f"{len(rounds)} rounds, {sum(resumed.values())} resumed, {total} bits compared, none lost or"
            f" changed, in {sum(round.seconds for round in rounds):.0f} s",
            "rounds  resumed  fault",
            *lines,
        ]
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument("--first", type=int, default=1)
    parser.add_argument("--only", default="", help="faults whose name holds these words")
    options = parser.parse_args()
    end_in_order()
    with server() as made:
        harness = Harness(made, options.seed)
        harness.prepare(["jax", "tensorflow"])
        left_out = [kind.name for kind in kinds.EVERY if kind not in harness.offered()]
        print(
            f"seed {options.seed}", *(f"not possible here: {name}" for name in left_out), sep="\n", flush=True
        )
        rounds = []
        for played in harness.play(options.rounds, options.first, options.only):
            print(played, flush=True)
            rounds.append(played)
    print(report(rounds))


if __name__ == "__main__":
    main()
