"""The loop of a run on a fake topology with random timing, lost sessions, errors and cancels."""

from __future__ import annotations

import itertools
import random
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import pytest

from cerebro_plpy.commands import (
    Command,
    ConfigCommand,
    DropStates,
    Evaluate,
    FailConfig,
    Merge,
    Visit,
    VisitBundle,
)
from cerebro_plpy.errors import CONFIG_FAILED, DATA_CORRUPTED, OUT_OF_MEMORY, QUERY_CANCELED, CerebroError
from cerebro_plpy.executor.running import loop
from cerebro_plpy.executor.running.loop import RunLoop
from cerebro_plpy.logical.options import EXACT
from cerebro_plpy.planner.plan import Plan
from cerebro_plpy.planner.units import MERGE, Alike, Config, Unit
from cerebro_plpy.topology import Answer

T = TypeVar("T")
SEEDS = range(20)
RETRIES = 3
Fate = Callable[[ConfigCommand], CerebroError | None]


class Played:
    """A fake topology whose commands end in random order, with the error that `fate` returns, if any."""

    name = "played"

    def __init__(self, seed: int, fate: Fate | None = None, lost: float = 0.0) -> None:
        self.random = random.Random(seed)
        self.fate = fate or (lambda command: None)
        self.lost = lost
        self.running: dict[int, ConfigCommand] = {}
        self.committed: list[ConfigCommand] = []
        self.in_background: list[Command] = []
        self.finished = False

    def free(self, segment: int) -> bool:
        return segment not in self.running

    def submit(self, backend: str, command: ConfigCommand) -> None:
        assert command.segment not in self.running
        self.running[command.segment] = command

    def answers(self) -> list[Answer]:
        if not self.running:
            return []
        some = self.random.sample(sorted(self.running), self.random.randint(1, len(self.running)))
        return [self._answer(segment) for segment in some]

    def _answer(self, segment: int) -> Answer:
        command = self.running.pop(segment)
        if self.random.random() < self.lost:
            return Answer(segment, None, CerebroError("the connection was closed"), lost=True)
        error = self.fate(command)
        if error is not None:
            return Answer(segment, None, error)
        self.committed.append(command)
        members = getattr(command, "members", ())
        of_each = {str(key): {"training": {"loss": 0.5}} for key in members}
        of_bundle = {"losses": [0.5] * len(members), "failures": {}, **of_each}
        return Answer(segment, {"seconds": self.random.random(), "loss": 0.5, **of_bundle}, None)

    def background(self, command: Command) -> None:
        self.in_background.append(command)

    def told(self, kind: type[T]) -> list[T]:
        """Return the commands of one kind that were carried out in the background."""
        return [command for command in self.in_background if isinstance(command, kind)]

    def finish_background(self) -> None:
        self.finished = True

    def visits(self) -> Counter[tuple[int, int, int]]:
        made = [command for command in self.committed if isinstance(command, Visit | VisitBundle)]
        return Counter((key, visit.epoch, visit.segment) for visit in made for key in keys_of(visit))


def keys_of(command: ConfigCommand) -> Sequence[int]:
    return getattr(command, "members", ()) or [command.mst_key]


def make_plan(configs: int = 4, segments: int = 3, epochs: int = 2, alike: Alike | None = None) -> Plan:
    planned = {key: Config(key, "jax", 0, 1.0, epochs, alike=alike) for key in range(1, configs + 1)}
    return Plan(5, segments, epochs, epochs, planned)


def run(
    topology: Any, plan: Plan, tick: Callable[[], None] = lambda: None
) -> list[tuple[Unit, Mapping[str, Any]]]:
    """Run a plan on a topology, and return the units that were done, each with its result."""
    reports: list[tuple[Unit, Mapping[str, Any]]] = []
    RunLoop(
        9, plan, topology, lambda unit, result: reports.append((unit, result)), lambda: None, tick, RETRIES
    ).run()
    return reports


def everything(configs: list[int], epochs: int = 2, segments: int = 3) -> Counter[tuple[int, int, int]]:
    return Counter(itertools.product(configs, range(1, epochs + 1), range(segments)))


@pytest.mark.parametrize("seed", SEEDS)
def test_every_visit_is_made_once_whatever_the_timing(seed: int) -> None:
    topology = Played(seed)
    run(topology, make_plan())
    assert topology.visits() == everything([1, 2, 3, 4])
    assert topology.finished


@pytest.mark.parametrize("seed", SEEDS)
def test_lost_sessions_are_asked_again(seed: int) -> None:
    """Sessions are lost rarely here, so no unit is lost more often than it may be retried."""
    topology = Played(seed, lost=0.03)
    run(topology, make_plan())
    assert topology.visits() == everything([1, 2, 3, 4])


def test_a_config_fails_when_its_session_is_lost_too_often() -> None:
    class Deadly(Played):
        def _answer(self, segment: int) -> Answer:
            if self.running[segment].mst_key == 2:
                self.submitted += 1
                self.running.pop(segment)
                return Answer(segment, None, CerebroError("the connection was closed"), lost=True)
            return super()._answer(segment)

        submitted = 0

    topology, plan = Deadly(1), make_plan()
    reports = run(topology, plan)
    assert topology.submitted == RETRIES + 1
    assert topology.visits() == everything([1, 3, 4])
    assert "lost 4 times" in (plan.configs[2].failure or "")
    assert [unit.mst_key for unit, result in reports if "failure" in result] == [2]


