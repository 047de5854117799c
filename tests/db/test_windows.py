"""cerebro.windows makes windows of readings; no window spans two persons or a gap in time."""

from __future__ import annotations

from typing import Any

import psycopg2
import pytest

from fixtures import Sql


@pytest.fixture(autouse=True)
def readings(sql: Sql) -> None:
    sql("DROP TABLE IF EXISTS readings CASCADE")
    # Person 2 has a gap of an hour after its sixth reading.
    sql(
        "CREATE TABLE readings AS SELECT p AS person, i, p * 100 + i AS a, -i AS b,"
        " '2026-01-01'::timestamptz + i * interval '100 ms'"
        "   + CASE WHEN p = 2 AND i > 6 THEN interval '1 hour' ELSE '0' END AS at,"
        " CASE WHEN i % 4 = 0 THEN 'sits' ELSE 'stands' END AS posture"
        " FROM generate_series(1, 2) p, generate_series(1, 10) i"
    )


def windows(sql: Sql, length: int, **more: object) -> list[tuple[Any, ...]]:
    named = "".join(f", {name} => %s" for name in more)
    sql(f"SELECT cerebro.windows('readings', 'w', 'person', 'at', 'a, b', %s{named})", length, *more.values())
    return sql("SELECT person, x, label FROM w ORDER BY person, ends")


def test_windows_are_in_order_and_of_one_person(sql: Sql) -> None:
    found = windows(sql, 4, stride=3, label="posture", gap="1 s")
    firsts = [(person, [a for a, _ in x]) for person, x, _ in found]
    assert firsts == [
        (1, [101, 102, 103, 104]), (1, [104, 105, 106, 107]), (1, [107, 108, 109, 110]),
        (2, [201, 202, 203, 204]), (2, [207, 208, 209, 210]),
    ]  # fmt: skip
    assert [label for *_, label in found] == ["sits", "stands", "stands", "sits", "stands"]
    assert sql("SELECT pg_typeof(x)::text FROM w LIMIT 1") == [("real[]",)]


def test_without_a_gap_a_stretch_goes_on(sql: Sql) -> None:
    assert [x[0][0] for _, x, _ in windows(sql, 5)] == [101, 106, 201, 206]


def test_a_label_may_be_the_majoritys_or_the_next(sql: Sql) -> None:
    found = windows(sql, 3, stride=1, label="posture", label_from="majority")
    assert {label for *_, label in found} == {"stands"}
    sql("DROP VIEW w")
    found = windows(sql, 3, stride=1, label="posture", label_from="next", gap="1 s")
    assert [(x[-1][0], label) for _, x, label in found][:2] == [(103, "sits"), (104, "stands")]
    # The last window before a gap has no next reading, so it is left out.
    assert max(x[-1][0] for _, x, _ in found if x[-1][0] < 200) == 109


def test_readings_without_a_time_are_in_no_window(sql: Sql) -> None:
    expected = windows(sql, 4, stride=1, label="posture", gap="1 s")
    sql("DROP VIEW w")
    sql("INSERT INTO readings SELECT person, i, -1, -1, NULL, 'lies' FROM readings WHERE i < 5")
    assert windows(sql, 4, stride=1, label="posture", gap="1 s") == expected
    assert sql("SELECT count(*) FROM w WHERE starts IS NULL OR ends IS NULL") == [(0,)]


def test_windows_are_packed(sql: Sql) -> None:
    windows(sql, 4, stride=1, label="posture")
    sql("DROP TABLE IF EXISTS packed, packed_summary")
    sql("SELECT cerebro.training_preprocessor_dl('w', 'packed', 'label', 'x')")
    assert sql("SELECT DISTINCT x_shape[2:3] FROM packed") == [([4, 2],)]


WRONG = {
    "no such column": ("'readings', 'v', 'person', 'at', 'c', 4", "42703", 'column "c" does not exist'),
    "text in a window": ("'readings', 'v', 'person', 'at', 'posture', 4", "42804", "cannot be in a window"),
    "no length": ("'readings', 'v', 'person', 'at', 'a', 0", "22023", "length must be from 1"),
    "another label": (
        "'readings', 'v', 'person', 'at', 'a', 4, label_from => 'first'", "22023", "label_from is first"
    ),
    "a gap without time": (
        "'readings', 'v', 'person', 'i', 'a', 4, gap => '1 s'", "42804", "has no gaps in time"
    ),
    "code": ("'readings', 'v', 'person', 'at desc', 'a', 4", "22023", "is not a list of columns"),
}  # fmt: skip


@pytest.mark.parametrize("said, code, text", WRONG.values(), ids=WRONG)
def test_what_is_wrong_is_refused(sql: Sql, said: str, code: str, text: str) -> None:
    with pytest.raises(psycopg2.Error, match=text) as caught:
        sql(f"SELECT cerebro.windows({said})")
    assert caught.value.pgcode == code
