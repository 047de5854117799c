"""Routes, the order of visits and estimated costs of a plan, tested without a server."""

from __future__ import annotations

import pytest

from cerebro_plpy.planner import routes, schedule
from cerebro_plpy.planner.estimating import costs


@pytest.mark.parametrize("segments", [1, 2, 3, 8])
def test_every_route_visits_every_segment_once(segments: int) -> None:
    for epoch in range(1, 6):
        for key in range(12):
            assert sorted(routes.route(7, epoch, key, segments)) == list(range(segments))


def test_a_route_depends_on_seed_epoch_and_key_alone() -> None:
    assert routes.route(7, 3, 5, 8) == routes.route(7, 3, 5, 8)
    assert len({tuple(routes.route(7, epoch, 5, 8)) for epoch in range(1, 30)}) > 20
    assert len({tuple(routes.route(seed, 3, 5, 8)) for seed in range(30)}) > 20


def test_configs_start_spread_over_the_segments() -> None:
    starts = [routes.route(1, 1, key, 4)[0] for key in range(1, 9)]
    assert sorted(starts) == [0, 0, 1, 1, 2, 2, 3, 3]


def test_steps_count_every_visit_from_one() -> None:
    steps = [routes.step_of(epoch, stop, 3) for epoch in (1, 2) for stop in range(3)]
    assert steps == [1, 2, 3, 4, 5, 6]
    assert [routes.place_of(step, 3) for step in steps] == [(e, s) for e in (1, 2) for s in range(3)]


def test_the_config_with_most_left_goes_first() -> None:
    waiting = [schedule.Waiting(1, 5.0), schedule.Waiting(2, 9.0), schedule.Waiting(3, 9.0)]
    assert schedule.choose(waiting) == 2
    assert schedule.choose([]) is None


def test_measured_visits_correct_the_estimate() -> None:
    model = costs.CostModel()
    assert model.seconds("small", 2.0) == pytest.approx(2.0)
    model.record("small", 2.0, 1.0)
    assert model.seconds("small", 4.0) == pytest.approx(2.0)
    model.record("small", 2.0, 3.0)
    assert model.seconds("small", 2.0) > 1.5
    assert model.seconds("unseen", 2.0) > 0


def test_what_a_first_visit_takes_to_compile_is_no_measure() -> None:
    model = costs.CostModel()
    model.record("small", 1.0, 8.0, first=True)
    assert not model.known
    assert model.seconds("small", 2.0) == pytest.approx(16.0)
    model.record("small", 1.0, 0.5)
    model.record("large", 1.0, 9.0, first=True)
    assert model.seconds("small", 2.0) == model.seconds("large", 2.0) == pytest.approx(1.0)
    for _ in range(costs.FEWEST - 1):
        assert not model.known
        model.record("small", 1.0, 0.5)
    assert model.known
