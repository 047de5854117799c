"""Aliases of registered models move and are rolled back under load, and always point at a version."""

from __future__ import annotations

import itertools
import json
import select
import threading
import time
from collections.abc import Iterator
from contextlib import closing

import psycopg2
import pytest

from fixtures import Connect, Connection, MakeRole, Rows, execute
from registered import ASKED, answers, train
from trial import Trial


@pytest.fixture(scope="module", autouse=True)
def versions(trial: Trial) -> None:
    """Register versions 1 to 4; versions 1 and 3 hold one config, and versions 2 and 4 the other."""
    train(trial)
    for key in (1, 2, 1, 2):
        trial.sql("SELECT cerebro.register('models', 'churn', %s)", key)


@pytest.fixture
def other(trial: Trial) -> Iterator[Connection]:
    with closing(psycopg2.connect(trial.connection.dsn)) as connection:
        connection.autocommit = True
        yield connection


def pointed(trial: Trial) -> dict[str, int]:
    return trial.value("SELECT aliases FROM cerebro.models WHERE name = 'churn'")


@pytest.mark.postgresql
def test_an_alias_is_moved_and_warm_sessions_follow(trial: Trial, other: Connection) -> None:
    one, two = answers(trial, "churn@1"), answers(trial, "churn@2")
    assert one != two
    trial.sql("SELECT cerebro.set_alias('churn', 'champion', 1)")
    asked = ASKED.format(key="")
    assert answers(trial, "churn@champion") == execute(other, asked, "churn@champion") == one
    trial.sql("BEGIN; SELECT cerebro.set_alias('churn', 'Champion', 2)")
    assert answers(trial, "churn@champion") == two
    assert execute(other, asked, "churn@champion") == one
    trial.sql("COMMIT")
    assert execute(other, asked, "churn@champion") == two
    assert pointed(trial) == {"default": 1, "champion": 2}
    aliases = trial.sql("SELECT version, aliases FROM cerebro.model_versions WHERE name = 'churn' ORDER BY 1")
    assert aliases == [(1, ["default"]), (2, ["champion"]), (3, []), (4, [])]
    trial.sql("SELECT cerebro.drop_alias('churn', 'champion')")
    assert pointed(trial) == {"default": 1}


@pytest.mark.postgresql
def test_a_prepared_statement_and_a_view_follow(trial: Trial) -> None:
    one, two = answers(trial, "churn@1"), answers(trial, "churn@2")
    trial.sql("CREATE VIEW judged AS " + ASKED.format(key="").replace("%s", "'churn'"))
    trial.sql("PREPARE judge AS SELECT * FROM judged")
    for version, expected in ((1, one), (2, two), (1, one)):
        trial.sql("SELECT cerebro.set_alias('churn', 'default', %s)", version)
        assert trial.sql("EXECUTE judge") == expected
    trial.sql("DEALLOCATE judge; DROP VIEW judged")


@pytest.mark.postgresql
def test_one_statement_has_the_answers_of_one_version_whatever_happens_meanwhile(
    trial: Trial, other: Connection
) -> None:
    """Twenty sessions predict while the alias moves back and forth; each answer is of one version."""
    trial.sql("SELECT cerebro.set_alias('churn', 'default', 1)")
    expected = [answers(trial, "churn@1"), answers(trial, "churn@2")]
    over, found, troubles = threading.Event(), list[tuple[int, Rows]](), list[psycopg2.Error]()

    def ask(number: int) -> None:
        try:
            with closing(psycopg2.connect(trial.connection.dsn)) as connection:
                connection.autocommit = True
                while not over.is_set():
                    found.append((number, execute(connection, ASKED.format(key=""), "churn")))
        except psycopg2.Error as error:
            troubles.append(error)

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(20)]
    for thread in threads:
        thread.start()
    deadline = time.monotonic() + 120
    for moves in itertools.count():
        execute(other, "SELECT * FROM cerebro.promote('churn', 2)")
        execute(other, "SELECT cerebro.rollback('churn')")
        # On a busy machine, the alias may have moved often before the first answer.
        asked, said = {number for number, _ in found}, [rows for _, rows in found]
        enough = moves > 30 and len(asked) == 20 and all(one in said for one in expected)
        if enough or troubles or time.monotonic() > deadline:
            break
    over.set()
    for thread in threads:
        thread.join()
    assert troubles == []
    assert {number for number, _ in found} == set(range(20))
    assert all(rows in expected for _, rows in found)
    assert all(one in [rows for _, rows in found] for one in expected)


