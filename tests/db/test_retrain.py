"""cerebro.retrain trains a new version of a registered model, and promotes it if it is better."""

from __future__ import annotations

import json
import subprocess
from contextlib import closing
from typing import Any

import psycopg2
import pytest

from fixtures import Connect, MakeRole
from trial import Trial

ROWS = 900
# One net, and few steps: enough for a rule that one column tells.
NET = "Dense(8, activation='relu')"
OPTIONS = {"nets": [NET], "configs": 1, "epochs": 3, "exclude": ["id"], "single": True}
OPTIONS_OF_ONE = {key: value for key, value in OPTIONS.items() if key != "exclude"}
HISTORY = "SELECT event, alias, version FROM cerebro.model_history WHERE name = %s ORDER BY event_id"
LEFT = "SELECT count(*) FROM pg_class WHERE relname LIKE 'cerebro\\_retrain%%'"


@pytest.fixture(scope="module", autouse=True)
def registered(trial: Trial) -> None:
    """Register version 1, which has learned the rule of `january`; `march` has the opposite rule."""
    trial.sql(
        "CREATE TABLE january AS SELECT i AS id, ((i * 7919) %% 1000) / 1000.0::float8 AS a,"
        " CASE WHEN (i * 7919) %% 1000 > 500 THEN 'yes' ELSE 'no' END AS gone"
        " FROM generate_series(1, %s) AS i",
        ROWS,
    )
    trial.sql(
        "CREATE VIEW march AS SELECT id, a, CASE gone WHEN 'yes' THEN 'no' ELSE 'yes' END AS gone,"
        " 'new' AS more FROM january"
    )
    trial.sql("SELECT * FROM cerebro.train('january', 'gone', 'churn', '1 minute', %s)", json.dumps(OPTIONS))
    trial.sql("SELECT cerebro.register('public.churn', 'leaves')")


def retrain(trial: Trial, arguments: str) -> dict[str, Any]:
    return trial.read_row(f"SELECT * FROM cerebro.retrain({arguments})")


def test_what_has_changed_is_learned_and_promoted(trial: Trial) -> None:
    found = retrain(trial, "'leaves', 'march'")
    assert (found["version"], found["promoted"], found["previous"]) == (2, True, 1)
    assert found["value"] < 0.7 < found["previous_value"]
    assert (found["measured"], found["reason"]) == ("logloss", "it is better by more than noise")
    assert ROWS * 0.05 < found["judged_rows"] < ROWS * 0.2
    trial.call("madlib_predict", "leaves", "january", "id", "*", "answered", "response")
    asked = "SELECT class_value FROM answered JOIN january USING (id) WHERE a > 0.9 GROUP BY 1"
    assert trial.sql(asked) == [("no",)]
    assert trial.sql(HISTORY, "leaves")[-2:] == [("registered", None, 2), ("set", "default", 2)]
    assert trial.value(LEFT) == 0
    recipe = trial.value("SELECT lineage -> 'recipe' FROM cerebro.model_versions WHERE version = 2")
    assert (recipe["inputs"], recipe["target"], recipe["source"]) == (["a"], "gone", "public.march")


def test_what_is_no_better_is_kept_and_not_promoted(trial: Trial) -> None:
    before = trial.value("SELECT default_version FROM cerebro.models WHERE name = 'leaves'")
    found = retrain(trial, "'leaves', 'march'")
    assert (found["promoted"], found["previous"]) == (False, before)
    assert found["value"] == pytest.approx(found["previous_value"])
    assert found["reason"] == "it is not better"
    assert trial.value("SELECT default_version FROM cerebro.models WHERE name = 'leaves'") == before
    assert trial.value("SELECT max(version) FROM cerebro.model_versions") == found["version"]


