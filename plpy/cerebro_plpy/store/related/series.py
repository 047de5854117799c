"""SQL of forecasts: reads series as arrays, and writes tables of windows and the table that describes a
forecast."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from cerebro_plpy.database import Database
from cerebro_plpy.store import plain, user_code
from cerebro_plpy.store.arrays import read_array, write_arrays
from cerebro_plpy.store.dialect import HEAP, distributed
from cerebro_plpy.store.names import Table, TargetTable
from cerebro_plpy.store.packed.packed import SourceColumn, as_double

# The table beside the models that says what is forecast, and how.
SUFFIX = "_forecast"
DOCUMENT = "document"
# The key of this document in the lineage of a registered version.
LINEAGE = "forecast"
# The column of a table of windows that says what a window is for.
PART = "part"
ZONED = "timestamptz"
_WRITTEN = 2000


@dataclass(frozen=True)
class SeriesColumns:
    """The columns of a table of series: time, value, keys, and further ones. The values of the keys together
    name a series."""

    time: SourceColumn
    value: SourceColumn
    keys: Sequence[SourceColumn]
    # Further columns: numbers, and texts that are the same in all rows of a series.
    ahead: Sequence[SourceColumn] = ()
    words: Sequence[SourceColumn] = ()

    @property
    def is_numbered(self) -> bool:
        """Whether times are whole numbers."""
        return self.time.element not in (ZONED, "date", "timestamp")

    @property
    def has_zone(self) -> bool:
        """Whether times are moments (timestamptz); otherwise they are clock times, whatever the time zone."""
        return self.time.element == ZONED


@dataclass(frozen=True)
class SeriesRows:
    """The rows of one series in the order of time: the series' key, and each row's moment, clock time and
    value, with NaN for NULL."""

    key: str
    moments: np.ndarray
    walls: np.ndarray
    values: np.ndarray
    # A row for each further column of numbers.
    ahead: np.ndarray
    # For each column of words, the first and the last that the series has.
    words: list[tuple[str | None, str | None]]


def read_series(db: Database, source: Table, columns: SeriesColumns, zone: str) -> Iterator[SeriesRows]:
    """Yield each series of a table, as the caller sees it, in the order of keys; rows without a time are left
    out."""
    time, zoned = columns.time.value, columns.time.element == ZONED
    wall = f"pg_catalog.date_part('epoch', {time} AT TIME ZONE $1)" if zoned else as_double(columns.time)
    numbers = {"ats": as_double(columns.time), "walls": wall, "numbers": as_double(columns.value)}
    numbers |= {f"a{place}": as_double(column) for place, column in enumerate(columns.ahead)}
    for name in list(numbers)[2:]:
        numbers[name] = f"coalesce({numbers[name]}, 'NaN')"
    keys = [f"{column.value} AS k{place}" for place, column in enumerate(columns.keys)]
    arrays = [f"cerebro._array_bytes(pg_catalog.array_agg({one})) AS {name}" for name, one in numbers.items()]
    for place, column in enumerate(columns.words):
        text = plain.as_text(column.value, column.element)
        arrays += [f"pg_catalog.{end}({text}) AS {end}{place}" for end in ("min", "max")]
    words = [f"g.{end}{place}" for place in range(len(columns.words)) for end in ("min", "max")]
    group = ", ".join(str(place) for place in range(1, len(keys) + 1)) or "()"
    order = "".join(f"{', ' if place else ' ORDER BY '}g.k{place}" for place in range(len(keys)))
    shown = ", ".join(f"coalesce({plain.as_json(f'g.k{place}')}, 'null')" for place in range(len(keys)))
    statement = (
        f"SELECT ARRAY[{shown}]::text[] AS keys, {', '.join([*(f'g.{name}' for name in numbers), *words])}"
        f" FROM (SELECT {', '.join([*keys, *arrays])} FROM {source.rows}"
        f" WHERE {time} IS NOT NULL AND $1::text IS NOT NULL GROUP BY {group}) AS g"
        f" WHERE g.ats IS NOT NULL{order}"
    )
    names = [json.dumps(column.name, ensure_ascii=False) for column in columns.keys]
    for rows in db.scan(statement, ["text"], [zone], batch=200):
        for row in rows:
            pairs = zip(names, row["keys"] or (), strict=True)
            key = "{" + ", ".join(f"{name}: {value}" for name, value in pairs) + "}"
            ats, walls, values, *ahead = (read_array(row[name], "<f8") for name in numbers)
            order = np.lexsort((values, walls, ats))
            others = np.array(ahead).reshape(len(ahead), len(ats))[:, order]
            said = [(row[f"min{place}"], row[f"max{place}"]) for place in range(len(columns.words))]
            yield SeriesRows(key, ats[order], walls[order], values[order], ahead=others, words=said)


def show_stamps(db: Database, times: Sequence[float], *, by_wall: bool, zone: str) -> list[str]:
    """Return times as texts in the session's form of timestamps; with `by_wall`, they are clock times in a
    time zone, otherwise moments."""
    moment = "pg_catalog.to_timestamp(u.t)"
    wall = f"(({moment} AT TIME ZONE 'UTC') AT TIME ZONE $2)"
    rows = db.query(
        f"SELECT ({wall if by_wall else moment})::pg_catalog.text AS stamp, $2::text AS zone"
        " FROM pg_catalog.unnest($1) WITH ORDINALITY AS u (t, n) ORDER BY u.n",
        ["float8[]", "text"],
        [list(times), zone],
    )
    return [row["stamp"] for row in rows]


@dataclass(frozen=True)
class WindowRows:
    """The windows for one purpose (`part`), such as training: the key of each one's series, its origin, its
    inputs by name, and its targets."""

    part: int
    keys: Sequence[str]
    origins: Sequence[str]
    inputs: Mapping[str, np.ndarray]
    targets: np.ndarray


def write_windows(db: Database, target: TargetTable, parts: Sequence[WindowRows], *, numbered: bool) -> None:
    """Create a table of windows; their origins are whole numbers if `numbered`, otherwise timestamps."""
    kind = "bigint" if numbered else "timestamptz"
    made = [*parts[0].inputs, "y"]
    db.query(
        f"CREATE TABLE {target.quoted} (series jsonb, origin {kind}, {PART} integer,"
        f" {', '.join(f'{name} real[]' for name in made)}){HEAP}{distributed(db, 'RANDOMLY')}"
    )
    lists = ", ".join(f"pg_catalog.unnest(${place})" for place in range(2, len(made) + 4))
    insert = (
        f"INSERT INTO {target.quoted} SELECT u.key::jsonb, u.origin::{kind}, $1,"
        f" {', '.join(f'u.{name}::real[]' for name in made)}"
        f" FROM ROWS FROM ({lists}) AS u (key, origin, {', '.join(made)})"
    )
    for one in parts:
        for first in range(0, len(one.keys), _WRITTEN):
            rows = slice(first, first + _WRITTEN)
            numbers = [*(found[rows] for found in one.inputs.values()), one.targets[rows]]
            arrays = [write_arrays(np.round(found, 6)) for found in numbers]
            db.query(
                insert,
                ["integer", *["text[]"] * (2 + len(made))],
                [one.part, list(one.keys[rows]), list(one.origins[rows]), *arrays],
            )


def write_document(db: Database, target: TargetTable, document: Mapping[str, Any]) -> None:
    """Create the table that describes a forecast, with the description as one JSON document."""
    db.query(f"CREATE TABLE {target.quoted} ({DOCUMENT} jsonb){HEAP}{distributed(db, 'REPLICATED')}")
    db.query(f"INSERT INTO {target.quoted} SELECT $1::text::jsonb", ["text"], [json.dumps(document)])


def read_document(db: Database, table: Table) -> str | None:
    """Return the JSON document that describes a forecast, from the table made for it; None if the table is
    empty."""
    user_code.refuse_code(db, [table])
    rows = db.query(f"SELECT {DOCUMENT}::text AS found FROM {table.quoted} LIMIT 1")
    return rows[0]["found"] if rows else None
