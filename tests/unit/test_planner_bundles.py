"""Which configs of one program are visited as a bundle, and how a bundle that was lost is repeated."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from cerebro_plpy.logical.options import EXACT, FAST, OFF
from cerebro_plpy.planner.estimating.work import ConfigKind
from cerebro_plpy.planner.fusion import FusionFacts
from cerebro_plpy.planner.plan import Plan
from cerebro_plpy.planner.units import BUNDLE, EVALUATE, MERGE, VISIT, Alike, Config, Unit


def make_plan(
    configs: int, segments: int, epochs: int = 3, kinds: int = 1, form: str = EXACT, **more: int
) -> Plan:
    planned = {key: Config(key, "jax", key // segments % kinds, 1.0, epochs) for key in range(1, configs + 1)}
    for config in planned.values():
        config.alike = Alike(str(config.kind), form)
    plan = Plan(3, segments, epochs, 1, planned)
    plan.visits_limit = more.get("visits_limit")
    plan.take_up()
    return plan


class Player:
    """Carries out a plan in random order; some units are lost, and configs in `failing` fail in epoch 2."""

    def __init__(
        self, plan: Plan, seed: int, lost: float = 0.0, failing: frozenset[int] = frozenset()
    ) -> None:
        self.plan, self.random, self.lost, self.failing = plan, random.Random(seed), lost, failing
        self.running: list[Unit] = []
        self.ended: list[Unit] = []
        # Work in lost bundles, which must be repeated alone.
        self.owed: set[tuple[int, ...] | int] = set()

    def play(self) -> None:
        while not self.plan.done():
            for segment in range(self.plan.segments):
                if (unit := self.plan.next(segment)) is not None:
                    busy = {
                        key
                        for other in self.running
                        for key in other.keys
                        if other.kind not in (EVALUATE, MERGE)
                    }
                    assert unit.kind in (EVALUATE, MERGE) or not busy & set(unit.keys)
                    assert len(unit.keys) == 1 or not self.owed & self.things(unit)
                    self.running.append(unit)
            self.end(self.running.pop(self.random.randrange(len(self.running))))

    def end(self, unit: Unit) -> None:
        if self.random.random() < self.lost:
            self.owed |= self.things(unit) if len(unit.keys) > 1 else set()
            self.plan.again(unit)
            return
        self.owed -= self.things(unit)
        self.ended.append(unit)
        failed = {key: "it failed" for key in unit.keys if key in self.failing and unit.epoch > 1}
        if unit.kind == BUNDLE:
            self.plan.bundled(unit, self.random.random(), [0.5] * len(unit.members), failed)
        elif failed:
            self.plan.failed(unit, "it failed")
        elif unit.kind == VISIT:
            self.plan.visited(unit, self.random.random(), 0.5)
        elif unit.kind == EVALUATE:
            self.plan.evaluated_on(unit, 0.1)
        else:
            self.plan.merged(unit)

    @staticmethod
    def things(unit: Unit) -> set[tuple[int, ...] | int]:
        """Return the work in a unit: the configs that it trains, or the evaluations and merges in it."""
        if unit.kind in (VISIT, BUNDLE):
            return set(unit.keys)
        return {(key, unit.epoch, unit.segment, int(unit.kind == MERGE)) for key in unit.keys}

    def visits(self) -> Counter[tuple[int, int, int]]:
        made = [unit for unit in self.ended if unit.kind in (VISIT, BUNDLE)]
        return Counter((key, unit.epoch, unit.segment) for unit in made for key in unit.keys)


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("lost", [0.0, 0.2])
def test_each_config_visits_each_segment_once_an_epoch_and_what_is_lost_goes_by_itself(
    seed: int, lost: float
) -> None:
    plan = make_plan(13, 3, kinds=2)
    player = Player(plan, seed, lost)
    player.play()
    every = {(k, e, s) for k in range(1, 14) for e in (1, 2, 3) for s in range(3)}
    assert player.visits() == Counter(every)
    assert plan.evaluated == {(key, epoch) for key, epoch, _ in every}
    assert any(len(unit.members) > 1 for unit in player.ended if unit.kind == EVALUATE)


def test_one_that_fails_leaves_the_others_alone() -> None:
    player = Player(make_plan(12, 2), 1, failing=frozenset({4}))
    player.play()
    done = Counter(key for key, _, _ in player.visits())
    assert all(done[key] == 6 for key in done if key != 4)
    assert 4 not in {key for unit in player.ended if unit.epoch > 2 for key in unit.keys}


@pytest.mark.parametrize(
    ("configs", "segments", "kinds", "together"),
    [(8, 1, 1, 8), (8, 2, 1, 2), (16, 2, 1, 4), (16, 2, 2, 4), (4, 2, 1, 1), (64, 1, 1, 16)],
)
def test_segments_that_pass_configs_on_have_two_bundles_each(
    configs: int, segments: int, kinds: int, together: int
) -> None:
    unit = make_plan(configs, segments, kinds=kinds).next(0)
    assert unit is not None
    assert (len(unit.keys), unit.kind) == (together, BUNDLE if together > 1 else VISIT)


def measured_between(plan: Plan) -> tuple[list[Unit], Unit]:
    """Carry out evaluations and merges until a unit trains; return them and the unit that trains."""
    units: list[Unit] = []
    while (unit := plan.next(0)) is not None and unit.kind in (EVALUATE, MERGE):
        units.append(unit)
        plan.evaluated_on(unit, 0.1) if unit.kind == EVALUATE else plan.merged(unit)
    assert unit is not None
    return units, unit


def test_what_was_lost_goes_by_itself_once() -> None:
    plan = make_plan(8, 1)
    unit = plan.next(0)
    assert unit is not None
    plan.again(unit)
    singles = set()
    for _ in unit.members:
        _, single = measured_between(plan)
        assert single.kind == VISIT
        singles.add(single.mst_key)
        plan.visited(single, 1.0, 0.5)
    assert singles == set(unit.members)
    assert len(measured_between(plan)[1].members) == 8


def test_what_is_stopped_is_in_no_later_bundle() -> None:
    plan = make_plan(8, 1)
    first = plan.next(0)
    assert first is not None
    plan.stop(5, plan.begun_step(5))
    plan.bundled(first, 1.0, [0.5] * 8, {})
    units, unit = measured_between(plan)
    assert set(unit.members) == {1, 2, 3, 4, 6, 7, 8}
    assert {key for one in units for key in one.keys} == set(range(1, 9))


def test_a_budget_of_visits_is_kept() -> None:
    plan = make_plan(8, 1, visits_limit=5)
    unit = plan.next(0)
    assert unit is not None
    assert len(unit.members) == 5


def test_one_alone_in_the_batched_form_stays_in_it() -> None:
    unit = make_plan(1, 1, form=FAST).next(0)
    assert unit is not None
    assert (unit.kind, unit.members, unit.form) == (BUNDLE, (1,), FAST)


def kind(parameters: int = 500, backend: str = "jax", **work: float) -> ConfigKind:
    return ConfigKind(
        1, "a", "c", 16, 1, backend, {"layers": 2, "dense": 2.0 * parameters, **work}, parameters
    )


def facts(asked: str | None = None, **more: int) -> FusionFacts:
    known = {"rows": 500, "segments": 2, "epochs": 5, "threads": 1, "in_memory": True, **more}
    return FusionFacts(asked=asked, host="here", **known)


@pytest.mark.parametrize(
    ("found", "form"),
    [
        (facts().choose(kind(), 4), OFF),
        (facts().choose(kind(), 1), None),
        (facts(epochs=600).choose(kind(), 4), EXACT),
        (facts(rows=100_000).choose(kind(), 4), None),
        (facts().choose(kind(30_000), 4), None),
        (facts().choose(kind(), None), OFF),
        (facts(rows=100_000).choose(kind(), None), None),
        (facts().choose(kind(backend="tensorflow"), 4), OFF),
        (facts(epochs=60).choose(kind(backend="tensorflow"), 4), EXACT),
        (facts(EXACT).choose(kind(backend="tensorflow"), 4), EXACT),
        (facts(FAST).choose(kind(backend="tensorflow"), 4), EXACT),
        (facts().choose(kind(backend="torch"), 4), None),
        (facts(EXACT).choose(kind(backend="torch"), 4), None),
        (facts(OFF).choose(kind(), 4), None),
        (facts(EXACT).choose(kind(), 4), EXACT),
        (facts(FAST).choose(kind(), 1), FAST),
        (facts(FAST).choose(kind(5000), 4), EXACT),
        (facts(FAST).choose(kind(convolution=1.0), 4), EXACT),
        (facts(FAST, in_memory=False).choose(kind(), 4), EXACT),
    ],
)
def test_facts_decide_the_form(found: object, form: str | None) -> None:
    assert getattr(found, "form", "") == form
