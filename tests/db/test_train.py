"""cerebro.train: one statement from a table to predictions."""

from __future__ import annotations

import json
import re

import psycopg2
import pytest

from cerebro_plpy.executor.calls import train_ensemble
from fixtures import Connect, MakeRole, execute
from mixed import CUSTOMERS
from reference import BACKEND
from trial import ADAM, Trial

pytestmark = pytest.mark.fresh_caller


@pytest.fixture(scope="module", autouse=True)
def customers(trial: Trial) -> None:
    trial.sql(CUSTOMERS, 1200)
    # The rule to learn: age and plan decide who goes.
    trial.sql("UPDATE customers SET gone = CASE WHEN age > 45 OR plan = 'pro' THEN 'yes' ELSE 'no' END")
    trial.sql("CREATE TABLE small AS SELECT age, plan, income, gone, age * 2.5 + 3 AS bill FROM customers")


def test_integers_are_classes_if_they_are_few_and_the_call_says_so(trial: Trial) -> None:
    trial.sql("CREATE TABLE counted AS SELECT age, plan, id % 20 AS few, id % 21 AS many FROM customers")
    options = json.dumps({"exclude": ["few", "many"]})
    for target, other, widths in (("few", "regression", [20]), ("many", "classification", [None])):
        trial.notices()
        trial.value("SELECT cerebro.prepare_train('counted', %s, options => %s)", target, options)
        assert trial.value("SELECT num_classes FROM counted_model_packed_summary") == widths
        assert f'{{"task": "{other}"}} makes it' in trial.notices()
        trial.sql(
            "DROP TABLE counted_model_packed, counted_model_packed_summary, counted_model_packed_validation,"
            " counted_model_packed_validation_summary, counted_model_nets"
        )


def test_many_rows_for_each_second_leave_the_dearest_nets_out(trial: Trial) -> None:
    """4,000 rows of a segment train: few for three seconds, too many for two."""
    trial.sql("CREATE TABLE many AS SELECT i % 7 AS x, i % 2 > 0 AS odd FROM generate_series(1, 5000) AS i")
    for seconds, nets in ((3, {"linear", "tabular", "realmlp", "tabm"}), (2, {"linear", "tabular"})):
        name = f"in_{seconds}"
        options = json.dumps({"segments": 1})
        trial.value("SELECT cerebro.prepare_train('many', 'odd', %s, %s, %s)", name, f"{seconds} s", options)
        made = trial.sql(f"SELECT DISTINCT split_part(name, ' ', 1) FROM {name}_nets")
        assert {net for (net,) in made} == nets


