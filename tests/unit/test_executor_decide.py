"""Decisions during a run have their effect, and a resumed run repeats the decisions in its log."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

import pytest

from cerebro_plpy.commands import (
    Command,
    ConfigCommand,
    Decide,
    DropStates,
    Evaluate,
    Merge,
    TellEpochs,
    Visit,
)
from cerebro_plpy.errors import CerebroError
from cerebro_plpy.executor.running import decide
from cerebro_plpy.executor.running import loop as loops
from cerebro_plpy.executor.running.decide import Decider, Search
from cerebro_plpy.executor.running.loop import RunLoop
from cerebro_plpy.executor.starting.request import Engines
from cerebro_plpy.logical.budget import Limits
from cerebro_plpy.logical.search.procedures.asha import Asha
from cerebro_plpy.logical.search.template import Clone, Decision, GoOn, Procedure, Result, StartConfig, Stop
from cerebro_plpy.madlib.spaces.grid import GridRow
from cerebro_plpy.planner.plan import Plan
from cerebro_plpy.planner.routes import route, step_of
from cerebro_plpy.planner.units import Config
from cerebro_plpy.store.runs.decisions import Asked, Entry
from cerebro_plpy.store.runs.runs import ConfigRow
from cerebro_plpy.topology import Answer

SEGMENTS = 3
COMPILE = "loss='mse',optimizer='sgd()',metrics=['accuracy']"
FIT = "batch_size=8,epochs=1"
ENGINES = Engines("jax", 1, False, 64, 10**6)
SEEDS = range(20)
ROWS = [GridRow(1, COMPILE, FIT)] * 4


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let runs look for requests and drop states at every turn, not at intervals."""
    monkeypatch.setattr(decide, "LOOK_SECONDS", 0.0)
    monkeypatch.setattr(loops, "DROP_SECONDS", 0.0)


class Killed(Exception):
    """Raised by a World when the driving session of its run is killed."""


def row(mst_key: int, **more: Any) -> ConfigRow:
    return ConfigRow(mst_key, 1, COMPILE, FIT, "jax", **more)


def planned(of: ConfigRow, until: int) -> Config:
    source = of.source_key if of.source_step is not None else None
    return Config(
        of.mst_key, "jax", 0, 1.0, until, of.epochs_before, source, of.source_step or 0
    )  # fmt: skip


