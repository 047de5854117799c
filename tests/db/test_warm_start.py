"""Warm starts: a run goes on from the states of an earlier run, or from its weights if states are gone."""

from __future__ import annotations

import numpy as np
import psycopg2
import psycopg2.errors
import pytest

import nets
from trial import ADAM, SGD, Trial, blobs, rows_of

FEATURES = 12
MOMENTUM = "loss='categorical_crossentropy',optimizer='SGD(lr=0.05,momentum=0.9)',metrics=['accuracy']"
SCHEDULE = (
    "loss='categorical_crossentropy',metrics=['accuracy'],optimizer='SGD(learning_rate="
    "ExponentialDecay(initial_learning_rate=0.1,decay_steps=7,decay_rate=0.5))'"
)


@pytest.fixture(scope="module", autouse=True)
def tables(trial: Trial) -> None:
    x, y = blobs(180, features=FEATURES)
    trial.table("blobs", "x real[], y integer", rows_of(x[:120], y[:120]))
    trial.pack("blobs", "packed", buffer_size=25)
    trial.model(nets.mlp(FEATURES))
    trial.select("mst", [1], [ADAM, SGD], ["batch_size=16,epochs=1", "batch_size=32,epochs=2"])


@pytest.fixture(scope="module")
def warm_selection(trial: Trial, tables: None) -> str:
    trial.select("warm_mst", [1], [ADAM, MOMENTUM, SCHEDULE], ["batch_size=16,epochs=1"])
    return "warm_mst"


def test_two_runs_of_three_epochs_equal_one_of_six(trial: Trial, warm_selection: str) -> None:
    trial.fit("packed", "whole", warm_selection, 6)
    trial.fit("packed", "halves", warm_selection, 3)
    half = trial.weights("halves")
    trial.notices()
    trial.fit("packed", "halves", warm_selection, 3, warm_start=True)
    assert trial.weights("halves") == trial.weights("whole") != half
    assert "weights alone" not in trial.notices()
    assert trial.value("SELECT warm_start FROM halves_summary")


def test_warm_start_with_new_and_dropped_configs(trial: Trial, warm_selection: str) -> None:
    """A new config starts from its initial state, and a config that the new run lacks is dropped."""
    trial.keep("warm_some", warm_selection, [1, 2])
    trial.fit("packed", "changed", "warm_some", 2)
    trial.keep("warm_other", warm_selection, [2, 3])
    trial.fit("packed", "changed", "warm_other", 2, warm_start=True)
    found = trial.weights("changed")
    assert sorted(found) == [2, 3]
    trial.fit("packed", "plain_2", "warm_other", 2)
    assert found[3] == trial.weights("plain_2")[3]
    trial.fit("packed", "plain_4", "warm_other", 4)
    assert found[2] == trial.weights("plain_4")[2]


def test_warm_start_without_states_goes_on_from_the_weights(trial: Trial, warm_selection: str) -> None:
    trial.keep("warm_bare", warm_selection, [2])
    run_id = trial.fit("packed", "bare", "warm_bare", 3)
    trial.sql("DELETE FROM cerebro._state WHERE run_id = %s", run_id)
    before = trial.weights("bare")[2]
    trial.notices()
    trial.fit("packed", "bare", "warm_bare", 1, warm_start=True)
    assert "weights alone" in trial.notices()
    moved = distance(trial.weights("bare")[2], before)
    trial.fit("packed", "new", "warm_bare", 1)
    assert 0 < moved < distance(trial.weights("new")[2], before) / 2


def test_a_config_with_another_architecture_starts_anew_and_says_so(
    trial: Trial, warm_selection: str
) -> None:
    trial.keep("turned", warm_selection, [1, 2])
    trial.fit("packed", "turned_out", "turned", 1)
    other = trial.model(nets.mlp(FEATURES, units=5))
    trial.sql("UPDATE turned SET model_id = %s WHERE mst_key = 2", other)
    trial.notices()
    trial.fit("packed", "turned_out", "turned", 1, warm_start=True)
    said = trial.notices()
    assert f"config 2 starts anew: its model_id is {other}, in the earlier run it was 1" in said
    assert "config 1 starts" not in said


def distance(one: bytes, other: bytes) -> float:
    return float(np.linalg.norm(np.frombuffer(one, "<f4") - np.frombuffer(other, "<f4")))


def test_warm_start_takes_a_new_learning_rate(trial: Trial, warm_selection: str) -> None:
    """A warm start keeps the state, but takes the learning rate from the new compile parameters."""
    trial.keep("warm_rate", warm_selection, [1])
    trial.fit("packed", "rate", "warm_rate", 1)
    before = trial.weights("rate")[1]
    trial.sql("UPDATE warm_rate SET compile_params = replace(compile_params, '0.01', '1e-20')")
    trial.fit("packed", "rate", "warm_rate", 1, warm_start=True)
    assert trial.weights("rate")[1] == before


