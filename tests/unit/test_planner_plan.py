"""A plan lets every config visit every segment once in every epoch, whatever the timing and failures."""

from __future__ import annotations

import itertools
import random
from collections import Counter

import pytest

from cerebro_plpy.planner.plan import Plan
from cerebro_plpy.planner.routes import part_of, route, step_before
from cerebro_plpy.planner.units import AVERAGE, EVALUATE, MERGE, PART, VISIT, Config, PartDone, Unit

SEEDS = range(25)


def make_plan(configs: int, segments: int, epochs: int, frequency: int | None = None) -> Plan:
    planned = {key: Config(key, "tensorflow", key % 2, float(key), epochs) for key in range(1, configs + 1)}
    plan = Plan(3, segments, epochs, epochs if frequency is None else frequency, planned)
    plan.take_up()
    return plan


class Player:
    """Carries out a plan whose units end in random order, are lost at random, or fail in epoch 2."""

    def __init__(
        self, plan: Plan, seed: int, lost: float = 0.0, failing: frozenset[int] = frozenset()
    ) -> None:
        self.plan = plan
        self.random = random.Random(seed)
        self.lost = lost
        self.failing = failing
        self.running: list[Unit] = []
        self.ended: list[Unit] = []

    def play(self, most: int = 100_000) -> None:
        for _ in range(most):
            if self.plan.done():
                return
            self.step()
        raise AssertionError("the plan never ends")

    def step(self) -> None:
        self.fill()
        assert self.running, "the plan is not done, and nothing is under way"
        self.end(self.running.pop(self.random.randrange(len(self.running))))

    def fill(self) -> None:
        for segment in range(self.plan.segments):
            # A segment that is free may be given something a moment later.
            unit = self.plan.next(segment) if self.random.random() < 0.8 or not self.running else None
            if unit is not None:
                self.check_alone(unit)
                self.running.append(unit)

    def check_alone(self, unit: Unit) -> None:
        assert unit.segment not in {other.segment for other in self.running}
        if unit.kind == VISIT:
            assert unit.mst_key not in {u.mst_key for u in self.running if u.kind == VISIT}

    def end(self, unit: Unit) -> None:
        if self.random.random() < self.lost:
            self.plan.again(unit)
            return
        if unit.mst_key in self.failing and unit.epoch > 1:
            self.plan.failed(unit, "it failed")
            return
        self.ended.append(unit)
        if unit.kind == PART:
            self.plan.parted(unit, 1.0, PartDone(unit.segment, 0.5))
        elif unit.kind == AVERAGE:
            self.plan.averaged(unit, 0.5)
        elif unit.kind == VISIT:
            self.plan.visited(unit, self.random.random(), 0.5)
        elif unit.kind == EVALUATE:
            self.plan.evaluated_on(unit, 0.1)
        else:
            self.plan.merged(unit)

    def visits(self) -> Counter[tuple[int, int, int]]:
        return Counter((u.mst_key, u.epoch, u.segment) for u in self.ended if u.kind == VISIT)


def product(configs: range, epochs: int, segments: int) -> Counter[tuple[int, int, int]]:
    return Counter(itertools.product(configs, range(1, epochs + 1), range(segments)))


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize(("configs", "segments", "epochs"), [(5, 3, 2), (2, 4, 3), (1, 1, 1), (7, 2, 2)])
def test_every_config_visits_every_segment_once(seed: int, configs: int, segments: int, epochs: int) -> None:
    player = Player(make_plan(configs, segments, epochs), seed)
    player.play()
    assert player.visits() == product(range(1, configs + 1), epochs, segments)


@pytest.mark.parametrize("seed", SEEDS)
def test_lost_units_are_done_again_and_none_twice(seed: int) -> None:
    player = Player(make_plan(4, 3, 2), seed, lost=0.3)
    player.play()
    assert player.visits() == product(range(1, 5), 2, 3)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_config_that_fails_does_not_hold_up_the_others(seed: int) -> None:
    player = Player(make_plan(4, 3, 3, 1), seed, lost=0.1, failing=frozenset({2, 3}))
    player.play()
    kept = Counter({k: n for k, n in player.visits().items() if k[0] in (1, 4)})
    everything = product(range(1, 5), 3, 3)
    assert kept == Counter({k: n for k, n in everything.items() if k[0] in (1, 4)})
    assert {k for k, c in player.plan.configs.items() if c.failure} == {2, 3}
    assert all(u.mst_key in (1, 4) for u in player.ended if u.epoch > 1)


