"""madlib_keras_automl: the search methods, their result tables, and how searches are resumed and replayed."""

# ruff: noqa: E501
from __future__ import annotations

import json
import re
from typing import Any

import psycopg2
import pytest

import nets
from trial import Trial, blobs, cancelled, rows_of

pytestmark = pytest.mark.fresh_caller


def test_hyperband_schedule_is_madlibs(trial: Trial) -> None:
    trial.sql("SELECT cerebro.hyperband_schedule('schedule_table', 81)")
    assert trial.sql("SELECT s, i, n_i, r_i FROM schedule_table ORDER BY s DESC, i") == [
        (4, 0, 81, 1), (4, 1, 27, 3), (4, 2, 9, 9), (4, 3, 3, 27), (4, 4, 1, 81),
        (3, 0, 27, 3), (3, 1, 9, 9), (3, 2, 3, 27), (3, 3, 1, 81),
        (2, 0, 9, 9), (2, 1, 3, 27), (2, 2, 1, 81), (1, 0, 6, 27), (1, 1, 2, 81), (0, 0, 5, 81),
    ]  # fmt: skip
    with pytest.raises(psycopg2.errors.UniqueViolation):
        trial.sql("INSERT INTO schedule_table VALUES (4, 0, 1, 1)")
    with pytest.raises(psycopg2.errors.DuplicateTable):
        trial.sql("SELECT cerebro.hyperband_schedule('schedule_table', 81)")


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ("2", "hyperband_schedule: R should not be less than eta"),
        ("9, 1", "hyperband_schedule: eta must be greater than 1"),
        ("9, 3, 3", "hyperband_schedule: skip_last must be non-negative and less than 3"),
        ("NULL", "hyperband_schedule: r is NULL"),
    ],
)
def test_faults_of_a_schedule_leave_no_table(trial: Trial, arguments: str, text: str) -> None:
    with pytest.raises(psycopg2.Error, match=text):
        trial.sql(f"SELECT cerebro.hyperband_schedule('no_schedule', {arguments})")
    assert trial.value("SELECT to_regclass('no_schedule')") is None


GRID = """{'loss': ['categorical_crossentropy'], 'metrics': ['accuracy'],
    'optimizer_params_list': [
        {'optimizer': ['Adam'], 'lr': [0.001, 0.1, 'log']},
        {'optimizer': ['SGD'], 'lr': [0.001, 0.5, 'log'], 'momentum': [0.5, 0.95, 'linear']}]}"""
FIT = "{'batch_size': [8, 16, 32]}"
METHODS = {
    "hyperband": "R=3",
    "hyperopt": "num_configs=4, num_iterations=2",
    "asha": "num_configs=6, num_iterations=3",
    "median": "num_configs=6, num_iterations=3, min_iterations=1, min_configs=2",
    "pbt": "population=4, num_iterations=3, replaced=1",
    "tpe": "num_configs=6, num_iterations=3, min_iterations=1, min_configs=2",
}
MADLIB_INFO = (
    "mst_key model_id compile_params fit_params model_type model_size metrics_elapsed_time metrics_type loss_type"
    " training_metrics_final training_loss_final training_metrics training_loss validation_metrics_final"
    " validation_loss_final validation_metrics validation_loss metrics_iters"
).split()
MADLIB_SUMMARY = (
    "source_table validation_table model model_info dependent_varname independent_varname model_arch_table"
    " model_selection_table automl_method automl_params random_state object_table use_gpus"
    " metrics_compute_frequency name description start_training_time end_training_time madlib_version num_classes"
    " y_class_values dependent_vartype normalizing_const"
).split()


@pytest.fixture(scope="module")
def data(trial: Trial) -> Trial:
    """Packed rows for training and validation, and two architectures."""
    trial.table("source", "x real[], y integer", rows_of(*blobs(120)))
    trial.table("held", "x real[], y integer", rows_of(*blobs(60, seed=1)))
    trial.pack("source", "packed")
    trial.pack_validation("held", "packed_val", "packed")
    trial.model(nets.mlp())
    trial.model(nets.mlp(units=8))
    return trial


def search(trial: Trial, out: str, method: str | None = None, params: str | None = None, **more: Any) -> str:
    """Run a search into the table `out`, and return the server's notices."""
    options = {"threads": 1, **more.pop("options", {})}
    named = {"random_state": 5, "validation_table": "packed_val", **more}
    arguments = [named.pop("compile", GRID), named.pop("fit", FIT)]
    trial.notices()
    trial.call(
        "madlib_keras_automl", "packed", out, "arch", f"{out}_best", named.pop("models", [1, 2]),
        *arguments, method or "hyperband", params, options=options, **named,
    )  # fmt: skip
    return trial.notices()


