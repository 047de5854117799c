"""The costs of a run: time and bytes and, if an administrator has set prices, money and energy."""

from __future__ import annotations

from collections.abc import Iterator

import psycopg2
import pytest

import nets
from trial import ADAM, Trial, blobs, rows_of

COST = "SELECT * FROM cerebro.costs WHERE run_id = %s"
PLAN = "SELECT cerebro.explain_{}, format => 'json')::jsonb #> '{{0,Plan}}'"


@pytest.fixture(scope="module")
def run(trial: Trial) -> int:
    trial.table("blobs", "x real[], y integer", rows_of(*blobs(150)))
    trial.pack("blobs", "packed")
    trial.select("mst", [trial.model(nets.mlp())], [ADAM], ["batch_size=20", "batch_size=30"])
    return trial.fit("packed", "models", "mst", 2, options={"seed": 3, "threads": 1})


@pytest.fixture
def tariff(trial: Trial) -> Iterator[None]:
    trial.sql("INSERT INTO cerebro.settings VALUES ('price_per_core_hour', '0.5'), ('watts_per_core', '9')")
    yield
    trial.sql("DELETE FROM cerebro.settings WHERE name IN ('price_per_core_hour', 'watts_per_core')")


def test_a_run_has_time_and_bytes_and_no_price(trial: Trial, run: int) -> None:
    cost = trial.read_row(COST, run)
    visits = trial.value("SELECT sum(cpu_seconds) FROM cerebro.visits WHERE run_id = %s", run)
    sizes = trial.read_row("SELECT * FROM cerebro.sizes WHERE run_id = %s", run)
    assert cost["core_seconds"] > visits > 0 and cost["gpu_seconds"] == 0
    assert cost["moved_bytes"] == sizes["hopped_bytes"]
    assert cost["stored_bytes"] == sizes["state_bytes"] + sizes["weight_bytes"] + sizes["frozen_bytes"]
    assert cost["price"] is None and cost["watt_hours"] is None
    assert cost["month"].day == 1 and cost["owner"] == trial.value("SELECT current_user")


def test_time_has_a_price_where_it_is_set(trial: Trial, run: int, tariff: None) -> None:
    cost = trial.read_row(COST, run)
    assert cost["price"] == pytest.approx(cost["core_seconds"] * 0.5 / 3600)
    assert cost["watt_hours"] == pytest.approx(cost["core_seconds"] * 9 / 3600)
    plan = trial.value(PLAN.format("fit('packed', 'mst', 2"))
    assert plan["Price"] == pytest.approx(plan["Core Time"] * 0.5 / 3600, rel=1e-3)
    assert plan["Watt Hours"] == pytest.approx(plan["Price"] * 18, rel=1e-3)
    assert plan["Moved State Bytes"] == pytest.approx(cost["moved_bytes"], rel=1e-3)
    shown = trial.value(PLAN.format("run(%s"), run)
    assert shown["Actual Moved State Bytes"] == cost["moved_bytes"]
    assert shown["Actual Kept State Bytes"] == cost["stored_bytes"] > 0
    assert shown["Actual Core Time"] == pytest.approx(cost["core_seconds"], rel=1e-3)
    assert shown["Actual Price"] == pytest.approx(cost["price"], rel=1e-3)


@pytest.mark.parametrize("text", ["much", "", "-1", "1e9", "NaN", " 1", "1.", "9" * 10])
def test_a_price_is_a_number(trial: Trial, text: str) -> None:
    with pytest.raises(psycopg2.errors.CheckViolation):
        trial.sql("INSERT INTO cerebro.settings VALUES ('price_per_core_hour', %s)", text)