def test_a_failed_warm_start_leaves_the_earlier_tables(trial: Trial, warm_selection: str) -> None:
    trial.keep("warm_kept", warm_selection, [1])
    trial.fit("packed", "kept", "warm_kept", 1)
    before = trial.weights("kept")
    with pytest.raises(psycopg2.Error):
        trial.fit("packed", "kept", "warm_kept", 0, warm_start=True)
    assert trial.weights("kept") == before


@pytest.fixture(scope="module")
def one_and_many(trial: Trial, warm_selection: str) -> None:
    """Make model tables of one model and of several, and one beside the _info table of another run."""
    trial.keep("of_two", warm_selection, [1, 2])
    trial.fit("packed", "several", "of_two", 1)
    fit_one(trial, "single", 1)
    trial.sql("CREATE TABLE leftover_info AS SELECT * FROM several_info")
    fit_one(trial, "leftover", 1)


def fit_one(trial: Trial, out: str, epochs: int, **more: object) -> None:
    options = {"threads": 1, "seed": 7}
    trial.call("madlib_fit", "packed", out, "arch", 1, ADAM, "batch_size=16", epochs, options=options, **more)


@pytest.mark.usefixtures("one_and_many")
def test_neither_kind_of_fit_goes_on_from_the_tables_of_the_other(trial: Trial) -> None:
    runs = trial.value("SELECT count(*) FROM cerebro.runs")
    several, single = trial.weights("several"), trial.value("SELECT model_weights FROM single")
    with pytest.raises(psycopg2.errors.WrongObjectType, match=r"madlib_fit cannot go on from .*several"):
        fit_one(trial, "several", 1, warm_start=True)
    for out in ("single", "leftover"):
        with pytest.raises(psycopg2.errors.WrongObjectType, match=rf"cannot go on from .*{out}: .*one model"):
            trial.fit("packed", out, "of_two", 1, warm_start=True)
    assert trial.value("SELECT count(*) FROM cerebro.runs") == runs
    assert trial.weights("several") == several
    assert trial.value("SELECT model_weights FROM single") == single


@pytest.mark.usefixtures("one_and_many")
def test_a_warm_start_does_not_replace_other_tables(trial: Trial) -> None:
    trial.sql("CREATE TABLE mine (x integer); CREATE TABLE mine_summary (run_id bigint)")
    with pytest.raises(psycopg2.Error, match="mine is not a model table: it has no column model_weights"):
        fit_one(trial, "mine", 1, warm_start=True)
    trial.sql("CREATE TABLE mixed AS TABLE single; CREATE TABLE mixed_summary AS TABLE several_summary")
    with pytest.raises(psycopg2.Error, match="mixed_summary is not the summary of public.mixed"):
        fit_one(trial, "mixed", 1, warm_start=True)


@pytest.mark.usefixtures("one_and_many")
def test_an_info_that_is_left_of_other_tables_is_no_matter(trial: Trial, greenplum: bool) -> None:
    options = {"threads": 1, "seed": 7}
    trial.sql("CREATE TABLE numbered AS SELECT row_number() OVER () AS id, x FROM blobs")
    for out in ("single", "leftover"):
        trial.call("madlib_predict", out, "numbered", "id", "x", f"{out}_told")
        trial.call("madlib_evaluate", out, "packed", f"{out}_measured", options={"threads": 1})
        trial.call(
            "madlib_fit", "packed", out, "arch", 1, ADAM, "batch_size=16", 1, options=options, warm_start=True
        )
    assert trial.sql("TABLE leftover_told EXCEPT TABLE single_told") == []
    assert trial.sql("SELECT loss FROM leftover_measured") == trial.sql("SELECT loss FROM single_measured")
    if not greenplum:
        one = "SELECT cerebro.predict(%s, NULL::integer, x) FROM numbered WHERE id = 1"
        assert trial.value(one, "leftover") == trial.value(one, "single")


def test_a_missing_key_takes_the_only_model_whatever_its_key(trial: Trial, warm_selection: str) -> None:
    trial.keep("lonely", warm_selection, [2])
    trial.fit("packed", "one_key", "lonely", 1)
    trial.call("madlib_evaluate", "one_key", "packed", "by_none")
    trial.call("madlib_evaluate", "one_key", "packed", "by_key", mst_key=2)
    assert trial.sql("TABLE by_none") == trial.sql("TABLE by_key")
    with pytest.raises(psycopg2.Error) as caught:
        trial.call("madlib_evaluate", "one_key", "packed", "never", mst_key=1)
    assert "mst_key 1 is not in" in str(caught.value) and "HINT:  Give 2." in str(caught.value)


def granted(trial: Trial, table: str) -> object:
    return trial.value("SELECT relacl::text FROM pg_class WHERE oid = %s::regclass", table)