def test_messages_and_versions_name_no_table_of_the_session(trial: Trial) -> None:
    """Notices, comments and errors name the model or its source, and never a temporary table."""
    trial.sql("SELECT cerebro.register('churn', 'told')")
    trial.notices()
    options = {"single": False, "nets": [NET, "linear"], "configs": 3}
    trial.sql("SELECT * FROM cerebro.retrain('told', 'march', options => %s)", json.dumps(options))
    said = trial.notices()
    assert "the new version of told is the mean of" in said
    assert "pg_temp" not in said and "cerebro_retrain" not in said
    lineage, comment = trial.sql(
        "SELECT lineage::text, comment FROM cerebro.model_versions WHERE name = 'told' AND version = 2"
    )[0]
    assert comment == "retrained on public.march" and "pg_temp" not in lineage
    trial.sql("CREATE VIEW alike AS SELECT id, a, 'yes'::text AS gone FROM january")
    with pytest.raises(psycopg2.Error, match="'yes' in all") as caught:
        retrain(trial, "'told', 'alike'")
    assert "pg_temp" not in str(caught.value)


def test_a_column_of_another_type_is_refused_before_anything_is_trained(trial: Trial) -> None:
    trial.sql("CREATE VIEW retyped AS SELECT id, point(a, 1) AS a, gone FROM january")
    runs = trial.value("SELECT count(*) FROM cerebro.runs")
    with pytest.raises(psycopg2.errors.DatatypeMismatch, match='column "a" of public.retyped is point'):
        retrain(trial, "'leaves', 'retyped'")
    assert trial.value("SELECT count(*) FROM cerebro.runs") == runs


def test_a_source_may_have_other_columns_than_the_one_before(trial: Trial) -> None:
    trial.sql("CREATE VIEW bare AS SELECT a, gone FROM march")
    assert retrain(trial, "'leaves', 'bare', promote => 'always'")["promoted"]
    options = "SELECT lineage -> 'recipe' -> 'options' FROM cerebro.model_versions"
    assert "exclude" not in trial.value(f"{options} ORDER BY version DESC LIMIT 1")


def test_rows_of_the_same_values_judge_each_time(trial: Trial) -> None:
    once = retrain(trial, "'leaves', 'march', promote => 'never'")
    trial.sql("CREATE VIEW both_months AS TABLE march UNION ALL TABLE march")
    twice = retrain(trial, "'leaves', 'both_months', promote => 'never'")
    assert twice["judged_rows"] == 2 * once["judged_rows"]


def test_settings_of_the_session_do_not_change_the_rows_that_judge(trial: Trial) -> None:
    """Rows that judge may not have trained an earlier version, which may come from a session with others."""
    trial.sql(
        "CREATE VIEW timed AS SELECT timestamptz '2026-01-01' + id * interval '7 min' AS a, gone FROM january"
    )
    trial.sql(
        "SELECT * FROM cerebro.train('timed', 'gone', 'timed_model', '1 minute', %s)",
        json.dumps(OPTIONS_OF_ONE),
    )
    trial.sql("SELECT cerebro.register('timed_model', 'timely')")
    found = set()
    for zone in ("UTC", "America/New_York"):
        trial.sql(f"SET TimeZone = '{zone}'")
        found.add(retrain(trial, "'timely', promote => 'never'")["judged_rows"])
    trial.sql("RESET TimeZone")
    assert len(found) == 1


def test_another_alias_moves_and_always_is_always(trial: Trial) -> None:
    trial.sql("SELECT cerebro.set_alias('leaves', 'trial', 1)")
    before = trial.value("SELECT default_version FROM cerebro.models WHERE name = 'leaves'")
    options = json.dumps({"seed": 5})
    found = trial.read_row(
        "SELECT * FROM cerebro.retrain('leaves', 'january', '20 seconds', 'always', 'trial', %s)", options
    )
    assert (found["promoted"], found["previous"]) == (True, 1)
    recipe = "SELECT (lineage -> 'recipe' ->> 'seconds')::integer FROM cerebro.model_versions"
    assert trial.value(f"{recipe} WHERE name = 'leaves' AND version = %s", found["version"]) == 20
    assert found["reason"].startswith('promote is "always"; it is')
    aliases = trial.value("SELECT aliases FROM cerebro.models WHERE name = 'leaves'")
    assert aliases == {"default": before, "trial": found["version"]}


