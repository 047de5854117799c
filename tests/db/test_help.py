"""cerebro.help: a short list of functions by task, and all details about one function."""

from __future__ import annotations

from fixtures import Connect, MakeRole, Sql

TASKS = ["prepare rows", "say what to train", "train", "watch", "steer", "use a model", "look after it"]


def test_the_short_list_is_short_and_by_task(sql: Sql) -> None:
    listed = sql("SELECT * FROM cerebro.help()")
    assert list(dict.fromkeys(task for task, _, _ in listed)) == TASKS
    assert len(listed) == 58
    assert all(0 < len(what) < 130 and "The same as" not in what for _, _, what in listed)


def test_one_name_is_told_of_with_its_parameters(sql: Sql, role: MakeRole, connect: Connect) -> None:
    user = connect(user=role())
    for spelled in ("madlib_fit", "cerebro.madlib_fit", "MADLIB_FIT"):
        ((task, call, what),) = sql("SELECT * FROM cerebro.help(%s)", spelled, on=user)
        assert task == "train" and call.startswith("cerebro.madlib_fit(source_table character varying, ")
        assert "Trains" in what
    assert len(sql("SELECT * FROM cerebro.help('predict')", on=user)) == 6
    assert sql("SELECT call FROM cerebro.help('leaderboard')", on=user) == [("cerebro.leaderboard",)]


def test_a_word_that_is_no_name_finds_what_is_like_it(sql: Sql) -> None:
    like = "SELECT task, call FROM cerebro.help(%s)"
    for word, call in {
        "dirft": "cerebro.drift",
        "leader board": "cerebro.leaderboard",
        "zzzz": "cerebro.help()",
    }.items():
        task, found = sql(like, word)[0]
        assert found == call and f'nothing is called "{word}"' in task
    # A word that stands in what one says of itself.
    assert ("cerebro.confusion_matrix(…)",) in sql("SELECT call FROM cerebro.help('occurs')")
    assert sql(like, "_boot")[0][0].startswith('nothing is called "_boot"')
