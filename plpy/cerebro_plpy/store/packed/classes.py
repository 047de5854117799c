"""SQL on the values of labels: their order, and which of them are equal."""

from __future__ import annotations

from collections.abc import Sequence

from cerebro_plpy.database import Database


def class_positions(db: Database, base_type: str, labels: Sequence[str]) -> dict[str, int]:
    """Return the position of each label, from 0, among these labels, sorted as values of the column's type.

    Text is sorted by code point, so that the order does not depend on the database's locale. Equal labels
    have one position.
    """
    order = 'ORDER BY s.value COLLATE "C"' if _collatable(db, base_type) else "ORDER BY s.value"
    rows = db.query(
        f"""SELECT s.label, dense_rank() OVER ({order}) - 1 AS place
              FROM (SELECT label, label::{base_type} AS value FROM unnest($1::text[]) AS label) s""",
        ("text[]",),
        (list(labels),),
    )
    return {row["label"]: int(row["place"]) for row in rows}


def _collatable(db: Database, base_type: str) -> bool:
    rows = db.query(
        "SELECT typcollation <> 0 AS collatable FROM pg_catalog.pg_type WHERE oid = $1::regtype",
        ("text",),
        (base_type,),
    )
    return rows[0]["collatable"]


def known_positions(
    db: Database, base_type: str, labels: Sequence[str], class_values: Sequence[str | None]
) -> dict[str, int]:
    """Return the position of each label, from 0, in the list of class values; labels that are not in it are
    left out."""
    rows = db.query(
        f"""SELECT label, min(k.place) - 1 AS place
              FROM unnest($1::text[]) AS label
              JOIN unnest($2::text[]) WITH ORDINALITY AS k(value, place)
                ON k.value::{base_type} = label::{base_type}
             GROUP BY label""",
        ("text[]", "text[]"),
        (list(labels), list(class_values)),
    )
    return {row["label"]: int(row["place"]) for row in rows}