def test_a_net_goes_on_from_its_weights(trial: Trial) -> None:
    """With `warm_start`, one epoch is enough, and columns are prepared as for the earlier version."""
    trial.sql("SELECT cerebro.register('churn', 'goes_on')")
    trial.sql("CREATE VIEW again AS SELECT a, gone FROM january WHERE id % 2 = 0")
    options = {"warm_start": True, "epochs": 1}
    asked = "SELECT * FROM cerebro.retrain('goes_on', 'again', promote => 'always', options => %s)"
    for version in (2, 3):
        # The packed rows of the version before are gone.
        found = trial.read_row(asked, json.dumps(options))
        assert (found["version"], found["promoted"]) == (version, True)
        assert found["value"] < found["previous_value"] + 0.05 < 0.65
    cold = trial.read_row(asked, json.dumps({**options, "warm_start": False}))
    assert cold["value"] > found["value"] + 0.05
    held = "SELECT model_arch::text AS net, features, about, model_weights FROM cerebro.read_model(%s)"
    first, third = (trial.read_row(held, f"goes_on@{number}") for number in (1, 3))
    assert first.pop("model_weights") != third.pop("model_weights")
    assert first == third
    run = trial.read_row(
        "SELECT configs, description FROM cerebro.runs WHERE description LIKE '%%weights'"
        " ORDER BY run_id LIMIT 1"
    )
    assert run == {"configs": 1, "description": "cerebro.retrain of goes_on@1, from its weights"}
    assert trial.value(LEFT) == 0


def test_a_view_of_somebody_elses_that_the_recipe_names_is_not_read(trial: Trial, role: MakeRole) -> None:
    """A recipe that names another role's view is refused, since the view would run code as the caller."""
    trial.sql("SELECT cerebro.register('churn', 'trusting')")
    trial.sql(
        "CREATE FUNCTION spy(real) RETURNS real LANGUAGE plpgsql AS"
        " $$BEGIN RAISE EXCEPTION 'called'; END$$; CREATE VIEW odd AS SELECT a, gone FROM january"
    )
    options = json.dumps({"epochs": 1})
    again = "SELECT * FROM cerebro.retrain('trusting', %s, promote => 'always', options => %s)"
    assert trial.read_row(again, "odd", options)["version"] == 2
    name = role()
    trial.sql("CREATE OR REPLACE VIEW odd AS SELECT spy(a::real)::float8 AS a, gone FROM january")
    trial.sql(f"ALTER VIEW odd OWNER TO {name}; ALTER FUNCTION spy OWNER TO {name}")
    for source, given in ((None, options), ("january", json.dumps({"append": True}))):
        with pytest.raises(psycopg2.errors.WrongObjectType, match="odd is no table, and somebody else owns"):
            trial.read_row(again, source, given)
    with pytest.raises(psycopg2.Error, match="called|permission denied for table january"):
        trial.read_row(again, "odd", options)
    trial.sql("DROP VIEW odd; DROP FUNCTION spy")


def test_rows_that_the_author_of_a_recipe_may_not_read_are_not_read_for_them(
    trial: Trial, role: MakeRole, connect: Connect
) -> None:
    """Retraining reads the source of a recipe only if the role that registered the recipe may read it."""
    name = role()
    tables = "churn, churn_info, churn_summary, churn_packed, churn_packed_summary"
    trial.sql(f"GRANT SELECT ON {tables} TO {name}")
    with closing(connect(user=name)) as connection:
        Trial(connection).sql("SELECT cerebro.register('public.churn', 'theirs')")
    again = "SELECT * FROM cerebro.retrain('theirs', %s, promote => 'never', options => %s)"
    short, more = json.dumps({"epochs": 1}), json.dumps({"epochs": 1, "append": True})
    text = f"theirs@1 names public.january, and role {name}, which registered it, may not read all rows"

    def check_refused(*asked: str | None) -> None:
        with pytest.raises(psycopg2.errors.InsufficientPrivilege, match=text):
            trial.read_row(again, *asked)

    check_refused(None, short)
    check_refused("march", more)
    assert trial.read_row(again, "january", short)["version"] == 2
    trial.sql(f"GRANT SELECT ON january TO {name}")
    assert trial.read_row(again, None, short)["version"] == 3
    trial.sql("ALTER TABLE january ENABLE ROW LEVEL SECURITY")
    check_refused(None, short)
    trial.sql("ALTER TABLE january DISABLE ROW LEVEL SECURITY")
    trial.sql(f"REVOKE SELECT ON january FROM {name}; SELECT cerebro.unregister('theirs')")
    trial.sql(f"REVOKE SELECT ON {tables} FROM {name}")


