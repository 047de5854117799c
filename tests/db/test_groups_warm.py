"""Warm starts of models of groups, also after rows were added to the groups."""

from __future__ import annotations

import psycopg2
import pytest

import nets
from trial import ADAM, Trial, blobs, cancelled, rows_of

pytestmark = pytest.mark.fresh_caller

FEATURES, ROWS = 6, 240
JAX = {"backend": "jax"}
MODELS = "SELECT country, mst_key, md5(model_weights) FROM {} ORDER BY 1, 2"
MOMENTUM = "loss='categorical_crossentropy',optimizer='SGD(lr=0.05,momentum=0.9)',metrics=['accuracy']"


def fresh(trial: Trial, *names: str) -> None:
    """Drop the packed tables and model tables of these names, with the tables that belong to them."""
    tables = [name + suffix for name in names for suffix in ("", "_info", "_summary", "_groups")]
    trial.sql(f"DROP TABLE IF EXISTS {', '.join(tables)}")


@pytest.fixture(scope="module", autouse=True)
def tables(trial: Trial) -> None:
    trial.table("blobs", "x real[], y integer", rows_of(*blobs(ROWS, features=FEATURES)))
    trial.sql(
        "CREATE TABLE numbered AS SELECT x, y, row_number() OVER () AS number FROM blobs;"
        " CREATE TABLE sales AS SELECT x, y, (ARRAY['NL', 'BE', NULL])[1 + number % 3] AS country"
        " FROM numbered WHERE number <= 150;"
        " CREATE TABLE later AS SELECT x, y, (ARRAY['NL', 'FR'])[1 + number % 2] AS country"
        " FROM numbered WHERE number > 150"
    )
    trial.pack("sales", "packed", options={"group_by": "country"})
    trial.model(nets.mlp(FEATURES))
    trial.select("configs", [1], [ADAM, MOMENTUM], ["batch_size=10,epochs=1"])


@pytest.mark.parametrize("fuse", [pytest.param("exact", marks=pytest.mark.slow), "off"])
def test_two_runs_of_two_epochs_equal_one_of_four(trial: Trial, fuse: str) -> None:
    fresh(trial, "whole", "halves")
    options = {**JAX, "fuse": fuse}
    trial.fit("packed", "whole", "configs", 4, options=options)
    trial.fit("packed", "halves", "configs", 2, options=options)
    trial.notices()
    trial.fit("packed", "halves", "configs", 2, warm_start=True, options=options)
    assert trial.sql(MODELS.format("halves")) == trial.sql(MODELS.format("whole"))
    said = trial.notices()
    assert "weights alone" not in said and "begin anew" not in said
    ends = "SELECT training_loss_final FROM {}_info ORDER BY country, mst_key"
    ours, theirs = ([row[0] for row in trial.sql(ends.format(name))] for name in ("halves", "whole"))
    assert ours == pytest.approx(theirs, rel=1e-6)


@pytest.mark.slow
def test_it_is_resumed_with_the_same_bits(trial: Trial) -> None:
    fresh(trial, "whole", "torn")
    trial.fit("packed", "whole", "configs", 80, options={**JAX, "fuse": "off"})
    options = {**JAX, "fuse": "off", "checkpoint_every": 5}
    trial.fit("packed", "torn", "configs", 10, options=options)
    with cancelled(trial, 12):
        trial.fit("packed", "torn", "configs", 70, warm_start=True, options=options)
    trial.sql("SELECT cerebro.resume((SELECT max(run_id) FROM cerebro.runs))")
    assert trial.sql(MODELS.format("torn")) == trial.sql(MODELS.format("whole"))


def test_without_states_it_goes_on_from_the_weights(trial: Trial) -> None:
    fresh(trial, "bare")
    run = trial.fit("packed", "bare", "configs", 3, options=JAX)
    trial.sql("DELETE FROM cerebro._state WHERE run_id = %s", run)
    before = "SELECT country, mst_key, training_loss_final FROM bare_info ORDER BY 1, 2"
    losses = trial.sql(before)
    trial.notices()
    trial.fit("packed", "bare", "configs", 1, warm_start=True, options=JAX)
    assert "6 of 6 models go on from their weights alone" in trial.notices()
    assert all(now[2] < then[2] + 0.3 for now, then in zip(trial.sql(before), losses, strict=True))
    fresh(trial, "cold")
    trial.fit("packed", "cold", "configs", 1, options=JAX)
    assert trial.sql(MODELS.format("bare")) != trial.sql(MODELS.format("cold"))


