"""Searches on groups: a procedure for each group, or one procedure that decides by the mean of all groups."""

from __future__ import annotations

from cerebro_plpy.logical.search.procedures.asha import Asha
from cerebro_plpy.logical.search.procedures.groups import AllGroups, PerGroup, Units
from cerebro_plpy.logical.search.procedures.hyperband import Hyperband, Rung
from cerebro_plpy.logical.search.template import Clone, Decision, GoOn, Result, StartConfig, Stop
from cerebro_plpy.madlib.spaces.grid import GridRow

ROWS = [GridRow(1, "loss='mse'", f"batch_size={n}") for n in range(1, 5)]
RUNGS = [Rung(1, 0, 3, 1), Rung(1, 1, 1, 3)]


def short(decisions: list[Decision]) -> list[tuple[str, int]]:
    return [(type(one).__name__, one.mst_key) for one in decisions]


class Told:
    """A fake search procedure that records its results and returns prepared decisions."""

    def __init__(self, *answers: list[Decision]) -> None:
        self.heard: list[Result] = []
        self._answers = list(answers)

    def begin(self) -> list[Decision]:
        return self._answers.pop(0)

    def observe(self, result: Result) -> list[Decision]:
        self.heard.append(result)
        return self._answers.pop(0) if self._answers else []


def start(key: int, epochs: int) -> StartConfig:
    return StartConfig(key, 1, "loss='mse'", "batch_size=1", epochs, "")


def test_numbers_say_config_and_group() -> None:
    units = Units([4, 7, 9])
    numbers = [units.number(key, place) for key in (1, 2, 3) for place in range(3)]
    assert numbers == list(range(1, 10))
    assert [(units.key_of(n), units.place_of(n)) for n in (1, 3, 4, 9)] == [(1, 0), (1, 2), (2, 0), (3, 2)]


def test_each_group_decides_by_its_own_results() -> None:
    search = PerGroup([4, 7], lambda: Hyperband(RUNGS, ROWS[:3]))
    begun = search.begin()
    assert [(one.config_key, one.group) for one in begun if isinstance(one, StartConfig)] == [
        (1, 4), (1, 7), (2, 4), (2, 7), (3, 4), (3, 7),
    ]  # fmt: skip
    # In the first group config 1 is best, in the second config 3.
    values = {1: 0.1, 2: 0.9, 3: 0.5, 4: 0.5, 5: 0.9, 6: 0.1}
    decided = [one for n, value in values.items() for one in search.observe(Result(n, 1, value))]
    assert short(decided) == [
        ("GoOn", 1), ("Stop", 3), ("Stop", 5), ("GoOn", 6), ("Stop", 4), ("Stop", 2),
    ]  # fmt: skip


def test_a_group_that_is_slow_holds_no_other_up() -> None:
    search = PerGroup([1, 2], lambda: Asha(ROWS[:2], [1, 2], 2, 2))
    search.begin()
    assert search.observe(Result(1, 1, 0.5)) == []
    assert short(search.observe(Result(3, 1, 0.9)))[0] == ("GoOn", 1)


def test_one_search_hears_the_mean_weighted_by_rows() -> None:
    told = Told([start(1, 2)], [GoOn(1, 4, "")], [Stop(1, "")])
    search = AllGroups({4: 10, 7: 30}, told)
    assert short(search.begin()) == [("StartConfig", 1), ("StartConfig", 2)]
    assert search.observe(Result(2, 2, 1.0)) == []
    assert short(search.observe(Result(1, 2, 5.0))) == [("GoOn", 1), ("GoOn", 2)]
    assert told.heard == [Result(1, 2, 2.0)]


def test_a_group_that_fails_is_left_out_of_the_mean() -> None:
    told = Told([start(1, 1)], [GoOn(1, 2, "")], [])
    search = AllGroups({4: 10, 7: 30, 8: 60}, told)
    search.begin()
    search.observe(Result(1, 1, 1.0))
    search.observe(Result(2, 1, None))
    assert short(search.observe(Result(3, 1, 8.0))) == [("GoOn", 1), ("GoOn", 3)]
    assert told.heard == [Result(1, 1, 7.0)]
    # Another group fails while the remaining ones train on.
    assert search.observe(Result(1, 2, 3.0)) == []
    search.observe(Result(3, 1, None, is_taken=True))
    assert told.heard[1:] == [Result(1, 2, 3.0)]


def test_a_config_that_fails_on_all_groups_has_no_value() -> None:
    told = Told([start(1, 1)])
    search = AllGroups({4: 10, 7: 30}, told)
    search.begin()
    search.observe(Result(1, 1, None))
    search.observe(Result(2, 1, None))
    assert told.heard == [Result(1, 1, None)]
    assert search.observe(Result(2, 1, None)) == []


def test_a_config_that_fails_in_a_hard_group_is_as_bad_there_as_the_worst() -> None:
    told = Told([start(1, 1), start(2, 1)])
    search = AllGroups({4: 10, 7: 30}, told)
    search.begin()
    search.observe(Result(1, 1, 0.5))
    search.observe(Result(2, 1, 8.0))
    search.observe(Result(3, 1, 0.1))
    search.observe(Result(4, 1, None))
    assert told.heard[1:] == [Result(2, 1, (10 * 0.1 + 30 * 8.0) / 40)]


def test_a_group_that_a_person_took_does_not_count() -> None:
    told = Told([start(1, 1), start(2, 1)])
    search = AllGroups({4: 10, 7: 30}, told)
    search.begin()
    search.observe(Result(1, 1, 0.5))
    search.observe(Result(2, 1, 8.0))
    search.observe(Result(4, 1, None, is_taken=True))
    search.observe(Result(3, 1, 0.1))
    assert told.heard[1:] == [Result(2, 1, 0.1)]


def test_a_copy_is_as_bad_as_its_source_where_that_failed() -> None:
    copy = Clone(3, 1, 1, "loss='mse'", "batch_size=2", 2, "")
    told = Told([start(1, 1), start(2, 1)], [], [copy])
    search = AllGroups({4: 10, 7: 30}, told)
    search.begin()
    search.observe(Result(3, 1, 0.5))
    search.observe(Result(4, 1, 8.0))
    search.observe(Result(1, 1, 0.1))
    search.observe(Result(2, 1, None))
    search.observe(Result(5, 2, 0.1))
    assert told.heard[-1] == Result(3, 2, (10 * 0.1 + 30 * 8.0) / 40)


def test_copies_begin_where_their_source_is() -> None:
    copy = Clone(2, 1, 1, "loss='mse'", "batch_size=2", 2, "")
    told = Told([start(1, 1)], [GoOn(1, 2, ""), copy])
    search = AllGroups({4: 10, 7: 30}, told)
    search.begin()
    search.observe(Result(1, 1, None))
    decided = search.observe(Result(2, 1, 1.0))
    assert short(decided) == [("GoOn", 2), ("Clone", 4)]
    clone = decided[1]
    assert isinstance(clone, Clone)
    assert (clone.source, clone.config_key, clone.group) == (2, 2, 7)
