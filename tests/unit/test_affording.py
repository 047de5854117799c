"""Which configs are trained again in folds in a given time, and for how many epochs."""

from __future__ import annotations

import pytest

from cerebro_plpy.executor.ensembles.affording import PastTraining, choose, read_past, seconds_per_epoch

ADAM = "loss='mse',optimizer='Adam()',metrics=['accuracy']"


@pytest.mark.parametrize(
    ("seconds", "expected"),
    [
        (None, ([0, 1, 2], 40)),
        # In five folds, the first takes 5 x 20 x 0.1 s. If time is short, half of the epochs are enough.
        (4, ([], 0)),
        (5, ([0], 10)),
        (9, ([0], 18)),
        (10, ([0], 20)),
        # The second would have both train for 40 epochs: 5 x 40 x 0.5 s. The third is cheap.
        (20, ([0, 2], 20)),
        (111, ([0, 1, 2], 40)),
    ],
)
def test_configs_are_chosen_in_their_order_while_there_is_time(
    seconds: int | None, expected: tuple[list[int], int]
) -> None:
    known = [PastTraining(20, 0.1), PastTraining(40, 0.4), PastTraining(3, 0.05)]
    assert choose(known, 5.0, seconds) == expected


def test_a_run_that_tells_no_times_leaves_all() -> None:
    assert choose([PastTraining(9, 0.0)] * 2, 5.0, 1) == ([0, 1], 9)


def test_a_config_gets_some_more_epochs_than_its_best() -> None:
    losses = [0.5, 0.4, 0.3, 0.2, 0.35, 0.36, 0.37, 0.38]
    row = {"validation_loss": losses, "validation_metrics": None, "compile_params": ADAM}
    assert read_past(row, 2.0, by_loss=False) == PastTraining(5, 2.0)
    # The metric was at its best later, and was measured after every second epoch.
    best_later = [0.5, 0.6, 0.6, 0.7, 0.8, 0.7, 0.7, 0.7]
    row = {**row, "validation_metrics": best_later, "metrics_iters": list(range(2, 18, 2))}
    assert read_past(row, 2.0, by_loss=False) == PastTraining(13, 2.0)
    assert read_past(row, 2.0, by_loss=True) == PastTraining(10, 2.0)


def test_losses_that_are_infinite_are_not_the_best() -> None:
    row = {"validation_loss": ["Infinity", 0.5, "NaN", 0.2, None, 0.3], "compile_params": ADAM}
    assert read_past(row, 2.0, by_loss=True) == PastTraining(5, 2.0)


def test_a_config_whose_rate_comes_down_trains_until_it_is_down() -> None:
    losses = [0.9, 0.8, 0.7, 0.6, 0.5, 0.6, 0.6, 0.6, 0.6, 0.6]
    row = {"validation_loss": losses, "fit_params": "batch_size=8,anneal_at=[3, 9, 27]"}
    assert read_past(row, 2.0, by_loss=False) == PastTraining(9, 2.0)
    assert read_past({**row, "validation_loss": losses[::-1]}, 2.0, by_loss=False) == PastTraining(9, 2.0)
    assert read_past({**row, "validation_loss": losses[4::-1]}, 2.0, by_loss=False) == PastTraining(3, 2.0)
    late = {**row, "validation_loss": [0.9] * 11 + [0.5]}
    assert read_past(late, 2.0, by_loss=False) == PastTraining(12, 2.0)


@pytest.mark.parametrize("losses", [None, [None, None], []])
def test_what_was_never_measured_gets_its_epochs(losses: list[None] | None) -> None:
    past = read_past({"validation_loss": losses}, 1.0, by_loss=False)
    assert past.worthwhile == max(1, len(losses or [None]))


TAKEN = [(1, 0, 5.0), (1, 1, 0.3), (1, 0, 0.2), (1, 1, 0.3), (1, 0, 0.2), (2, 0, 1.9)]


def test_an_epoch_takes_what_it_takes_without_compiling() -> None:
    parts = {"read_seconds": 0.0, "write_seconds": 0.1}
    visits = [
        {"mst_key": key, "segment": segment, "pid": segment, "train_seconds": taken, **parts}
        for key, segment, taken in TAKEN
    ]
    evaluations = [{"mst_key": 1, "segment": 0, "dataset": "validation", "least": 0.1, "most": 4.0}]
    assert seconds_per_epoch(visits, evaluations) == pytest.approx({1: (0.3 + 0.4 + 0.1) / 2, 2: 1.0})
    assert seconds_per_epoch([], []) == {}
