"""Models of groups in the registry: one version holds the models of all groups."""

from __future__ import annotations

from collections.abc import Iterator

import psycopg2
import pytest

from fixtures import Connect, MakeRole, Rows
from trial import Trial

ROWS = 240
LOSS = "loss='categorical_crossentropy',metrics=['accuracy'],"
# The models of all groups, kept by this session, share one encoder of rows.
ENCODERS = """DO LANGUAGE plpython3u $$
    import sys
    one = sys.modules["cerebro_plpy.predicting.answering.one"]
    kept = [getattr(each, "made", {}) for each in one.memory.get_instance(one._KeptModels).values()]
    found = max(len({id(model.rows) for model in made.values()}) for made in kept)
    plpy.execute("SELECT set_config('test.encoders', '%s', FALSE)" % found) $$"""
ONE = "SELECT s.id, p.class, p.probabilities FROM sales AS s, cerebro.predict(%s, s) AS p ORDER BY 1"
MANY = (
    "SELECT (p.source).id, p.class, p.probability FROM cerebro.predict_query("
    "%s, 'SELECT * FROM sales', NULL::sales) AS p ORDER BY 1"
)
MEASURED = "SELECT shop, day, is_fallback, loss, metric FROM measured ORDER BY 1, 2"


@pytest.fixture(scope="module", autouse=True)
def tables(trial: Trial) -> None:
    """Train and register models by shop and day; one shop has too few rows, and one comes later."""
    trial.sql(
        "CREATE TABLE sales AS SELECT i AS id, sin(i)::real AS heat, (ARRAY['a','b'])[1 + i %% 2] AS kind,"
        " CASE WHEN i <= 3 THEN 'few' WHEN i > %s THEN 'later' WHEN i %% 5 > 0 THEN 'n''s' END AS shop,"
        " date '2026-01-01' + i %% 2 AS day,"
        " CASE WHEN sin(i) * (i %% 2 - 0.5) > 0 THEN 'yes' ELSE 'no' END AS gone"
        " FROM generate_series(1, %s) AS i",
        ROWS,
        ROWS + 9,
    )
    trial.sql(f"CREATE VIEW known AS SELECT * FROM sales WHERE id <= {ROWS}")
    trial.sql("CREATE VIEW later AS SELECT * FROM sales WHERE shop = 'later'")
    options = {"columns": "auto", "group_by": ["shop", "day"], "segments": 1}
    trial.pack("known", "packed", "gone", "heat, kind", options=options)
    trial.sql("SELECT cerebro.load_net('arch', 'packed', 'Dense(4, \"relu\")')")
    compiled = [LOSS + f"optimizer='{one}'" for one in ("Adam(lr=0.03)", "SGD(lr=0.001)")]
    trial.select("configs", [1], compiled, ["batch_size=16"])
    trial.fit("packed", "models", "configs", 2, options={"min_rows": 8, "fallback": True, "seed": 3})
    trial.sql("SELECT cerebro.register('models', 'shops')")


@pytest.fixture
def away(trial: Trial) -> Iterator[None]:
    """Rename the model tables from which the version was made, so that no call finds them."""
    for table in ("models", "models_info", "models_summary"):
        trial.sql(f"ALTER TABLE {table} RENAME TO away_{table}")
    yield
    for table in ("models", "models_info", "models_summary"):
        trial.sql(f"ALTER TABLE away_{table} RENAME TO {table}")


@pytest.mark.postgresql
def test_a_version_answers_each_row_by_the_model_of_its_group(trial: Trial) -> None:
    by_row, by_query = trial.sql(ONE, "models"), trial.sql(MANY, "models")
    assert by_row == trial.sql(ONE, "shops@1")
    assert by_query == trial.sql(MANY, "shops@default")
    assert len({likely["no"] for _, _, likely in by_row}) > 200
    other = ONE.replace("sales AS s", "(SELECT id, heat, kind, shop, day::timestamp AS day FROM sales) AS s")
    assert by_row == trial.sql(other, "shops@1")
    trial.sql(ENCODERS)
    assert trial.value("SELECT current_setting('test.encoders')") == "1"