def test_new_configs_and_other_nets_begin_anew_and_that_is_said(trial: Trial) -> None:
    fresh(trial, "several", "plain")
    trial.keep("first", "configs", [1])
    trial.fit("packed", "several", "first", 2, options=JAX)
    trial.notices()
    trial.fit("packed", "several", "configs", 2, warm_start=True, options=JAX)
    assert "3 of 6 models begin anew" in trial.notices()
    trial.fit("packed", "plain", "configs", 2, options=JAX)
    second = "SELECT country, md5(model_weights) FROM {} WHERE mst_key = 2 ORDER BY 1"
    assert trial.sql(second.format("several")) == trial.sql(second.format("plain"))
    other = trial.model(nets.mlp(FEATURES, units=5))
    trial.sql(
        "CREATE TABLE turned AS SELECT * FROM configs; CREATE TABLE turned_summary AS TABLE configs_summary"
    )
    trial.sql("UPDATE turned SET model_id = %s WHERE mst_key = 2", other)
    trial.fit("packed", "several", "turned", 1, warm_start=True, options=JAX)
    said = trial.notices()
    assert said.count(f"config 2 starts anew: its model_id is {other}, in the earlier run it was 1") == 1


def test_tables_of_other_groups_or_of_none_are_no_beginning(trial: Trial) -> None:
    fresh(trial, "plainly", "plain_packed", "grouped")
    trial.pack("sales", "plain_packed")
    trial.fit("plain_packed", "plainly", "configs", 1, options=JAX)
    trial.fit("packed", "grouped", "configs", 1, options=JAX)
    with pytest.raises(psycopg2.Error, match="its models are of no groups, the rows of groups of country"):
        trial.fit("packed", "plainly", "configs", 1, warm_start=True, options=JAX)
    with pytest.raises(psycopg2.Error, match="its models are of groups of country, the rows of no groups"):
        trial.fit("plain_packed", "grouped", "configs", 1, warm_start=True, options=JAX)


@pytest.fixture
def grown(trial: Trial) -> None:
    """Train on the table `growing` in groups, then add rows of an old and of a new group to it."""
    fresh(trial, "growing", "kept")
    trial.pack("sales", "growing", options={"group_by": "country"})
    trial.fit("growing", "kept", "configs", 2, options={**JAX, "fuse": "off"})
    trial.call("append_rows", "growing", "later")


def test_added_rows_go_to_their_groups(trial: Trial, grown: None) -> None:
    counted = "SELECT country, count(*) FROM (TABLE sales UNION ALL TABLE later) AS s GROUP BY 1 ORDER BY 1"
    assert trial.sql("SELECT country, __rows__ FROM growing_groups ORDER BY 1") == trial.sql(counted)
    classes = counted.replace("count(*)", "count(DISTINCT y)")
    assert trial.sql("SELECT country, __classes__ FROM growing_groups ORDER BY 1") == trial.sql(classes)
    versions = dict(trial.sql("SELECT country, __version__ FROM growing_groups"))
    assert versions == {"BE": 1, "NL": 2, None: 1, "FR": 2}
    there = "SELECT country, __segments__ FROM {}_groups WHERE country IS DISTINCT FROM 'FR' ORDER BY country"
    assert trial.sql(there.format("growing")) == trial.sql(there.format("packed"))
    assert trial.value("SELECT cardinality(__segments__) FROM growing_groups WHERE country = 'FR'") == 1


def test_each_group_equals_a_table_of_its_own_to_which_its_rows_were_added(trial: Trial, grown: None) -> None:
    fresh(trial, "all_of_it")
    trial.fit("growing", "all_of_it", "configs", 3, options={**JAX, "fuse": "off"})
    for country in ("BE", "NL", "FR"):
        fresh(trial, "alone", "own_packed")
        trial.sql("DROP TABLE IF EXISTS own, own_later")
        trial.sql("CREATE TABLE own AS SELECT * FROM sales WHERE country = %s", country)
        trial.sql("CREATE TABLE own_later AS SELECT * FROM later WHERE country = %s", country)
        first, then = ("own_later", None) if country == "FR" else ("own", "own_later")
        trial.pack(first, "own_packed", options={"segments": 1})
        if then is not None and trial.value(f"SELECT count(*) FROM {then}"):
            trial.call("append_rows", "own_packed", then)
        trial.fit("own_packed", "alone", "configs", 3, options=JAX)
        ours = trial.sql("SELECT mst_key, model_weights FROM all_of_it WHERE country = %s", country)
        assert {key: bytes(data) for key, data in ours} == trial.weights("alone")


