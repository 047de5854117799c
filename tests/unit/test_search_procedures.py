"""Search procedures in simulated runs end, make the right decisions, and repeat them."""

# ruff: noqa: E501
from __future__ import annotations

import json
import math
import zlib
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from cerebro_plpy.errors import CerebroError
from cerebro_plpy.logical.search.automl import SearchCall, read_first
from cerebro_plpy.logical.search.build import build
from cerebro_plpy.logical.search.methods import read_method
from cerebro_plpy.logical.search.procedures import hyperband
from cerebro_plpy.logical.search.procedures.asha import Asha
from cerebro_plpy.logical.search.procedures.hyperband import Hyperband
from cerebro_plpy.logical.search.procedures.median import MedianRule
from cerebro_plpy.logical.search.procedures.trials import Trials
from cerebro_plpy.logical.search.sampling import Listed
from cerebro_plpy.logical.search.template import Clone, GoOn, Procedure, Result, StartConfig, Stop
from cerebro_plpy.madlib.params import parse_compile, parse_fit
from cerebro_plpy.madlib.spaces.grid import GridRow
from simulator import Config, Simulation, replay

SPACE = json.dumps(
    {
        "loss": "categorical_crossentropy",
        "optimizer_params_list": [
            {"optimizer": "SGD", "lr": {"float": [1e-4, 1], "log": True}, "momentum": [0.0, 0.8, 0.9, 0.95]},
            {"optimizer": "Adam", "lr": {"float": [1e-5, 1e-1], "log": True}},
        ],
    }
)
FIT = '{"batch_size": {"int": [8, 64]}}'
METHODS = {
    "hyperband": "R=9",
    "hyperopt": "num_configs=12, num_iterations=3",
    "rand": "num_configs=12, num_iterations=3, algorithm=rand",
    "asha": "num_configs=20",
    "median": "num_configs=12, num_iterations=6",
    "tpe": "num_configs=12, num_iterations=6",
    "pbt": "num_iterations=6",
}
BARRIERS = ("hyperband", "pbt")
ORDERS = range(6)
every_method = pytest.mark.parametrize("name", METHODS)


def search(name: str, random_state: int = 3, segments: int = 3) -> SearchCall:
    method = read_method("hyperopt" if name == "rand" else name, METHODS[name])
    return SearchCall(method, (1, 2), SPACE, FIT, random_state, segments)


def rows(count: int) -> list[GridRow]:
    return [
        GridRow(1, f"optimizer='SGD(lr={n / 100})',loss='mse'", "batch_size=8") for n in range(1, count + 1)
    ]


def quality(text: str) -> float:
    """Return a number in [0, 1) that depends only on a text."""
    return zlib.crc32(text.encode()) / 2**32


def curve(config: Config, epoch: int) -> float | None:
    """Return a config's loss after an epoch: it falls towards a limit of the config; a few configs fail."""
    own = quality(config.begun.compile_params + config.begun.fit_params)
    if own > 0.9 and epoch == 2:
        return None
    return own + (1 + own) / epoch


def by_key(config: Config, epoch: int) -> float:
    """Return a loss that is smaller for larger mst_keys and falls with each epoch."""
    return 100.0 / config.key - epoch / 1000


def begun_in(search: SearchCall) -> list[GridRow]:
    """Return the configs that a simulated search starts, in the order of their mst_keys."""
    configs = run(search.procedure()).configs
    each = [configs[key].begun for key in sorted(configs)]
    return [GridRow(one.model_id, one.compile_params, one.fit_params) for one in each]


def run(procedure: Procedure, order: int = 0, curve: Callable[..., float | None] = curve) -> Simulation:
    return Simulation(procedure, curve, order=order).run()


@every_method
def test_a_search_ends_and_trains_nobody_too_long(name: str) -> None:
    for order in ORDERS:
        done = run(search(name).procedure(), order)
        assert not done.states("training")
        assert max(done.epochs().values()) == search(name).method.epochs


