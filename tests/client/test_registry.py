"""Registered models in the client: register, list, move aliases, get as a Keras model, save to a file."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import cerebro_db
import keras
import numpy as np
import pytest
from cerebro_db import CerebroError, Database, Packed, Run

from shell import cerebro

ROWS = "SELECT id, weight, power FROM cars ORDER BY id LIMIT 40"
ASKED = (
    f"SELECT c.id, p.prediction FROM ({ROWS}) AS c,"
    " cerebro.predict(%s, NULL, ARRAY[c.weight, c.power]) AS p ORDER BY 1"
)


@pytest.fixture(scope="module")
def table(client: Database, run: Run) -> Iterator[str]:
    """Yield the model table of a run on prices; drop all registered models after the module's tests."""
    yield run.models()
    for model in client.models.list()["name"]:
        client.models.drop(model)


def test_versions_come_and_aliases_are_moved(client: Database, table: str) -> None:
    assert list(client.models.list().columns)[:2] == ["name", "owner"]
    assert client.models.register(table, "prices", 1, comment="first", tags={"by": "test"}) == 1
    assert client.models.register(table, "prices") == 2
    client.models.alias("prices", "champion", 2)
    versions = client.models.versions("prices")
    assert list(versions["version"]) == [2, 1]
    assert list(versions["aliases"]) == [["champion"], ["default"]]
    assert list(versions["comment"])[1] == "first"
    assert list(versions["tags"]) == [{}, {"by": "test"}]
    assert client.models.promote("prices", 2)["promoted"] is True
    assert client.models.rollback("prices") == 1
    assert list(client.models.history("prices")["event"]) == [
        "registered", "set", "registered", "set", "set", "rolled back",
    ]  # fmt: skip
    client.models.alias("prices", "champion", None)
    client.models.drop("prices", 2)
    assert list(client.models.versions("prices")["version"]) == [1]
    client.models.grant("prices", "public", "predict")
    assert list(client.models.list()["granted_to"]) == [{"public": "predict"}]
    client.models.revoke("prices", "public")
    client.models.drop("prices")
    assert list(client.models.list()["name"]) == []


def test_a_model_without_a_recipe_is_not_retrained(client: Database, table: str) -> None:
    client.models.register(table, "by_hand")
    with pytest.raises(CerebroError, match="how by_hand@1 was trained is not known"):
        client.models.retrain("by_hand", budget="10 seconds", options={"seed": 2})


@pytest.mark.postgresql
def test_a_live_model_answers_as_the_server_does(client: Database, table: str, tmp_path: Path) -> None:
    client.models.register(table, "live")
    rows = client.rows(ROWS)
    x = np.array([[row["weight"], row["power"]] for row in rows], "float32")
    expected = [row["prediction"] for row in client.rows(ASKED, "live@1")]
    model = client.models.get("live@1")
    assert model.predict(x, verbose=0)[:, 0] == pytest.approx(expected, rel=1e-4, abs=1e-3)
    path = client.models.save("live", tmp_path / "live.keras")
    saved: Any = keras.models.load_model(path)
    assert saved.predict(x, verbose=0)[:, 0] == pytest.approx(expected, rel=1e-4, abs=1e-3)


def test_what_columns_became_is_written_beside_the_file(client: Database, tmp_path: Path) -> None:
    packed: Packed = client.pack("cars", x="*", y="kind", into="mixed_cars", exclude=["id"], columns="auto")
    client.rows("SELECT cerebro.load_net('mixed_nets', 'mixed_cars', 'linear')")
    run = client.with_architectures("mixed_nets").fit(
        packed,
        {"loss": "categorical_crossentropy", "optimizer": "Adam", "learning_rate": 0.01, "batch_size": 25},
        epochs=1,
        out="mixed_models",
        wait=True,
    )
    client.models.register(run.models(), "mixed")
    client.models.save("mixed@default", tmp_path / "mixed.keras")
    features = json.loads((tmp_path / "mixed.features.json").read_text())
    assert features == run.specification()


def test_the_command_lists_models_and_versions(client: Database, client_database: str, table: str) -> None:
    client.models.register(table, "shown", comment="for the shell")
    done = cerebro("models", "--format", "json", database=client_database)
    assert [row["name"] for row in done.rows if row["name"] == "shown"] == ["shown"]
    done = cerebro("models", "shown", database=client_database)
    assert done.code == 0 and "for the shell" in done.out
    done = cerebro("models", "nobody", database=client_database)
    assert done.code == 1 and "there is no registered model nobody" in done.err


def test_what_the_server_refuses_is_told(client: Database) -> None:
    with pytest.raises(CerebroError, match="no registered model 'nobody@1'"):
        client.models.get("nobody@1")


@pytest.mark.greenplum
def test_a_dropped_table_is_gone_on_the_segments(client_database: str) -> None:
    """The client sets a search_path of its own first; processes on segments must not start with it."""
    kept = "SELECT count(*) AS found FROM gp_dist_random('pg_class') WHERE relname = 'short_lived'"
    with cerebro_db.connect(f"postgresql:///{client_database}") as db:
        db.rows("CREATE TABLE short_lived (a integer)")
        assert db.rows(kept)[0]["found"] > 0
        db.rows("DROP TABLE IF EXISTS short_lived")
        assert db.rows(kept) == [{"found": 0}]