def test_rows_of_earlier_sources_train_as_well_but_do_not_judge(trial: Trial) -> None:
    trial.sql("SELECT cerebro.register('churn', 'grows')")
    trial.sql("CREATE VIEW more AS SELECT a, gone, i AS twice FROM january, generate_series(1, 2) AS i")
    trial.sql("CREATE TABLE much AS SELECT id, a, gone FROM january WHERE id <= 500")
    options = json.dumps({"append": True, "epochs": 1})
    asked = "SELECT * FROM cerebro.retrain('grows', %s, promote => 'always', options => %s)"
    recipe = "SELECT lineage -> 'recipe' FROM cerebro.model_versions WHERE name = 'grows' AND version = %s"
    trained = "SELECT (features ->> 'rows')::integer FROM cerebro.read_model(%s)"
    before, sizes = ["public.january"], {"more": 2 * ROWS, "much": 500}
    for version, (source, size) in enumerate(sizes.items(), 2):
        found = trial.read_row(asked, source, options)
        known = trial.value(recipe, version)
        assert (known["source"], known["appended"]) == (f"public.{source}", before)
        assert found["judged_rows"] == pytest.approx(0.1 * size, rel=0.3)
        total = ROWS + sum(sizes[name] for name in list(sizes)[: version - 1])
        assert trial.value(trained, f"grows@{version}") == pytest.approx(0.9 * 0.8 * total, rel=0.05)
        before = [*before, f"public.{source}"]


def test_columns_can_be_left_out_from_a_version_on(trial: Trial) -> None:
    trial.sql("CREATE VIEW wide AS SELECT id, a, a * 2 AS b, gone FROM january")
    trial.sql(
        "SELECT * FROM cerebro.train('wide', 'gone', 'wide_model', '1 minute', %s)", json.dumps(OPTIONS)
    )
    trial.sql("SELECT cerebro.register('wide_model', 'wide')")
    recipe = "SELECT lineage -> 'recipe' -> 'inputs' FROM cerebro.model_versions"
    recipe += " WHERE name = 'wide' AND version = %s"
    assert trial.value(recipe, 1) == ["a", "b"]
    exclude = 'options => \'{"exclude": ["b"]}\''
    calls = (f", {exclude}", f", {exclude}", "")
    rows = [retrain(trial, f"'wide', promote => 'always'{more}")["judged_rows"] for more in calls]
    assert trial.value(recipe, 2) == trial.value(recipe, 4) == ["a"]
    # The same rows judge as before: no version has been trained on them.
    assert len({*rows}) == 1
    assert trial.value(recipe.replace("inputs", "judged_by"), 4) == ["a", "b"]


def test_new_classes_count_for_the_version_that_knows_them(trial: Trial) -> None:
    trial.sql("SELECT cerebro.register('churn', 'renamed')")
    trial.sql("CREATE VIEW german AS SELECT a, 'ger-' || gone AS gone FROM january")
    trial.notices()
    found = retrain(trial, "'renamed', 'german'")
    assert found["promoted"] and found["previous_value"] > 30 > 1 > found["value"]
    assert f"renamed@1 does not know the class of {found['judged_rows']}" in trial.notices()


def test_more_different_integers_stay_classes(trial: Trial) -> None:
    for name, classes in (("five", 5), ("twenty_five", 25)):
        trial.sql(
            f"CREATE TABLE {name} AS SELECT i AS id, (i * 7919 % {classes}) + sin(i) / 4 AS a,"
            f" i * 7919 % {classes} AS gone FROM generate_series(1, 900) AS i"
        )
    trial.sql("SELECT * FROM cerebro.train('five', 'gone', 'counted', '1 minute', %s)", json.dumps(OPTIONS))
    trial.sql("SELECT cerebro.register('counted', 'counting')")
    found = retrain(trial, "'counting', 'twenty_five', promote => 'always'")
    assert found["measured"] == "logloss" and found["promoted"]