def test_hyperband_without_its_last_rungs_has_the_epochs_of_the_longest_that_is_left() -> None:
    method = read_method("hyperband", "R=9, eta=3, skip_last=1")
    done = run(SearchCall(method, (1, 2), SPACE, FIT, 3, 3).procedure())
    assert method.epochs == max(done.epochs().values()) == 3


@every_method
def test_the_same_random_state_gives_the_same_search(name: str) -> None:
    first, again = (run(search(name).procedure()) for _ in range(2))
    assert first.decisions == again.decisions and first.results == again.results
    assert run(search(name, random_state=4).procedure()).decisions != first.decisions


@every_method
def test_a_logged_order_can_be_replayed(name: str) -> None:
    for order in ORDERS:
        done = run(search(name).procedure(), order)
        assert replay(search(name).procedure(), done.results) == done.decisions


@every_method
def test_a_search_is_written_down_and_read_again(name: str) -> None:
    described = search(name)
    spec = json.loads(json.dumps({"method": described.method.name, "arguments": described.arguments}))
    assert build(spec).begin() == described.procedure().begin()


@every_method
def test_configs_are_different_and_valid(name: str) -> None:
    done = run(search(name).procedure())
    starts = [made for made in done.decisions if isinstance(made, StartConfig)]
    assert len({(s.model_id, s.compile_params, s.fit_params) for s in starts}) == len(starts)
    assert [s.mst_key for s in starts] == list(range(1, len(starts) + 1))
    for begun in (made for made in done.decisions if isinstance(made, StartConfig | Clone)):
        parse_compile(begun.compile_params)
        parse_fit(begun.fit_params)


@pytest.mark.parametrize("name", BARRIERS)
def test_barriers_do_not_depend_on_arrival_order(name: str) -> None:
    ends = [run(search(name).procedure(), order) for order in ORDERS]
    assert len({tuple(r.mst_key for r in done.results) for done in ends}) > 1
    for done in ends[1:]:
        assert sorted(map(repr, done.decisions)) == sorted(map(repr, ends[0].decisions))


@every_method
def test_configs_that_all_fail_end_a_search(name: str) -> None:
    done = run(search(name).procedure(), curve=lambda config, epoch: None)
    assert not done.states("training") and not done.states("waiting")


@every_method
def test_results_that_nobody_waits_for_change_nothing(name: str) -> None:
    procedure = search(name).procedure()
    procedure.begin()
    assert procedure.observe(Result(999, 1, 0.5)) == []


def test_madlibs_schedule() -> None:
    rungs = hyperband.schedule("f", 81, 3, 0)
    assert [(r.s, r.i, r.n_i, r.r_i) for r in rungs] == [
        (4, 0, 81, 1), (4, 1, 27, 3), (4, 2, 9, 9), (4, 3, 3, 27), (4, 4, 1, 81),
        (3, 0, 27, 3), (3, 1, 9, 9), (3, 2, 3, 27), (3, 3, 1, 81),
        (2, 0, 9, 9), (2, 1, 3, 27), (2, 2, 1, 81), (1, 0, 6, 27), (1, 1, 2, 81), (0, 0, 5, 81),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("most", "eta", "skip_last", "configs"),
    [(6, 3, 0, 5), (9, 3, 0, 15), (10, 3, 0, 15), (5, 3, 0, 5), (10, 4, 1, 4), (5, 5, 0, 7), (9, 3, 2, 9), (11, 2, 3, 8)],
)  # fmt: skip
def test_madlibs_numbers_of_configs(most: int, eta: int, skip_last: int, configs: int) -> None:
    assert hyperband.size(hyperband.schedule("f", most, eta, skip_last)) == configs