@pytest.mark.parametrize("background", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_views_and_grants_stay_over_a_warm_start(
    trial: Trial, warm_selection: str, background: bool, greenplum: bool
) -> None:
    out = f"seen_{background}".lower()
    trial.keep(f"{out}_mst", warm_selection, [1, 2])
    first = trial.fit("packed", out, f"{out}_mst", 1)
    tables = [out, f"{out}_info", f"{out}_summary"]
    for table in tables:
        trial.sql(f"CREATE VIEW {table}_view AS SELECT * FROM {table}; GRANT SELECT ON {table} TO pg_monitor")
    predicted = f"SELECT p.* FROM blobs, cerebro.predict('{out}', 1, x) AS p LIMIT 3"
    trained = f"SELECT model_weights FROM {out}"
    trial.sql(f"CREATE VIEW {out}_scored AS {trained if greenplum else predicted}")
    trial.sql(f"CREATE FUNCTION {out}_row({out}) RETURNS integer LANGUAGE sql AS 'SELECT 1'")
    scored, grants = trial.sql(f"TABLE {out}_scored"), [granted(trial, table) for table in tables]
    options = {"threads": 1, "seed": 7, "background": background}
    trial.call(
        "madlib_fit_multiple_model", "packed", out, f"{out}_mst", 1, warm_start=True, options=options
    )  # fmt: skip
    run_id = trial.value("SELECT cerebro.last_run()")
    assert trial.value("SELECT cerebro.wait(%s)", run_id) == "finished"
    said = (
        f"view public.{out}_scored, view public.{out}_view go by public.{out}, whose models this run replaces"
    )
    assert said in trial.notices()
    assert trial.sql(f"SELECT run_id FROM {out}_summary_view") == [(run_id,)] != [(first,)]
    assert trial.sql(f"SELECT mst_key FROM {out}_info_view ORDER BY 1") == [(1,), (2,)]
    assert trial.sql(f"SELECT mst_key FROM {out}_view ORDER BY 1") == [(1,), (2,)]
    assert trial.sql(f"TABLE {out}_scored") != scored
    assert [granted(trial, table) for table in tables] == grants != [None] * 3
    trial.fit("packed", f"{out}_whole", f"{out}_mst", 2)
    assert trial.weights(f"{out}_whole") == trial.weights(out)


def test_a_single_model_keeps_its_views(trial: Trial, warm_selection: str) -> None:
    fit_one(trial, "solo", 1)
    trial.sql("CREATE VIEW solo_view AS SELECT run_id, training_loss_final FROM solo_summary")
    before = trial.sql("TABLE solo_view")
    fit_one(trial, "solo", 1, warm_start=True)
    assert trial.sql("TABLE solo_view") != before


REFERENCE = "CREATE TABLE hung_notes (mst_key integer REFERENCES hung_info)"
CHANGES = {
    "another column": "ALTER TABLE hung_info ADD note text",
    "a reference": REFERENCE,
    "a trigger": "CREATE TRIGGER hung BEFORE UPDATE ON hung_info FOR EACH ROW"
    " EXECUTE FUNCTION suppress_redundant_updates_trigger()",
    "a check": "ALTER TABLE hung_info ADD CHECK (mst_key > 0)",
    "a default": "ALTER TABLE hung_info ALTER mst_key SET DEFAULT 3",
    "an expression": "CREATE INDEX ON hung_info ((mst_key + 1))",
    "policies": "ALTER TABLE hung_info ENABLE ROW LEVEL SECURITY",
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_what_depends_on_a_table_that_has_to_be_made_anew_is_named(
    trial: Trial, warm_selection: str, change: str
) -> None:
    """If a changed _info table must be dropped, the error names the view or key that depends on it."""
    trial.sql("DROP TABLE IF EXISTS hung, hung_info, hung_summary, hung_mst, hung_mst_summary CASCADE")
    trial.keep("hung_mst", warm_selection, [1])
    trial.fit("packed", "hung", "hung_mst", 1)
    trial.sql("CREATE VIEW hung_view AS SELECT mst_key FROM hung_info")
    trial.sql(change)
    if change == REFERENCE:
        trial.sql("DROP VIEW hung_view")
    runs, before = trial.value("SELECT count(*) FROM cerebro.runs"), trial.weights("hung")
    with pytest.raises(psycopg2.errors.DependentObjectsStillExist) as caught:
        trial.fit("packed", "hung", "hung_mst", 1, warm_start=True)
    depends = (
        "hung_notes_mst_key_fkey on table public.hung_notes" if change == REFERENCE else "public.hung_view"
    )
    assert f"{depends} depends on table public.hung_info" in str(caught.value)
    assert (trial.value("SELECT count(*) FROM cerebro.runs"), trial.weights("hung")) == (runs, before)
    trial.sql("DROP VIEW IF EXISTS hung_view; DROP TABLE IF EXISTS hung_notes")
    trial.fit("packed", "hung", "hung_mst", 1, warm_start=True)
    assert trial.weights("hung") != before