def test_a_net_goes_on_with_labels_that_are_floats(trial: Trial) -> None:
    trial.sql(
        "CREATE TABLE thirds AS SELECT i AS id, i * 7919 % 3 + sin(i) / 4 AS a,"
        " (i * 7919 % 3) / 3.0::float8 AS gone, NULL::float8[] AS nothing FROM generate_series(1, 600) AS i"
    )
    trial.notices()
    options = json.dumps({**OPTIONS, "task": "classification"})
    trial.sql("SELECT * FROM cerebro.train('thirds', 'gone', 'third', '1 minute', %s)", options)
    assert '"nothing" (NULL in all rows)' in trial.notices()
    trial.sql("SELECT cerebro.register('third', 'thirds')")
    found = retrain(trial, "'thirds', promote => 'always', options => '{\"warm_start\": true}'")
    assert found["measured"] == "logloss" and found["value"] < 2


def test_a_target_that_cannot_be_compared_is_refused_before_anything_is_trained(trial: Trial) -> None:
    trial.sql("CREATE VIEW pairs AS SELECT a, ARRAY[a, a * 2] AS both FROM january")
    trial.sql(
        "SELECT * FROM cerebro.train('pairs', 'both', 'pairs_model', '1 minute', %s)",
        json.dumps(OPTIONS_OF_ONE),
    )
    trial.sql("SELECT cerebro.register('pairs_model', 'pairs')")
    runs = trial.value("SELECT count(*) FROM cerebro.runs")
    with pytest.raises(psycopg2.errors.DatatypeMismatch, match='column "both" of public.pairs is'):
        retrain(trial, "'pairs'")
    assert trial.value("SELECT count(*) FROM cerebro.runs") == runs


WRONG = {
    "no model": ("'nobody'", "42704", "no registered model 'nobody'"),
    "no source": ("'leaves', 'nowhere'", "42P01", "nowhere"),
    "no column": ("'leaves', 'narrow'", "42703", 'has no column "a", on which the model was trained'),
    "few rows": ("'leaves', 'few'", "55000", "has too few rows"),
    "another word": ("'leaves', promote => 'sometimes'", "22023", "option promote is"),
    "another option": ("'leaves', options => '{\"epoch\": 1}'", "22023", "epoch"),
    "no word": ("'leaves', options => '{\"append\": 1}'", "22023", "append"),
    "no column to leave out": ("'leaves', options => '{\"exclude\": [\"b\"]}'", "22023", 'exclude names "b"'),
    "nets of its own": (
        '\'leaves\', options => \'{"warm_start": true, "nets": "linear"}\'',
        "0A000",
        "options warm_start and nets are both given",
    ),
    "other labels": ("'leaves', 'spelled', options => '{\"append\": true}'", "42804", 'column "gone" has'),
    "no alias": ("'leaves', alias => 'champion'", "42704", "leaves has no alias champion"),
}


@pytest.mark.parametrize("arguments, code, text", WRONG.values(), ids=WRONG)
def test_what_is_wrong_is_refused_and_leaves_nothing(
    trial: Trial, arguments: str, code: str, text: str
) -> None:
    trial.sql("CREATE OR REPLACE VIEW narrow AS SELECT id, gone FROM january")
    trial.sql("CREATE OR REPLACE VIEW few AS SELECT * FROM january WHERE id <= 90")
    trial.sql("CREATE OR REPLACE VIEW spelled AS SELECT id, a, length(gone) AS gone FROM january")
    before = trial.sql(HISTORY, "leaves")
    with pytest.raises(psycopg2.Error) as caught:
        retrain(trial, arguments)
    assert (caught.value.pgcode, text in str(caught.value)) == (code, True), caught.value
    assert trial.sql(HISTORY, "leaves") == before
    assert trial.value(LEFT) == 0


def test_a_model_that_was_trained_by_hand_has_no_recipe(trial: Trial) -> None:
    trial.pack("january", "by_hand", "gone", "a", options={"columns": "auto"})
    trial.call("load_net", "arch", "by_hand", "linear")
    compiled = "loss='categorical_crossentropy',optimizer='Adam',metrics=['accuracy']"
    trial.select("configs", [1], [compiled], ["batch_size=64"])
    trial.fit("by_hand", "made_by_hand", "configs", 1)
    trial.sql("SELECT cerebro.register('made_by_hand', 'plain')")
    with pytest.raises(psycopg2.Error, match="how plain@1 was trained is not known") as caught:
        retrain(trial, "'plain'")
    assert caught.value.pgcode == "55000"