def test_one_statement_leads_from_a_table_to_predictions(trial: Trial) -> None:
    trial.notices()
    board = trial.sql(
        "SELECT * FROM cerebro.train('small', target => 'gone', name => 'churn', options => %s)",
        json.dumps({"configs": 4, "epochs": 6, "exclude": ["bill"], "folds": False}),
    )
    assert board[0][6] and not any(row[6] for row in board[1:])
    assert board[0][3] == "accuracy" and board[0][4] > 0.9
    said = trial.notices()
    for function in ("training_preprocessor_dl", "load_net", "madlib_automl"):
        assert f"SELECT cerebro.{function}(" in said
    # The search has what packing and the ensemble leave of a minute.
    (searched,) = re.findall(r'"max_seconds": (\d+)', said)
    assert 30 <= int(searched) <= 54
    # The ensemble's share of the budget does not keep a third of the configs from being trained to the end.
    assert "min_finished=2" in said
    # Lines about time and budget depend on the machine, so they are not counted.
    lines = [line for line in said.splitlines() if " visits after " not in line and "budget" not in line]
    assert "model_id 1 is in" not in said and len(lines) < 16
    begun = trial.sql(
        "SELECT name, compile_params FROM churn_info JOIN churn_nets USING (model_id) ORDER BY mst_key"
    )
    titles = ("tabm width=128 ", "tabm width=128 ", "realmlp width=128 ", "linear")
    for (net, compiled), title, rate in zip(begun, titles, (0.01, 0.001, 0.003, 0.003), strict=True):
        assert net.startswith(title) and f"learning_rate={rate})" in compiled
    assert '"try_first": [{"model_id": ' in said
    assert "SELECT cerebro.ensemble('churn', 'churn_ensemble');" in said
    assert "churn_ensemble is the mean of " in said and "each half of the " in said
    ((rows, loss, kinds, value),) = trial.sql(
        "SELECT validation_table, validation_loss_final, metrics_type, validation_metrics_final"
        " FROM churn_ensemble_summary"
    )
    assert rows == "public.churn_packed_validation" and kinds == ["logloss"]
    assert loss == value and f"logloss {value:.4g}, accuracy" in said
    # Nobody knows how many visits a search will have.
    assert " of 24 visits" not in said
    reached = trial.value(
        "SELECT max(value) FROM cerebro.metrics WHERE run_id = (SELECT run_id FROM churn_summary)"
        " AND mst_key = %s AND dataset = 'validation' AND metric = 'accuracy'",
        board[0][0],
    )
    assert board[0][4] == pytest.approx(reached)
    if trial.topology != "greenplum":
        right = trial.value(
            "SELECT avg((p.class = c.gone)::int) FROM small c, cerebro.predict('churn', c) p"
            " WHERE c.age IS NOT NULL"
        )
        assert right > 0.9
    made = "SELECT count(*) FROM unnest(%s::text[]) t WHERE to_regclass(t) IS NOT NULL"
    tables = ["churn", "churn_info", "churn_summary", "churn_packed", "churn_packed_validation", "churn_nets"]
    assert trial.value(made, [*tables, "churn_best"]) == 7
    if trial.topology != "greenplum":
        together = trial.value(
            "SELECT avg((p.class = c.gone)::int) FROM small c, cerebro.predict('churn_ensemble', c) p"
            " WHERE c.age IS NOT NULL"
        )
        assert together > 0.9


@pytest.mark.slow
@pytest.mark.postgresql
def test_a_session_that_runs_an_engine_trains_on_it(trial: Trial, connect: Connect) -> None:
    options = {"configs": 1, "epochs": 1, "nets": "linear", "single": True}
    again = connect()
    for name, more, backend in (("one", {"backend": "jax"}, "jax"), ("two", {}, "jax")):
        again.notices.clear()
        execute(
            again,
            "SELECT * FROM cerebro.train('small', 'gone', %s, '20 s', %s)",
            name,
            json.dumps({**options, **more}),
        )
        assert f'"backend": "{backend}"' in "".join(again.notices)
    anew = connect()
    execute(anew, "SELECT * FROM cerebro.train('small', 'gone', 'three', '20 s', %s)", json.dumps(options))
    assert f'"backend": "{BACKEND}"' in "".join(anew.notices)


def test_a_quantity_is_learned_as_such(trial: Trial) -> None:
    options = {"configs": 2, "epochs": 2, "nets": ["linear", "Dense(8, 'relu')"], "exclude": ["gone"]}
    *board, (last,) = trial.sql(
        "SELECT net FROM cerebro.train('small', 'bill', 'bills', '20 s', %s)", json.dumps(options)
    )
    assert {net for (net,) in board} <= {"linear", "Dense(8, 'relu')"} and last == "always the median of bill"
    if trial.topology != "greenplum":
        assert trial.value("SELECT count(p.prediction) FROM small c, cerebro.predict('bills', c) p") == 1200