def columns(trial: Trial, table: str) -> list[str]:
    rows = trial.sql(
        "SELECT attname FROM pg_attribute WHERE attrelid = %s::regclass AND attnum > 0 ORDER BY attnum", table
    )
    return [name for (name,) in rows]


def test_madlibs_tables_and_their_counts(data: Trial) -> None:
    said = search(data, "h", name="first", description="a search")
    assert columns(data, "h") == ["mst_key", "model_weights", "model_arch", "__dist_key__"]
    assert columns(data, "h_info") == [*MADLIB_INFO, "s", "i", "status", "reason", "backend"]
    assert columns(data, "h_summary") == [
        *MADLIB_SUMMARY, "run_id", "seed", "segments", "qualified_names", "feature_specification",
    ]  # fmt: skip
    assert columns(data, "h_best") == ["mst_key", "model_id", "compile_params", "fit_params"]
    assert [data.value(f"SELECT count(*) FROM h{name}") for name in ("", "_info", "_summary", "_best")] == [
        5, 5, 1, 1,
    ]  # fmt: skip
    assert data.sql("SELECT s, i, metrics_iters FROM h_info ORDER BY s DESC, i, mst_key") == [
        (1, 0, [2]), (1, 0, [2]), (1, 1, [2, 6]), (0, 0, [6]), (0, 0, [6]),
    ]  # fmt: skip
    row = data.read_row("SELECT * FROM h_summary")
    assert (row["automl_method"], row["automl_params"]) == ("hyperband", "R=6, eta=3, skip_last=0")
    assert (row["random_state"], row["name"], row["description"]) == ("5", "first", "a search")
    assert "training rows decide" not in said
    ranked = "ORDER BY validation_metrics_final DESC, validation_loss_final, mst_key LIMIT 1"
    best = data.sql(f"SELECT mst_key FROM h_info {ranked}")
    assert data.sql("SELECT mst_key FROM h_best") == best
    assert data.sql(
        "SELECT b.* FROM h_best AS b JOIN h_info USING (mst_key, model_id, compile_params, fit_params)"
    )
    assert (row["model_arch_table"], row["model_selection_table"]) == ("arch", "h_best")
    assert row["qualified_names"]["model_selection_table"] == "public.h_best"
    assert data.read_row("SELECT model_arch_table, qualified_names FROM h_best_summary") == {
        "model_arch_table": "arch",
        "qualified_names": {"model_arch_table": "public.arch"},
    }
    assert data.value("SELECT status FROM cerebro.runs ORDER BY run_id DESC LIMIT 1") == "finished"


def test_a_search_goes_on_into_prediction_and_a_fit(data: Trial) -> None:
    search(data, "on", "asha", METHODS["asha"])
    key = data.value("SELECT mst_key FROM on_best")
    data.sql("SELECT cerebro.madlib_evaluate('on', 'packed_val', 'on_measured', FALSE, %s)", key)
    loss = data.value("SELECT validation_loss_final FROM on_info WHERE mst_key = %s", key)
    assert data.value("SELECT loss FROM on_measured") == pytest.approx(loss)
    data.fit("packed", "on_fit", "on_best", 1)
    assert data.sql("SELECT mst_key FROM on_fit") == [(key,)]


@pytest.mark.slow
def test_without_validation_training_decides_and_is_said_once(data: Trial) -> None:
    said = search(data, "blind", "median", METHODS["median"], validation_table=None, random_state=None)
    assert said.count("no validation table was given: the training rows decide") == 1
    assert "the configs are drawn with random_state" in said
    best = data.sql(
        "SELECT mst_key FROM blind_info ORDER BY training_metrics_final DESC, training_loss_final LIMIT 1"
    )
    assert data.sql("SELECT mst_key FROM blind_best") == best


def test_a_random_state_that_was_not_given_is_null_in_the_summary_and_said_once(data: Trial) -> None:
    said = search(data, "drawn", "hyperband", "R=2, eta=2", random_state=None)
    state, seed = data.sql("SELECT random_state, seed FROM drawn_summary")[0]
    assert state is None
    assert said.count(f"the configs are drawn with random_state {seed}") == 1
    search(data, "repeated", "hyperband", "R=2, eta=2", random_state=seed)
    assert left(data, "repeated")[:2] == left(data, "drawn")[:2]
    assert data.value("SELECT random_state FROM repeated_summary") == str(seed)