def heard(connection: Connection, count: int) -> list[dict[str, object]]:
    """Wait up to a minute for `count` notifications, and return their contents."""
    deadline = time.monotonic() + 60
    while len(connection.notifies) < count and time.monotonic() < deadline:
        select.select([connection], [], [], 1)
        connection.poll()
    said = [json.loads(one.payload) for one in connection.notifies]
    connection.notifies.clear()
    return said


@pytest.mark.postgresql
def test_whoever_listens_is_told_and_learns_no_name(
    trial: Trial, other: Connection, role: MakeRole, connect: Connect
) -> None:
    name = role()
    trial.sql("SELECT cerebro.grant_model('churn', %s, 'predict')", name)
    allowed, stranger = connect(user=name), connect(user=role())
    for connection in (allowed, stranger):
        execute(connection, "LISTEN cerebro_model")
    trial.sql("SELECT cerebro.set_alias('churn', 'told', 2)")
    event = trial.value("SELECT max(event_id) FROM cerebro.model_history")
    asked = "SELECT name, event, alias, version FROM cerebro.model_history WHERE event_id = %s"
    for connection, seen in ((allowed, [("churn", "set", "told", 2)]), (stranger, [])):
        assert heard(connection, 1) == [{"event": "set", "event_id": event}]
        assert execute(connection, asked, event) == seen
    trial.sql("SELECT cerebro.check('churn', 'customers'); SELECT cerebro.drop_alias('churn', 'told')")
    said = heard(allowed, 2)
    check = trial.value("SELECT max(check_id) FROM cerebro.model_health")
    assert [one["event"] for one in said] == ["checked", "alias dropped"]
    assert said[0]["check_id"] == check
    trial.sql("SELECT cerebro.revoke_model('churn', %s)", name)


@pytest.mark.postgresql
def test_a_change_is_not_prepared_and_an_answer_is(trial: Trial) -> None:
    """PREPARE TRANSACTION works after a prediction, but not after a change, which sends NOTIFY."""
    expected, before = answers(trial, "churn@1"), pointed(trial)
    trial.sql("BEGIN")
    assert answers(trial, "churn@1") == expected
    trial.sql("PREPARE TRANSACTION 'asked'")
    # It keeps its locks until then.
    trial.sql("ROLLBACK PREPARED 'asked'")
    for change in ("set_alias('churn', 'later', 2)", "promote('churn', 2)", "register('models', 'churn', 1)"):
        trial.sql(f"BEGIN; SELECT cerebro.{change}")
        with pytest.raises(psycopg2.errors.FeatureNotSupported, match="cannot PREPARE .* NOTIFY"):
            trial.sql("PREPARE TRANSACTION 'changed'")
    assert pointed(trial) == before
    assert trial.value("SELECT newest_version FROM cerebro.models WHERE name = 'churn'") == 4


@pytest.mark.postgresql
def test_a_cursor_keeps_the_version_that_it_began_with(trial: Trial, other: Connection) -> None:
    trial.sql("SELECT cerebro.set_alias('churn', 'default', 1)")
    expected = answers(trial, "churn@1")
    trial.sql("BEGIN; DECLARE slowly CURSOR FOR " + ASKED.format(key="").replace(" ORDER BY 1", ""), "churn")
    first = trial.sql("FETCH 10 FROM slowly")
    execute(other, "SELECT cerebro.set_alias('churn', 'default', 2)")
    found = first + trial.sql("FETCH ALL FROM slowly")
    trial.sql("COMMIT")
    assert sorted(found) == expected


def test_a_rollback_walks_back_step_by_step(trial: Trial) -> None:
    for version in (1, 2, 3, 4):
        trial.sql("SELECT cerebro.set_alias('churn', 'stage', %s)", version)
    assert [trial.value("SELECT cerebro.rollback('churn', 'stage')") for _ in range(3)] == [3, 2, 1]
    with pytest.raises(psycopg2.Error, match="stage of churn has nowhere to go back to") as caught:
        trial.sql("SELECT cerebro.rollback('churn', 'stage')")
    assert caught.value.pgcode == "55000"
    trial.sql("SELECT cerebro.set_alias('churn', 'stage', 4)")
    assert trial.value("SELECT cerebro.rollback('churn', alias => 'stage')") == 1
    told = trial.sql(
        "SELECT event, version FROM cerebro.model_history WHERE name = 'churn' AND alias = 'stage'"
        " ORDER BY event_id"
    )
    assert told == [
        *(("set", version) for version in (1, 2, 3, 4)),
        *(("rolled back", version) for version in (3, 2, 1)),
        ("set", 4),
        ("rolled back", 1),
    ]
    trial.sql("SELECT cerebro.drop_alias('churn', 'stage')")