WRONG = {
    "no such target": ("'small', 'gone_'", "42703", 'column "gone_" does not exist'),
    "an unknown option": ("'small', 'gone', options => '{\"metrics\": 1}'", "22023", 'Did you mean "metric"'),
    "no such net": ("'small', 'gone', options => '{\"nets\": [\"deep\"]}'", "22023", "no net is called deep"),
    "no budget": ("'small', 'gone', budget => '0 s'", "22023", "budget is"),
    "no such metric": (
        "'small', 'gone', options => '{\"metric\": \"rsme\"}'",
        "22023",
        "option metric is rsme",
    ),
    "a metric of quantities": (
        "'small', 'gone', options => '{\"metric\": \"rmse\"}'",
        "22023",
        "the model predicts classes, for which no metric is called 'rmse'",
    ),
    "held-out rows of one class": (
        '\'small\', \'gone\', options => \'{"metric": "auc", "validation": {"after": "70", "on": "age"}}\'',
        "55000",
        "have the same class, and auc compares rows of several",
    ),
    "a name that is taken": ("'small', 'gone', 'customers'", "42P07", "already exists"),
    "a name beside which one is taken": ("'small', 'gone', 'half'", "42P07", "half_info"),
    "a name beside which the folds have no room": (
        "'small', 'gone', 'joined'",
        "42P07",
        "joined_ensemble_folds",
    ),
    "a name that is too long": (f"'small', 'gone', '{'n' * 39}'", "22023", "has a name longer than 63 bytes"),
    "one net of folds": (
        "'small', 'gone', options => '{\"single\": true, \"folds\": 3}'",
        "22023",
        "options single and folds are both given",
    ),
    "the logarithm of a negative number": (
        "'below', 'owed', options => '{\"target_scale\": \"log\"}'",
        "22003",
        '"owed" has the value -4',
    ),
}


@pytest.mark.parametrize("said, code, text", WRONG.values(), ids=WRONG)
def test_what_is_wrong_is_refused_and_leaves_nothing(trial: Trial, said: str, code: str, text: str) -> None:
    trial.sql("CREATE TABLE IF NOT EXISTS half_info (); CREATE TABLE IF NOT EXISTS joined_ensemble_folds ()")
    trial.sql("CREATE OR REPLACE VIEW below AS SELECT age, plan, id - 5.0::float8 AS owed FROM customers")
    before = trial.value("SELECT count(*) FROM pg_class")
    with pytest.raises(psycopg2.Error) as caught:
        trial.sql(f"SELECT cerebro.train({said})")
    assert (caught.value.pgcode, text in str(caught.value)) == (code, True), caught.value
    assert trial.value("SELECT count(*) FROM pg_class") == before


@pytest.mark.slow
def test_one_config_is_the_best_everywhere(trial: Trial) -> None:
    """The config with the best accuracy is used everywhere, although another has a lower loss."""
    trial.sql(
        "CREATE TABLE noise AS SELECT random() AS a, random() AS b, (ARRAY['x', 'y', 'z'])"
        "[1 + (random() * 2.99)::int % 3] AS y FROM generate_series(1, 300), (SELECT setseed(0.4)) AS s"
    )
    *board, _ = trial.sql(
        "SELECT mst_key, value, loss, best FROM cerebro.train('noise', 'y', 'noisy',"
        ' options => \'{"configs": 6, "epochs": 3}\')'
    )
    best, value, _, is_best = board[0]
    assert is_best and [row[0] for row in sorted(board, key=lambda r: (-r[1], r[2], r[0]))] == [
        r[0] for r in board
    ]
    assert trial.sql("SELECT mst_key FROM noisy_best") == [(best,)]
    leader = (
        "SELECT mst_key, value FROM cerebro.leaderboard"
        " WHERE rank = 1 AND run_id = (SELECT run_id FROM noisy_summary)"
    )
    assert trial.sql(leader) == [(best, pytest.approx(value))]
    for key in (None, best):
        trial.call("madlib_evaluate", "noisy", "noisy_packed_validation", f"told_{key or 0}", mst_key=key)
    assert trial.sql("TABLE told_0") == trial.sql(f"TABLE told_{best}")
    assert trial.value("SELECT metric FROM told_0") == pytest.approx(value)
    assert trial.sql(
        "SELECT * FROM cerebro.confusion_matrix('noisy', 'noisy_packed_validation')"
    ) == trial.sql("SELECT * FROM cerebro.confusion_matrix('noisy', 'noisy_packed_validation', %s)", best)
    # A config whose loss is NaN is not ranked first.
    trial.sql(
        "UPDATE cerebro._metric SET value = 'NaN' WHERE metric = 'loss' AND mst_key = %s"
        " AND run_id = (SELECT run_id FROM noisy_summary)",
        best,
    )
    assert trial.sql(leader)[0][0] != best


