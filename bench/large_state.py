"""Measures the memory of a session that trains a large net, as a multiple of the size of its state.

It needs a server, for example from `make up`: .local/venv/bin/python bench/large_state.py
"""

from __future__ import annotations

import argparse
import json
from contextlib import closing
from typing import Any

import server
from measure import PeakMemory

PARAMS = "loss='categorical_crossentropy',optimizer='Adam(learning_rate=0.0001)'"
VISITING = "SELECT pid FROM pg_stat_activity WHERE application_name LIKE 'cerebro visit %%'"


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--units", type=int, default=4000, help="of each of the net's twelve layers")
    units = parser.parse_args().units
    server.make_database()
    print("engine      MB of the state  MB of the session  ÷ state")
    for backend in ("tensorflow", "jax"):
        state, held = measure(backend, units)
        print(f"{backend:10} {state / 2**20:16.0f} {held / 2**20:18.0f} {held / state:8.2f}")
    server.drop_database()


def measure(backend: str, units: int) -> tuple[int, int]:
    """Return the bytes of a large net's state, and how much more memory its session has than a tiny net's."""
    with server.session() as connection, closing(server.connect()) as watching:
        server.query(
            connection,
            "CREATE TABLE few AS SELECT ARRAY(SELECT sin(i * j)::real FROM generate_series(1, 64) AS j) AS x,"
            " i % 2 AS y FROM generate_series(1, 64) AS i;"
            "SELECT cerebro.training_preprocessor_dl('few', 'packed', 'y', 'x',"
            " options => '{\"segments\": 1}');"
            "SELECT cerebro.load_net('nets', 'packed', 'Dense(8)');"
            f"SELECT cerebro.load_net('nets', 'packed', $$Dense({units}, 'relu') * 12$$)",
        )
        small, large = (_peak(connection, watching, backend, model_id) for model_id in (1, 2))
        state = server.value(connection, "SELECT max(state_bytes) FROM cerebro.visits")
        server.drop(connection, ["few", "packed", "packed_summary", "nets", "fit1", "fit2"])
        server.drop(connection, [f"fit{n}_{end}" for n in (1, 2) for end in ("info", "summary")])
    return state, large - small


def _peak(connection: Any, watching: Any, backend: str, model_id: int) -> int:
    options = json.dumps({"backend": backend, "memory_mb": 512})
    with PeakMemory(lambda: {pid for (pid,) in server.query(watching, VISITING)}) as memory:
        server.query(
            connection,
            "SELECT cerebro.madlib_fit('packed', %s, 'nets', %s, %s, 'batch_size=16', 2, options => %s)",
            (f"fit{model_id}", model_id, PARAMS, options),
        )
    return sum(memory.peak)


if __name__ == "__main__":
    main()
