"""Estimates of the time and work of a run, which simulate its plan, and how they are explained."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from cerebro_plpy.logical.search.procedures.early_stopping import EarlyStopping
from cerebro_plpy.logical.search.procedures.hyperband import Hyperband, schedule
from cerebro_plpy.madlib.spaces.grid import GridRow
from cerebro_plpy.planner import tree
from cerebro_plpy.planner.choosing import break_even
from cerebro_plpy.planner.cuts import TrunkChoice
from cerebro_plpy.planner.estimating import calibration
from cerebro_plpy.planner.estimating.estimates import Estimate, estimate
from cerebro_plpy.planner.estimating.rates import MEASURED, SCALED, Rates
from cerebro_plpy.planner.estimating.searching import scenarios
from cerebro_plpy.planner.estimating.simulation import TRAIN, WRITE, Prices
from cerebro_plpy.planner.estimating.work import ConfigKind, RunWork
from cerebro_plpy.planner.explanation import Alternative, Explained, Machine
from cerebro_plpy.planner.explanation import tree as explained
from cerebro_plpy.planner.units import AVERAGE, Unit
from measured_kinds import GRID, kind, observed

RATES = Rates([observed(k) for k in GRID], "localhost", 1)
MACHINE = Machine(2**34, 2**36)


def work(kinds: dict[int, ConfigKind], segments: int = 2, epochs: int = 5, **more: object) -> RunWork:
    given = RunWork(
        kinds=kinds,
        rows=[1000] * segments,
        validation_rows=[200] * segments,
        row_bytes=256.0,
        epochs=epochs,
        frequency=epochs,
        seed=3,
        threads=1,
        sessions=segments,
        memory_mb=1024,
        hosts=["localhost"],
        warm=True,
    )
    return replace(given, **more)  # pyright: ignore[reportArgumentType]


def many(count: int) -> dict[int, ConfigKind]:
    return {key: GRID[key % len(GRID)] for key in range(1, count + 1)}


def test_it_counts_what_a_run_does() -> None:
    found = estimate(work(many(6), frequency=2), RATES)
    assert found.played.visits == 6 * 2 * 5
    # After epochs 2, 4 and the last.
    assert found.played.evaluations == 6 * 3


def test_only_rows_that_are_measured_take_time() -> None:
    lean = {"training_metrics": False}
    counts = [work(many(1), **more).evaluation_batches(0) for more in ({}, lean)]
    folded = work(many(1), validation_rows=[0, 0], **lean)
    # Rows are measured in batches of 256.
    assert counts == [4 + 1, 1] and folded.evaluation_batches(0) == 4


@pytest.mark.parametrize("configs", [1, 2, 3, 6, 17])
def test_no_order_beats_the_bound(configs: int) -> None:
    found = estimate(work(many(configs)), RATES)
    assert found.bound <= found.seconds + 1e-9
    assert found.low <= found.seconds <= found.high


def test_one_config_keeps_one_session_busy() -> None:
    found = estimate(work(many(1)), RATES)
    assert found.waiting == pytest.approx(0.5, abs=0.1)


def test_many_configs_keep_all_busy() -> None:
    assert estimate(work(many(24), epochs=10), RATES).waiting < 0.1


@pytest.mark.parametrize(
    ("unit_seconds", "segments", "bound"),
    [([1.0] * 16, 8, 1.05), ([1.0] * 8, 8, 1.09), ([1.0] * 38 + [12.0] * 10, 8, 1.05)],
)
def test_the_makespan_stays_near_its_lower_bound(
    unit_seconds: list[float], segments: int, bound: float
) -> None:
    kinds = {key: kind(key) for key in range(1, len(unit_seconds) + 1)}
    measured = [
        replace(observed(kinds[key]), batch_seconds=seconds, rest_seconds=0.0, write_seconds=0.0)
        for key, seconds in enumerate(unit_seconds, 1)
    ]
    plan = work(kinds, segments, 10, compiled=frozenset(k.code for k in kinds.values()))
    found = estimate(plan, Rates(measured, "localhost", 1), most_visits=100_000)
    assert found.seconds <= bound * found.bound


@pytest.mark.parametrize("configs", [6, 3000])
def test_a_plan_can_be_cancelled_while_it_is_made(configs: int) -> None:
    calls = 0

    def cancelled() -> None:
        nonlocal calls
        calls += 1
        if calls == 5:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        estimate(work(many(configs)), replace(RATES, tick=cancelled))


def test_each_host_has_a_speed_of_its_own() -> None:
    """Segment 1 of two is on a host that is three times as slow, so training takes twice the time in sum."""
    slow = [replace(observed(k), host="slow", batch_seconds=3 * observed(k).batch_seconds) for k in GRID]
    rates = Rates([*RATES.observations, *slow], "localhost", 1)
    there, here = work(many(1), hosts=["localhost", "slow"]), work(many(1))
    trained = [estimate(each, rates).played.of_activity(TRAIN) for each in (there, here)]
    assert trained[0] == pytest.approx(2 * trained[1])


@pytest.mark.parametrize("most_visits", [10_000, 10])
def test_a_host_that_was_never_measured_is_taken_to_be_like_the_others(most_visits: int) -> None:
    known, new = (
        estimate(work(many(3), hosts=[host]), replace(RATES, host=host), most_visits)
        for host in ("localhost", "new")
    )
    assert new.seconds == known.seconds
    assert (new.sources, known.sources) == ({SCALED}, {MEASURED})


def test_a_long_run_is_played_in_part_and_comes_to_the_same() -> None:
    plan = work(many(8), epochs=40, frequency=10)
    whole, part = estimate(plan, RATES, most_visits=10_000), estimate(plan, RATES, most_visits=100)
    assert part.played.visits == whole.played.visits
    assert part.played.evaluations == whole.played.evaluations
    assert part.seconds == pytest.approx(whole.seconds, rel=0.1)


def test_a_run_that_is_measured_at_its_end_has_no_leaderboard_before() -> None:
    found = estimate(work(many(6), epochs=500), RATES)
    assert found.first_leaderboard is not None
    assert 0.7 * found.seconds < found.first_leaderboard <= found.seconds


def test_very_many_segments_are_counted() -> None:
    """An epoch on 1,024 segments is too long to simulate; its estimate is within 10% of the lower bound."""
    found = estimate(work(many(2000), 1024, rows=[50] * 1024, validation_rows=[0] * 1024), RATES)
    assert found.played.visits == 2000 * 1024 * 5
    assert found.bound <= found.seconds <= 1.1 * found.bound


def test_averaging_has_a_bound_of_its_own() -> None:
    found = estimate(work(many(1), 4, average_from=1), RATES)
    assert found.bound <= found.seconds


def test_averaging_reads_the_states_of_all_segments_and_writes_one() -> None:
    plan = work(many(1), 4, average_from=1)
    prices = Prices(plan, RATES)
    merged = prices.price_unit(Unit(AVERAGE, 1, 1, 0), plan.kinds[1], 0)
    assert merged[WRITE] == 5 * prices.seconds(plan.kinds[1], 0)[WRITE] > 0


def test_so_are_very_many_configs() -> None:
    plan = work(many(120), epochs=2)
    whole = estimate(plan, RATES)
    assert whole.played.visits == 120 * 2 * 2
    assert whole.played.seconds == pytest.approx(whole.played.busy / 2, rel=0.15)


def test_a_warm_session_does_not_start_and_does_not_compile_again() -> None:
    cold = estimate(work(many(4), warm=False), RATES)
    warm = estimate(work(many(4)), RATES)
    again = estimate(work(many(4), compiled=frozenset(k.code for k in GRID)), RATES)
    assert cold.seconds > warm.seconds > again.seconds


def test_rows_beyond_the_budget_are_read_in_each_visit() -> None:
    within = estimate(work(many(4)), RATES)
    beyond = estimate(work(many(4), row_bytes=2.0**20, memory_mb=16), RATES)
    assert not within.work.streams
    assert beyond.work.streams
    assert beyond.played.of_activity("read") > 10 * within.played.of_activity("read")


def test_hyperband_is_played_exactly() -> None:
    rungs = schedule("test", 9, 3, 0)
    configs = [GridRow(1, "", "") for _ in range(sum(r.n_i for r in rungs if r.i == 0))]
    courses = scenarios(
        lambda: Hyperband(rungs, configs), work({}), lambda: Prices(work({}), RATES), lambda new: GRID[0]
    )
    visits = {played.visits for _, played in courses}
    epochs = sum(
        rung.n_i * (rung.r_i - max([r.r_i for r in rungs if r.s == rung.s and r.i < rung.i], default=0))
        for rung in rungs
    )
    assert visits == {2 * epochs}


def test_early_stopping_trains_at_most_to_the_end() -> None:
    plan = work(many(4), frequency=1)
    courses = scenarios(
        lambda: EarlyStopping([1, 2, 3, 4], 5, 1, patience=1), plan, lambda: Prices(plan, RATES),
        lambda new: GRID[0],
    )  # fmt: skip
    assert all(0 < played.visits <= 4 * 2 * 5 for _, played in courses)


def said(found: Estimate, **more: object) -> Explained:
    given = Explained("Fit", found, {"backend": "jax"}, MACHINE, 48)
    return replace(given, **more)  # pyright: ignore[reportArgumentType]


def test_the_tree_is_json_as_the_servers() -> None:
    plan = json.loads(tree.as_json(explained(said(estimate(work(many(6)), RATES)))))[0]["Plan"]
    assert plan["Node Type"] == "Fit"
    assert [n["Node Type"] for n in plan["Plans"]][-3:] == ["Evaluate", "Begin and End", "Wait"]
    trained = [n for n in plan["Plans"] if n["Node Type"] == "Train"]
    assert sorted(key for n in trained for key in n["Configs"]) == [1, 2, 3, 4, 5, 6]


def test_the_parts_are_the_whole() -> None:
    found = estimate(work(many(6), warm=False), RATES)
    plan = explained(said(found))
    parts = sum(
        node["Work Time"] for node in plan["Plans"] if node["Node Type"] not in ("Start", "Begin and End")
    )
    assert parts == pytest.approx(found.played.seconds * 2, rel=1e-6)


def test_advice_names_what_is_cheaper_and_what_does_not_fit() -> None:
    found, quick = estimate(work(many(2)), RATES), estimate(work(many(1)), RATES)
    plan = explained(
        said(
            found,
            alternatives=[Alternative("backend tensorflow", quick, True)],
            machine=Machine(2**20, 0),
        )
    )
    assert any(line.startswith("backend tensorflow: -") and "other bits" in line for line in plan["Advice"])
    assert any("more memory" in line for line in plan["Advice"])
    assert any("disk" in line for line in plan["Advice"])


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.0012, "1.2 ms"), (0.5, "0.5 s"), (42.0, "42 s"), (150.0, "2.5 min"), (9000.0, "2.5 h")],
)
def test_seconds_are_read_at_a_glance(value: float, text: str) -> None:
    assert tree.seconds(value) == text


def test_bytes_have_units() -> None:
    assert [tree.size(n) for n in (12, 2048, 5 * 2**20, 3 * 2**30)] == ["12 bytes", "2 kB", "5 MB", "3 GB"]


def visit(key: int, began: float, train: float, pid: int = 1, read: float = 0.001) -> calibration.VisitTime:
    return calibration.VisitTime(key, 0, 320, 1000, read, train, 0.002, pid, began)


def test_the_first_visit_of_a_session_tells_of_compiling() -> None:
    kinds = {1: kind(32)}
    log = [visit(1, 0.0, 1.1, read=0.3), *(visit(1, 2.0 + 0.11 * n, 0.1) for n in range(8))]
    (found,) = calibration.calibrate(kinds, log, [], {"training": [320]}, 256.0)
    assert found.batch_seconds == pytest.approx(0.01)
    assert found.compile_seconds == pytest.approx(1.3, rel=0.01)
    assert found.rest_seconds == pytest.approx(0.007, rel=0.01)
    assert found.visits == 9


def test_a_session_that_had_compiled_it_tells_nothing_of_compiling() -> None:
    log = [visit(1, 0.2 * n, 0.1) for n in range(6)]
    (found,) = calibration.calibrate({1: kind(32)}, log, [], {"training": [320]}, 256.0)
    assert found.compile_seconds is None


def test_one_visit_tells_nothing() -> None:
    log = [visit(1, 0.0, 1.1)]
    assert calibration.calibrate({1: kind(32)}, log, [], {"training": [320]}, 256.0) == []


def test_an_engine_pays_after_as_many_epochs_as_its_code_costs_more() -> None:
    """JAX compiles 6 s longer in each of two sessions and saves 2 s per epoch: it pays after 6 epochs."""
    own = kind(64, backend="tensorflow")
    other = replace(own, backend="jax")
    plan = work({1: own}, epochs=20)
    batches = sum(plan.visit_batches(own, segment) for segment in range(plan.segments))
    seen = [
        replace(observed(own), batch_seconds=3 / batches, compile_seconds=1.0),
        replace(observed(other), batch_seconds=1 / batches, compile_seconds=7.0),
    ]
    rates = Rates(seen, "localhost", 1)
    assert break_even(plan, 1, "jax", rates) == pytest.approx(6)
    assert break_even(replace(plan, kinds={1: other}), 1, "tensorflow", rates) is None


def test_the_features_of_each_net_count_by_themselves() -> None:
    """Two nets of the same layers may have other weights: only a run that reads them finds them equal."""
    trunk = TrunkChoice(["low"], ["low"], {"dense": 100.0}, 40)
    one = replace(kind(64), trunk=trunk)
    other = replace(one, model_id=2)
    alone, twice, apart = (
        work(kinds).feature_bytes(0) for kinds in ({1: one}, {1: one, 2: one}, {1: one, 2: other})
    )
    assert alone == twice == apart / 2 == 1200 * 40


def test_without_a_gpu_the_device_of_a_net_in_shards_is_the_session() -> None:
    shards = replace(kind(64), shards=3, device_bytes=7_000_000)
    here, there = (work({1: shards}, use_gpus=use) for use in (False, True))
    assert here.step_bytes(shards) == 7_000_000 and there.step_bytes(shards) == 0