def test_rows_that_were_packed_otherwise_are_refused(trial: Trial) -> None:
    """Rows that are packed with other statistics are refused: the net would take 5000.5 for 0.5."""
    trial.sql("CREATE TABLE far AS SELECT age + 5000 AS age, plan, income, gone FROM small")
    options = {"columns": "auto", "segments": 2}
    trial.pack("far", "far_packed", "gone", "*", options=options)
    said = 'center of column "age" is 5'
    with pytest.raises(psycopg2.Error, match=said) as caught:
        trial.call("madlib_evaluate", "churn", "far_packed", "never")
    assert caught.value.pgcode == "55000" and "churn_packed" in str(caught.value.diag.message_hint)
    with pytest.raises(psycopg2.Error, match=said):
        trial.sql("SELECT cerebro.confusion_matrix('churn', 'far_packed')")
    with pytest.raises(psycopg2.Error, match="does not fit source table"):
        trial.call(
            "madlib_automl",
            "churn_packed",
            "never",
            "churn_nets",
            "never_best",
            [1],
            "{}",
            "{}",
            validation_table="far_packed",
        )
    # The same columns with no specification, and classes in another order.
    trial.sql(
        "CREATE TABLE bare AS SELECT gone, ARRAY[age, income] AS x FROM small WHERE age + income IS NOT NULL"
    )
    trial.pack("bare", "bare_packed", "gone", "x")
    with pytest.raises(psycopg2.Error, match="its columns were not prepared"):
        trial.call("madlib_evaluate", "churn", "bare_packed", "never")
    trial.call("load_net", "bare_nets", "bare_packed", "linear")
    trial.select("bare_configs", [1], [ADAM], ["batch_size=32"], arch="bare_nets")
    trial.fit("bare_packed", "bare_models", "bare_configs", 1)
    trial.sql("CREATE TABLE renamed AS SELECT x, 'an ' || gone AS gone FROM bare")
    trial.pack("renamed", "renamed_packed", "gone", "x")
    with pytest.raises(psycopg2.Error, match="the classes of gone are"):
        trial.call("madlib_evaluate", "bare_models", "renamed_packed", "never")
    trial.pack("bare", "divided", "gone", "x", normalizing_const=10)
    with pytest.raises(psycopg2.Error, match="normalizing_const is 10, not 1"):
        trial.call("madlib_evaluate", "bare_models", "divided", "never")


def test_packing_that_takes_most_of_a_budget_leaves_the_search_its_share_and_says_so(trial: Trial) -> None:
    naps = "SELECT age, plan, gone FROM small CROSS JOIN (SELECT pg_sleep(0.3)) AS s"
    trial.sql(f"CREATE VIEW dozing AS {naps}")
    trial.notices()
    options = json.dumps({"folds": False, "nets": "linear"})
    trial.value("SELECT cerebro.prepare_train('dozing', 'gone', 'in_haste', '1 s', %s)", options)
    assert "of the budget of 1 s: the search has 1 s all the same" in trial.notices()


def test_a_budget_is_that_of_the_whole_call() -> None:
    """Packing and the ensemble have their share, and however long they take, the search has half."""
    assert train_ensemble.share_budget(60, 17.2) == (37, 37)
    assert train_ensemble.share_budget(60, 100) == (30, -46)
    assert train_ensemble.share_budget(1, 0.3) == (1, 1)


def test_a_budget_that_is_too_small_still_leaves_models(trial: Trial) -> None:
    """A net is trained although its first visit exceeds the budget."""
    trial.notices()
    slow = "Dense(2500, 'relu'), Dense(2500, 'relu')"
    board = trial.sql(
        "SELECT * FROM cerebro.train('small', 'gone', 'slow', '1 s', %s)",
        json.dumps({"nets": [slow], "exclude": ["bill"]}),
    )
    assert 1 < len(board) <= 5
    assert "the budget of 1 s was exceeded by" in trial.notices()
    epochs = trial.sql(
        "SELECT DISTINCT epoch FROM cerebro.leaderboard WHERE value IS NOT NULL"
        " AND run_id = (SELECT run_id FROM slow_summary)"
    )
    assert epochs == [(1,)]


