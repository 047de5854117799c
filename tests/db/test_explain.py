"""Plans of runs: estimates before a run, and estimates beside measured costs after it."""

from __future__ import annotations

import importlib.util
import json
from typing import Any

import psycopg2
import pytest

import nets
from fixtures import Connect, MakeRole, Sql, execute
from trial import ADAM, SGD, Trial, blobs, rows_of

pytestmark = pytest.mark.fresh_caller

FEATURES = 12
EPOCHS = 4
GRID = (
    "$${'loss': ['categorical_crossentropy'], 'metrics': ['accuracy'], 'optimizer_params_list':"
    " [{'optimizer': ['Adam'], 'lr': [0.1, 0.03, 0.01, 0.003]}]}$$, $${'batch_size': [10, 20]}$$"
)
OWN_TABLES = (
    "SELECT oid::regclass::text FROM pg_class WHERE relkind = 'r' AND relnamespace = 'cerebro'::regnamespace"
)
LOCKS = "SELECT DISTINCT mode FROM pg_locks WHERE pid = pg_backend_pid() AND locktype = 'relation'"


@pytest.fixture(scope="module", autouse=True)
def tables(trial: Trial) -> None:
    trial.table("blobs", "x real[], y integer", rows_of(*blobs(240, features=FEATURES)))
    trial.pack("blobs", "packed")
    trial.table("held", "x real[], y integer", rows_of(*blobs(60, 1, FEATURES)))
    trial.pack_validation("held", "packed_val", "packed")
    trial.model(nets.mlp(FEATURES))
    trial.select("two", [1], [ADAM, SGD], ["batch_size=10,epochs=1"])
    trial.sql("INSERT INTO cerebro.settings VALUES ('threads', '1'), ('backend', 'jax')")


def explain(trial: Trial, selection: str = "two", epochs: int | None = EPOCHS, **more: Any) -> dict[str, Any]:
    """Return the plan of a fit from cerebro.explain_fit, read from JSON."""
    named = {"validation_table": "packed_val", "format": "json", **more}
    named = {k: json.dumps(v) if isinstance(v, dict) else v for k, v in named.items()}
    places = "".join(f", {name} => %s" for name in named)
    text = trial.value(
        f"SELECT cerebro.explain_fit('packed', %s, %s{places})", selection, epochs, *named.values()
    )
    return json.loads(text)[0]["Plan"]


@pytest.fixture(scope="module")
def run(trial: Trial) -> int:
    """Train both configs of the selection `two`, and return the number of the run."""
    return trial.fit("packed", "models", "two", EPOCHS, validation_table="packed_val")


def test_the_plan_is_one_column_of_lines(trial: Trial) -> None:
    with trial.connection.cursor() as cursor:
        cursor.execute("SELECT * FROM cerebro.explain_fit('packed', 'two', 4)")
        assert [column.name for column in cursor.description or []] == ["QUERY PLAN"]
        lines = [line for (line,) in cursor.fetchall()]
    assert lines[0].startswith("Fit 2 configs  (time=")
    assert any(line.lstrip().startswith("->  Train 1 config of model 1, batch size 10") for line in lines)
    assert any(line.startswith("  Calibration: ") for line in lines)


def test_json_has_the_servers_names(trial: Trial) -> None:
    plan = explain(trial)
    assert plan["Node Type"] == "Fit"
    assert 0 < plan["Total Time Low"] < plan["Total Time"] < plan["Total Time High"]
    assert plan["Least Possible Time"] <= plan["Total Time"]
    assert plan["Visits"] == 2 * 2 * EPOCHS
    assert plan["Evaluations"] == 2
    assert plan["Settings"]["segments"] == 2
    assert {node["Node Type"] for node in plan["Plans"]} >= {"Train", "Evaluate", "Wait"}


def test_what_was_never_measured_says_so_and_what_was_does_not(trial: Trial, run: int) -> None:
    trial.sql("CREATE TEMP TABLE kept AS SELECT * FROM cerebro._rate")
    trial.sql("DELETE FROM cerebro._rate")
    assert explain(trial)["Calibration"] == "never measured here: within a factor of 2"
    trial.sql("INSERT INTO cerebro._rate SELECT * FROM kept; DROP TABLE kept")
    plan = explain(trial)
    assert plan["Calibration"].startswith(f"calibrated on {2 * 2 * EPOCHS} visits of this server")
    assert plan["Total Time High"] / plan["Total Time Low"] < 4