@pytest.mark.parametrize("seed", SEEDS)
def test_an_epoch_is_done_when_all_that_it_is_measured_by_is_there(seed: int) -> None:
    plan = make_plan(4, 3, 3, 1)
    player = Player(plan, seed, failing=frozenset({2}))
    while not plan.done():
        player.fill()
        player.end(player.running.pop(player.random.randrange(len(player.running))))
        done = plan.epoch_done_by_all()
        assert {(key, epoch) for key in (1, 3, 4) for epoch in range(1, done + 1)} <= plan.evaluated
    assert plan.epoch_done_by_all() == 3


@pytest.mark.parametrize("seed", SEEDS)
def test_steps_follow_the_route(seed: int) -> None:
    """The visits of a config follow its route: they are in the order of epochs and stops."""
    player = Player(make_plan(5, 4, 2), seed, lost=0.2)
    player.play()
    for key in player.plan.configs:
        mine = [(u.epoch, u.stop) for u in player.ended if u.mst_key == key and u.kind == VISIT]
        assert mine == list(itertools.product((1, 2), range(4)))


@pytest.mark.parametrize("seed", SEEDS)
def test_every_evaluation_is_made_on_every_segment_and_merged_once(seed: int) -> None:
    player = Player(make_plan(3, 3, 4, 2), seed, lost=0.2)
    player.play()
    measured = Counter((u.mst_key, u.epoch, u.segment) for u in player.ended if u.kind == EVALUATE)
    merged = [(u.mst_key, u.epoch) for u in player.ended if u.kind == MERGE]
    assert measured == Counter(itertools.product((1, 2, 3), (2, 4), range(3)))
    assert sorted(merged) == list(itertools.product((1, 2, 3), (2, 4)))


@pytest.mark.parametrize("seed", SEEDS)
def test_a_state_is_kept_until_it_is_evaluated(seed: int) -> None:
    plan = make_plan(3, 2, 3, 1)
    player = Player(plan, seed)
    while not plan.done():
        player.fill()
        for unit in player.running:
            needed = plan.needed_steps([unit.mst_key])[unit.mst_key]
            used = unit.epoch * plan.segments if unit.kind == EVALUATE else plan.configs[unit.mst_key].step
            assert unit.kind == MERGE or used in needed
        player.end(player.running.pop(0))


def test_a_run_that_only_measures_evaluates_the_first_state() -> None:
    player = Player(make_plan(2, 3, 0), 1)
    player.play()
    assert player.visits() == Counter()
    assert sum(u.kind == EVALUATE for u in player.ended) == 6
    assert sum(u.kind == MERGE for u in player.ended) == 2


def test_the_longest_remaining_time_goes_first() -> None:
    plan = make_plan(4, 1, 1)
    order = []
    while not plan.done():
        unit = plan.next(0)
        assert unit is not None
        if unit.kind == VISIT:
            order.append(unit.mst_key)
            plan.visited(unit, float(unit.mst_key), 0.1)
        elif unit.kind == EVALUATE:
            plan.evaluated_on(unit, 0.1)
        else:
            plan.merged(unit)
    assert order == [4, 3, 2, 1]


def test_time_is_left_while_the_last_evaluations_run() -> None:
    plan = make_plan(1, 1, 6, 4)
    seconds = []
    while not plan.done():
        unit = plan.next(0)
        assert unit is not None
        if unit.kind == VISIT:
            plan.visited(unit, 3.0, 0.1)
        elif unit.kind == EVALUATE:
            plan.evaluated_on(unit, 2.0)
        else:
            plan.merged(unit)
        seconds.append((unit.kind, unit.epoch, plan.seconds_left()))
    # The first visit compiles, so the time left is unknown until four others have ended.
    assert seconds[:5] == [*((VISIT, epoch, None) for epoch in (1, 2, 3, 4)), (EVALUATE, 4, None)]
    # Measuring takes a third of a visit, as long as it was not seen often.
    assert seconds[6:] == [(VISIT, 5, 4.0), (VISIT, 6, 1.0), (EVALUATE, 6, 0.0), (MERGE, 6, 0.0)]