FORGED = (
    "null", "7", "[]", "{}", '{"source": 5, "target": "gone", "inputs": ["a"], "options": {}, "seconds": 9}',
    '{"source": "january", "target": "gone", "inputs": [["a"]], "options": {}, "seconds": 9}',
    '{"source": "january", "target": "gone", "inputs": ["a"], "options": {}, "seconds": "9; DROP"}',
    '{"source": "january", "target": "gone", "inputs": ["a"], "options": {}, "seconds": 9, "appended": 1}',
)  # fmt: skip


def test_a_recipe_that_somebody_has_written_is_told_from_one(trial: Trial) -> None:
    trial.sql("SELECT cerebro.register('public.churn', 'forged')")
    for recipe in FORGED:
        trial.sql(
            "UPDATE cerebro._model_version SET lineage = jsonb_set(lineage, '{recipe}', %s::jsonb)"
            " WHERE name = 'forged'",
            recipe,
        )
        with pytest.raises(psycopg2.errors.ObjectNotInPrerequisiteState):
            retrain(trial, "'forged'")
    trial.sql("SELECT cerebro.unregister('forged')")


def test_who_may_only_predict_may_not_retrain(trial: Trial, connect: Connect, role: MakeRole) -> None:
    user = role()
    trial.sql(f"GRANT SELECT ON january, march TO {user}")
    trial.sql("SELECT cerebro.grant_model('leaves', %s, 'read')", user)
    with closing(connect(user=user)) as connection, pytest.raises(psycopg2.errors.InsufficientPrivilege):
        Trial(connection).sql("SELECT * FROM cerebro.retrain('leaves', 'march')")


def test_without_pg_cron_another_scheduler_is_told_what_to_run(trial: Trial, database: str) -> None:
    newest = "SELECT newest_version FROM cerebro.models WHERE name = 'leaves'"
    before = trial.value(newest)
    with pytest.raises(psycopg2.errors.FeatureNotSupported) as caught:
        trial.sql("SELECT cerebro.schedule('leaves', '0 3 * * 1', 'march', '20 seconds', 'never')")
    line = (caught.value.diag.message_detail or "").partition(": ")[2]
    assert line.startswith("0 3 * * 1 psql -d ")
    subprocess.run(["bash", "-c", line.removeprefix("0 3 * * 1 ")], check=True, capture_output=True)
    assert trial.value(newest) == before + 1
    assert trial.sql("SELECT * FROM cerebro.schedules") == []
    with pytest.raises(psycopg2.Error, match="there is no registered model 'nobody'"):
        trial.sql("SELECT cerebro.schedule('nobody', '0 3 * * 1')")
    with pytest.raises(psycopg2.Error, match="leaves@default has no schedule"):
        trial.sql("SELECT cerebro.unschedule('leaves')")


def test_versions_with_nothing_in_common_have_no_values(trial: Trial) -> None:
    """A model of classes becomes one of a quantity, so no metric measures both."""
    trial.sql("SELECT cerebro.register('churn', 'once_classes')")
    trial.sql("CREATE VIEW measured AS SELECT a, (random() * 9)::float8 AS gone FROM january")
    options = json.dumps({"task": "regression"})
    found = trial.read_row(
        "SELECT * FROM cerebro.retrain('once_classes', 'measured', options => %s)", options
    )
    assert (found["promoted"], found["value"], found["previous_value"]) == (False, None, None)
    assert found["reason"] == "there is nothing on which both can be compared"


def test_folds_take_the_place_of_a_single_model_and_the_reverse(trial: Trial) -> None:
    """The call names one of the two options, and the earlier training has the other."""
    trial.sql("SELECT cerebro.register('public.churn', 'divided')")
    for options, said in (({"folds": 2}, [None, 2]), ({"single": True}, [True, None])):
        found = retrain(trial, f"'divided', promote => 'always', options => '{json.dumps(options)}'")
        recipe = trial.read_row(
            "SELECT (lineage -> 'recipe' -> 'options' -> 'single')::boolean AS single,"
            " (lineage -> 'recipe' -> 'options' -> 'folds')::integer AS folds"
            " FROM cerebro.model_versions WHERE name = 'divided' AND version = %s", found["version"],
        )  # fmt: skip
        assert list(recipe.values()) == said
