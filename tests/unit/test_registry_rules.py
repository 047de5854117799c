"""Model references are parsed and written, and an alias goes back to the right earlier version."""

from __future__ import annotations

import pytest

from cerebro_plpy.errors import CerebroError
from cerebro_plpy.registry.history import walk
from cerebro_plpy.registry.references import Reference, check_name, is_marked, parse

READ = {
    "churn": Reference("churn", "default"),
    " Churn@Champion ": Reference("churn", "champion"),
    "churn@12": Reference("churn", None, 12),
    "churn@v2": Reference("churn", "v2"),
    "churn@2147483647": Reference("churn", None, 2147483647),
    "churn@2147483648": None,
    "churn@0": None,
    "churn@-1": None,
    "churn@1.5": None,
    "churn@²": None,
    "churn@": None,
    "@1": None,
    "churn@1@2": None,
    "public.churn": None,
    "2churn": None,
    "chürn": None,
    "": None,
    "a" * 63: Reference("a" * 63),
    "a" * 64: None,
}


@pytest.mark.parametrize("text, expected", READ.items())
def test_a_reference_is_read(text: str, expected: Reference | None) -> None:
    assert parse(text) == expected


def test_a_reference_is_written_as_it_is_read() -> None:
    assert [str(parse(text)) for text in ("a", "a@b", "A@3")] == ["a@default", "a@b", "a@3"]


def test_a_table_with_a_mark_is_quoted() -> None:
    assert is_marked("churn@2") and not is_marked('"churn@2"') and not is_marked("churn")


@pytest.mark.parametrize("name", ["", " ", "a b", "a@b", "a.b", '"a"', "1", "é", "a" * 64])
def test_a_wrong_name_is_refused(name: str) -> None:
    with pytest.raises(CerebroError, match="cannot be an alias"):
        check_name(name, "an alias")


WALKED = {
    "nothing": ([], []),
    "forward": ([("set", 1), ("set", 2), ("set", 3)], [1, 2, 3]),
    "to itself": ([("set", 1), ("set", 1)], [1]),
    "back twice": ([("set", 1), ("set", 2), ("set", 3), ("rolled back", 2), ("rolled back", 1)], [1]),
    "back and forward": ([("set", 1), ("set", 2), ("rolled back", 1), ("set", 3)], [1, 3]),
    "there and back": ([("set", 1), ("set", 2), ("set", 1), ("rolled back", 2)], [1, 2]),
    "over a dropped one": ([("set", 1), ("set", 2), ("set", 3), ("version dropped", 2)], [1, 3]),
    "to itself over a dropped one": ([("set", 1), ("set", 2), ("set", 1), ("version dropped", 2)], [1]),
    "after the alias was dropped": ([("set", 1), ("set", 2), ("alias dropped", None), ("set", 3)], [3]),
    "versions that come": ([("registered", 1), ("set", 1), ("registered", 2)], [1]),
}


@pytest.mark.parametrize("events, expected", WALKED.values(), ids=WALKED)
def test_an_alias_goes_back_where_it_came_from(
    events: list[tuple[str, int | None]], expected: list[int]
) -> None:
    assert walk(events) == expected