def test_a_table_is_predicted_and_measured_by_a_version(trial: Trial) -> None:
    found: list[Rows] = []
    for model in ("models", "shops@1"):
        trial.sql("DROP TABLE IF EXISTS said, measured")
        trial.call("madlib_predict", model, "sales", "id", "*", "said")
        trial.call("madlib_evaluate", model, "packed", "measured")
        found.append([*trial.sql("SELECT * FROM said ORDER BY id, class_value"), *trial.sql(MEASURED)])
    assert found[0] == found[1]
    assert {row[2] for row in trial.sql(MEASURED)} == {True, False}


def test_one_config_of_all_groups_is_kept(trial: Trial) -> None:
    assert trial.value("SELECT cerebro.register('models', 'slow', 2)") == 1
    trial.sql("DROP TABLE IF EXISTS said, expected")
    trial.call("madlib_predict", "slow@1", "sales", "id", "*", "said")
    trial.call("madlib_predict", "models", "sales", "id", "*", "expected", mst_key=2)
    together = "(TABLE said UNION ALL TABLE expected) AS x"
    counted = f"SELECT count(*), count(DISTINCT (id, class_value, prob)) FROM {together}"
    both, different = trial.sql(counted)[0]
    assert both == 2 * different > 0
    trial.sql("DROP TABLE said")
    with pytest.raises(psycopg2.Error, match="slow@1 has one model for each group"):
        trial.call("madlib_predict", "slow@1", "sales", "id", "*", "said", mst_key=2)


@pytest.mark.usefixtures("away")
def test_a_version_needs_none_of_the_tables_and_is_whole(trial: Trial) -> None:
    trial.sql("SELECT cerebro.register('shops@1', 'copied')")
    trial.sql("DROP TABLE IF EXISTS said, expected")
    trial.call("madlib_predict", "copied@1", "sales", "id", "*", "said")
    trial.call("madlib_predict", "away_models", "sales", "id", "*", "expected")
    assert trial.sql("TABLE said EXCEPT TABLE expected") == []
    found = trial.read_row("SELECT * FROM cerebro.model_versions WHERE name = 'copied'")
    measured = found["metrics"]["training"]
    assert (measured["groups"], measured["metric"], measured["rows"]) == (5, "accuracy", "public.packed")
    mean = trial.value(
        "SELECT avg(m.loss) FROM (SELECT DISTINCT ON (shop, day, is_fallback) training_loss_final AS loss"
        " FROM away_models_info WHERE model_size IS NOT NULL"
        " ORDER BY shop, day, is_fallback, training_metrics_final DESC, training_loss_final, mst_key) AS m"
    )
    assert measured["loss"] == pytest.approx(mean)
    rows = trial.sql("SELECT about, octet_length(model_weights) FROM cerebro.read_model('copied')")
    groups = [about["group"] for about, _ in rows]
    assert len(rows) == 5 and None in groups
    assert {"shop": "n's", "day": "2026-01-01"} in groups and {"shop": None, "day": "2026-01-02"} in groups
    assert sum(size for _, size in rows) == found["weights_bytes"]


def test_aliases_move_between_versions_of_groups(trial: Trial) -> None:
    trial.sql("SELECT cerebro.register('models', 'moved', 2), cerebro.register('models', 'moved')")
    promoted = trial.read_row("SELECT * FROM cerebro.promote('moved', 2)")
    assert (promoted["promoted"], promoted["previous"]) == (True, 1)
    assert trial.value("SELECT cerebro.rollback('moved')") == 1
    with pytest.raises(psycopg2.errors.FeatureNotSupported, match="holds models of groups"):
        trial.sql("SELECT * FROM cerebro.promote('moved', 2, if_better_on => 'packed')")
    assert trial.value("SELECT default_version FROM cerebro.models WHERE name = 'moved'") == 1