UNFIT = {
    "one class": ("'one'::text", "22023", "'one' in all 1200 rows"),
    "no value": ("NULL::text", "22004", "NULL in all 1200 rows"),
    "json": ("'{}'::jsonb", "42804", "of type jsonb is neither a class nor a quantity"),
    "a date": ("date '2024-01-01' + id", "42804", "of type date is a time"),
    "a value for each row": ("'k' || id", "22023", "1200 different values in 1200 rows"),
    "numbers as texts": (
        "(id % 441) / 10.0 || ''",
        "22023",
        "441 different texts, of which 100% are",
    ),
    "one number": ("5::float8", "22023", "the same in all 1200 rows"),
    "one array": ("ARRAY[1, 2]::float8[]", "22023", "the same in all 1200 rows"),
    "one array or none": ("CASE WHEN id > 3 THEN ARRAY[0, 1] END", "22023", "the same in all 1197 rows"),
    "one array of texts": ("'{a,b}'::text[]", "22023", "the same in all 1200 rows"),
    "numbers too near each other": ("1700000000000 + id", "22023", "floats of 32 bits are up to"),
    "tiny numbers": ("1e-30 * id", "22023", "cannot be learned with floats of 32 bits"),
    "vast numbers": ("1e30 * id", "22023", "cannot be learned with floats of 32 bits"),
    "four rows": ("CASE WHEN id < 5 THEN id % 2 END", "22023", "4 rows in which"),
}


@pytest.mark.parametrize("made, code, text", UNFIT.values(), ids=UNFIT)
def test_a_target_that_cannot_be_learned_is_refused_at_once(
    trial: Trial, made: str, code: str, text: str
) -> None:
    trial.sql(f'CREATE VIEW unfit AS SELECT age, plan, {made} AS "Will Leave" FROM customers')
    with pytest.raises(psycopg2.Error) as caught:
        trial.sql("SELECT cerebro.train('unfit', '\"Will Leave\"', 'never')")
    trial.sql("DROP VIEW unfit")
    assert (caught.value.pgcode, text in str(caught.value)) == (code, True), caught.value
    assert "validation" not in str(caught.value)


@pytest.mark.parametrize("unit", [1e-6, *(pytest.param(one, marks=pytest.mark.slow) for one in (1e5, 1e12))])
def test_a_quantity_is_learned_in_any_unit(trial: Trial, unit: float) -> None:
    trial.sql(
        "DROP TABLE IF EXISTS houses, home, home_info, home_summary, home_best, home_best_summary, said"
    )
    trial.sql("DROP TABLE IF EXISTS home_ensemble, home_ensemble_summary")
    trial.sql("DROP TABLE IF EXISTS home_nets, home_packed, home_packed_summary")
    trial.sql("DROP TABLE IF EXISTS home_packed_validation, home_packed_validation_summary")
    trial.sql(
        "CREATE TABLE houses AS SELECT i, i %% 17 AS rooms, i * 7 %% 40 AS age,"
        " (5 + i %% 17 - 0.1 * (i * 7 %% 40)) * %s::float8 AS price FROM generate_series(1, 1000) AS i",
        unit,
    )
    trial.notices()
    given = {"configs": 2, "epochs": 9, "nets": "Dense(16, 'relu')", "task": "regression", "exclude": ["i"]}
    options = json.dumps(given)
    ((_, _, _, metric, value, loss, *_), *_) = trial.sql(
        "SELECT * FROM cerebro.train('houses', 'price', 'home', options => %s)", options
    )
    assert "always answering" not in trial.notices()
    trial.sql("SELECT cerebro.madlib_predict('home', 'houses', 'i', '*', 'said')")
    explained, mean = trial.sql(
        "SELECT 1 - avg((p.prediction - h.price) ^ 2) / var_pop(h.price), avg(abs(p.prediction - h.price))"
        " FROM houses h JOIN said AS p USING (i)"
    )[0]
    assert explained > 0.9
    assert metric == "mae" and value == pytest.approx(mean, rel=0.2)
    assert loss < 0.1


