"""What scripts for MADlib say, and read, beside the names of its functions."""

from __future__ import annotations

import pytest

import nets
from trial import ADAM, Trial, blobs, rows_of

FEATURES = 6
BOARD = "batch_size=16,epochs=1,callbacks=[TensorBoard(log_dir='/tmp/logs/fit')]"


@pytest.fixture(scope="module", autouse=True)
def tables(trial: Trial) -> None:
    x, y = blobs(90, features=FEATURES)
    trial.table("rows", "x real[], y integer", rows_of(x[:60], y[:60]))
    trial.table("other_rows", "x real[], y integer", rows_of(x[60:], y[60:]))
    trial.pack("rows", "packed")
    trial.pack_validation("other_rows", "packed_val", "packed")
    trial.model(nets.mlp(FEATURES))


def test_callbacks_are_left_out_and_one_notice_says_what_replaces_them(trial: Trial) -> None:
    trial.select("mst_board", [1], [ADAM], [BOARD, f"{BOARD},initial_epoch=2,shuffle=False", "batch_size=8"])
    assert trial.value("SELECT count(*) FROM mst_board WHERE fit_params LIKE '%%TensorBoard%%'") == 2
    trial.notices()
    trial.fit("packed", "with_board", "mst_board", 1)
    said = trial.notices()
    assert said.count("left out") == 2
    assert said.count("NOTICE:  of the fit parameters callback TensorBoard left out: cerebro.metrics") == 1
    trial.select("mst_plain", [1], [ADAM], ["batch_size=16,epochs=1"])
    trial.fit("packed", "without_board", "mst_plain", 1)
    assert "left out" not in trial.notices()
    plain = trial.weights("without_board")[1]
    assert plain in trial.weights("with_board").values()


def test_callbacks_in_a_grid_and_in_a_search(trial: Trial) -> None:
    grid = """{'batch_size': [16], 'callbacks': ["[TensorBoard(log_dir='/tmp/logs')]"]}"""
    compiles = (
        "{'loss': ['categorical_crossentropy'], 'metrics': ['accuracy'],"
        " 'optimizer_params_list': [{'optimizer': ['Adam'], 'lr': [0.01, 0.1]}]}"
    )
    trial.call("generate_model_configs", "arch", "mst_grid", [1], compiles, grid)
    trial.notices()
    trial.fit("packed", "by_grid", "mst_grid", 1)
    assert trial.notices().count("callback TensorBoard left out") == 1
    trial.call(
        "madlib_keras_automl", "packed", "searched", "arch", "mst_searched", [1], compiles, grid,
        "hyperopt", "num_configs=2, num_iterations=1, algorithm=rand", 1, options={"threads": 1},
    )  # fmt: skip
    assert trial.notices().count("callback TensorBoard left out") == 1


def test_no_fit_parameters_are_keras_own(trial: Trial) -> None:
    options = {"threads": 1, "seed": 7}
    trial.call("madlib_keras_fit", "packed", "one", "arch", 1, ADAM, None, 1, options=options)
    trial.call(
        "madlib_keras_fit", "packed", "same", "arch", 1, ADAM, "batch_size=32,epochs=1", 1, options=options
    )
    one, same = (bytes(trial.value(f"SELECT model_weights FROM {name}")) for name in ("one", "same"))
    assert one == same
