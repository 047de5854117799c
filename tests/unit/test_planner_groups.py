"""Bundles of groups: budgets, stops, later members and lost bundles; and estimates of runs on groups."""

from __future__ import annotations

from dataclasses import replace

from cerebro_plpy.engine.backends import stacks
from cerebro_plpy.planner.estimating import constants
from cerebro_plpy.planner.estimating.estimates import estimate
from cerebro_plpy.planner.estimating.rates import Rates
from cerebro_plpy.planner.estimating.work import ConfigKind, GroupSizes, RunWork
from cerebro_plpy.planner.plan import Plan
from cerebro_plpy.planner.units import BUNDLE, Config, Unit


def config(number: int, key: int, epochs_before: int = 0) -> Config:
    return Config(
        number,
        "jax",
        "kind",
        0.001,
        4,
        epochs_before=epochs_before,
        config_key=key,
        group=f"{number}",
        home=0,
    )


def plan(*configs: Config, **more: object) -> Plan:
    found = {one.mst_key: one for one in configs}
    return Plan(seed=1, segments=2, epochs=4, frequency=4, configs=found, **more)  # type: ignore[arg-type]


def done(of: Plan, unit: Unit | None) -> Unit:
    assert unit is not None
    of.bundled(unit, 0.01, [0.5] * len(unit.members), {})
    return unit


def test_bundles_take_turns_where_there_is_a_budget() -> None:
    of = plan(config(1, 1), config(2, 1), config(3, 2), config(4, 2), budgeted=True)
    seen = [done(of, of.next(0)) for _ in range(4)]
    assert [(unit.members, unit.until) for unit in seen] == [
        ((1, 2), 1), ((3, 4), 1), ((1, 2), 2), ((3, 4), 2),
    ]  # fmt: skip


def test_a_budget_of_visits_is_not_exceeded_by_more_than_the_epoch_of_a_group() -> None:
    of = plan(config(1, 1), config(2, 1), config(3, 1), budgeted=True, visits_limit=9)
    assert [done(of, of.next(0)).members for _ in range(2)] == [(1, 2, 3), (1, 2)]
    assert of.visits_begun == 10
    assert of.next(0) is None


def test_what_is_stopped_is_measured_by_the_bundle() -> None:
    of = plan(config(1, 1), config(2, 1), checkpoint=1)
    done(of, of.next(0))
    for key in (1, 2):
        of.stop(key, of.begun_step(key))
        of.settle(key)
    assert not of.done()
    unit = of.next(0)
    assert unit is not None
    assert (unit.kind, unit.members, unit.epoch, unit.until, unit.measured) == (BUNDLE, (1, 2), 2, 1, (1,))
    of.bundled(unit, 0.01, [None, None], {})
    assert of.done() and of.configs[1].step == 2 and of.configs[1].loss == 0.5
    assert of.evaluated == {(1, 1), (2, 1)}


def test_those_that_begin_later_join_the_bundle_of_their_config() -> None:
    of = plan(config(1, 1))
    of.add(config(2, 1))
    of.add(config(3, 2))
    of.add(config(4, 1, epochs_before=3))
    assert [done(of, of.next(0)).members for _ in range(3)] == [(1, 2), (3,), (4,)]
    assert of.done()


def test_those_of_a_bundle_that_was_lost_go_in_halves_once() -> None:
    of = plan(*(config(number, 1) for number in range(1, 9)), checkpoint=1)
    seen = []
    for lost in (True, True, False, False, False, False):
        unit = of.next(0)
        assert unit is not None
        seen.append(unit.members)
        if lost:
            of.again(unit)
        else:
            done(of, unit)
    eight = tuple(range(1, 9))
    assert seen == [eight, eight[:4], eight[:2], eight[2:4], eight[4:], eight]


KIND = ConfigKind(1, "a", "c", 10, 1, "jax", {}, 100, 400, 0, 400)


def work(groups: GroupSizes, **more: object) -> RunWork:
    found = RunWork(
        kinds={1: KIND, 2: KIND},
        rows=[sum(own) for own in groups.at_home],
        validation_rows=[0, 0],
        row_bytes=40.0,
        epochs=5,
        frequency=5,
        seed=1,
        threads=1,
        sessions=2,
        memory_mb=100,
        hosts=["here"],
        groups=groups,
    )
    return replace(found, **more)  # type: ignore[arg-type]


def estimate_seconds(groups: GroupSizes, **more: object) -> float:
    return estimate(work(groups, **more), Rates((), "here", 1)).seconds


def test_a_plan_of_groups_counts_models() -> None:
    found = estimate(work(GroupSizes([[100] * 3000, [100] * 2000])), Rates((), "here", 1))
    assert found.played.visits == 2 * 5000 * 2 * 5
    assert found.played.evaluations == 10000
    assert found.states_kept == 10000 * 400
    assert found.longest is None
    # Segments with more rows take longer: the other one waits.
    assert 0.1 < found.waiting < 0.5


def test_groups_that_hop_leave_a_state_at_each_stop() -> None:
    """Two configs on two groups that hop write a state on each of two segments in each of five epochs."""
    homes = GroupSizes([[100] * 30, [100] * 20])
    plain, hopping = (
        estimate(work(groups), Rates((), "here", 1)).played.states_written or 0
        for groups in (homes, replace(homes, cut=[9000, 9000]))
    )
    assert hopping - plain == 2 * 2 * 2 * 5


def test_a_plan_of_groups_follows_the_facts() -> None:
    base = GroupSizes([[100] * 5000, [100] * 5000])
    assert estimate_seconds(base) < estimate_seconds(replace(base, fuse=False))
    assert estimate_seconds(base) < estimate_seconds(replace(base, checkpoint=1))
    assert estimate_seconds(base) < estimate_seconds(base, epochs=50)
    assert estimate_seconds(base) < estimate_seconds(replace(base, cut=[9000]))
    assert estimate_seconds(base) < estimate_seconds(replace(base, fallback=True))


def test_the_planner_knows_what_the_engine_trains_as_one_program() -> None:
    assert constants.LARGEST_FUSED == stacks.LARGEST_STATE