def test_an_exact_power_has_all_its_brackets() -> None:
    assert max(rung.s for rung in hyperband.schedule("f", 243, 3, 0)) == 5


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ((2, 3, 0), "f: R should not be less than eta"),
        ((0, 3, 0), "f: R should not be less than eta"),
        ((9, 1, 0), "f: eta must be greater than 1"),
        ((9, 3, 3), "f: skip_last must be non-negative and less than 3"),
        ((9, 3, -1), "f: skip_last must be non-negative and less than 3"),
    ],
)
def test_faults_of_a_schedule(arguments: tuple[int, int, int], text: str) -> None:
    with pytest.raises(CerebroError) as caught:
        hyperband.schedule("f", *arguments)
    assert caught.value.message == text


def test_hyperband_keeps_the_best_of_each_rung() -> None:
    schedule = hyperband.schedule("f", 9, 3, 0)
    done = run(Hyperband(schedule, rows(15)), curve=by_key)
    epochs = done.epochs()
    assert [key for key in range(1, 10) if epochs[key] == 1] == [1, 2, 3, 4, 5, 6]
    assert (epochs[7], epochs[8], epochs[9]) == (3, 3, 9)
    assert [epochs[key] for key in range(10, 13)] == [3, 3, 9]
    assert [epochs[key] for key in range(13, 16)] == [9, 9, 9]
    assert done.states("waiting") == [9, 12, 13, 14, 15]
    found = [hyperband.rung_of(schedule, key, epochs[key]) for key in (1, 8, 9, 10, 12, 13)]
    places = [(rung.s, rung.i) for rung in found if rung is not None]
    assert places == [(2, 0), (2, 1), (2, 2), (1, 0), (1, 1), (0, 0)]
    assert hyperband.rung_of(schedule, 16, 9) is None
    reasons = [made.reason for made in done.decisions if made.mst_key == 1]
    assert reasons == ["bracket 2, rung 0", "bracket 2, rung 0: place 9 of 9, the best 3 go on"]


def test_a_config_that_failed_is_never_promoted() -> None:
    def failing(config: Config, epoch: int) -> float | None:
        return None if config.key in (7, 8, 9) else by_key(config, epoch)

    done = run(Hyperband(hyperband.schedule("f", 9, 3, 2), rows(9)), curve=failing)
    assert done.states("failed") == [7, 8, 9]
    assert set(done.epochs().values()) == {1}
    done = run(Hyperband(hyperband.schedule("f", 9, 3, 0), rows(15)), curve=failing)
    assert [done.epochs()[key] for key in (4, 5, 6)] == [3, 3, 9]


def test_a_person_who_stops_a_waiting_config_does_not_hold_up_its_rung() -> None:
    procedure = Hyperband(hyperband.schedule("f", 3, 3, 0), rows(5))
    procedure.begin()
    assert procedure.observe(Result(1, 1, 0.1)) == []
    assert procedure.observe(Result(2, 1, 0.2)) == []
    assert procedure.observe(Result(1, 1, None)) == []
    (kept, stopped) = procedure.observe(Result(3, 1, 0.3))
    assert isinstance(kept, GoOn) and kept.mst_key == 2 and isinstance(stopped, Stop) and stopped.mst_key == 3


def test_asha_promotes_as_results_arrive() -> None:
    procedure = Asha(rows(6), [1, 3], 3, width=3)
    assert [made.mst_key for made in procedure.begin()] == [1, 2, 3]
    (made,) = procedure.observe(Result(1, 1, 0.5))
    assert isinstance(made, StartConfig) and made.mst_key == 4
    (made,) = procedure.observe(Result(2, 1, 0.3))
    assert isinstance(made, StartConfig) and made.mst_key == 5
    # The third result allows one promotion: of the best of three, which is not the config of this result.
    (made,) = procedure.observe(Result(3, 1, 0.4))
    assert made == GoOn(2, 3, "rung 0: place 1 of 3 so far")
    (made,) = procedure.observe(Result(4, 1, 0.35))
    assert isinstance(made, StartConfig) and made.mst_key == 6
    assert procedure.observe(Result(5, 1, 0.6)) == []
    # Six in the rung: two may be above it, and config 4 is one of the two best.
    assert procedure.observe(Result(6, 1, 0.7)) == [GoOn(4, 3, "rung 0: place 2 of 6 so far")]
    assert procedure.observe(Result(2, 3, 0.25)) == []
    last = procedure.observe(Result(4, 3, 0.3))
    assert [type(made) for made in last] == [Stop] * 4
    assert [made.mst_key for made in last] == [3, 1, 5, 6]