def test_a_result_that_is_no_better_than_a_guess_says_so(trial: Trial) -> None:
    trial.sql(
        "CREATE TABLE dice AS SELECT hashint4(i) % 100 AS x, CASE WHEN hashint4(i * 31) % 10 < 4 THEN 'late'"
        " ELSE 'on time' END AS came, hashint4(i * 7)::float8 AS number FROM generate_series(1, 800) AS i"
    )
    for target, name, said in (
        ("came", "guess", "by accuracy, the ensemble is no better than always answering 'late': 0."),
        ("number", "even", "no better than always answering the mean of number"),
    ):
        trial.notices()
        options = '{"configs": 1, "epochs": 1, "nets": "linear", "exclude": ["%s"]}'
        other = "number" if target == "came" else "came"
        trial.sql("SELECT cerebro.train('dice', %s, %s, options => %s)", target, name, options % other)
        assert said in trial.notices()


def test_read_only_transactions_are_refused_before_any_work(trial: Trial) -> None:
    trial.sql("BEGIN READ ONLY")
    with pytest.raises(psycopg2.Error, match="output table never.* in a read-only transaction") as caught:
        trial.sql("SELECT cerebro.train('customers', 'gone', 'never')")
    trial.sql("ROLLBACK")
    assert caught.value.pgcode == "25006"


def test_an_empty_table_is_refused_at_once(trial: Trial) -> None:
    trial.sql("CREATE TABLE hollow AS SELECT * FROM small LIMIT 0")
    with pytest.raises(psycopg2.Error, match="input table public.hollow has no rows"):
        trial.sql("SELECT cerebro.train('hollow', 'gone')")


def test_an_error_has_one_line_of_our_own_in_its_context(trial: Trial) -> None:
    with pytest.raises(psycopg2.Error) as caught:
        trial.sql("SELECT cerebro.train('small', 'gone_')")
    lines = str(caught.value.diag.context).splitlines()
    assert sum("in begun" in line for line in lines) == 1
    assert not any(" in " in line and "<module>" not in line and "begun" not in line for line in lines)


def test_one_call_lets_a_role_predict(trial: Trial, role: MakeRole, connect: Connect) -> None:
    user = role(usage=False)
    trial.sql(f"GRANT SELECT ON customers TO {user}; SELECT cerebro.grant_usage('{user}')")
    theirs = connect(user=user)
    asked = "SELECT cerebro.madlib_predict('churn', 'customers', 'id', '*', 'by_role')"
    with pytest.raises(psycopg2.errors.InsufficientPrivilege, match="denied for public.churn, public.churn_"):
        execute(theirs, asked)
    with pytest.raises(psycopg2.errors.InsufficientPrivilege, match="denied for table public.churn"):
        execute(theirs, "SELECT cerebro.grant_model_access('churn', %s)", user)
    trial.sql("SELECT cerebro.grant_model_access('churn', %s)", user)
    execute(theirs, asked)
    assert execute(theirs, "SELECT count(DISTINCT id) FROM by_role") == [(1200,)]
    with pytest.raises(psycopg2.errors.InsufficientPrivilege):
        execute(theirs, "DELETE FROM churn")
    with pytest.raises(psycopg2.errors.WrongObjectType, match="small is not a model table"):
        trial.sql("SELECT cerebro.grant_model_access('small', %s)", user)


@pytest.mark.postgresql
def test_a_view_lends_no_right_to_its_model(trial: Trial, role: MakeRole, connect: Connect) -> None:
    user = role()
    trial.sql("CREATE VIEW told AS SELECT c.age, p.class FROM small c, cerebro.predict('churn', c) p")
    trial.sql(f"GRANT SELECT ON told TO {user}")
    theirs = connect(user=user)
    with pytest.raises(psycopg2.errors.InsufficientPrivilege) as caught:
        execute(theirs, "SELECT * FROM told LIMIT 1")
    # The error names all missing rights, why the view gives none of them, and the call that helps.
    assert "denied for public.churn, public.churn_info, public.churn_summary" in str(caught.value)
    assert "A view lends none" in str(caught.value.diag.message_detail)
    assert "grant_model_access('public.churn'" in str(caught.value.diag.message_hint)
    trial.sql("SELECT cerebro.grant_model_access('churn', %s)", user)
    assert len(execute(theirs, "SELECT * FROM told LIMIT 3")) == 3