@pytest.mark.parametrize("method", ["hyperband", pytest.param("pbt", marks=pytest.mark.slow)])
def test_the_same_random_state_gives_the_same_weights(data: Trial, method: str) -> None:
    for out in ("one", "two"):
        search(data, f"{out}_{method}", method, METHODS[method], random_state=0)
    rows = [
        data.sql(f"SELECT mst_key, model_id, compile_params, fit_params, status, reason, metrics_iters, training_loss"
                 f" FROM {out}_{method}_info ORDER BY mst_key")
        for out in ("one", "two")
    ]  # fmt: skip
    assert rows[0] == rows[1]
    assert data.weights(f"one_{method}") == data.weights(f"two_{method}")


@pytest.mark.doors("psycopg2", "search")
@pytest.mark.parametrize("method", METHODS)
def test_every_method_leaves_its_tables_and_its_reasons(data: Trial, method: str) -> None:
    search(data, f"m_{method}", method.upper(), METHODS[method], metrics_compute_frequency=1)
    info = f"m_{method}_info"
    assert data.value(f"SELECT count(*) FROM m_{method}_best") == 1
    assert data.value(f"SELECT count(*) FROM {info} WHERE status NOT IN ('finished', 'stopped')") == 0
    assert data.value(f"SELECT count(*) FROM {info} WHERE (status = 'stopped') <> (reason IS NOT NULL)") == 0
    epochs = data.sql(f"SELECT metrics_iters FROM {info} WHERE mst_key <= 4")
    assert all(found == list(range(1, len(found) + 1)) for (found,) in epochs)
    run = data.value(f"SELECT run_id FROM m_{method}_summary")
    assert data.value("SELECT count(*) FROM cerebro._decision WHERE run_id = %s AND reason IS NULL"
                      " AND decision <> 'measured'", run) == 0  # fmt: skip


def test_a_clone_begins_with_its_sources_state(data: Trial) -> None:
    search(data, "p", "pbt", METHODS["pbt"])
    run = data.value("SELECT run_id FROM p_summary")
    clones = data.sql(
        "SELECT mst_key, source_key, source_step FROM cerebro._config WHERE run_id = %s AND source_key IS NOT NULL",
        run,
    )
    assert len(clones) == 2
    for key, source, step in clones:
        assert source < key and step in (2, 4)
        assert (
            data.value("SELECT min(step) FROM cerebro._visit WHERE run_id = %s AND mst_key = %s", run, key)
            == step + 1
        )