def test_asha_promotes_about_its_share_and_the_best_reaches_the_top() -> None:
    best = max(range(1, 28), key=lambda key: quality(str(key)))
    for order in ORDERS:
        procedure = Asha(rows(27), [1, 3, 9], 3, 6)
        done = run(procedure, order, lambda config, epoch: -quality(str(config.key)) - epoch)
        epochs = list(done.epochs().values())
        assert done.epochs()[best] == 9
        # The best third of those that have come so far goes up; late comers that are better come on top.
        assert 9 <= sum(e >= 3 for e in epochs) <= 18
        assert 3 <= sum(e == 9 for e in epochs) <= 9


def test_asha_leaves_none_behind_for_configs_that_were_added() -> None:
    """Three added configs begin best and end worst; the best of the others is promoted beside them."""

    def value(config: Config, epoch: int) -> float:
        if config.key <= 3:
            return 0.01 * config.key if epoch == 1 else 10.0 + epoch
        return 1.0 / config.key + (9 - epoch) / 100

    for order in ORDERS:
        assert run(Asha(rows(9), [1, 3, 9], 3, 4, added=3), order, value).epochs()[9] == 9


def test_asha_trains_one_to_the_end_even_of_two() -> None:
    done = run(Asha(rows(2), [1, 3, 9], 3, 6), curve=by_key)
    assert done.epochs() == {1: 1, 2: 9}


@pytest.mark.parametrize("finished", [1, 2, 5, 99])
def test_asha_trains_as_many_to_the_end_as_are_asked_for(finished: int) -> None:
    done = run(Asha(rows(9), [1, 3, 9], 3, 4, finished), curve=by_key)
    at_the_end = {key for key, epochs in done.epochs().items() if epochs == 9}
    assert min(finished, 9) <= len(at_the_end) <= max(finished, 3) and 9 in at_the_end


def test_asha_trains_no_more_to_the_end_if_that_made_the_best_no_better() -> None:
    def rising(config: Config, epoch: int) -> float:
        return 100.0 / config.key + epoch / 1000

    done = run(Asha(rows(2), [1, 3, 9], 3, 4, 2), curve=rising)
    assert done.epochs() == {1: 1, 2: 9} and not done.states("training")


@pytest.mark.parametrize(
    ("finished", "value", "promoted"),
    [(2, 0.2, [2]), (2, 0.35, []), (1, 0.2, [])],
    ids=["two", "worse", "one"],
)
def test_asha_leaves_no_segment_idle_while_the_best_trains_on(
    finished: int, value: float, promoted: list[int]
) -> None:
    """The second best config is promoted while config 3 trains alone, since a segment would be idle.

    It is not if one config is to be trained to the end, or if config 3 has lost by its training.
    """
    procedure = Asha(rows(3), [1, 3, 9], 3, width=4, finished=finished)
    procedure.begin()
    for key, first in ((1, 0.5), (2, 0.4)):
        assert procedure.observe(Result(key, 1, first)) == []
    assert procedure.observe(Result(3, 1, 0.3)) == [GoOn(3, 3, "rung 0: place 1 of 3 so far")]
    decisions = procedure.observe(Result(3, 3, value))
    assert decisions[0] == GoOn(3, 9, "rung 1: place 1 of 1 so far")
    assert [made.mst_key for made in decisions[1:] if isinstance(made, GoOn)] == promoted