def test_a_role_without_usage_gets_it_from_a_superuser(trial: Trial, role: MakeRole) -> None:
    user, owner = role(usage=False), role()
    trial.sql("SELECT cerebro.grant_model_access('churn', %s)", user)
    assert trial.value("SELECT has_schema_privilege(%s, 'cerebro', 'USAGE')", user)
    other = role(usage=False)
    trial.sql("CREATE TABLE theirs (x integer); CREATE TABLE theirs_summary (x integer)")
    trial.sql(f"ALTER TABLE theirs OWNER TO {owner}; ALTER TABLE theirs_summary OWNER TO {owner}")
    trial.sql(f"SET ROLE {owner}")
    try:
        with pytest.raises(psycopg2.errors.InsufficientPrivilege, match="may not use cerebro yet"):
            trial.sql("SELECT cerebro.grant_model_access('theirs', %s)", other)
    finally:
        trial.sql("RESET ROLE")


@pytest.mark.postgresql
def test_a_kept_model_sees_what_describes_it_change(trial: Trial) -> None:
    for kind in ("", "_info", "_summary"):
        trial.sql(f"CREATE TABLE copied{kind} AS TABLE churn{kind}")
    said = "SELECT p.class FROM (SELECT * FROM small LIMIT 1) c, cerebro.predict('copied', c) p"
    before = trial.value(said)
    trial.sql("BEGIN")
    trial.sql("UPDATE copied_summary SET gone_class_values = '{X,X}'")
    assert trial.value(said) == "X"
    trial.sql("ROLLBACK")
    assert trial.value(said) == before
    trial.sql("UPDATE copied_summary SET gone_class_values = '{Y,Y}'")
    assert trial.value(said) == "Y"


def test_tables_of_a_model_run_no_code_of_their_owners(trial: Trial, role: MakeRole) -> None:
    """Calls on a model run neither a cast of another role nor views of that role in place of tables."""
    owner = role()
    trial.sql("CREATE TABLE caught (who text); GRANT INSERT ON caught TO public")
    trial.sql("CREATE TYPE mark AS ENUM ('a')")
    trial.sql(
        "CREATE FUNCTION marked(mark) RETURNS json LANGUAGE plpgsql AS"
        " $$BEGIN INSERT INTO caught VALUES (current_user); RETURN '\"a\"'; END$$"
    )
    trial.sql("CREATE CAST (mark AS json) WITH FUNCTION marked(mark)")
    for kind in ("", "_info", "_summary"):
        trial.sql(f"CREATE TABLE trap{kind} AS TABLE churn{kind}")
        trial.sql(f"CREATE VIEW decoy{kind} AS TABLE churn{kind}; ALTER VIEW decoy{kind} OWNER TO {owner}")
    trial.sql("ALTER TABLE trap_summary ADD COLUMN evil mark DEFAULT 'a'")
    trial.call("madlib_evaluate", "trap", "churn_packed", "trap_told")
    assert trial.value("SELECT count(*) FROM caught") == 0
    trial.sql("CREATE TABLE numbered AS SELECT row_number() OVER () AS id, * FROM small")
    with pytest.raises(psycopg2.errors.WrongObjectType, match="is no table, and somebody else owns it"):
        trial.call("madlib_predict", "decoy", "numbered", "id", "*", "decoy_told")


@pytest.mark.parametrize("change", ["dependent_varname = NULL", "dependent_varname = '{}'"])
def test_a_damaged_summary_is_refused(trial: Trial, change: str) -> None:
    trial.sql("DROP TABLE IF EXISTS broken, broken_info, broken_summary")
    for kind in ("", "_info", "_summary"):
        trial.sql(f"CREATE TABLE broken{kind} AS TABLE churn{kind}")
    trial.sql(f"UPDATE broken_summary SET {change}")
    with pytest.raises(psycopg2.errors.DataCorrupted, match="is damaged: no run has written"):
        trial.call("madlib_evaluate", "broken", "churn_packed", "never")