def test_no_config_begins_that_would_end_too_late() -> None:
    """With little time left, no config begins to train, but a config in its first epoch goes on."""
    plan = make_plan(configs=3, segments=2, epochs=2)
    for config in plan.configs.values():
        config.kind, config.visit_units = "alike", 1.0
        plan.costs.record("alike", 1.0, 4.0, first=False)
        plan.evaluation_costs.record("alike", 1.0, 1.0, first=False)
    plan.configs[1].step = 1

    def waiting() -> set[int]:
        return {config.mst_key for segment in range(2) for config in plan._waiting(segment)}

    assert waiting() == {1, 2, 3}
    plan.time_left = 9.5
    assert waiting() == {1, 2, 3}
    plan.time_left = 8.5
    assert waiting() == {1} and not plan.rests()
    plan.configs[1].step = 2
    assert waiting() == {1}
    plan.time_left = 2.5
    assert waiting() == set() and plan.rests()
    plan.configs[1].step = 4
    assert plan.rests() and not plan.done()


def test_totals_leave_out_configs_that_failed() -> None:
    plan = make_plan(2, 2, 2)
    unit = plan.next(0)
    assert unit is not None
    assert (plan.visits_total, plan.visits_done) == (8, 0)
    plan.failed(unit, "it failed")
    assert (plan.visits_total, plan.visits_done) == (4, 0)


def test_a_visit_that_commits_after_its_config_failed_changes_nothing() -> None:
    """The config's evaluation fails on one segment while its next visit is under way on another."""
    plan = make_plan(1, 2, 2, 1)
    first, second = (route(3, epoch, 1, 2)[0] for epoch in (1, 2))
    for segment in (first, 1 - first):
        plan.visited(expect(plan, segment, VISIT), 0.1, 0.1)
    evaluation = expect(plan, 1 - second, EVALUATE)
    # The only config also has the most time still to go, so its visit goes before the evaluation.
    visit = expect(plan, second, VISIT)
    plan.failed(evaluation, "it failed")
    assert not plan.done()
    plan.visited(visit, 0.1, 0.1)
    assert plan.done()
    assert [plan.next(segment) for segment in (0, 1)] == [None, None]


def test_a_config_that_will_be_the_last_one_goes_before_evaluations() -> None:
    plan = make_plan(2, 2, 4, 1)
    plan.configs[1].visit_units, plan.configs[2].visit_units = 100.0, 1.0
    plan.configs[1].visiting = True
    for segment in route(3, 1, 2, 2):
        plan.visited(expect(plan, segment, VISIT), 1.0, 0.1)
    plan.configs[1].visiting = False
    # Config 1 stands at one of the segments, where an evaluation of config 2 waits.
    stands = route(3, 1, 1, 2)[0]
    assert expect(plan, stands, VISIT).mst_key == 1


@pytest.mark.parametrize("seed", SEEDS)
def test_side_by_side_no_config_is_an_epoch_ahead(seed: int) -> None:
    plan = make_plan(5, 3, 4, 1)
    plan.even = True
    player = Player(plan, seed, lost=0.1)
    while not plan.done():
        player.step()
        epochs = [plan.whole_epochs(c) for c in plan.configs.values()]
        assert max(epochs) - min(epochs) <= 1


def test_side_by_side_configs_are_ranked_at_an_epoch_that_all_have_reached() -> None:
    plan = make_plan(2, 2, 4, 1)
    assert plan.even_epoch() is None
    plan.even = True
    assert plan.even_epoch() == 0
    plan.evaluated |= {(1, 1), (1, 2), (2, 1)}
    assert plan.even_epoch() == 1