def test_a_space_in_json(data: Trial) -> None:
    space = {
        "loss": "categorical_crossentropy",
        "metrics": "accuracy",
        "optimizer_params_list": [
            {"optimizer": "SGD", "lr": {"by_model": {"1": {"float": [0.1, 0.2]}, "2": {"float": [0.3, 0.4]}}}}
        ],
    }
    fitted = json.dumps({"batch_size": {"int": [8, 16], "step": 4}})
    search(data, "j", "hyperopt", METHODS["hyperopt"], compile=json.dumps(space), fit=fitted)
    for model_id, compiled, fit in data.sql("SELECT model_id, compile_params, fit_params FROM j_info"):
        rate = float(re.findall(r"lr=([0-9.]+)", compiled)[0])
        assert (0.1 <= rate <= 0.2) if model_id == 1 else (0.3 <= rate <= 0.4)
        assert fit in ("batch_size=8", "batch_size=12", "batch_size=16")


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"method": "hb"}, "The chosen automl method must be 'hyperband' or 'hyperopt'"),
        ({"method": "ashaa"}, "or one of 'asha', 'median', 'pbt', 'tpe'; it is 'ashaa'(.|\n)*Did you mean \"asha\""),
        ({"params": "R=2"}, "R should not be less than eta"),
        ({"params": "R=9, eta=1"}, "eta must be greater than 1"),
        ({"params": "R=9, skip_last=3"}, "skip_last must be non-negative and less than 3"),
        ({"params": "R=9, etta=3"}, "Invalid param\\(s\\) passed in for hyperband. Only R, eta, and skip_last may be"),
        ({"params": "R=nine"}, "R in 'automl_params' is nine"),
        ({"method": "hyperopt", "params": "rate=3"}, "Only num_configs, num_iterations, and algorithm may be"),
        ({"method": "hyperopt", "params": "num_configs=0"}, "num_configs and num_iterations in 'automl_params' must be > 0"),
        ({"method": "hyperopt", "params": "algorithm=atpe"}, "valid algorithm 'automl_params' for hyperopt: 'rand', 'tpe'"),
        ({"method": "hyperopt", "metrics_compute_frequency": 6}, "'metrics_compute_frequency' out of iteration range"),
        ({"method": "asha", "params": "eta=1"}, "eta in 'automl_params' is 1"),
        ({"method": "asha", "params": "min_iterations=20"}, "min_iterations in 'automl_params' is 20, more than num_iterations = 9"),
        ({"method": "pbt", "params": "replaced=5"}, "replaced in 'automl_params' is 5"),
        ({"models": [1, 77]}, "One or more model_id of \\(77\\) not found"),
        ({"models": [None]}, "model_id_list is NULL or empty"),
        ({"compile": None}, "compile_params_grid is NULL"),
        ({"object_table": "objects"}, "object table 'objects' does not exist"),
        ({"validation_table": "packed_vall"}, "packed_vall"),
        ({"compile": "{'loss': ['mse'"}, "Invalid syntax in 'compile_params_dict'"),
        ({"fit": '{"batch_size": {"int": [8, 4]}}'}, r"\$.fit_params.batch_size.int is \[8, 4\]: the upper bound must be above"),
        ({"compile": '{"loss": ["mse", "categorical_crossentropy"], "metrics": "sparse_categorical_accuracy"}'}, "sparse_categorical_accuracy"),
    ],
)  # fmt: skip
def test_faults_of_a_search_come_before_any_work(data: Trial, arguments: dict[str, Any], text: str) -> None:
    runs = data.value("SELECT count(*) FROM cerebro.runs")
    with pytest.raises(psycopg2.Error, match=text):
        search(data, "faulty", **arguments)
    assert data.value("SELECT to_regclass('faulty')") is None
    assert data.value("SELECT count(*) FROM cerebro.runs") == runs


def test_names_that_are_taken(data: Trial) -> None:
    data.sql("CREATE TABLE taken_info (i integer)")
    data.sql("CREATE TABLE free_best_summary (i integer)")
    for out in ("taken", "free"):
        with pytest.raises(psycopg2.errors.DuplicateTable):
            search(data, out)


@pytest.mark.parametrize("best", ["twice", "twice_info", "twice_summary"])
def test_a_search_cannot_make_a_table_twice(data: Trial, best: str) -> None:
    runs = data.value("SELECT count(*) FROM cerebro.runs")
    with pytest.raises(psycopg2.errors.DuplicateTable, match="would both make public.twice"):
        data.call("madlib_keras_automl", "packed", "twice", "arch", best, [1], GRID, FIT)
    assert data.value("SELECT count(*) FROM cerebro.runs") == runs


def left(trial: Trial, out: str) -> tuple[Any, ...]:
    """Return the contents of a search's result tables, except for times."""
    info = trial.sql(
        "SELECT mst_key, model_id, compile_params, fit_params, status, reason, metrics_iters, training_loss,"
        f" validation_loss FROM {out}_info ORDER BY mst_key"
    )
    return info, trial.weights(out), trial.sql(f"SELECT * FROM {out}_best")


@pytest.mark.parametrize("method", ["asha", "tpe"])
def test_a_replayed_search_has_the_same_bits(data: Trial, method: str) -> None:
    first, again = f"first_{method}", f"again_{method}"
    search(data, first, method, METHODS[method], random_state=None)
    run = data.value(f"SELECT run_id FROM {first}_summary")
    said = search(data, again, method, METHODS[method], random_state=None, options={"replay": run})
    assert left(data, again) == left(data, first)
    drawn, state = data.sql(f"SELECT seed, random_state FROM {first}_summary")[0]
    assert data.sql(f"SELECT seed, random_state FROM {again}_summary") == [(drawn, None)] == [(drawn, state)]
    assert "drawn with random_state" not in said
    plan = data.value(
        "SELECT cerebro.explain_automl('packed', 'arch', ARRAY[1, 2], %s, %s, %s, %s,"
        " validation_table => 'packed_val', options => %s, format => 'json')",
        GRID, FIT, method, METHODS[method], json.dumps({"threads": 1, "replay": run}),
    )  # fmt: skip
    assert json.loads(plan)[0]["Plan"]["Visits"] > 0
    search(data, f"as_{again}", method, METHODS[method], random_state=drawn, options={"replay": run})
    assert left(data, f"as_{again}")[:2] == left(data, first)[:2]
    assert data.value(f"SELECT random_state FROM as_{again}_summary") == str(drawn)
    with pytest.raises(psycopg2.Error, match="cannot be replayed by this call"):
        search(data, "other", method, METHODS[method], random_state=99, options={"replay": run})


