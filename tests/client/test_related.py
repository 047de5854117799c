"""Features of related tables, graphs and forecasts in the client and in the command `cerebro`."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from cerebro_db import CerebroError, Database

from shell import cerebro

# Greenplum warns that it enforces no foreign keys; the tests only need it to know them.
pytestmark = pytest.mark.filterwarnings("ignore:referential integrity")

TABLES = """
CREATE SCHEMA "re lated";
CREATE TABLE buyers (id integer PRIMARY KEY, age integer);
CREATE TABLE buys (buyer integer REFERENCES buyers, bought timestamp, price real);
INSERT INTO buyers SELECT i, 20 + i % 30 FROM generate_series(1, 60) AS i;
INSERT INTO buys SELECT 1 + i * 7 % 60, timestamp '2026-01-01' + i % 90 * interval '1 day', i % 13
FROM generate_series(1, 600) AS i;
CREATE TABLE "re lated"."No des" AS SELECT i AS "i d", i::real AS "X" FROM generate_series(1, 9) AS i;
CREATE TABLE ways AS SELECT i AS a, i % 9 + 1 AS b, 'k' || i % 2 AS via FROM generate_series(1, 9) AS i;
CREATE TABLE beats AS SELECT 's' || s AS name, '2026-01-01'::date + d AS day, sin(d * 0.55 + s) + s AS beat
FROM generate_series(1, 4) AS s, generate_series(0, 79) AS d
"""
# Two kinds of people; an edge between two of them tells more about their kind than the column x.
FOLK = """
CREATE TABLE folk AS SELECT i, (i % 2 + 3 * sin(i * i))::real AS x, chr(97 + i % 2) AS kind,
       CASE WHEN i % 5 < 3 THEN chr(97 + i % 2) END AS "To ld" FROM generate_series(0, 79) AS i;
CREATE TABLE "Ti es" AS SELECT i AS a, (i + 2 * j) % 80 AS b
FROM generate_series(0, 79) AS i, generate_series(1, 3) AS j;
SELECT FROM cerebro.train('folk', 'kind', 'folk_model', '20 s', '{"nets": ["Dense(4)"], "configs": 1,
    "epochs": 1, "single": true, "exclude": ["i", "To ld"]}')
