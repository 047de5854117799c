"""Runs of groups, and of folds, in the client and in the command `cerebro`."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
from cerebro_db import CerebroError, Database, Run, watch

from shell import cerebro

_ROWS = """CREATE TABLE visits AS SELECT i AS id, CASE i % 3 WHEN 0 THEN 'NL' WHEN 1 THEN 'BE' END AS country,
    (i / 7) % 2 AS shop, ARRAY[sin(i), cos(i * 0.7)]::real[] AS x, (sin(i) > 0)::integer AS y
    FROM generate_series(1, 240) AS i"""


@pytest.fixture(scope="module")
def grouped(client: Database) -> Run:
    client.rows(_ROWS)
    packed = client.pack("visits", x="x", y="y", group_by=["country", "shop"])
    client.rows("SELECT cerebro.load_net('visits_nets', 'visits_packed', 'Dense(4)')")
    grid = {
        "optimizer": [{"optimizer": "Adam", "learning_rate": [0.05, 0.0001]}],
        "loss": "categorical_crossentropy", "metrics": ["accuracy"], "batch_size": 10,
    }  # fmt: skip
    return client.with_architectures("visits_nets").fit(
        packed, grid, epochs=3, seed=1, backend="jax", fallback=True, wait=True
    )


def loaded(path: Path) -> Any:
    return keras.saving.load_model(path)


def test_frames_have_the_columns_of_groups(grouped: Run) -> None:
    board, groups = grouped.leaderboard(), grouped.groups()
    assert list(board.columns[:4]) == ["run_id", "country", "shop", "rank"]
    assert len(board) == 7 * 2
    assert board["rank"].tolist().count(1) == 7
    assert list(groups.columns[:3]) == ["run_id", "country", "shop"]
    assert groups["is_fallback"].tolist() == [True, *[False] * 6]
    best = board[board["rank"] == 1].set_index("unit_key")["value"]
    assert best.to_dict() == groups.set_index("unit_key")["value"].to_dict()


@pytest.mark.postgresql  # Greenplum refuses cerebro.predict.
def test_a_groups_model_predicts_as_the_server_does(grouped: Run, client: Database, tmp_path: Path) -> None:
    config = grouped.best({"country": None, "shop": 1})
    model = loaded(config.save(tmp_path / "best.keras"))
    rows = client.rows(
        "SELECT v.x, p.class, p.probability FROM visits AS v,"
        f" cerebro.predict('{grouped.models()}', v) AS p WHERE v.country IS NULL AND v.shop = 1 ORDER BY v.id"
    )
    here = model.predict(np.array([row["x"] for row in rows], "float32"), verbose=0)
    assert here.argmax(axis=1).tolist() == [int(row["class"]) for row in rows]
    assert here.max(axis=1) == pytest.approx([row["probability"] for row in rows], abs=1e-5)


def test_the_best_models_of_all_groups_are_files(grouped: Run, tmp_path: Path) -> None:
    with grouped.save_groups(tmp_path / "all").open(newline="") as file:
        listed = list(csv.DictReader(file))
    assert len(listed) == 7
    for row in listed:
        group = {"country": row["country"] or None, "shop": int(row["shop"] or 0)}
        group = None if row["is_fallback"] == "True" else group
        config = grouped.config(int(row["mst_key"]), group)
        kept = loaded(tmp_path / "all" / row["file"]).get_weights()
        for one, other in zip(kept, config.to_keras().get_weights(), strict=True):
            assert np.array_equal(one, other)


def test_tensorboard_gets_a_folder_for_each_config_of_each_group(grouped: Run, tmp_path: Path) -> None:
    grouped.to_tensorboard(tmp_path)
    assert len(list(tmp_path.glob("run_*/config_*/events*"))) == 14


def test_what_is_no_group_is_refused_with_the_way_to_one(grouped: Run, run: Run) -> None:
    with pytest.raises(CerebroError, match="has a best config for each group") as found:
        grouped.best()
    assert "run.groups()" in str(found.value.hint)
    for group in ({"shop": 1}, {"country": "FR", "shop": 1}):
        with pytest.raises(CerebroError, match="has no models of a group"):
            grouped.best(group)
    with pytest.raises(CerebroError, match="has no models of a group") as found:
        run.best({"shop": 1})
    assert "not packed in groups" in str(found.value.hint)


def test_a_notebook_and_a_watch_say_how_groups_are_spread(grouped: Run) -> None:
    shown = grouped._repr_html_()
    assert "median" in shown and "6 groups" in shown


def test_a_report_shows_how_groups_are_spread_and_the_lowest(grouped: Run, tmp_path: Path) -> None:
    text = grouped.report(tmp_path / "run.html").read_text()
    assert "How the groups are spread" in text and "<svg" in text
    assert "{&quot;country&quot;:&quot;BE&quot;,&quot;shop&quot;:0}" in text
    assert grouped.plot().figure.axes[0].get_title() == "The best of each group"


@pytest.mark.slow
def test_the_command_knows_groups(grouped: Run, client_database: str, tmp_path: Path) -> None:
    run = str(grouped.run_id)
    listed = json.loads(cerebro("groups", run, "--worst", "--format", "json", database=client_database).out)
    values = [row["value"] for row in listed]
    assert len(values) == 7 and values == sorted(values)
    board = cerebro("leaderboard", run, database=client_database)
    assert '{"country":"BE","shop":0}' in board.out
    model = tmp_path / "one.keras"
    group = json.dumps({"country": "BE", "shop": 0})
    done = cerebro("export", run, "--group", group, "--model", model, database=client_database)
    assert done.code == 0 and model.exists(), done
    refused = cerebro("export", run, "--group", "BE", "--model", model, database=client_database)
    assert refused.code == 2 and "written as JSON" in refused.err


@pytest.mark.slow
@pytest.mark.usefixtures("grouped")
def test_a_cross_validated_config_is_one_row(client: Database) -> None:
    packed = client.pack("visits", x="x", y="y", into="visits_folded", folds=3)
    run = client.with_architectures("visits_nets").fit(
        packed,
        {"optimizer": "Adam", "loss": "categorical_crossentropy", "metrics": ["accuracy"], "batch_size": 10},
        epochs=1, seed=1, backend="jax", cross_validate=True, wait=True,
    )  # fmt: skip
    (row,) = run.leaderboard().to_dict("records")
    folds = [float(value) for value in row["fold_values"].split(", ")]
    assert row["value"] == pytest.approx(np.mean(folds))
    assert row["deviation"] == pytest.approx(np.std(folds, ddof=1))
    (axes,) = run.plot("curves").figure.axes
    assert [line.get_label() for line in axes.lines] == [f"config {row['mst_key']}"]
    assert "without fold 2" in watch.config_text(run.progress().to_dict("records")[1])
