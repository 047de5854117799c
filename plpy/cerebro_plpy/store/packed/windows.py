"""SQL of views whose rows are windows: fixed numbers of readings that follow one another in time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from cerebro_plpy.database import Database
from cerebro_plpy.store.names import Table, TargetTable, quote


@dataclass(frozen=True)
class Windows:
    """The definition of a view of windows: which readings are in a window, in which order, and its label."""

    partition: str | None
    order: str
    columns: Sequence[str]
    length: int
    stride: int
    label: str | None
    label_from: str
    gap: str | None


def create(db: Database, source: Table, target: TargetTable, asked: Windows) -> None:
    """Create the view of windows.

    Readings are numbered from 1 in each stretch. Each value of the partition's column has stretches of its
    own, and a new one begins after a gap between readings. A window is the frame of a window function, so a
    scan needs memory for only one window at a time.
    """
    gap = None
    if asked.gap is not None:
        found = db.query("SELECT pg_catalog.quote_literal($1::interval) AS text", ["text"], [asked.gap])
        gap = f"{found[0]['text']}::interval"
    db.query(f"CREATE VIEW {target.quoted} AS {_query(source, asked, gap)}")


def _query(source: Table, asked: Windows, gap: str | None) -> str:
    """Return the query of the view.

    The innermost query numbers the columns of readings (c0, c1 …), so that their names cannot clash with
    those of the outer queries. A reading whose column of the order is NULL is in no window.
    """
    named = [asked.order, *asked.columns]
    named += [name for name in (asked.partition, asked.label) if name is not None]
    number = {name: f"r.c{place}" for place, name in enumerate(dict.fromkeys(named))}
    listed = ", ".join(f"s.{quote(name)} AS {column.removeprefix('r.')}" for name, column in number.items())
    order = number[asked.order]
    partition = number[asked.partition] if asked.partition else "NULL::integer"
    before = f"lag({order}) OVER (PARTITION BY {partition} ORDER BY {order})"
    starts = f"({order} - {before} > {gap})" if gap else "FALSE"
    stretch = (
        f"SELECT r.*, count(*) FILTER (WHERE r.starts) OVER (PARTITION BY {partition} ORDER BY {order}"
        f" ROWS UNBOUNDED PRECEDING) AS stretch FROM (SELECT r.*, {starts} AS starts"
        f" FROM (SELECT {listed} FROM {source.rows} WHERE s.{quote(asked.order)} IS NOT NULL) AS r) AS r"
    )
    values = ", ".join(f"{number[name]}::real" for name in asked.columns)
    label = number[asked.label] if asked.label else "NULL::text"
    labels = {
        "last": f"{label} AS label",
        "next": f"lead({label}) OVER stretch AS label",
        "majority": f"array_agg({label}) OVER last_rows AS label",
    }[asked.label_from]
    inner = (
        f"SELECT {partition} AS part, first_value({order}) OVER last_rows AS starts, {order} AS ends,"
        f" array_agg(ARRAY[{values}]) OVER last_rows AS x, {labels},"
        " row_number() OVER stretch AS number, lead(1) OVER stretch AS more"
        f" FROM ({stretch}) AS r"
        f" WINDOW stretch AS (PARTITION BY {partition}, r.stretch ORDER BY {order}),"
        f" last_rows AS (PARTITION BY {partition}, r.stretch ORDER BY {order}"
        f" ROWS BETWEEN {asked.length - 1} PRECEDING AND CURRENT ROW)"
    )
    name = quote(asked.partition) if asked.partition else '"partition"'
    chosen = "w.label"
    if asked.label_from == "majority":
        chosen = "(SELECT mode() WITHIN GROUP (ORDER BY m) FROM unnest(w.label) AS m) AS label"
    last = " AND w.more IS NOT NULL" if asked.label_from == "next" else ""
    return (
        f"SELECT w.part AS {name}, w.starts, w.ends, w.x, {chosen} FROM ({inner}) AS w"
        f" WHERE w.number >= {asked.length} AND (w.number - {asked.length}) % {asked.stride} = 0{last}"
    )