class World:
    """A fake database and topology, in which a run can be killed and resumed."""

    name = "played"

    def __init__(self, seed: int, keys: Sequence[int], epochs: int, **more: Any) -> None:
        self.random = random.Random(seed)
        self.epochs = epochs
        self.first = list(keys)
        self.more = more
        self.rows = {key: row(key) for key in keys}
        self.log: list[Entry] = []
        self.requests: list[Asked] = []
        self.visits: list[tuple[int, int, int]] = []
        self.metrics: dict[tuple[int, int], dict[str, float | None]] = {}
        self.states: set[tuple[int, int]] = set()
        self.read: list[tuple[int, int]] = []
        self.told: list[tuple[int, int]] = []
        self.kill_after = 10**9
        self.at: dict[int, Asked] = {}

    # What the decider needs of a database and of a topology.

    def as_owner(self, work: Any, *arguments: Any, **named: Any) -> Any:
        return work(*arguments, **named)

    def notice(self, message: str) -> None: ...

    def query(self, sql: str, types: Any = (), values: Any = ()) -> list[Mapping[str, Any]]:
        answered = {entry.request_id for entry in self.log}
        return [vars(asked) for asked in self.requests if asked.request_id not in answered]

    def command(self, command: Command) -> Mapping[str, Any]:
        assert isinstance(command, Decide)
        self.log += command.entries
        self.rows |= {config.mst_key: config for config in command.configs}
        return {}

    def free(self, segment: int) -> bool:
        return segment not in self.running

    def submit(self, backend: str, command: ConfigCommand) -> None:
        self.running[command.segment] = command

    def answers(self) -> list[Answer]:
        if not self.running:
            return []
        segment = self.random.choice(sorted(self.running))
        command = self.running.pop(segment)
        if len(self.visits) >= self.kill_after:
            self.kill_after = 10**9
            raise Killed
        return [Answer(segment, self.work(command), None)]

    def work(self, command: ConfigCommand) -> Mapping[str, Any]:
        key, epoch = command.mst_key, command.epoch
        if isinstance(command, Visit):
            self.visit(key, epoch, command.stop, command.segment)
        elif isinstance(command, Evaluate):
            assert (key, epoch * SEGMENTS) in self.states
        elif isinstance(command, Merge):
            values = {"loss": 1.0, "accuracy": self.accuracy(key, epoch)}
            self.metrics[key, epoch] = {**values}
            return {"training": values, "seconds": 0.0}
        return {"seconds": 1.0, "loss": 0.5, "state_bytes": 1}

    def visit(self, key: int, epoch: int, stop: int, segment: int) -> None:
        config = self.rows[key]
        step = step_of(epoch, stop, SEGMENTS)
        assert route(5, config.epochs_before + epoch, key, SEGMENTS)[stop] == segment
        origin = config
        while origin.source_key is not None and origin.source_step == step - 1:
            origin = self.rows[origin.source_key]
        assert step == 1 or (origin.mst_key, step - 1) in self.states
        self.states.add((key, step))
        self.visits.append((key, epoch, segment))
        asked = self.at.get(len(self.visits))
        if asked is not None:
            self.requests.append(asked)

    def background(self, command: Command) -> None:
        if isinstance(command, TellEpochs):
            # All visits of an epoch are committed before its end is announced.
            assert all(
                [v[:2] for v in self.visits].count((key, epoch)) >= SEGMENTS for key, epoch in command.ended
            )
            self.told += command.ended
            return
        assert isinstance(command, DropStates)
        for key, keep in command.keep:
            self.states -= {(k, s) for k, s in self.states if k == key and s < max(keep) and s not in keep}

    def finish_background(self) -> None: ...

    def accuracy(self, key: int, epoch: int) -> float:
        """Return a random accuracy that is always the same for a config and epoch."""
        return random.Random(f"{key} {epoch}").random()

    # The run.

    def run(self, procedure: Procedure | None = None, **more: Any) -> Plan:
        """Start a run, or resume it from the rows, visits and decisions that an earlier call left."""
        self.running: dict[int, ConfigCommand] = {}
        until = self.epochs if procedure is None else 0
        plan = Plan(5, SEGMENTS, self.epochs, 1, {k: planned(r, until) for k, r in self.rows.items()})
        plan.evaluated = set(self.metrics)
        for config in plan.configs.values():
            mine = [step_of(e, 0, SEGMENTS) for k, e, _ in self.visits if k == config.mst_key]
            config.step = config.first_step + len(mine)
        search = None if procedure is None else Search(procedure, False, self.more.get("order", ()))
        db: Any = self
        limits = Limits(**self.more.get("limits", {}))
        ends_at = self.more.get("ends_at")
        rows = list(self.rows.values())
        decider = Decider(db, db, 9, ENGINES, plan, planned, rows, search, limits, ends_at=ends_at)
        decider.take_up(self.log, self.metrics)
        plan.take_up()
        loop = RunLoop(9, plan, db, decider.take, decider.turn, lambda: None, 3)
        loop.run()
        decider.finish()
        self.reasons = decider.reasons
        return plan

    def results(self, plan: Plan) -> dict[int, int | None]:
        return {key: plan.result_step(config) for key, config in plan.configs.items() if not config.deleted}

    def decided(self) -> list[tuple[str, int | None]]:
        return [(entry.decision, entry.mst_key) for entry in self.log if entry.decision != "measured"]