@pytest.mark.parametrize("seed", SEEDS)
def test_a_config_that_fails_is_written_down_once_and_the_others_finish(seed: int) -> None:
    def fate(command: ConfigCommand) -> CerebroError | None:
        doomed = isinstance(command, Visit) and command.mst_key == 3 and command.epoch == 2
        return CerebroError("the loss became nan", sqlstate=CONFIG_FAILED) if doomed else None

    topology, plan = Played(seed, fate), make_plan()
    run(topology, plan)
    failures = topology.told(FailConfig)
    assert [(f.mst_key, f.epoch, f.reason) for f in failures] == [(3, 2, "the loss became nan")]
    assert topology.visits() == everything([1, 2, 4]) + Counter({(3, 1, s): 1 for s in range(3)})


@pytest.mark.parametrize("seed", SEEDS)
def test_a_config_whose_evaluations_all_fail_is_written_down_once(seed: int) -> None:
    """Several segments evaluate config 1 at the same time and all fail, but it is marked as failed once."""

    def fate(command: ConfigCommand) -> CerebroError | None:
        doomed = isinstance(command, Evaluate) and command.mst_key == 1
        return CerebroError("the memory ran out", sqlstate=CONFIG_FAILED) if doomed else None

    topology, plan = Played(seed, fate), make_plan()
    run(topology, plan)
    assert [f.mst_key for f in topology.told(FailConfig)] == [1]
    assert topology.visits() == everything([1, 2, 3, 4])


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("during", [VisitBundle, Evaluate])
def test_of_configs_that_share_visits_the_one_whose_session_dies_fails_alone(seed: int, during: type) -> None:
    class Deadly(Played):
        shared = 0

        def _answer(self, segment: int) -> Answer:
            command = self.running[segment]
            self.shared += isinstance(command, during) and len(keys_of(command)) > 1
            visits = during is VisitBundle and isinstance(command, Visit | VisitBundle)
            if 2 in keys_of(command) and (visits or isinstance(command, during)):
                self.running.pop(segment)
                return Answer(segment, None, CerebroError("the connection was closed"), lost=True)
            return super()._answer(segment)

    topology, plan = Deadly(seed), make_plan(12, alike=Alike("net", EXACT))
    reports = run(topology, plan)
    assert topology.shared > 0
    assert [key for key, config in plan.configs.items() if config.failure is not None] == [2]
    assert {f.mst_key for f in topology.told(FailConfig)} == {2}
    others = [key for key in range(1, 13) if key != 2]
    done = Counter({visit: count for visit, count in topology.visits().items() if visit[0] != 2})
    assert done == everything(others)
    merged = [unit.mst_key for unit, _ in reports if unit.kind == MERGE]
    assert sorted(merged) == others


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("epochs", [0, 2])
def test_of_groups_in_one_visit_only_the_one_that_takes_all_memory_fails(seed: int, epochs: int) -> None:
    class Greedy(Played):
        ended = 0

        def _answer(self, segment: int) -> Answer:
            if 5 not in keys_of(self.running[segment]):
                return super()._answer(segment)
            self.running.pop(segment)
            self.ended += 1
            return Answer(segment, None, CerebroError("the memory ran out", sqlstate=OUT_OF_MEMORY))

    groups = range(1, 65)
    planned = {k: Config(k, "jax", 0, 1.0, epochs, config_key=1, group=f"{k}", home=k % 2) for k in groups}
    topology, plan = Greedy(seed), Plan(5, 3, epochs, 1, planned)
    plan.take_up()
    reports = run(topology, plan)
    assert [unit.mst_key for unit, result in reports if "failure" in result] == [5]
    assert [f.mst_key for f in topology.told(FailConfig)] == [5]
    assert plan.evaluated == {(k, e) for k in groups if k != 5 for e in range(1, epochs + 1) or [0]}
    # Bundles of 32, 16, 8, 4 and 2 groups are lost, then the single group as often as it is tried.
    assert topology.ended == 5 + RETRIES + 1


def test_any_other_error_ends_the_run() -> None:
    def fate(command: ConfigCommand) -> CerebroError | None:
        return CerebroError("the disk is full", sqlstate=DATA_CORRUPTED) if command.epoch == 2 else None

    with pytest.raises(CerebroError, match="the disk is full"):
        run(Played(1, fate), make_plan())


def test_a_cancel_ends_the_loop_where_it_is() -> None:
    topology = Played(1)

    def tick() -> None:
        if len(topology.committed) >= 5:
            raise CerebroError("canceling statement due to user request", sqlstate=QUERY_CANCELED)

    with pytest.raises(CerebroError, match="user request"):
        run(topology, make_plan(), tick)
    assert 5 <= len(topology.committed) < 10
    assert not topology.finished


@pytest.mark.parametrize("seed", SEEDS)
def test_no_state_is_dropped_that_is_needed(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A state is kept until the next visit and the evaluation of its epoch have read it."""
    monkeypatch.setattr(loop, "DROP_SECONDS", 0.0)
    missed: list[int] = []

    def fate(command: ConfigCommand) -> CerebroError | None:
        keep = [dict(drop.keep)[1] for drop in topology.told(DropStates) if 1 in dict(drop.keep)]
        if command.mst_key == 1 and keep and not isinstance(command, Merge):
            step = (command.epoch - 1) * 3 + command.stop if isinstance(command, Visit) else command.epoch * 3
            if step < max(keep[-1]) and step not in keep[-1]:
                missed.append(step)
        return None

    topology = Played(seed, fate)
    run(topology, make_plan())
    assert topology.told(DropStates)
    assert missed == []
