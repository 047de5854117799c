"""The class counts of a packed table, and the class weights that are computed from these counts."""

from __future__ import annotations

import psycopg2
import pytest

import nets
from trial import ADAM, Trial, blobs, rows_of


@pytest.fixture(scope="module", autouse=True)
def tables(trial: Trial) -> None:
    x, y = blobs(240, features=6)
    trial.table("uneven", "x real[], y integer", [row for row in rows_of(x, y) if row[1] or row[0][0] > 0])
    trial.pack("uneven", "packed")
    trial.model(nets.mlp(6))


def test_the_summary_counts_classes(trial: Trial) -> None:
    counted = [number for (number,) in trial.sql("SELECT count(*) FROM uneven GROUP BY y ORDER BY y")]
    assert trial.value("SELECT y_class_counts FROM packed_summary") == counted
    trial.sql("CREATE VIEW hot AS SELECT x, ARRAY[(y = 0)::int, (y = 1)::int, (y = 2)::int] AS y FROM uneven")
    trial.pack("hot", "packed_hot")
    assert trial.value("SELECT y_class_counts FROM packed_hot_summary") == counted
    trial.sql("CREATE VIEW values AS SELECT x, x[1] AS y FROM uneven")
    trial.pack("values", "packed_values")
    assert trial.value("SELECT y_class_counts FROM packed_values_summary") is None


def test_balanced_is_what_the_counts_say(trial: Trial) -> None:
    """`class_weight='balanced'` gives the same bits as equal weights that are written as numbers."""
    counts = trial.value("SELECT y_class_counts FROM packed_summary")
    rows = sum(counts)
    written = ", ".join(f"{place}: {rows / (len(counts) * count)!r}" for place, count in enumerate(counts))
    fits = [
        "batch_size=16,class_weight='balanced'",
        f"batch_size=16,class_weight={{{written}}}",
        "batch_size=16",
    ]
    found = []
    for number, fit in enumerate(fits):
        trial.select(f"mst_{number}", [1], [ADAM], [fit])
        trial.fit("packed", f"models_{number}", f"mst_{number}", 2)
        found.append(trial.weights(f"models_{number}")[1])
    balanced, by_hand, plain = found
    assert balanced == by_hand != plain


def test_classes_that_nobody_has_counted_are_refused(trial: Trial) -> None:
    trial.sql("CREATE TABLE old AS TABLE packed")
    trial.pack("uneven", "earlier")
    trial.sql("ALTER TABLE earlier_summary DROP COLUMN y_class_counts")
    trial.select("balanced", [1], [ADAM], ["batch_size=16,class_weight='balanced'"])
    with pytest.raises(psycopg2.Error, match="config 1: class_weight is 'balanced'"):
        trial.fit("earlier", "none", "balanced", 1)


def test_rows_that_are_added_count(trial: Trial) -> None:
    trial.pack("uneven", "growing")
    before = trial.value("SELECT y_class_counts FROM growing_summary")
    trial.sql("SELECT cerebro.append_rows('growing', 'uneven')")
    assert trial.value("SELECT y_class_counts FROM growing_summary") == [2 * count for count in before]
