"""Advice that is given on the losses of a run, and cases in which none is given."""

from __future__ import annotations

import math

import pytest

from cerebro_plpy.logical.advice import ConfigCurves, LossCurve, advise


def curve(*losses: float) -> LossCurve:
    return LossCurve(range(1, len(losses) + 1), losses)


def config(key: int, training: LossCurve | None, validation: LossCurve | None = None) -> ConfigCurves:
    return ConfigCurves(key, training, validation)


GOOD = curve(0.9, 0.5, 0.41, 0.405, 0.404)

CASES = {
    "all is well": (GOOD, curve(0.9, 0.6, 0.5, 0.495, 0.5), None, None),
    "no number": (curve(2.0, math.nan, math.nan), None, "the loss diverges", 2),
    "it grows": (curve(1.0, 0.8, 5.0, 90.0), None, "the loss diverges", 3),
    "by heart": (
        curve(1.0, 0.5, 0.2, 0.1),
        curve(1.0, 0.6, 0.7, 0.9),
        "it learns the training rows by heart",
        2,
    ),
    "still falls": (curve(1.0, 0.8, 0.6, 0.5), None, "the loss still falls at the end", 4),
    "still falls elsewhere": (GOOD, curve(1.0, 0.8, 0.6, 0.5, 0.4), "the loss still falls at the end", 5),
    "too short": (curve(1.0, 0.5), None, None, None),
}


@pytest.mark.parametrize(("training", "validation", "finding", "epoch"), CASES.values(), ids=CASES)
def test_a_curve_tells(
    training: LossCurve, validation: LossCurve | None, finding: str | None, epoch: int | None
) -> None:
    found = advise([config(4, training, validation)], keeps_best=False)
    assert [(one.mst_key, one.finding, one.epoch) for one in found] == (
        [] if finding is None else [(4, finding, epoch)]
    )


def test_rows_learned_by_heart_do_no_harm_where_the_best_epoch_is_kept() -> None:
    training, validation, _, _ = CASES["by heart"]
    assert advise([config(4, training, validation)], keeps_best=True) == []


def test_a_config_that_failed_since_its_loss_was_no_number_diverges() -> None:
    failure = "the loss became nan on segment 1 in epoch 3"
    configs = [ConfigCurves(2, None, None, failure), ConfigCurves(3, None, None, "no memory")]
    found = advise(configs, keeps_best=True)
    assert [(one.mst_key, one.finding, one.epoch) for one in found] == [(2, "the loss diverges", 3)]


def test_a_config_that_was_stopped_early_is_not_said_to_need_longer() -> None:
    found = advise([config(1, curve(1.0, 0.8, 0.6)), config(2, GOOD), config(3, None)], keeps_best=True)
    assert found == []


def test_configs_that_are_all_alike_are_told_together() -> None:
    alike = [config(key, curve(0.9, 0.5, 0.41, 0.405 + key / 1e4)) for key in (1, 2, 3)]
    assert [one.finding for one in advise(alike, keeps_best=True)] == ["all configs are alike"]
    assert advise(alike[:2], keeps_best=True) == []
