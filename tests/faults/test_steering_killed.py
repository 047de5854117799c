"""A steered run in the background ends the same if the server is killed while requests are unanswered."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import closing

import pytest

from fixtures import Connection, execute
from scratch import Server, kill, server
from steering import Run, left, make_tables, script
from trial import Trial

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def scratch() -> Iterator[Server]:
    with server() as made:
        yield made


def steered(connection: Connection, person: Connection, out: str) -> Run:
    """Begin a run in the background, and return it with the connection of the person who steers it."""
    run = Run(Trial(connection), person)
    options = '{"backend": "jax", "threads": 1, "seed": 7, "background": true}'
    execute(
        connection,
        "SELECT cerebro.madlib_fit_multiple_model('packed', %s, 'long', 1, options => %s)", out, options,
    )  # fmt: skip
    run.run_id = execute(connection, "SELECT cerebro.last_run()")[0][0]
    return run


def test_a_killed_server_changes_nothing_of_the_end(scratch: Server) -> None:
    with closing(scratch.connect()) as connection, closing(scratch.connect()) as person:
        make_tables(Trial(connection))
        run = steered(connection, person, "undisturbed")
        script(run)
        run.steer("resume")
        assert run.steer("wait") == ["finished"]
        expected = left(person, "undisturbed")
    with closing(scratch.connect()) as connection, closing(scratch.connect()) as person:
        run = steered(connection, person, "killed")
        driver = "SELECT pid FROM pg_stat_activity WHERE application_name LIKE 'cerebro drive%'"

        def halfway() -> None:
            """Stop the driving session, so that no later request to the run is answered."""
            run.answered()
            kill(run.ask(driver), signal.SIGSTOP)

        script(run, halfway)
        assert execute(person, "SELECT count(*) FROM cerebro._decided WHERE pending") == [(4,)]
        scratch.kill_all()
    scratch.ensure_up()
    with closing(scratch.connect()) as person:
        query = "SELECT status FROM cerebro.runs WHERE run_id = %s"
        assert execute(person, query, run.run_id) == [("interrupted",)]
        execute(person, "SELECT cerebro.resume(%s)", run.run_id)
        assert left(person, "killed") == expected
        visits = "SELECT count(*), count(DISTINCT (mst_key, step)) FROM cerebro.visits WHERE run_id = %s"
        ((every, distinct),) = execute(person, visits, run.run_id)
        assert every == distinct