def test_a_state_has_the_size_that_the_plan_says(trial: Trial, run: int) -> None:
    plan = explain(trial)
    sizes = dict(
        trial.sql("SELECT mst_key, max(state_bytes) FROM cerebro.visits WHERE run_id = %s GROUP BY 1", run)
    )
    planned = {key: node["State Bytes"] for node in plan["Plans"] for key in node.get("Configs", ())}
    assert set(planned) == set(sizes)
    assert all(abs(planned[key] - size) <= 400 for key, size in sizes.items())


def test_asking_writes_nothing_and_opens_nothing(connect: Connect, trial: Trial, sql: Sql) -> None:
    """In a new session, explaining writes no row, opens no session and assigns no transaction id."""
    other = connect()
    # In this database alone: other tests run beside, on the same server.
    sessions = (
        "SELECT pid FROM pg_stat_activity"
        " WHERE datname = current_database() AND backend_type = 'client backend'"
    )
    tables = [name for (name,) in sql(OWN_TABLES)]
    rows = {table: sql(f"SELECT count(*) FROM {table}") for table in tables}
    before = set(sql(sessions))
    execute(other, "BEGIN")
    execute(other, "SELECT * FROM cerebro.explain_fit('packed', 'two', 4)")
    search = f"'packed', 'arch', ARRAY[1], {GRID}, 'asha', 'num_configs=4'"
    execute(other, f"SELECT * FROM cerebro.explain_automl({search})")
    assert execute(other, "SELECT txid_current_if_assigned()") == [(None,)]
    modes = execute(other, LOCKS)
    assert {mode for (mode,) in modes} <= {"AccessShareLock"}
    execute(other, "COMMIT")
    # Sessions of earlier tests may be ending at this moment.
    assert set(sql(sessions)) <= before
    assert {table: sql(f"SELECT count(*) FROM {table}") for table in tables} == rows


def test_in_a_read_only_transaction_too(trial: Trial) -> None:
    trial.sql("BEGIN READ ONLY")
    explain(trial)
    trial.sql("COMMIT")


def test_bits_are_the_same_whether_it_was_explained_or_not(trial: Trial, run: int) -> None:
    explain(trial)
    trial.fit("packed", "again", "two", EPOCHS, validation_table="packed_val")
    assert trial.weights("again") == trial.weights("models")


def test_who_may_fit_may_ask_and_who_may_not_may_not(trial: Trial, role: MakeRole, connect: Connect) -> None:
    guest = role()
    statement = "SELECT * FROM cerebro.explain_fit('packed', 'two', 4)"
    with pytest.raises(psycopg2.errors.InsufficientPrivilege):
        execute(connect(user=guest), statement)
    tables = "packed, packed_summary, two, two_summary, arch"
    trial.sql(f"GRANT SELECT ON {tables} TO {guest}")
    assert execute(connect(user=guest), statement)
    trial.sql(f"REVOKE SELECT ON {tables} FROM {guest}")


@pytest.mark.parametrize(
    ("call", "error"),
    [
        ("explain_fit('nosuch', 'two', 4)", "does not exist"),
        ("explain_fit('packed', 'two', 0)", "num_iterations"),
        ("explain_fit('packed', 'two', 4, options => '{\"sed\": 1}')", "unknown option"),
        ("explain_fit('packed', 'two', 4, format => 'yaml')", 'format is "yaml"'),
        ("explain_fit('packed', 'two', 4, what_if => '{\"row\": 1}')", "unknown option row"),
        ("explain_fit('packed', 'two', 4, what_if => '{\"segments\": 1025}')", "from 1 to 1024"),
        ("explain_fit('packed', 'two', 4, what_if => 'null')", "facts of what_if are not a JSON object"),
        ("explain_run(0)", "you have no run 0"),
        ("explain_run(NULL)", "you have no run NULL"),
    ],
)
def test_it_refuses_what_a_fit_would_refuse(trial: Trial, call: str, error: str) -> None:
    with pytest.raises(psycopg2.Error, match=error):
        trial.sql(f"SELECT * FROM cerebro.{call}")


def test_the_errors_are_those_of_the_fit(trial: Trial) -> None:
    """A config that does not fit the rows raises the same error in explain_fit as in a fit."""
    trial.model(nets.mlp(FEATURES + 1), table="wide")
    trial.select("too_wide", [1], [ADAM], ["batch_size=10"], arch="wide")
    said: list[tuple[str | None, ...]] = []
    for call in ("explain_fit('packed'", "madlib_fit_multiple_model('packed', 'out'"):
        with pytest.raises(psycopg2.Error) as caught:
            trial.sql(f"SELECT cerebro.{call}, 'too_wide', 4)")
        found = caught.value.diag
        said.append((found.message_primary, found.message_detail, found.message_hint, found.sqlstate))
    assert said[0] == said[1]