@pytest.mark.slow
def test_a_search_that_was_interrupted_goes_on_to_the_same_bits(data: Trial) -> None:
    search(data, "undisturbed", "hyperband", "R=9", options={"seed": 3})
    with cancelled(data, 20):
        search(data, "broken", "hyperband", "R=9", options={"seed": 3})
    assert data.value("SELECT to_regclass('broken_best')") is None
    run = data.value("SELECT max(run_id) FROM cerebro.runs")
    assert 20 <= data.value("SELECT count(*) FROM cerebro._visit WHERE run_id = %s", run) < 126
    data.sql("SELECT cerebro.resume(%s)", run)
    assert left(data, "broken") == left(data, "undisturbed")
    assert data.value("SELECT count(*) FROM cerebro._visit WHERE run_id = %s", run) == 126


@pytest.mark.slow
def test_an_interrupted_asha_run_goes_on_and_can_be_replayed(data: Trial) -> None:
    with cancelled(data, 10):
        search(data, "halved", "asha", "num_configs=12, num_iterations=9")
    run = data.value("SELECT max(run_id) FROM cerebro.runs")
    data.sql("SELECT cerebro.resume(%s)", run)
    search(data, "whole", "asha", "num_configs=12, num_iterations=9", options={"replay": run})
    assert left(data, "halved") == left(data, "whole")


@pytest.mark.slow
def test_a_search_in_the_background(data: Trial) -> None:
    # JAX compiles each shape of a batch anew: one is enough.
    one: dict[str, Any] = {"models": [1], "fit": "{'batch_size': [20]}"}
    jax = {"backend": "jax"}
    search(data, "seen", "hyperband", "R=3", options=jax, **one)
    said = search(data, "unseen", "hyperband", "R=3", options={**jax, "background": True}, **one)
    run = data.value("SELECT cerebro.last_run()")
    assert f"run {run} goes on in the background" in said
    assert data.value("SELECT cerebro.wait(%s, '200 s')", run) == "finished"
    assert left(data, "unseen") == left(data, "seen")
    assert data.sql("SELECT DISTINCT backend FROM unseen_info") == [("jax",)]


def test_budgets_of_a_search(data: Trial) -> None:
    search(data, "visits", "asha", "num_configs=12, num_iterations=9", options={"max_visits": 20})
    run = data.value("SELECT run_id FROM visits_summary")
    assert data.value("SELECT count(*) FROM cerebro._visit WHERE run_id = %s", run) == 20
    assert data.value("SELECT count(*) FROM visits_best") == 1
    search(data, "few", "asha", "num_configs=12, num_iterations=3", options={"max_configs": 5})
    assert data.value("SELECT count(*) FROM few_info") == 5
    with pytest.raises(psycopg2.Error, match="the search has 15 configs, and max_configs is 5"):
        search(data, "many", "hyperband", "R=9", options={"max_configs": 5})
    with pytest.raises(psycopg2.Error, match="unknown option patience"):
        search(data, "patient", options={"patience": 1})


def test_restore_best_keeps_the_best_epoch(data: Trial) -> None:
    search(data, "kept", "hyperopt", METHODS["hyperopt"] + ", algorithm=rand", options={"restore_best": True})
    assert data.value("SELECT count(*) FROM kept_info WHERE metrics_iters = '{1,2}'") == 4
    for key, losses in data.sql("SELECT mst_key, validation_loss FROM kept_info"):
        data.sql("DROP TABLE IF EXISTS kept_measured")
        data.sql("SELECT cerebro.madlib_evaluate('kept', 'packed_val', 'kept_measured', FALSE, %s)", key)
        assert data.value("SELECT loss FROM kept_measured") == pytest.approx(min(losses))


def test_hyperopt_is_the_same_again_on_several_segments(data: Trial) -> None:
    params = "num_configs=7, num_iterations=2, algorithm=tpe"
    for out in ("guided", "guided_again"):
        search(data, out, "hyperopt", params)
    configs = [
        data.sql(f"SELECT mst_key, model_id, compile_params, fit_params FROM {out}_info ORDER BY 1")
        for out in ("guided", "guided_again")
    ]
    assert configs[0] == configs[1]
    assert data.weights("guided") == data.weights("guided_again")