def test_only_groups_that_changed_are_trained_again(trial: Trial, grown: None) -> None:
    before = {row[:2]: row[2] for row in trial.sql(MODELS.format("kept"))}
    described = "SELECT country, mst_key, row_to_json(i)::text FROM kept_info AS i"
    infos = {row[:2]: row for row in trial.sql(described)}
    trial.notices()
    options = {**JAX, "fuse": "off", "groups": "changed"}
    run = trial.fit("growing", "kept", "configs", 2, warm_start=True, options=options)
    assert "4 of 8 models are trained, the others stay as they are" in trial.notices()
    after = {row[:2]: row[2] for row in trial.sql(MODELS.format("kept"))}
    assert {key[0] for key in after if after[key] != before.get(key)} == {"NL", "FR"}
    assert sorted(after, key=str) == sorted({*before, ("FR", 1), ("FR", 2)}, key=str)
    now = {row[:2]: row for row in trial.sql(described)}
    assert all(now[key] == infos[key] for key in infos if key[0] != "NL")
    assert len(now) == 8
    trained = "SELECT DISTINCT group_key::json ->> 'country' FROM cerebro.leaderboard WHERE run_id = %s"
    assert {row[0] for row in trial.sql(trained, run)} == {"NL", "FR"}
    statuses = "SELECT group_key::json ->> 'country', status, reason FROM cerebro.groups WHERE run_id = %s"
    assert sorted(trial.sql(statuses, run), key=str) == [
        ("BE", "unchanged", None), ("FR", "measured", None), ("NL", "measured", None),
        (None, "unchanged", None),
    ]  # fmt: skip
    trial.fit("growing", "kept", "configs", 2, warm_start=True, options=options)
    assert "nothing is trained" in trial.notices()
    assert trial.value("SELECT run_id FROM kept_summary") == run
    assert {row[:2]: row[2] for row in trial.sql(MODELS.format("kept"))} == after


def test_a_changed_group_goes_on_as_in_a_run_of_all(trial: Trial, grown: None) -> None:
    options = {**JAX, "fuse": "off"}
    fresh(trial, "copy")
    trial.fit("packed", "copy", "configs", 2, options=options)
    trial.sql("UPDATE copy_summary SET run_id = (SELECT run_id FROM kept_summary)")
    trial.fit("growing", "copy", "configs", 2, warm_start=True, options=options)
    trial.fit("growing", "kept", "configs", 2, warm_start=True, options={**options, "groups": "changed"})
    of = "SELECT country, mst_key, md5(model_weights) FROM {} WHERE country IN ('NL', 'FR') ORDER BY 1, 2"
    assert trial.sql(of.format("kept")) == trial.sql(of.format("copy"))


def test_after_a_run_of_changed_groups_all_go_on_from_their_states(trial: Trial, grown: None) -> None:
    options = {**JAX, "fuse": "off"}
    trial.fit("growing", "kept", "configs", 2, warm_start=True, options={**options, "groups": "changed"})
    trial.notices()
    trial.fit("growing", "kept", "configs", 1, warm_start=True, options=options)
    assert "weights alone" not in trial.notices()
    fresh(trial, "whole")
    trial.fit("packed", "whole", "configs", 3, options=options)
    of = "SELECT country, mst_key, md5(model_weights) FROM {} WHERE country = 'BE' ORDER BY 1, 2"
    assert trial.sql(of.format("kept")) == trial.sql(of.format("whole"))


@pytest.mark.slow
def test_a_run_of_changed_groups_is_resumed(trial: Trial, grown: None) -> None:
    fresh(trial, "whole")
    options = {**JAX, "fuse": "off", "checkpoint_every": 3, "groups": "changed"}
    before = dict(trial.sql("SELECT country, md5(model_weights) FROM kept WHERE mst_key = 1"))
    with cancelled(trial, 10):
        trial.fit("growing", "kept", "configs", 60, warm_start=True, options=options)
    trial.sql("SELECT cerebro.resume((SELECT max(run_id) FROM cerebro.runs))")
    after = dict(trial.sql("SELECT country, md5(model_weights) FROM kept WHERE mst_key = 1"))
    assert {country for country in after if after[country] != before.get(country)} == {"NL", "FR"}
    assert trial.value("SELECT count(*) FROM kept_info") == 8


def test_changed_groups_are_trained_in_the_background(trial: Trial, grown: None) -> None:
    before = {row[:2]: row[2] for row in trial.sql(MODELS.format("kept"))}
    trial.call(
        "madlib_fit_multiple_model", "growing", "kept", "configs", 2, warm_start=True,
        options={**JAX, "groups": "changed", "background": True, "threads": 1, "seed": 7},
    )  # fmt: skip
    assert trial.value("SELECT cerebro.wait(cerebro.last_run())") == "finished"
    after = {row[:2]: row[2] for row in trial.sql(MODELS.format("kept"))}
    assert {key[0] for key in after if after[key] != before.get(key)} == {"NL", "FR"}
    assert len(after) == 8


