"""Rights on columns, on rows and through views decide what is packed and trained on.

matrix/rows.txt and matrix/packed.txt have the results, for a person to review.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import psycopg2
import pytest

from stage import ARCHITECTURE, FITTED, SGD, Stage, compare, stage, table

pytestmark = pytest.mark.slow

MATRIX = Path(__file__).with_name("matrix")
LOCAL, INLINE = "READ COMMITTED", "REPEATABLE READ"

PACK = "SELECT cerebro.training_preprocessor_dl('{0}', 'made.p', 'y', 'x')"
PACKED_ROWS = "SELECT total_rows FROM made.p_summary"
FIT = f"SELECT cerebro.madlib_fit('{{0}}', 'made.m', 'made.arch', 1, $${SGD}$$, '{FITTED}', 1)"
TRAINED_ROWS = 'SELECT sum("rows") FROM cerebro.visits WHERE run_id = (SELECT run_id FROM made.m_summary)'
COLUMNS = "__dist_key__, x, x_shape, y, y_shape, buffer_id"

# How a role may come by the rows: statements as their owner; {0} is the role, lab.{1} what it reads then.
SOURCE_WAYS = {
    "nothing granted": "SELECT",
    "SELECT on the table": "GRANT SELECT ON lab.{1} TO {0}",
    "SELECT (x, y)": "GRANT SELECT (x, y) ON lab.{1} TO {0}",
    "SELECT (x, id)": "GRANT SELECT (x, id) ON lab.{1} TO {0}",
    "row security: 5 of 12 rows": (
        "GRANT SELECT ON lab.{1} TO {0}; ALTER TABLE lab.{1} ENABLE ROW LEVEL SECURITY;"
        " CREATE POLICY few ON lab.{1} TO {0} USING (id <= 5)"
    ),
    "row security: no row": ("GRANT SELECT ON lab.{1} TO {0}; ALTER TABLE lab.{1} ENABLE ROW LEVEL SECURITY"),
    "a view of 7 rows": (
        "ALTER TABLE lab.{1} RENAME TO {2}; CREATE VIEW lab.{1} AS SELECT * FROM lab.{2} WHERE id <= 7;"
        " GRANT SELECT ON lab.{1} TO {0}"
    ),
    "a view, nothing granted": (
        "ALTER TABLE lab.{1} RENAME TO {2}; CREATE VIEW lab.{1} AS SELECT * FROM lab.{2};"
        " GRANT SELECT ON lab.{2} TO {0}"
    ),
}
PACKED_WAYS = {
    "nothing granted": "SELECT",
    "SELECT on the table": "GRANT SELECT ON lab.{1} TO {0}",
    "SELECT on all columns": f"GRANT SELECT ({COLUMNS}) ON lab.{{1}} TO {{0}}",
    "SELECT on all but y": "GRANT SELECT (__dist_key__, x, x_shape, y_shape, buffer_id) ON lab.{1} TO {0}",
    "SELECT on a partition alone": "GRANT SELECT ON lab.{2} TO {0}",
    "row security: 6 of 12 rows": (
        "GRANT SELECT ON lab.{1} TO {0}; ALTER TABLE lab.{1} ENABLE ROW LEVEL SECURITY;"
        " CREATE POLICY few ON lab.{1} TO {0} USING (buffer_id = 0)"
    ),
    "row security: no row": ("GRANT SELECT ON lab.{1} TO {0}; ALTER TABLE lab.{1} ENABLE ROW LEVEL SECURITY"),
    "a view of 6 rows": (
        "ALTER TABLE lab.{1} RENAME TO {3}; CREATE VIEW lab.{1} AS SELECT * FROM lab.{3} WHERE buffer_id = 0;"
        " GRANT SELECT ON lab.{1} TO {0}"
    ),
    "a view, nothing granted": (
        "ALTER TABLE lab.{1} RENAME TO {3}; CREATE VIEW lab.{1} AS SELECT * FROM lab.{3};"
        " GRANT SELECT ON lab.{3} TO {0}"
    ),
}


@pytest.fixture(scope="module")
def scene(database: str) -> Iterator[Stage]:
    with stage(database) as made:
        runner = made.role("runner")
        made.sql("CREATE SCHEMA made; GRANT ALL ON SCHEMA made TO PUBLIC")
        made.lab(runner, "lab")
        made.sql("GRANT USAGE ON SCHEMA lab TO PUBLIC")
        yield made


@pytest.fixture(scope="module")
def guest(scene: Stage) -> str:
    role = scene.role("guest")
    with scene.acting(role):
        scene.sql("SELECT cerebro.load_keras_model('made.arch', %s)", ARCHITECTURE)
    return role


def outcome(scene: Stage, role: str, call: str, count: str, level: str = LOCAL) -> str:
    """Run a call as a role and roll it back; return its SQLSTATE, or the result of the query `count`."""
    with scene.acting(role):
        scene.sql(f"BEGIN ISOLATION LEVEL {level}")
        try:
            scene.sql(call)
            return f"{scene.value(count)} rows"
        except psycopg2.Error as error:
            return error.pgcode or str(error)
        finally:
            scene.sql("ROLLBACK")


def plainly(scene: Stage, role: str, query: str) -> str:
    return outcome(scene, role, "SELECT", query)


def test_parts_of_a_source_table(scene: Stage, guest: str) -> None:
    cells = {}
    for number, (way, grants) in enumerate(SOURCE_WAYS.items()):
        name = f"source_{number}"
        scene.named("CREATE TABLE lab.{0} AS SELECT * FROM lab.rows", name)
        scene.named(grants, guest, name, f"beneath_{number}")
        plain = plainly(scene, guest, f"SELECT count(*) FROM (SELECT x, y FROM lab.{name}) AS s")
        packed = outcome(scene, guest, PACK.format(f"lab.{name}"), PACKED_ROWS)
        cells[way] = {"plain SQL": plain, "pack": packed}
    compare(
        MATRIX / "source.txt",
        table("What a role packs by its rights on parts of a table of 12 rows.", cells, "rights"),
    )


def test_parts_of_a_packed_table(scene: Stage, guest: str, greenplum: bool) -> None:
    """The packed table has two buffers of 6 rows; Greenplum has no partitions, so one case is left out."""
    without = ["SELECT on a partition"] if greenplum else []
    ways = {way: grants for way, grants in PACKED_WAYS.items() if not way.startswith(tuple(without))}
    cells = {}
    for number, (way, grants) in enumerate(ways.items()):
        name = f"part_{number}"
        runner = scene.roles[0]
        with scene.acting(runner):
            scene.sql(
                f"SELECT cerebro.training_preprocessor_dl('lab.rows', 'lab.{name}', 'y', 'x', 6,"
                """ options => '{"segments": 2}')"""
            )
        scene.named(grants, guest, name, f"{name}_0", f"beneath_{name}")
        scene.named("GRANT SELECT ON lab.{1} TO {0}", guest, f"{name}_summary")
        cells[way] = {
            "plain SQL": plainly(
                scene,
                guest,
                f"SELECT coalesce(sum(x_shape[1]), 0) FROM (SELECT {COLUMNS} FROM lab.{name}) AS s",
            ),
            "fit, local": outcome(scene, guest, FIT.format(f"lab.{name}"), TRAINED_ROWS),
            "fit, inline": outcome(scene, guest, FIT.format(f"lab.{name}"), TRAINED_ROWS, INLINE),
        }
    head = "What a role trains on by its rights on parts of a packed table of 12 rows."
    compare(MATRIX / "packed.txt", table(head, cells, "rights"), without)