@pytest.mark.parametrize("options", [{"backend": "torch"}, {"replay": 1}])
def test_what_only_the_beginning_of_a_fit_would_find_out_is_refused_too(
    trial: Trial, run: int, options: dict[str, Any]
) -> None:
    if "backend" in options and importlib.util.find_spec("torch") is not None:
        pytest.skip("PyTorch is installed")
    options = {"replay": run} if "replay" in options else options
    said: list[str | None] = []
    for call in ("explain_fit('packed'", "madlib_fit_multiple_model('packed', 'out'"):
        with pytest.raises(psycopg2.Error) as caught:
            trial.sql(f"SELECT cerebro.{call}, 'two', 3, options => %s)", json.dumps(options))
        said.append(caught.value.diag.message_primary)
    assert said[0] == said[1]


def test_many_segments_are_planned_at_once(trial: Trial) -> None:
    plan = explain(trial, what_if={"segments": 1024, "rows": 10_000_000})
    assert plan["Visits"] == 2 * 1024 * EPOCHS


def test_a_seed_that_is_not_given_is_not_shown(trial: Trial) -> None:
    assert "seed" not in explain(trial)["Settings"]
    assert explain(trial, options={"seed": 5})["Settings"]["seed"] == 5


def test_a_limit_ends_the_plan_too(trial: Trial) -> None:
    whole = explain(trial, epochs=1000)
    assert explain(trial, epochs=1000, options={"max_visits": 400})["Visits"] == 400
    short = explain(trial, epochs=1000, options={"max_seconds": 1})
    assert short["Total Time"] < whole["Total Time"]
    assert "the run ends 1 second after its first visit has begun" in short["Advice"]


def test_a_run_in_one_session_is_planned_so(trial: Trial) -> None:
    trial.sql("BEGIN")
    try:
        trial.pack("blobs", "unseen")
        text = trial.value("SELECT cerebro.explain_fit('unseen', 'two', 2, format => 'json')")
    finally:
        trial.sql("ROLLBACK")
    plan = json.loads(text)[0]["Plan"]
    assert plan["Memory Bytes"] == plan["Session Memory Bytes"]


def test_other_facts_can_be_supposed(trial: Trial, run: int) -> None:
    plan = explain(trial)
    more = explain(trial, what_if={"rows": 24_000})
    assert more["Rows"].startswith("24000 for training")
    assert more["Total Time"] > plan["Total Time"]
    assert explain(trial, what_if={"segments": 4})["Visits"] == 2 * 4 * EPOCHS
    assert explain(trial, what_if={"backend": "tensorflow"})["Settings"]["backend"] == "tensorflow"


def test_a_few_batches_can_be_timed_first(trial: Trial) -> None:
    """With `probe`, some batches are timed: the estimated range is narrower, and no rate is stored."""
    trial.sql("DELETE FROM cerebro._rate")
    plain, probed = explain(trial), explain(trial, probe=True)
    assert plain["Calibration"].startswith("never measured here")
    assert probed["Calibration"].startswith("timed just now")
    wide, narrow = (p["Total Time High"] / p["Total Time Low"] for p in (plain, probed))
    assert narrow < wide
    told = [node.get("Step Bytes") for node in probed["Plans"] if node["Node Type"] == "Train"]
    assert told and all(told)
    assert "Step Bytes" not in json.dumps(plain)
    assert trial.value("SELECT count(*) FROM cerebro._rate") == 0
    with pytest.raises(psycopg2.Error, match="probe times what is there"):
        explain(trial, probe=True, what_if={"threads": 2})


@pytest.mark.greenplum
def test_one_alternative_uses_all_segments_of_the_cluster(trial: Trial) -> None:
    """The plan's alternative has as many segments as the cluster, not as the coordinator has cores."""
    segments = "SELECT count(*) FROM gp_segment_configuration WHERE content >= 0 AND role = 'p'"
    plan = explain(trial, what_if={"segments": 1})
    found = [a["Detail"].split(" of ")[0] for a in plan["Alternatives"] if " segments of " in a["Detail"]]
    assert found == [f"{trial.value(segments)} segments"]


def test_fewer_evaluations_are_an_alternative(trial: Trial) -> None:
    plan = explain(trial, epochs=10, metrics_compute_frequency=1)
    assert {"evaluate at the end", "evaluate every 5 epochs"} <= {a["Detail"] for a in plan["Alternatives"]}
    times = [alternative["Total Time"] for alternative in plan["Alternatives"]]
    assert times == sorted(times)