def test_equal_configs_let_evaluations_pass() -> None:
    plan = make_plan(2, 2, 4, 1)
    plan.configs[1].visit_units = plan.configs[2].visit_units = 1.0
    for _ in range(2):
        for unit in [expect(plan, segment, VISIT) for segment in (0, 1)]:
            plan.visited(unit, 1.0, 0.1)
    assert expect(plan, 0, EVALUATE).epoch == 1


def expect(plan: Plan, segment: int, kind: str) -> Unit:
    """Return the next unit of a plan for a segment, and assert that its kind is `kind`."""
    unit = plan.next(segment)
    assert unit is not None
    assert unit.kind == kind
    return unit


@pytest.mark.parametrize("lost", [0.0, 0.3])
@pytest.mark.parametrize("seed", SEEDS)
def test_averaged_epochs_have_every_segment_once_and_then_one_averaging(seed: int, lost: float) -> None:
    plan = make_plan(2, 3, 6, 2)
    plan.average_from = 4
    player = Player(plan, seed, lost)
    player.play()
    own = [unit for unit in player.ended if unit.kind in (VISIT, PART, AVERAGE)]
    for key in (1, 2):
        kinds = [(u.kind, u.epoch) for u in own if u.mst_key == key]
        hopping = [(VISIT, epoch) for epoch in (1, 2, 3) for _ in range(3)]
        averaging = [(kind, epoch) for epoch in (4, 5, 6) for kind in (PART, PART, PART, AVERAGE)]
        assert kinds == hopping + averaging
        parts = Counter((u.epoch, u.segment) for u in own if u.kind == PART and u.mst_key == key)
        assert set(parts.values()) == {1} and len(parts) == 9
    assert plan.visits_done == plan.visits_total == 36
    assert plan.evaluated == {(key, epoch) for key in (1, 2) for epoch in (2, 4, 6)}


def test_a_config_that_fails_while_it_is_averaged_does_not_hold_up_the_others() -> None:
    plan = make_plan(2, 3, 4, 1)
    plan.average_from = 1
    player = Player(plan, 1, failing=frozenset({1}))
    player.play()
    assert plan.configs[2].step == 12
    assert plan.configs[1].failure == "it failed"


def test_the_states_of_an_averaged_epoch_stay_until_they_are_averaged() -> None:
    plan = make_plan(1, 2, 3)
    plan.average_from = 2
    for stop in range(2):
        unit = next(u for s in range(2) if (u := plan.next(s)) is not None)
        assert (unit.kind, unit.stop) == (VISIT, stop)
        plan.visited(unit, 1.0, 0.5)
    first, second = (plan.next(segment) for segment in range(2))
    assert first is not None and second is not None and {first.kind, second.kind} == {PART}
    plan.parted(second, 1.0, PartDone(5, 0.5))
    # What is dropped are states up to the newest of these: those below zero go on from there.
    assert max(plan.needed_steps([1])[1]) == 2 < -part_of(2, second.segment, 2)
    plan.stop(1, plan.begun_step(1))
    plan.parted(first, 1.0, PartDone(5, 0.5))
    unit = next(u for s in range(2) if (u := plan.next(s)) is not None)
    assert unit.kind == AVERAGE
    plan.averaged(unit, 0.5)
    assert plan.configs[1].step == 4 and plan.needed_steps([1])[1] == [2, 4]
    assert not plan.trains(1)


def test_a_state_is_made_again_from_the_one_that_its_visits_began_with() -> None:
    assert [step_before(step, 3, None) for step in (1, 3, 4, 6)] == [0, 2, 3, 5]
    assert [step_before(step, 3, 2) for step in (1, 3, 6, 9)] == [0, 2, 3, 6]


@pytest.mark.parametrize("limit", [1, 2, 3, 4, 5])
def test_a_budget_of_visits_ends_after_whole_averaged_epochs(limit: int) -> None:
    plan = make_plan(1, 3, 9)
    plan.average_from, plan.visits_limit = 1, limit
    player = Player(plan, 1)
    while plan.visits_begun < limit:
        player.step()
    plan.stop(1, plan.begun_step(1))
    player.play()
    assert plan.configs[1].step == 3 * -(-limit // 3)