class Halving:
    """A procedure that starts four configs, stops the worse half after each epoch, and clones the winner.

    It waits for the results of all configs before it decides.
    """

    def __init__(self) -> None:
        self.seen: dict[int, dict[int, float]] = {1: {}, 2: {}, 3: {}}
        self.left = [1, 2, 3, 4]

    def begin(self) -> list[Decision]:
        return [StartConfig(key, 1, COMPILE, FIT, 1, "it begins") for key in self.left]

    def observe(self, result: Result) -> list[Decision]:
        if result.mst_key > 4:
            return []
        seen = self.seen[result.epoch]
        seen[result.mst_key] = 9.0 if result.value is None else result.value
        if len(seen) < len(self.left):
            return []
        ranked = sorted(self.left, key=lambda key: (seen[key], key))
        better, worse = ranked[: len(ranked) // 2], ranked[len(ranked) // 2 :]
        self.left = better
        if not better:
            return [Clone(5, worse[0], 1, COMPILE, FIT, 4, "once more")]
        goes = [GoOn(key, result.epoch + 1, "among the better") for key in better]
        return [*goes, *(Stop(key, "among the worse") for key in worse)]


@pytest.mark.parametrize("seed", SEEDS)
def test_a_procedure_decides_who_trains(seed: int) -> None:
    world = World(seed, [], 4)
    plan = world.run(Halving())
    epochs = Counter(key for key, _, _ in world.visits)
    assert sorted(epochs.values()) == [SEGMENTS] * 3 + [2 * SEGMENTS, 3 * SEGMENTS]
    winner = max(epochs, key=lambda key: (epochs[key], -key))
    assert world.rows[5].source_key == winner
    assert world.rows[5].source_step == 3 * SEGMENTS
    assert world.results(plan)[5] == 4 * SEGMENTS
    assert [e.number for e in world.log] == list(range(1, len(world.log) + 1))
    # The end of each epoch of each config is announced once.
    assert sorted(world.told) == sorted({(key, epoch) for key, epoch, _ in world.visits})


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("kill_after", [0, 2, 7, 13, 20])
def test_a_killed_search_goes_on_to_the_same_end(seed: int, kill_after: int) -> None:
    undisturbed = World(1, [], 4)
    expected = undisturbed.results(undisturbed.run(Halving()))
    world = World(seed, [], 4)
    world.kill_after = kill_after
    with pytest.raises(Killed):
        world.run(Halving())
    assert world.results(world.run(Halving())) == expected
    assert Counter(world.visits) == Counter(undisturbed.visits)
    assert set(world.decided()) == set(undisturbed.decided())


def test_a_log_that_the_procedure_does_not_follow_is_refused() -> None:
    world = World(1, [], 4)
    world.kill_after = 7
    with pytest.raises(Killed):
        world.run(Halving())
    world.log[2] = Entry(**{**vars(world.log[2]), "epochs": 2})
    with pytest.raises(CerebroError, match="decides differently") as caught:
        world.run(Halving())
    assert caught.value.detail == "It decides start for config 3, and the log has start for config 3."


def test_a_config_without_a_number_is_stopped_with_the_reason() -> None:
    class Lost(World):
        def accuracy(self, key: int, epoch: int) -> float:
            return float("nan") if key == 2 else super().accuracy(key, epoch)

    world = Lost(1, [], 4)
    world.run(Asha(ROWS, [1, 4], 2, 4))
    assert world.reasons[2] == "its loss or its metric is not a number"
    again = Lost(1, [], 4)
    again.kill_after = 14
    for _ in range(2):
        with suppress(Killed):
            again.run(Asha(ROWS, [1, 4], 2, 4))
    assert again.reasons[2] == world.reasons[2]


def test_a_config_that_the_run_refuses_does_not_keep_a_place() -> None:
    world = World(1, [], 4, limits={"max_configs": 2})
    world.run(Asha(ROWS, [1, 4], 2, 4))
    assert [key for kind, key in world.decided() if kind == "refused"] == [3, 4]
    assert {kind for kind, key in world.decided() if key in (1, 2)} == {"start", "go_on", "stop"}
    killed = World(1, [], 4, limits={"max_configs": 2})
    killed.kill_after = 8
    for _ in range(2):
        with suppress(Killed):
            killed.run(Asha(ROWS, [1, 4], 2, 4))
    assert set(killed.decided()) == set(world.decided())


class Fickle:
    """A procedure that stops every second config it hears of, so the order of results decides."""

    def __init__(self) -> None:
        self.count = 0

    def begin(self) -> list[Decision]:
        return [StartConfig(key, 1, COMPILE, FIT, 1, "it begins") for key in (1, 2, 3, 4, 5)]

    def observe(self, result: Result) -> list[Decision]:
        self.count += 1
        if self.count % 2 == 0 or result.epoch == 4:
            return [Stop(result.mst_key, f"number {self.count}")]
        return [GoOn(result.mst_key, result.epoch + 1, f"number {self.count}")]


@pytest.mark.parametrize("seed", SEEDS)
def test_a_replay_repeats_the_order(seed: int) -> None:
    first = World(99, [], 4)
    expected = first.results(first.run(Fickle()))
    order = [(e.mst_key, (e.step or 0) // SEGMENTS) for e in first.log if e.decision == "measured"]
    again = World(seed, [], 4, order=order)
    assert again.results(again.run(Fickle())) == expected
    assert [vars(e) for e in again.log if e.decision != "start"] == [
        vars(e) for e in first.log if e.decision != "start"
    ]


def test_without_a_replay_the_order_matters() -> None:
    """Without a replay, different orders lead to different results, so the test above is meaningful."""
    found = {tuple((w := World(seed, [], 4)).results(w.run(Fickle())).items()) for seed in SEEDS}
    assert len(found) > 1


def test_a_replay_of_something_else_is_refused() -> None:
    with pytest.raises(CerebroError, match="cannot repeat the other"):
        World(1, [], 4, order=[(7, 1)]).run(Fickle())


def ask(number: int, decision: str, mst_key: int | None, **more: Any) -> Asked:
    return Asked(number, "anna", decision, mst_key, **more)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("kill_after", [10**9, 12, 15, 20])
def test_a_person_stops_clones_adds_deletes(seed: int, kill_after: int) -> None:
    world = World(seed, [1, 2, 3], 4)
    new = {"model_id": 1, "compile_params": COMPILE, "fit_params": FIT}
    world.at = {
        3: ask(1, "stop", 1),
        10: ask(2, "clone", 4, source_key=2, with_state=True, **new),
        11: ask(3, "delete", 3),
        12: ask(4, "start", 5, **new),
        13: ask(5, "set_epochs", 2, epochs=6),
        14: ask(6, "clone", 6, source_key=4, with_state=True, **new),
        18: ask(7, "resume", 1),
    }
    world.kill_after = kill_after
    try:
        plan = world.run()
    except Killed:
        plan = world.run()
    assert world.results(plan) == {1: 12, 2: 18, 4: 12, 5: 12, 6: 12}
    assert world.decided() == [
        ("stop", 1), ("clone", 4), ("delete", 3), ("start", 5), ("set_epochs", 2), ("clone", 6),
        ("resume", 1),
    ]  # fmt: skip
    assert Counter(Counter(world.visits).values()).keys() == {1}
    assert all(entry.role == "anna" for entry in world.log)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_stopped_config_is_measured_after_its_last_whole_epoch(seed: int) -> None:
    world = World(seed, [1, 2], 4)
    world.at = {9: ask(1, "stop", 1)}
    plan = world.run()
    step = world.results(plan)[1]
    done = sum(key == 1 for key, _, _ in world.visits)
    assert step == (done // SEGMENTS * SEGMENTS or None)
    assert step is None or (1, step // SEGMENTS) in world.metrics


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("kill_after", [10**9, 10, 12])
def test_a_run_that_is_stopped_ends_with_what_there_is(seed: int, kill_after: int) -> None:
    world = World(seed, [1, 2, 3], 40)
    world.at = {10: ask(1, "stop", None)}
    world.kill_after = kill_after
    try:
        plan = world.run()
    except Killed:
        plan = world.run()
    assert plan.done()
    assert len(world.visits) <= 10 + 2 * SEGMENTS
    assert all(config.stop_at == config.step for config in plan.configs.values())


class PausedWorld(World):
    """A world in which a person resumes the paused run after it has looked for answers 50 times."""

    def __init__(self, *of_a_world: Any, **more: Any) -> None:
        super().__init__(*of_a_world, **more)
        self.visits_when_paused: list[int] = []

    def answers(self) -> list[Answer]:
        if not self.running:
            self.visits_when_paused.append(len(self.visits))
        if len(self.visits_when_paused) == 50:
            self.requests.append(ask(2, "resume", None))
        return super().answers()


def test_a_paused_run_does_nothing_until_it_is_resumed() -> None:
    world = PausedWorld(1, [1, 2], 4)
    world.at = {5: ask(1, "pause", None)}
    plan = world.run()
    assert len(set(world.visits_when_paused[:50])) == 1
    assert world.visits_when_paused[0] < 24
    assert world.results(plan) == {1: 12, 2: 12}


def test_a_pause_takes_nothing_of_the_budget(monkeypatch: pytest.MonkeyPatch) -> None:
    """A run that has 40 seconds, where each visit takes a second, is paused for ten minutes."""
    world = PausedWorld(1, [1, 2], 4, limits={"max_seconds": 40})
    world.at = {5: ask(1, "pause", None)}
    looks = world.visits_when_paused
    monkeypatch.setattr(decide.time, "monotonic", lambda: float(len(world.visits) + 12 * len(looks[:50])))
    plan = world.run()
    assert world.results(plan) == {1: 12, 2: 12}
    assert not world.reasons


@pytest.mark.parametrize("seed", SEEDS)
def test_a_config_in_a_persons_hands_is_the_procedures_no_more(seed: int) -> None:
    world = World(seed, [], 4)
    world.at = {1: ask(1, "set_epochs", 2, epochs=4)}
    plan = world.run(Halving())
    assert world.results(plan)[2] == 4 * SEGMENTS
    told = [(e.value, e.reason) for e in world.log if e.decision == "measured" and e.mst_key == 2]
    assert told[-1] == (None, "it is in a person's hands")
    assert ("refused", 2) in world.decided()


@pytest.mark.parametrize("seed", SEEDS)
def test_budgets_end_a_run(seed: int) -> None:
    visits = World(seed, [1, 2, 3], 4, limits={"max_visits": 14})
    plan = visits.run()
    assert len(visits.visits) == 14
    assert sum(step or 0 for step in visits.results(plan).values()) >= 14 - 3 * (SEGMENTS - 1)
    assert visits.log[0].reason == "the run's 14 visits are spent"
    configs = World(seed, [], 4, limits={"max_configs": 3})
    configs.run(Fickle())
    assert ("refused", 4) in configs.decided()
    assert {key for key, _, _ in configs.visits} == {1, 2, 3}


@pytest.mark.parametrize("seed", SEEDS)
def test_what_has_begun_when_the_time_is_up_finishes_an_epoch(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(decide, "LOOK_SECONDS", 0.0)
    world = World(seed, list(range(1, 9)), 4, limits={"max_seconds": 0})
    results = world.results(world.run())
    begun = {key for key, _, _ in world.visits}
    assert begun and begun < results.keys()
    assert {key for key, step in results.items() if step == SEGMENTS} == begun
    assert set(world.reasons.values()) == {"the run's 0 seconds are spent"}


@pytest.mark.parametrize(("caller_ends_at", "spent"), [(None, 40), (30, 30), (5, 20)])
def test_the_budget_of_the_caller_counts_what_came_before_the_run(
    caller_ends_at: int | None, spent: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run that has 40 seconds of its own, where each visit takes a second, ends by the caller's budget.

    It gets half of its own seconds at least.
    """
    world = World(0, [1, 2, 3], 100, limits={"max_seconds": 40}, ends_at=caller_ends_at)
    monkeypatch.setattr(decide.time, "monotonic", lambda: float(len(world.visits)))
    monkeypatch.setattr(decide, "LOOK_SECONDS", 0.0)
    world.run()
    assert abs(len(world.visits) - spent) <= 2 * SEGMENTS


@pytest.mark.parametrize("seed", SEEDS)
def test_the_best_state_is_kept(seed: int) -> None:
    world = World(seed, [1, 2, 3], 6)
    make = Plan.__post_init__

    def keeps_best(plan: Plan) -> None:
        plan.keeps_best = True
        make(plan)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Plan, "__post_init__", keeps_best)
        plan = world.run()
    for key, step in world.results(plan).items():
        best = max(range(1, 7), key=lambda epoch: (world.accuracy(key, epoch), -epoch))
        assert step == best * SEGMENTS
        assert (key, step) in world.states