def test_what_has_changed_must_be_known(trial: Trial, grown: None) -> None:
    options = {**JAX, "groups": "changed"}
    with pytest.raises(psycopg2.Error, match="nothing says since when"):
        trial.fit("growing", "others", "configs", 1, options=options)
    fresh(trial, "plain_packed")
    trial.pack("sales", "plain_packed")
    with pytest.raises(psycopg2.Error, match="option groups is for runs of groups"):
        trial.fit("plain_packed", "others", "configs", 1, options=options)
    trial.notices()
    fresh(trial, "growing")
    trial.sql("CREATE TABLE remaining AS SELECT * FROM sales WHERE country IS DISTINCT FROM 'BE'")
    trial.pack("remaining", "growing", options={"group_by": "country", "seed": 5})
    trial.fit("growing", "kept", "configs", 1, warm_start=True, options=options)
    assert "all groups are new" in trial.notices()
    # The summary describes other rows now, so no model of the rows before may stay.
    assert trial.value("SELECT count(*) FROM kept WHERE country = 'BE'") == 0
    trial.sql("SELECT cerebro.forget((SELECT run_id FROM kept_summary))")
    with pytest.raises(psycopg2.Error, match="what has changed is not known"):
        trial.fit("growing", "kept", "configs", 1, warm_start=True, options=options)
    trial.sql("ALTER TABLE kept ADD CHECK (mst_key > 0)")
    trial.fit("growing", "kept", "configs", 1, warm_start=True, options=JAX)
    trial.sql("ALTER TABLE kept ADD CHECK (mst_key > 0)")
    with pytest.raises(psycopg2.Error, match="cannot keep the models that are not trained"):
        trial.call("append_rows", "growing", "later")
        trial.fit("growing", "kept", "configs", 1, warm_start=True, options=options)


def test_validation_rows_of_groups_cannot_be_added(trial: Trial) -> None:
    fresh(trial, "checked")
    trial.pack_validation("sales", "checked", "packed")
    with pytest.raises(psycopg2.Error, match="has the validation rows of groups"):
        trial.call("append_rows", "checked", "later")


@pytest.mark.slow
def test_a_large_group_goes_on_where_its_rows_ended(trial: Trial) -> None:
    x, y = blobs(6100, features=FEATURES)
    trial.table("many", "x real[], y integer", rows_of(x, y))
    trial.sql(
        "CREATE TABLE wide AS SELECT x, y, CASE WHEN n <= 5501 THEN 'large' ELSE 'small' END AS size, n"
        " FROM (SELECT *, row_number() OVER () AS n FROM many) AS m;"
        " CREATE TABLE wide_first AS SELECT * FROM wide WHERE n <= 5001 OR n BETWEEN 5502 AND 5600;"
        " CREATE TABLE wide_later AS SELECT * FROM wide WHERE NOT (n <= 5001 OR n BETWEEN 5502 AND 5600)"
    )
    trial.pack("wide_first", "wide_packed", options={"group_by": "size"})
    trial.call("append_rows", "wide_packed", "wide_later")
    assert dict(trial.sql("SELECT size, __segments__ FROM wide_packed_groups"))["large"] == [0, 1]
    trial.sql(
        "CREATE TABLE large_first AS SELECT * FROM wide_first WHERE size = 'large';"
        " CREATE TABLE large_later AS SELECT * FROM wide_later WHERE size = 'large'"
    )
    trial.pack("large_first", "large_packed")
    trial.call("append_rows", "large_packed", "large_later")
    for packed, out in (("wide_packed", "wide_models"), ("large_packed", "large_models")):
        trial.fit(packed, out, "configs", 1, options=JAX)
    ours = trial.sql("SELECT mst_key, model_weights FROM wide_models WHERE size = 'large'")
    assert {key: bytes(data) for key, data in ours} == trial.weights("large_models")


def test_groups_are_known_again_in_another_time_zone(trial: Trial) -> None:
    """A warm start finds its groups, although settings change how the text of a group's key is written."""
    fresh(trial, "zoned", "zoned_packed", "unzoned")
    trial.sql(
        "CREATE TABLE zoned AS SELECT x, y, (ARRAY['2026-01-01 12:00Z'::timestamptz, '2026-07-01 12:00Z'])"
        " [1 + number % 2] AS day, interval '26 hours' * (number % 2) AS age FROM numbered"
    )
    trial.pack("zoned", "zoned_packed", options={"group_by": ["day", "age"]})
    trial.sql("SET TimeZone = 'UTC'")
    trial.fit("zoned_packed", "unzoned", "configs", 2, options=JAX)
    try:
        trial.sql("SET TimeZone = 'Asia/Tokyo'")
        trial.sql("SET IntervalStyle = 'iso_8601'")
        trial.notices()
        trial.fit("zoned_packed", "unzoned", "configs", 1, warm_start=True, options=JAX)
        said = trial.notices()
        assert "weights alone" not in said and "begin anew" not in said
    finally:
        trial.sql("RESET TimeZone")
        trial.sql("RESET IntervalStyle")