def test_a_version_goes_only_when_no_alias_points_at_it(trial: Trial) -> None:
    trial.sql("SELECT cerebro.register('models', 'gone', 1), cerebro.register('models', 'gone', 1)")
    trial.sql("SELECT cerebro.set_alias('gone', 'champion', 2)")
    with pytest.raises(psycopg2.Error, match="gone@2 cannot be dropped: it has the alias champion") as caught:
        trial.sql("SELECT cerebro.drop_version('gone', 2)")
    assert caught.value.pgcode == "2BP01"
    trial.sql("SELECT cerebro.set_alias('gone', 'champion', 1), cerebro.drop_version('gone', 2)")
    with pytest.raises(psycopg2.Error, match="no registered model 'gone@2'"):
        answers(trial, "gone@2")
    # Its number is not given again, and what others have of its weights stays.
    assert trial.value("SELECT cerebro.register('models', 'gone', 2)") == 3
    assert answers(trial, "gone@1") == answers(trial, "churn@1")
    trial.sql("SELECT cerebro.unregister('gone')")
    for left in ("models", "model_versions", "model_history"):
        assert not trial.sql(f"SELECT FROM cerebro.{left} WHERE name = 'gone'")
    assert answers(trial, "churn@2")


def test_weights_go_with_the_last_version_that_has_them(trial: Trial) -> None:
    trial.sql("CREATE TABLE other_models AS SELECT * FROM models WHERE mst_key = 1")
    trial.sql("CREATE TABLE other_models_info AS SELECT * FROM models_info WHERE mst_key = 1")
    trial.sql("CREATE TABLE other_models_summary AS SELECT * FROM models_summary")
    trial.sql("UPDATE other_models SET model_weights = set_byte(model_weights, 0, 1)")
    before = trial.value("SELECT count(*) FROM cerebro._model_weights")
    trial.sql("SELECT cerebro.register('other_models', 'more'), cerebro.register('other_models', 'most')")
    assert trial.value("SELECT count(*) FROM cerebro._model_weights") == before + 1
    trial.sql("SELECT cerebro.unregister('more')")
    assert trial.value("SELECT count(*) FROM cerebro._model_weights") == before + 1
    trial.sql("SELECT cerebro.unregister('most')")
    assert trial.value("SELECT count(*) FROM cerebro._model_weights") == before


def test_versions_that_come_at_once_get_different_numbers(trial: Trial, other: Connection) -> None:
    trial.sql("BEGIN; SELECT cerebro.register('models', 'raced', 1)")
    second = list[Rows]()
    call = "SELECT cerebro.register('models', 'raced', 2)"
    thread = threading.Thread(target=lambda: second.append(execute(other, call)))
    thread.start()
    thread.join(1)
    assert thread.is_alive()
    trial.sql("COMMIT")
    thread.join()
    assert second == [[(2,)]]
    assert trial.value("SELECT aliases FROM cerebro.models WHERE name = 'raced'") == {"default": 1}


WRONG = {
    "no model": ("set_alias('nobody', 'a', 1)", "42704", "no registered model 'nobody'"),
    "no version": ("set_alias('churn', 'a', 9)", "42704", "churn has no version 9"),
    "a version of NULL": ("set_alias('churn', 'a', NULL)", "22004", "version is NULL"),
    "a number as alias": ("set_alias('churn', '7', 1)", "22023", "'7' cannot be an alias"),
    "a name of NULL": ("set_alias(NULL, 'a', 1)", "22004", "the name of a model is NULL"),
    "no alias": ("drop_alias('churn', 'nothing')", "42704", "churn has no alias nothing"),
    "the default": ("drop_alias('churn', 'default')", "2BP01", "alias default of churn cannot be dropped"),
    "back without an alias": ("rollback('churn', 'nothing')", "42704", "churn has no alias nothing"),
    "back of no model": ("rollback('nobody')", "42704", "no registered model 'nobody'"),
    "a version that is not there": ("drop_version('churn', 9)", "42704", "churn has no version 9"),
    "nothing to remove": ("unregister('nobody')", "42704", "no registered model 'nobody'"),
}


@pytest.mark.parametrize("call, code, text", WRONG.values(), ids=WRONG)
def test_what_is_wrong_is_refused(trial: Trial, call: str, code: str, text: str) -> None:
    before = pointed(trial)
    with pytest.raises(psycopg2.Error) as caught:
        trial.sql(f"SELECT cerebro.{call}")
    assert caught.value.pgcode == code and text in str(caught.value)
    assert pointed(trial) == before