@pytest.mark.postgresql
def test_a_row_is_explained_by_the_model_of_its_group(trial: Trial) -> None:
    asked = (
        "SELECT s.id, e.class, sum(e.contribution) - min(e.score - e.baseline) AS lacks, count(*) AS parts"
        " FROM sales AS s, cerebro.explain_predict('shops@1', s, NULL) AS e WHERE s.id > 200"
        " GROUP BY 1, 2 ORDER BY 1"
    )
    found = trial.sql(asked)
    assert len(found) == 49
    assert [row[1] for row in found] == [row[1] for row in trial.sql(ONE, "shops@1") if row[0] > 200]
    assert all(abs(lacks) < 0.05 and parts == 2 for _, _, lacks, parts in found)


BY_SHOP = (
    "SELECT part->>'shop', rows, value FROM cerebro.evaluate_by(%s, 'sales', ARRAY['shop']) WHERE metric = %s"
)
WORST = "SELECT w.\"row\"->>'id', truth, prediction, loss FROM cerebro.worst_rows(%s, 'sales', 3) AS w"
WORTH = "SELECT column_name, importance FROM cerebro.importance(%s, 'sales', options => '{\"repeats\": 2}')"


def test_rows_are_judged_by_the_models_of_their_groups(trial: Trial) -> None:
    found = {shop: (rows, value) for shop, rows, value in trial.sql(BY_SHOP, "shops@1", "accuracy")[1:]}
    assert found.keys() == {"n's", "few", "later", None}
    if trial.topology != "greenplum":
        expected = trial.sql(
            "SELECT s.shop, count(*), avg((p.class = s.gone)::int)::float FROM sales AS s,"
            " cerebro.predict('shops', s) AS p GROUP BY 1"
        )
        assert found == {shop: (rows, pytest.approx(value)) for shop, rows, value in expected}
    worth = trial.sql(WORTH, "shops@1")
    assert {name for name, _ in worth} == {"heat", "kind"} and worth[0][1] > 0
    assert worth == trial.sql(WORTH, "models")
    worst = trial.sql(WORST, "shops@1")
    assert worst == trial.sql(WORST, "models") and worst[0][3] >= worst[2][3] > 0


def test_rows_of_groups_are_checked(trial: Trial) -> None:
    """cerebro.check uses the training rows of all groups; a group without a model is an unseen value."""
    asked = "SELECT column_name, measure, value, before, verdict FROM cerebro.check(%s, %s)"
    found = {(name, measure): (value, before, verdict) for name, measure, value, before, verdict
             in trial.sql(asked, "shops@1", "known")}  # fmt: skip
    assert {verdict for _, _, verdict in found.values()} == {"ok"}
    assert found.keys() >= {("heat", "stability"), (None, "predictions"), (None, "accuracy")}
    assert found["shop, day", "unseen"][:2] == pytest.approx((3 / ROWS, 3 / ROWS))
    assert found[None, "logloss"][0] == pytest.approx(found[None, "logloss"][1], rel=1e-4)
    assert trial.sql(asked, "models", "known")[-1][0] is None
    later = "SELECT * FROM sales WHERE shop = 'later'"
    alarms = {(name, measure) for name, measure, *_, verdict in trial.sql(asked, "shops", later)
              if verdict == "alarm"}  # fmt: skip
    assert ("shop, day", "unseen") in alarms
    kept = trial.sql("SELECT rows, verdict FROM cerebro.model_health WHERE name = 'shops' ORDER BY check_id")
    assert kept == [(ROWS, "ok"), (9, "alarm")]


def test_rows_of_groups_without_a_model_are_left_out(trial: Trial) -> None:
    trial.sql("CREATE TABLE bare AS SELECT * FROM models WHERE NOT is_fallback")
    trial.sql("CREATE TABLE bare_info AS SELECT * FROM models_info WHERE NOT is_fallback")
    trial.sql("CREATE TABLE bare_summary AS TABLE models_summary")
    trial.sql("SELECT cerebro.register('bare', 'bare')")
    for model in ("bare", "bare@1"):
        assert trial.sql(BY_SHOP, model, "logloss")[0][1] == ROWS - 3
        assert f"12 of {ROWS + 9} rows are of groups that have no model" in trial.notices()
        asked = "SELECT count(*) FROM cerebro.check(%s, 'later') WHERE measure = %s"
        assert trial.sql(asked, model, "accuracy") == [(0,)]
        assert trial.sql(asked, model, "stability") == [(2,)]
        with pytest.raises(psycopg2.Error, match="a model for none of the groups of 9 rows"):
            trial.sql("SELECT * FROM cerebro.worst_rows(%s, 'later')", model)


