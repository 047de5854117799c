"""A run's results for people and other tools: plots, an HTML report, TensorBoard files, an MLflow store."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from pathlib import Path

import pytest
from cerebro_db import CerebroError, Database, Packed, Run, loguniform


@pytest.fixture(scope="module")
def search(client: Database, packed: Packed, model: int) -> Run:
    """A finished search, in which some config was stopped and some config failed."""
    space = {
        "model": model,
        "loss": "mse",
        "optimizer": ["SGD"],
        "learning_rate": loguniform(0.001, 0.1),
        "batch_size": [10, 20],
    }
    return client.fit(
        packed, space, epochs=4, search="asha", configs=5, seed=2, wait=True, backend="jax",
        name="A <search>", description="Which learning rate?",
    )  # fmt: skip


def test_a_picture_is_drawn_of_each_kind(search: Run, tmp_path: Path) -> None:
    for kind in ("curves", "configs", "timeline"):
        picture = search.plot(kind)
        (axes,) = picture.figure.axes
        assert axes.lines or axes.collections
        assert picture.svg().startswith("<svg")
    assert search.plot().save(tmp_path / "all.png").read_bytes().startswith(b"\x89PNG")
    with pytest.raises(CerebroError, match="no picture 'pie'"):
        search.plot("pie")


def test_the_curves_are_the_metrics(search: Run) -> None:
    (axes,) = search.plot("curves").figure.axes
    drawn = {tuple(map(float, line.get_ydata())) for line in axes.lines}
    board, metrics = search.leaderboard(), search.metrics()
    chosen = metrics.query(f"metric == {board.loc[0, 'metric']!r}")
    assert drawn == {tuple(own["value"]) for _, own in chosen.groupby("mst_key")}


class _Names(HTMLParser):
    """Collects the addresses that an HTML file would fetch, and the names of its tags."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []
        self.tags: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        named = [value for name, value in attrs if name in ("src", "href", "xlink:href") and value]
        self.found += [value for value in named if not value.startswith(("#", "data:"))]


def test_a_report_tells_everything_and_fetches_nothing(search: Run, tmp_path: Path) -> None:
    path = search.report(tmp_path / "run.html")
    text = path.read_text()
    assert path.stat().st_size < 5_000_000
    names = _Names()
    names.feed(text)
    assert (names.found, "script" in names.tags) == ([], False)
    assert not re.findall(r"url\((?!#)|@import", text)
    shown = re.sub(r"<[^>]+>", " ", text)
    best = search.best().info()
    for wanted in (
        "A &lt;search&gt;", "Which learning rate?", f"Config {best['mst_key']} reached",
        "cerebro.madlib_keras_automl", "rung 0: place", "PostgreSQL", "client cerebro-db",
        "s training", "segment 1", "s in all", "A search compares losses",
    ):  # fmt: skip
        assert wanted in shown, wanted
    assert text.count("<svg") == 3


@pytest.mark.filterwarnings("ignore::cerebro_db.CerebroWarning")
def test_a_report_of_a_run_that_measured_nothing_says_so(
    client: Database, packed: Packed, model: int, tmp_path: Path
) -> None:
    grid = {"model": model, "loss": "mse", "optimizer": "SGD", "learning_rate": 1e30}
    run = client.fit(packed, grid, epochs=1, wait=True, backend="jax")
    text = run.report(tmp_path / "run.html").read_text()
    assert "No config has been measured" in text
    assert "the loss became nan" in text
    assert "A search compares" not in text


def test_event_files_hold_the_metrics(run: Run, tmp_path: Path) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    run.to_tensorboard(tmp_path)
    metrics = run.metrics()
    for key, own in metrics[metrics["metric"] == "mae"].groupby("mst_key"):
        events = EventAccumulator(str(tmp_path / f"run_{run.run_id}" / f"config_{key}"))
        events.Reload()
        scalars = events.Scalars("training/mae")
        assert [event.step for event in scalars] == list(own["epoch"])
        assert [event.value for event in scalars] == pytest.approx(list(own["value"]), rel=1e-6)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_a_tracking_store_holds_a_run_for_each_config(run: Run, tmp_path: Path) -> None:
    from mlflow.tracking import MlflowClient

    store = f"sqlite:///{tmp_path / 'mlflow.db'}"
    made = run.to_mlflow(store, "cars")
    client = MlflowClient(tracking_uri=store)
    board = run.leaderboard().set_index("mst_key")
    assert len(made) == len(board)
    for number in made:
        stored = client.get_run(number)
        key = int(stored.data.tags["cerebro.mst_key"])
        assert stored.info.status == "FINISHED"
        assert stored.data.params["learning_rate"] == {1: "0.01", 2: "0.1"}[key]
        assert stored.data.metrics["training_mae"] == board.loc[key, "value"]
        assert [m.step for m in client.get_metric_history(number, "training_mae")] == [1, 2, 3]


@pytest.mark.filterwarnings("ignore")
def test_a_tracking_store_that_is_none_is_refused_in_our_words(run: Run) -> None:
    with pytest.raises(CerebroError, match=r"cannot be used\n(.|\n)*sqlite:///mlflow.db") as refused:
        run.to_mlflow("nonsense://somebody:secret@nowhere")
    assert "secret" not in str(refused.value)