def test_asha_promotes_no_config_that_has_failed() -> None:
    def failing(config: Config, epoch: int) -> float | None:
        return None if epoch > 1 else by_key(config, epoch)

    done = run(Asha(rows(3), [1, 3, 9], 3, 4), curve=failing)
    assert not done.states("training") and max(done.epochs().values()) <= 3


FIRST = [
    GridRow(2, "optimizer='Adam(lr=0.01)',loss='categorical_crossentropy'", "batch_size=16"),
    GridRow(1, "optimizer='SGD(lr=0.1)',loss='categorical_crossentropy'", "batch_size=32"),
    # The first config again, in another spelling.
    GridRow(
        2, "loss='categorical_crossentropy',optimizer='Adam(learning_rate=0.01)'", "batch_size=16,epochs=1"
    ),
]


@pytest.mark.parametrize("name", ["asha", "median", "rand", "hyperband"])
def test_configs_to_try_first_come_before_those_that_are_drawn(name: str) -> None:
    plain, given = search(name), replace(search(name), first=FIRST)
    drawn, begun = begun_in(plain), begun_in(given)
    assert begun[:2] == FIRST[:2] and len(begun) == len(drawn)
    assert begun[2:] == drawn[: len(drawn) - 2]
    assert set(FIRST) <= set(given.examples())
    written = json.loads(json.dumps(given.arguments))
    assert begun_in(SearchCall.from_arguments(given.method.name, **written)) == begun


def test_more_configs_to_try_first_than_the_search_has_are_refused() -> None:
    small = replace(search("asha"), method=read_method("asha", "num_configs=2"))
    replace(small, first=FIRST).check_first()
    with pytest.raises(CerebroError, match="try_first has 3 configs, and num_configs is 2"):
        replace(small, first=[*FIRST, replace(FIRST[0], model_id=1)]).check_first()


@pytest.mark.parametrize("name", ["hyperopt", "tpe", "pbt"])
def test_what_proposes_configs_takes_none_to_try_first(name: str) -> None:
    with pytest.raises(CerebroError, match="so option try_first cannot be given"):
        replace(search(name), first=FIRST).procedure()


@pytest.mark.parametrize("value, said", [
    ({"model_id": 1}, r"try_first is \{"),
    ([1], r"try_first\[0\] is 1"),
    ([{"model_id": 1, "compile_params": "loss='mse'"}], r"try_first\[0\] is \{"),
    ([{"model_id": True, "compile_params": "", "fit_params": ""}], r"try_first\[0\].model_id is True"),
    ([{"model_id": 1, "compile_params": 3, "fit_params": ""}], r"try_first\[0\].compile_params is 3"),
    ([{"model_id": 1, "compile_params": "loss='mse'", "fit_params": "batch_size=1"}], "optimizer"),
])  # fmt: skip
def test_configs_to_try_first_are_checked(value: object, said: str) -> None:
    with pytest.raises(CerebroError, match=said):
        read_first("try_first", value)


def test_configs_to_try_first_are_of_the_nets_that_are_searched() -> None:
    with pytest.raises(CerebroError, match="a config of model_id 7, which is not in model_id_list"):
        replace(search("asha"), first=[replace(FIRST[0], model_id=7)]).procedure()


def test_asha_keeps_its_width() -> None:
    procedure = Asha(rows(20), [1, 3], 3, width=4)
    assert len(procedure.begin()) == 4
    simulation = run(Asha(rows(20), [1, 3], 3, width=4), curve=by_key)
    assert len(simulation.configs) == 20


