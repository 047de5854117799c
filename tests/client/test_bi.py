"""The dashboard for Apache Superset: its queries return the columns that its datasets and charts name."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from fixtures import Connection

FOLDER = Path(__file__).resolve().parents[2] / "docs" / "guide" / "superset"
TYPES = {
    20: "BIGINT", 23: "INTEGER", 25: "TEXT", 701: "DOUBLE PRECISION", 1184: "TIMESTAMP WITH TIME ZONE"
}  # fmt: skip


def read(kind: str) -> list[dict[str, Any]]:
    return [yaml.safe_load(file.read_text()) for file in sorted((FOLDER / kind).rglob("*.yaml"))]


DATASETS = read("datasets")


@pytest.mark.doors("bi", "watch compare")
@pytest.mark.parametrize("dataset", DATASETS, ids=lambda dataset: dataset["table_name"])
def test_a_dataset_has_the_columns_it_names(db: Connection, dataset: dict[str, Any]) -> None:
    with db.cursor() as cursor:
        cursor.execute(dataset["sql"])
        found = {column.name: TYPES[column.type_code] for column in cursor.description or ()}
    assert found == {column["column_name"]: column["type"] for column in dataset["columns"]}


def test_a_search_that_has_no_config_yet_is_at_zero(db: Connection) -> None:
    (runs,) = (dataset["sql"] for dataset in DATASETS if dataset["table_name"] == "cerebro_runs")
    row = '{"status": "running", "visits_done": 0, "visits_total": 0}'
    with db.cursor() as cursor:
        cursor.execute(
            f"SELECT percent FROM ({runs}) AS asked".replace(
                "cerebro.runs", f"json_populate_record(NULL::cerebro.runs, '{row}')"
            )
        )
        assert cursor.fetchall() == [(0,)]


def columns_of(parameters: dict[str, Any]) -> set[str]:
    metrics = {metric["column"]["column_name"] for metric in parameters.get("metrics", [])}
    axis = {parameters["x_axis"]} if "x_axis" in parameters else set()
    return {*parameters.get("all_columns", []), *parameters.get("groupby", []), *metrics, *axis}


def test_charts_show_columns_of_their_datasets() -> None:
    known = {
        dataset["uuid"]: {column["column_name"] for column in dataset["columns"]} for dataset in DATASETS
    }
    for chart in read("charts"):
        assert columns_of(chart["params"]) <= known[chart["dataset_uuid"]], chart["slice_name"]


def test_the_dashboard_has_every_chart_once() -> None:
    (dashboard,) = read("dashboards")
    placed = [
        item["meta"]["uuid"] for name, item in dashboard["position"].items() if name.startswith("CHART")
    ]
    assert sorted(placed) == sorted(chart["uuid"] for chart in read("charts"))
    assert "password" not in json.dumps(read("databases"))
