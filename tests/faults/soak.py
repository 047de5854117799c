"""The soak: many runs on one server, cancelled at random, and checks that its memory does not grow.

python tests/faults/soak.py [--runs 500] [--seed 1]
"""

from __future__ import annotations

import argparse
import random
import re
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path

import psycopg2

if __name__ == "__main__":
    sys.path[:0] = [str(Path(__file__).resolve().parents[1] / "support")]

import workload
from fixtures import Connection, execute
from harness import LEFTOVERS, SETTLED, Call
from scratch import Server, end_in_order, server, wait_until

# The log may have only such lines when calls are cancelled and sessions closed.
EXPECTED = re.compile(
    r"starting PostgreSQL|listening on|database system (was shut down|is ready)|checkpoint|"
    r"canceling statement due to (user request|statement timeout)|"
    r"could not (send data to|receive data from) client|connection to client lost|"
    r"unexpected EOF on client connection"
)
MARKED = re.compile(r" (LOG|WARNING|ERROR|FATAL|PANIC): ")
# Each run after a cancel gets new segment sessions; the memory of the caller's session must stay bounded.
MOST_KB_PER_RUN = 64
RUNS_PER_CALLER = 50


@dataclass
class Soak:
    """Many runs on one server, and the sizes of memory that must not grow from run to run."""

    server: Server
    seed: int
    runs: int = 0
    cancelled: int = 0
    growth_kb: list[float] = field(default_factory=list)
    shared_kb: list[int] = field(default_factory=list)

    def play(self, runs: int) -> Iterator[str]:
        chosen = random.Random(self.seed)
        log_begins = self.server.log.stat().st_size
        while self.runs < runs:
            yield self._caller(chosen, min(RUNS_PER_CALLER, runs - self.runs))
        with self.server.log.open() as log:
            log.seek(log_begins)
            strange = [line for line in log if MARKED.search(line) and not EXPECTED.search(line)]
        assert not strange, "".join(strange[:20])

    def _caller(self, chosen: random.Random, runs: int) -> str:
        """Make runs in one session, cancel most of them, check for leftovers, and return figures as text."""
        begun = time.monotonic()
        with closing(self.server.connect()) as connection, closing(self.server.connect()) as watcher:
            sizes = [self._run(connection, watcher, chosen) for _ in range(runs)]
        with closing(self.server.connect()) as connection:
            for what, query in LEFTOVERS.items():
                wait_until(lambda q=query: execute(connection, q) == [(0,)], f"no {what}", SETTLED)
            assert execute(connection, "SELECT count(*) FROM cerebro._state") == [(0,)]
            shared = execute(connection, "SELECT sum(allocated_size) / 1024 FROM pg_shmem_allocations")
        self.shared_kb.append(int(shared[0][0]))
        # The first half is left out, because the first runs load code that is loaded only once.
        half = len(sizes) // 2
        self.growth_kb.append((sizes[-1] - sizes[half]) / max(1, len(sizes) - 1 - half))
        return (
            f"{self.runs} runs, {self.cancelled} cancelled; the caller grew by {self.growth_kb[-1]:.0f} kB a"
            f" run in its second half ({sizes[half] // 1024} to {sizes[-1] // 1024} MB), shared memory"
            f" {self.shared_kb[-1] // 1024} MB, {(time.monotonic() - begun) / runs:.1f} s a run"
        )

    def _run(self, connection: Connection, watcher: Connection, chosen: random.Random) -> int:
        """Make one run, cancelled at a random moment or not, and return the caller's private memory in kB."""
        pid = connection.info.backend_pid
        call = Call(connection, "soaked", "jax", rolls_back=False, stays=True)
        call.start()
        if chosen.random() < 0.7:
            # A run may be over in a tenth of a second, or take two seconds to start its sessions.
            call.join(10 ** chosen.uniform(-2, 0))
            execute(watcher, "SELECT pg_cancel_backend(%s)", pid)
        call.join(workload.PATIENCE)
        assert not call.is_alive(), "the caller hangs"
        self.runs += 1
        if call.error is not None:
            assert isinstance(call.error, psycopg2.errors.QueryCanceled), repr(call.error)
            self.cancelled += 1
        workload.drop(watcher, "soaked")
        # A cancel that arrives late must not end the next statement of this session.
        wait_until(lambda: _idle(watcher, pid), "the caller to be idle", pause=0.005)
        for (run_id,) in execute(watcher, "SELECT run_id FROM cerebro._run"):
            wait_until(lambda n=run_id: _left(watcher, n), f"the sessions of run {run_id} to end", SETTLED)
            execute(watcher, "SELECT cerebro.forget(%s)", run_id)
        return resident_kb(pid)


def _idle(watcher: Connection, pid: int) -> bool:
    return execute(watcher, "SELECT state FROM pg_stat_activity WHERE pid = %s", pid) == [("idle",)]


def _left(watcher: Connection, run_id: int) -> bool:
    """Return whether no session works for a run any more; a cancelled session may need a moment to notice."""
    query = "SELECT count(*) FROM pg_stat_activity WHERE application_name LIKE '%% run=' || %s || ' %%'"
    return execute(watcher, query, str(run_id)) == [(0,)]


def resident_kb(pid: int) -> int:
    """Return the private memory of a process in kB, without the shared buffers that it has touched."""
    text = Path(f"/proc/{pid}/smaps_rollup").read_text()
    return sum(int(kb) for kb in re.findall(r"^Private_(?:Clean|Dirty): +(\d+) kB", text, re.M))


def check_bounds(soak: Soak) -> None:
    assert max(soak.shared_kb) == min(soak.shared_kb)
    assert max(soak.growth_kb) < MOST_KB_PER_RUN, soak.growth_kb


def main() -> None:
    parser = argparse.ArgumentParser(description="Many runs in one server, cancelled at random.")
    parser.add_argument("--runs", type=int, default=500)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    options = parser.parse_args()
    end_in_order()
    with server() as made:
        workload.prepare(made)
        print(f"seed {options.seed}", flush=True)
        soak = Soak(made, options.seed)
        for line in soak.play(options.runs):
            print(line, flush=True)
        check_bounds(soak)
    print(f"{soak.runs} runs, {soak.cancelled} of them cancelled; nothing grew beyond its bound")


if __name__ == "__main__":
    main()