def test_the_median_of_averages_decides() -> None:
    rule = MedianRule(least_epochs=2, least_configs=2)
    for key, values in ((1, (1.0, 0.5)), (2, (1.2, 0.7))):
        for epoch, value in enumerate(values, 1):
            assert not rule.judge(key, epoch, value)[0]
    assert rule.judge(3, 1, 9.0) == (False, "epoch 1: too early to be judged")
    # The averages are 0.75 and 0.95.
    assert rule.judge(3, 2, 0.86) == (True, "epoch 2: worse than the median of 2 configs")
    assert rule.judge(4, 1, 0.7) == (False, "epoch 1: too early to be judged")
    assert rule.judge(4, 2, 0.9) == (False, "epoch 2: no worse than the median of 3 configs")


def test_median_stopping_stops_the_bad_and_finishes_the_good() -> None:
    for order in ORDERS:
        done = run(Trials(Listed(rows(20)), 20, 10, 3, MedianRule(2, 4)), order, by_key)
        assert done.states("waiting") and 20 in done.states("waiting")
        # The better the later here, so only what came before can stop anybody: nobody is worse than it.
        assert not done.states("stopped")
        worse = run(
            Trials(Listed(rows(20)), 20, 10, 3, MedianRule(2, 4)), order, lambda c, e: c.key - e / 100
        )
        assert len(worse.states("stopped")) >= 14
        assert all(worse.configs[key].epoch == 2 for key in worse.states("stopped"))


def pbt(order: int = 0) -> Simulation:
    return run(search("pbt").procedure(), order, lambda c, e: quality(c.begun.compile_params) - e / 10)


def test_pbt_replaces_the_worst_with_copies_of_the_best() -> None:
    done = pbt()
    begun = {made.mst_key: made for made in done.decisions if isinstance(made, StartConfig | Clone)}
    clones = [made for made in begun.values() if isinstance(made, Clone)]
    assert len(clones) == 2 * 5 and len(done.states("stopped")) == 10 and len(done.states("waiting")) == 8
    for generation in range(1, 6):
        stopped = {
            made.mst_key: made.reason
            for made in done.decisions
            if isinstance(made, Stop) and made.reason.startswith(f"generation {generation}:")
        }
        assert len(stopped) == 2 and all("place 7 of 8" in r or "place 8 of 8" in r for r in stopped.values())
    for clone in clones:
        assert "place 1" in clone.reason or "place 2" in clone.reason
        assert done.configs[clone.mst_key].history[0] == done.configs[clone.source].history[0]


def test_pbt_changes_numbers_a_little_and_nothing_else() -> None:
    def arguments(begun: StartConfig | Clone) -> tuple[str, dict[str, Any], int]:
        optimizer = parse_compile(begun.compile_params).optimizer
        return optimizer.name, dict(optimizer.kwargs), parse_fit(begun.fit_params).batch_size

    done = pbt()
    begun = {made.mst_key: made for made in done.decisions if isinstance(made, StartConfig | Clone)}
    moved = 0
    for clone in (made for made in begun.values() if isinstance(made, Clone)):
        name, values, batch = arguments(clone)
        source_name, source_values, source_batch = arguments(begun[clone.source])
        assert name == source_name and values.keys() == source_values.keys()
        assert begun[clone.source].model_id == clone.model_id
        ratio = values["learning_rate"] / source_values["learning_rate"]
        assert (
            math.isclose(ratio, 0.8) or math.isclose(ratio, 1.25) or values["learning_rate"] in (1, 0.1, 1e-5)
        )
        assert (values.get("momentum") == 0.0) == (source_values.get("momentum") == 0.0)
        assert abs(batch - source_batch) <= 1
        moved += values != source_values
    assert moved


def test_pbt_replaces_what_failed() -> None:
    done = run(search("pbt").procedure(), curve=lambda c, e: None if c.key in (1, 2, 3) else c.key - e / 10)
    clones = [made for made in done.decisions if isinstance(made, Clone)]
    assert [made.mst_key for made in clones][:3] == [9, 10, 11]
    assert {made.source for made in clones[:3]} <= {4, 5}
    assert len(done.states("waiting")) == 8
