"""Option `materialize`: a run computes outputs of frozen layers once, and its weights stay the same."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import psycopg2
import pytest

import nets
from trial import ADAM, SGD, Trial, blobs, cancelled, rows_of

pytestmark = [pytest.mark.fresh_caller, pytest.mark.slow]

UNITS, EPOCHS = 1500, 6


def net(*between: nets.Layer) -> str:
    """Return a net of wide frozen layers, with `between` among them, and of layers that train."""
    return nets.sequential(
        [nets.FEATURES],
        nets.layer("Dense", units=UNITS, activation="relu", trainable=False),
        nets.layer("BatchNormalization", trainable=False),
        *between,
        nets.layer("Dense", units=UNITS, activation="tanh", trainable=False),
        nets.layer("Dropout", rate=0.3),
        nets.layer("Dense", units=8, activation="relu"),
        nets.layer("BatchNormalization"),
        nets.layer("Dense", units=nets.CLASSES, activation="softmax"),
    )


@pytest.fixture(scope="module", autouse=True)
def tables(trial: Trial) -> None:
    trial.table("blobs", "x real[], y integer", rows_of(*blobs(260)))
    trial.table("others", "x real[], y integer", rows_of(*blobs(90, seed=4)))
    trial.pack("blobs", "packed", buffer_size=37)
    trial.pack_validation("others", "packed_validation", "packed")
    make_net(trial, "mst", net())


def make_net(trial: Trial, selection: str, text: str) -> None:
    """Store a net with the weights of a short training, and make a selection of four configs."""
    random = trial.model(text)
    trial.select(f"{selection}_seeded", [random], [SGD], ["batch_size=32,epochs=1"])
    trial.fit("packed", f"{selection}_start", f"{selection}_seeded", 1)
    found = trial.weights(f"{selection}_start")[1]
    weights = trial.model(text, weights=found)
    trial.select(selection, [weights], [ADAM, SGD], ["batch_size=32,epochs=1", "batch_size=20,epochs=2"])


def cuts(trial: Trial, run: int) -> Sequence[str]:
    """Return the names of the layers whose outputs the run keeps."""
    found = trial.value("SELECT limits::json -> 'cuts' FROM cerebro._run WHERE run_id = %s", run)
    return [name for one in found.values() for name in one[0]["leaving"]]


def both(trial: Trial, selection: str, options: Mapping[str, object], **more: object) -> tuple[int, int]:
    """Run a selection with kept outputs and without, compare the bits, and return both run numbers."""
    with_it = trial.fit("packed", f"{selection}_auto", selection, EPOCHS, options=options, **more)
    without = trial.fit(
        "packed", f"{selection}_off", selection, EPOCHS, options={**options, "materialize": "off"}, **more
    )
    assert cuts(trial, without) == []
    assert trial.weights(f"{selection}_auto") == trial.weights(f"{selection}_off")
    return with_it, without


@pytest.mark.parametrize(
    "backend",
    [
        pytest.param("tensorflow", marks=pytest.mark.tensorflow),
        "jax",
    ],
)
def test_weights_are_those_without(trial: Trial, backend: str) -> None:
    name = f"on_{backend}"
    trial.keep(name, "mst", [1, 2, 3, 4])
    run, other = both(trial, name, options={"backend": backend}, validation_table="packed_validation")
    assert cuts(trial, run) == ["dense_3"]
    metrics = "SELECT value FROM cerebro.metrics WHERE run_id = %s ORDER BY mst_key, epoch, dataset, metric"
    found, wanted = ([value for (value,) in trial.sql(metrics, each)] for each in (run, other))
    assert len(found) == 16
    assert np.allclose(found, wanted, rtol=1e-6)


def test_a_run_that_was_cancelled_goes_on_to_the_same_bits(trial: Trial) -> None:
    trial.keep("stopped", "mst", [1, 2, 3, 4])
    with cancelled(trial, 3):
        trial.fit("packed", "stopped_models", "stopped", EPOCHS)
    run = trial.value("SELECT max(run_id) FROM cerebro._run")
    trial.sql("SELECT cerebro.resume(%s)", run)
    trial.fit("packed", "not_stopped", "stopped", EPOCHS, options={"materialize": "off"})
    assert cuts(trial, run) == ["dense_3"]
    assert trial.weights("stopped_models") == trial.weights("not_stopped")


def test_rows_that_are_not_kept_in_memory_are_read_for_the_trunk(trial: Trial) -> None:
    x, y = blobs(3000, features=nets.FEATURES)
    trial.table("long", "x real[], y integer", rows_of(np.tile(x, 50), y))
    trial.pack("long", "long_packed", buffer_size=200)
    text = nets.sequential(
        [50 * nets.FEATURES],
        nets.layer("Dense", units=700, activation="relu", trainable=False),
        nets.layer("Dense", units=nets.CLASSES, activation="softmax"),
    )
    weights = np.random.default_rng(1).normal(size=3200 * 700 + 700 + 703 * 3 - 6, scale=0.02).astype("<f4")
    trial.select(
        "streamed", [trial.model(text, weights=weights.tobytes())], [ADAM], ["batch_size=64,epochs=1"]
    )
    found = []
    for out, more in (("of_stream", {"memory_mb": 16}), ("whole", {"materialize": "off"})):
        run = trial.fit("long_packed", out, "streamed", 4, options=more)
        found.append((len(cuts(trial, run)), trial.weights(out)))
    assert [count for count, _ in found] == [1, 0]
    assert found[0][1] == found[1][1]


def test_folds_share_what_the_trunk_gives(trial: Trial) -> None:
    trial.pack("blobs", "folded", options={"folds": 3})
    trial.keep("in_folds", "mst", [1])
    found = []
    for out, more in (("f_auto", {}), ("f_off", {"materialize": "off"})):
        run = trial.fit(
            "folded", out, "in_folds", EPOCHS, options={"cross_validate": {"final": True}, **more}
        )
        assert len(cuts(trial, run)) == (not more)
        keys = trial.sql("SELECT mst_key FROM cerebro._config WHERE run_id = %s ORDER BY mst_key", run)
        state = "SELECT data FROM cerebro.config_state(%s, %s)"
        found.append([[bytes(data) for (data,) in trial.sql(state, run, key)] for (key,) in keys])
    assert found[0] == found[1]


def test_nothing_behind_what_draws_or_changes_is_kept(trial: Trial) -> None:
    """Outputs after a layer that draws numbers or changes are not kept; too few layers are before it."""
    for name, layer in (
        ("dropping", nets.layer("Dropout", rate=0.2)),
        ("moving", nets.layer("BatchNormalization")),
    ):
        make_net(trial, name, net(layer))
        trial.keep(f"{name}_one", name, [1])
        run, _ = both(trial, f"{name}_one", {"backend": "jax"})
        assert cuts(trial, run) == []


@pytest.mark.parametrize(
    ("options", "model"),
    [({"budget_mb": 1}, "mst"), ({}, "mst_seeded"), ({"materialize": "off"}, "mst")],
    ids=["too little room", "weights of its own", "off"],
)
def test_nothing_is_kept(trial: Trial, options: dict[str, object], model: str) -> None:
    name = f"none_{len(options)}_{model}_{'off' if 'materialize' in options else ''}"
    trial.keep(name, model, [1])
    run = trial.fit("packed", f"{name}_models", name, EPOCHS, options=options)
    assert cuts(trial, run) == []


def test_the_plan_says_what_is_computed_once(trial: Trial) -> None:
    plan = trial.sql(
        "SELECT * FROM cerebro.explain_fit('packed', 'mst', %s, options => %s)", EPOCHS, '{"threads": 1}'
    )
    text = "\n".join(line for (line,) in plan)
    assert "Computed Once: 4 layers, up to dense_3" in text
    assert "Feature Bytes: 1.49 MB" in text
    assert "Saved Time: " in text


def test_options_are_checked(trial: Trial) -> None:
    for options, said in (
        ({"materialize": "always"}, "option materialize is always"),
        ({"budget_mb": 0}, "option budget_mb is 0"),
    ):
        with pytest.raises(psycopg2.Error, match=said):
            trial.fit("packed", "refused", "mst", 1, options=options)