REFUSED = {
    "the inside": "SELECT * FROM cerebro.inspect_net('shops', 'sales')",
    "confusion": "SELECT * FROM cerebro.confusion_matrix('shops', 'packed')",
    "an ensemble": "SELECT cerebro.ensemble('shops', 'joined', 2, NULL, 'packed')",
}


@pytest.mark.parametrize("asked", REFUSED.values(), ids=REFUSED)
def test_what_takes_the_model_of_all_rows_says_so(trial: Trial, asked: str) -> None:
    with pytest.raises(psycopg2.errors.FeatureNotSupported, match="shops@1 holds models of groups"):
        trial.sql(asked)


def test_a_model_that_nobody_knows_how_to_train_again_is_not(trial: Trial) -> None:
    with pytest.raises(psycopg2.Error, match="how shops@1 was trained is not known"):
        trial.sql("SELECT * FROM cerebro.retrain('shops')")


def test_who_may_only_predict_predicts_and_reads_nothing(
    trial: Trial, role: MakeRole, connect: Connect
) -> None:
    name = role()
    trial.sql("SELECT cerebro.grant_model('shops', %s, 'predict')", name)
    trial.sql(f"GRANT SELECT ON sales TO {name}")
    user = Trial(connect(user=name))
    if trial.topology != "greenplum":
        assert user.sql(ONE, "shops@1") == trial.sql(ONE, "shops@1")
        # The statement, which an error may show, contains no values of groups.
        user.sql("CREATE TABLE own AS SELECT heat, kind, 'mine' AS shop, day FROM sales LIMIT 1")
        asked = "SELECT cerebro._predict_statement('shops', 'SELECT * FROM own', 'own'::regtype::oid, NULL)"
        assert "n's" not in user.value(asked) and "few" not in user.value(asked)
        with pytest.raises(psycopg2.errors.DivisionByZero) as caught:
            user.sql(
                "SELECT * FROM cerebro.predict_query("
                "'shops', 'SELECT 1/0 AS heat, kind, shop, day FROM own', NULL::own)"
            )
        assert "n''s" not in str(caught.value) and "SQL statement" in str(caught.value)
    assert user.sql("SELECT count(*) FROM cerebro.check('shops', 'sales')")[0][0] > 8
    assert user.sql("SELECT * FROM cerebro.model_health") == []
    for asked in ("read_model('shops')", "register('shops', 'mine')", "show_net('shops@1')"):
        with pytest.raises(psycopg2.errors.InsufficientPrivilege, match="you may only predict"):
            user.sql(f"SELECT cerebro.{asked}")
    assert user.sql("SELECT lineage, digest FROM cerebro.model_versions") == [(None, None)]


@pytest.mark.postgresql
def test_groups_of_a_type_of_users_are_refused(trial: Trial) -> None:
    """A group column of a domain is refused: the type may be dropped, and would run its owner's code."""
    trial.sql("CREATE DOMAIN place AS text")
    trial.sql("CREATE TABLE odd AS TABLE models; ALTER TABLE odd ALTER shop TYPE place")
    for suffix in ("_info", "_summary"):
        trial.sql(f"CREATE TABLE odd{suffix} AS TABLE models{suffix}")
    with pytest.raises(psycopg2.errors.FeatureNotSupported, match="type of shop is not the server's own"):
        trial.sql("SELECT cerebro.register('odd', 'odd')")
    assert trial.sql("SELECT FROM cerebro.models WHERE name = 'odd'") == []