"""
QUICK = {"nets": ["nlinear"], "configs": 1, "epochs": 9, "seed": 3}


@pytest.fixture(scope="module")
def tables(client: Database) -> Iterator[Database]:
    client.rows(TABLES)
    yield client
    client.rows('DROP SCHEMA "re lated" CASCADE; DROP TABLE buyers, buys, ways, beats CASCADE')
    client.rows('DROP TABLE IF EXISTS folk, "Ti es"')


def test_features_of_related_tables_are_made(tables: Database) -> None:
    query = "SELECT id, timestamp '2026-03-01' AS at FROM buyers"
    said = tables.relate(
        query,
        "buyers_rel",
        entity="buyers",
        cutoff="at",
        times={"buys": "bought"},
        aggregates=["count", "mean"],
    )
    assert "public.buyers_rel has 60 rows with" in said
    ((row),) = tables.rows("SELECT min(buys_count) AS least FROM buyers_rel")
    assert row["least"] > 0


def test_labels_come_from_what_followed(tables: Database, client_database: str) -> None:
    ten = "10 days"
    said = tables.labels("buyers", "count(buys) = 0", "quiets", over=ten, every=ten, label="quiet")
    assert "public.quiets has 420 rows" in said
    assert set(tables.rows("SELECT * FROM quiets")[0]) == {"id", "at", "quiet"}
    times = ("--times", '{"buys": "bought"}')
    words = ("labels", "buyers", "sum(buys.price)", "--over", "10 days", "--every", "30 days")
    done = cerebro(*words, "--label", "spent", "--into", "spent", *times, database=client_database)
    assert done.code == 0 and "public.spent has 180 rows" in done.out, done.err
    query = "SELECT id, at, spent FROM spent"
    about = ("--entity", "buyers", "--cutoff", "at", "--into", "spent_rel", "--windows", "10 days,all")
    done = cerebro("relate", query, *about, *times, "--aggregates", "count", database=client_database)
    assert done.code == 0 and "public.spent_rel has 180 rows" in done.out, done.err
    made = tables.rows("SELECT * FROM spent_rel")[0]
    assert {"spent", "buys_count", "buys_count_10_days", "buyers_age"} <= set(made)


def test_a_graph_is_propagated_and_brought_up_to_date(tables: Database) -> None:
    made = tables.propagate(
        '"re lated"."No des"',
        "ways",
        "near",
        id="i d",
        source="a",
        target="b",
        features=["X"],
        hops=1,
        kind="via",
    )
    assert made == 9
    tables.rows("INSERT INTO ways VALUES (1, 5, 'k0')")
    assert tables.refresh_propagation("near") == 1
    assert set(tables.rows("SELECT * FROM near")[0]) == {"i d", "X", "X_k0_1", "X_k1_1"}


def test_known_labels_of_nodes_mend_predictions(tables: Database, client_database: str) -> None:
    tables.rows(FOLK)
    ends = {"id": "i", "source": "a", "target": "b"}
    found = tables.smooth("folk_model", "folk", '"Ti es"', labels="To ld", **ends)
    assert list(found.columns) == ["node", "label", "class", "probability"] and len(found) == 80
    right = [kind == "ab"[int(node) % 2] for node, kind in zip(found["node"], found["class"], strict=True)]
    assert sum(right) > 75
    words = [word for name, column in ends.items() for word in (f"--{name}", column)]
    made = ("propagate", "folk", '"Ti es"', "--into", "folk_h", "--features", "x", "--hops", "1", *words)
    for call, said in ((made, "folk_h: 80 nodes"), (("refresh-propagation", "folk_h"), "folk_h: 0 nodes")):
        done = cerebro(*call, database=client_database)
        assert done.code == 0 and said in done.out, done.err
    call = ("smooth", "folk_model", "folk_h", '"Ti es"', "--labels", "To ld", "--format", "json")
    done = cerebro(*call, database=client_database)
    assert done.code == 0, done.err
    assert {row["node"]: row["class"] for row in done.rows} == dict(
        zip(found["node"], found["class"], strict=True)
    )


@pytest.mark.slow
def test_series_are_forecast(tables: Database, client_database: str, tmp_path: Path) -> None:
    board = tables.train_forecast("beats", "day", "beat", series=["name"], horizon=3, name="beats_f", **QUICK)
    assert list(board.columns) == ["answer", "mst_key", "parameters", "mase", "mae", "coverage", "best"]
    assert list(board["best"]).count(True) == 1
    found = tables.forecast("beats_f", 2, level=0.8, history=4)
    assert list(found["status"]).count("known") == 16 and len(found) == 24

    def shown(*words: str) -> Any:
        done = cerebro(*words, "--format", "json", database=client_database)
        assert done.code == 0, done.err
        return done.rows

    rows = shown("forecast", "beats_f", "--horizon", "2", "--level", "0.8", "--history", "4")
    assert [row["value"] for row in rows] == pytest.approx(list(found["value"]))
    which = {"name": found["series"][0]["name"]}
    parts = tables.models.explain_forecast("beats_f", which, horizon=1, top=2)
    assert len(parts) == 2 and list(parts["series"]) == [which] * 2
    words = ("explain-forecast", "beats_f", "--which", json.dumps(which), "--horizon", "1", "--top", "2")
    assert [row["contribution"] for row in shown(*words)] == pytest.approx(list(parts["contribution"]))
    assert tables.models.register("beats_f", "beating") == 1
    refused = "beating@1 is a forecast, which answers in the database alone"
    with pytest.raises(CerebroError, match=refused):
        tables.models.save("beating", tmp_path / "folder")
    assert not (tmp_path / "folder").exists()
    done = cerebro("export", "beating@1", str(tmp_path / "folder"), database=client_database)
    assert done.code == 1 and refused in done.err and "cerebro forecast beating@1" in done.err
    # A name that is taken, because a second training would show nothing new.
    words = (
        "train-forecast",
        "beats",
        "day",
        "beat",
        "--series",
        "name",
        "--horizon",
        "3",
        "--name",
        "beats_f",
    )
    done = cerebro(*words, "--configs", "1", database=client_database)
    assert done.code == 1 and "beats_f already exists" in done.err.replace('"', "").replace("public.", "")