def test_few_configs_are_said_to_wait(trial: Trial) -> None:
    trial.keep("first", "two", [1])
    plan = explain(trial, "first")
    assert plan["Waiting Share"] > 0.3
    assert any("too few" in line for line in plan["Advice"])


@pytest.mark.parametrize(
    ("method", "params", "configs"),
    [
        ("hyperband", "R=3, eta=3, skip_last=0", "5 configs"),
        ("asha", "num_configs=6, num_iterations=4, eta=2", "6 configs"),
        ("median", "num_configs=5, num_iterations=4", "5 configs"),
        ("pbt", "population=4, num_iterations=4, interval=2", "config"),
        ("tpe", "num_configs=4, num_iterations=2", "4 configs"),
        ("hyperopt", "num_configs=4, num_iterations=2, algorithm=rand", "4 configs"),
    ],
)
def test_a_search_is_played(trial: Trial, method: str, params: str, configs: str) -> None:
    text = trial.value(
        f"SELECT cerebro.explain_automl('packed', 'arch', ARRAY[1], {GRID}, %s, %s, 1, format => 'json')",
        method, params,
    )  # fmt: skip
    plan = json.loads(text)[0]["Plan"]
    assert configs in plan["Detail"]
    assert plan["Node Type"] == f"Search by {method}"
    assert plan["Total Time Low"] <= plan["Total Time"] <= plan["Total Time High"]


def test_hyperband_trains_what_its_plan_says(trial: Trial) -> None:
    arguments = f"'arch', ARRAY[1], {GRID}, 'hyperband', 'R=3, eta=3, skip_last=0', 1"
    text = trial.value(f"SELECT cerebro.explain_automl('packed', {arguments}, format => 'json')")
    trial.sql(
        f"SELECT cerebro.madlib_automl('packed', 'searched', 'arch', 'best', ARRAY[1], {GRID},"
        " 'hyperband', 'R=3, eta=3, skip_last=0', 1)"
    )
    visits = trial.value(
        "SELECT count(*) FROM cerebro.visits WHERE run_id = (SELECT run_id FROM searched_summary)"
    )
    assert json.loads(text)[0]["Plan"]["Visits"] == visits


def test_early_stopping_is_played_too(trial: Trial) -> None:
    plan = explain(trial, options={"patience": 1})
    assert plan["Node Type"] == "Fit with early stopping"
    assert plan["Visits"] <= 2 * 2 * EPOCHS


def test_a_run_has_what_was_expected_beside_what_it_took(trial: Trial, run: int) -> None:
    plan = json.loads(trial.value("SELECT cerebro.explain_run(%s, 'json')", run))[0]["Plan"]
    assert plan["Node Type"] == f"Run {run}, finished"
    assert plan["Actual Visits"] == plan["Visits"] == 2 * 2 * EPOCHS
    assert plan["Actual Total Time"] > 0
    trained = [node for node in plan["Plans"] if node["Node Type"] == "Train"]
    log = trial.value("SELECT sum(train_seconds) FROM cerebro.visits WHERE run_id = %s", run)
    assert sum(node["Actual Training Time"] for node in trained) == pytest.approx(log, rel=0.01)


def test_a_run_is_explained_where_its_tables_are_gone(trial: Trial, run: int) -> None:
    trial.sql("ALTER TABLE packed RENAME TO elsewhere")
    try:
        assert trial.sql("SELECT * FROM cerebro.explain_run(%s)", run)
    finally:
        trial.sql("ALTER TABLE elsewhere RENAME TO packed")


def test_a_table_that_has_the_name_of_the_runs_table_is_another(trial: Trial) -> None:
    trial.pack("held", "brief")
    run_id = trial.fit("brief", "brief_models", "two", 1)
    trial.sql("DROP TABLE brief, brief_summary")
    trial.pack("blobs", "brief")
    plan = json.loads(trial.value("SELECT cerebro.explain_run(%s, 'json')", run_id))[0]["Plan"]
    assert plan["Rows"].startswith("60 for training")


def test_a_run_is_its_owners_to_explain(run: int, role: MakeRole, connect: Connect) -> None:
    with pytest.raises(psycopg2.errors.InsufficientPrivilege, match=f"you have no run {run}"):
        execute(connect(user=role()), "SELECT * FROM cerebro.explain_run(%s)", run)


def test_rates_name_nobody(trial: Trial, run: int) -> None:
    """The table of measured rates has no column for an owner, a table or a result of a run."""
    query = "SELECT attname FROM pg_attribute WHERE attrelid = 'cerebro._rate'::regclass AND attnum > 0"
    columns = {name for (name,) in trial.sql(query)}
    assert columns.isdisjoint({"owner", "source_table", "model_table", "logs", "loss"})
