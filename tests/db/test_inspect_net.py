"""cerebro.inspect_net says in words what is wrong inside a net, and has no complaints about a sound net."""

from __future__ import annotations

from typing import Any

import numpy as np
import psycopg2
import pytest

import nets
from fixtures import Connect, MakeRole
from trial import Trial

ROWS = 400
COMPILE = "loss='categorical_crossentropy',optimizer='SGD(lr=0.000001)',metrics=['accuracy']"
NAMES = ("layer", "kind", "units", "weights", "gradient", "dead", "saturated", "verdict")
RESULT = f"SELECT {', '.join(NAMES)} FROM cerebro.inspect_net(%s, %s)"


@pytest.fixture(scope="module", autouse=True)
def rows(trial: Trial) -> None:
    trial.sql(
        "CREATE TABLE points AS SELECT i AS id, ARRAY[sin(i), cos(i), sin(i * 7)]::real[] AS x,"
        " CASE WHEN sin(i) > 0 THEN 'up' ELSE 'down' END AS y FROM generate_series(1, %s) AS i",
        ROWS,
    )
    trial.pack("points", "packed")


def inspected(trial: Trial, name: str, hidden: list[tuple[str, Any, Any]]) -> dict[str, dict[str, Any]]:
    """Train almost nothing from these hidden layers; return the row of inspect_net for each layer."""
    layers = [nets.layer("Dense", units=len(bias), activation=kind) for kind, _, bias in hidden]
    net = nets.sequential([3], *layers, nets.layer("Dense", units=2, activation="softmax"))
    last = np.ones((len(hidden[-1][2]), 2)) * [1, -1], np.zeros(2)
    arrays = [array for _, kernel, bias in hidden for array in (kernel, bias)] + list(last)
    weights = b"".join(np.asarray(array, "<f4").tobytes() for array in arrays)
    trial.model(net, f"{name}_nets", weights)
    trial.select(f"{name}_mst", [1], [COMPILE], ["batch_size=50"], arch=f"{name}_nets")
    trial.fit("packed", name, f"{name}_mst", 1)
    found = trial.sql(RESULT, name, "points")
    return {row[0]: dict(zip(NAMES, row, strict=True)) for row in found}


GOOD = np.array([[1, -1, 0.5, 0.3], [0.2, 0.4, -1, 0.6], [0.3, -0.2, 0.4, -1]])


def test_of_a_net_that_is_well_nothing_is_said(trial: Trial) -> None:
    found = inspected(trial, "well", [("relu", GOOD, np.zeros(4)), ("tanh", np.eye(4), np.zeros(4))])
    assert [one["verdict"] for one in found.values()] == ["ok"] * 3
    first, second, last = found.values()
    assert (first["kind"], first["units"]) == ("Dense", 4)
    assert first["weights"] == pytest.approx(np.sqrt(np.square(GOOD).sum() / 16), rel=1e-3)
    assert first["dead"] == 0 and first["saturated"] is None
    assert second["saturated"] == 0 and second["dead"] is None
    assert last["dead"] is None and all(one["gradient"] > 0 for one in found.values())


def test_the_unit_of_a_quantity_is_no_matter(trial: Trial) -> None:
    """The unit of the target does not matter: the net has it in a Rescaling layer behind the last layer."""
    trial.sql("CREATE TABLE heavy AS SELECT id, x, 5000 + 800 * x[1] AS grams FROM points")
    trial.pack("heavy", "heavy_packed", "grams")
    layers = [nets.layer("Dense", units=1), nets.layer("Rescaling", scale=800.0, offset=5000.0)]
    weights = np.array([0.8, 0.0, 0.1, 0.0], "<f4").tobytes()
    trial.model(nets.sequential([3], *layers), "heavy_nets", weights)
    compiled = "loss='mse',optimizer='SGD(lr=0.000000000001)'"
    trial.select("heavy_mst", [1], [compiled], ["batch_size=50"], arch="heavy_nets")
    trial.fit("heavy_packed", "heavy_made", "heavy_mst", 1)
    found = trial.sql(RESULT, "heavy_made", "heavy")
    assert [(row[1], row[-1]) for row in found] == [("Dense", "ok")]
    assert 0 < found[0][4] < 1


def test_gradients_are_those_of_the_loss(trial: Trial) -> None:
    """The last layer's gradient equals a calculation by NumPy, from the layer's inputs and the errors."""
    found = inspected(trial, "known", [("tanh", GOOD, np.zeros(4))])
    x = np.array([row[0] for row in trial.sql("SELECT x FROM points ORDER BY id")])
    y = np.array([row[0] == "up" for row in trial.sql("SELECT y FROM points ORDER BY id")])
    hidden = np.tanh(x @ GOOD)
    logits = hidden @ (np.ones((4, 2)) * [1, -1])
    answers = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    off = answers - np.stack([~y, y], axis=1)
    kernel, bias = hidden.T @ off / len(x), off.mean(axis=0)
    expected = np.sqrt((np.square(kernel).sum() + np.square(bias).sum()) / 10)
    assert list(found.values())[-1]["gradient"] == pytest.approx(expected, rel=0.02)


def test_dead_units_saturated_units_and_gradients_that_vanish(trial: Trial) -> None:
    found = list(inspected(trial, "dead", [("relu", GOOD, [0, -9, -9, -9])]).values())
    assert found[0]["dead"] == 0.75
    assert found[0]["verdict"].startswith("75% of the units are dead")
    wide = [("tanh", 100 * GOOD, np.full(4, 300))]
    found = list(inspected(trial, "flat", wide).values())
    assert found[0]["saturated"] == 1
    assert "100% of the units are saturated" in found[0]["verdict"]
    assert "gradients vanish" in found[0]["verdict"]
    assert found[1]["verdict"] == "ok"


def test_an_input_that_the_net_does_not_use_is_named(trial: Trial) -> None:
    trial.sql("CREATE VIEW columns AS SELECT id, x[1] AS a, x[2] AS b, 7 AS same, y FROM points")
    trial.pack("columns", "by_columns", "y", "a, b", options={"columns": "auto"})
    net = nets.sequential([2], nets.layer("Dense", units=2, activation="softmax"))
    kernel = np.array([[1, -1], [0, 0]], "<f4")
    trial.model(net, "unused_nets", kernel.tobytes() + bytes(8))
    still = COMPILE.replace("0.000001", "1e-30")
    trial.select("unused_mst", [1], [still], ["batch_size=50"], arch="unused_nets")
    trial.fit("by_columns", "unused", "unused_mst", 1)
    found = trial.sql(RESULT, "unused", "columns")
    assert [(row[0], row[1]) for row in found][1:] == [("b", "column")]
    assert found[-1][-1].startswith("the net does not use it")


def test_who_may_only_predict_does_not_look_inside(trial: Trial, role: MakeRole, connect: Connect) -> None:
    trial.sql("SELECT cerebro.register('well', 'looked')")
    user = role()
    trial.sql(f"GRANT SELECT ON points TO {user}")
    theirs = Trial(connect(user=user))
    trial.sql("SELECT cerebro.grant_model('looked', %s, 'predict')", user)
    with pytest.raises(psycopg2.errors.InsufficientPrivilege, match="you may only predict with it"):
        theirs.sql(RESULT, "looked@1", "points")
    trial.sql("SELECT cerebro.grant_model('looked', %s, 'read')", user)
    assert len(theirs.sql(RESULT, "looked@1", "points")) == 3
