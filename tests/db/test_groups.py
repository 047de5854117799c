"""Option `group_by` of packing: each config is trained on each group by itself."""

from __future__ import annotations

import numpy as np
import pytest

import nets
from trial import ADAM, SGD, Trial, blobs, rows_of

FEATURES, ROWS, EPOCHS = 6, 301, 3


@pytest.fixture(scope="module", autouse=True)
def tables(trial: Trial) -> None:
    x, y = blobs(ROWS, features=FEATURES)
    trial.table("blobs", "x real[], y integer", rows_of(x, y))
    trial.sql(
        "CREATE TABLE sales AS SELECT x, y, (ARRAY['NL', 'BE', NULL])[1 + number % 3] AS country,"
        " (number * number / 7 % 4)::smallint AS shop"
        " FROM (SELECT *, row_number() OVER () AS number FROM blobs) AS b"
    )
    trial.pack("sales", "packed", options={"group_by": ["country", "shop"]})
    trial.model(nets.mlp(FEATURES))
    trial.select("configs", [1], [ADAM, SGD], ["batch_size=10,epochs=1"])
    trial.fit("packed", "models", "configs", EPOCHS)


def test_each_group_has_its_rows_on_one_segment(trial: Trial) -> None:
    counted = "SELECT country, shop, count(*) FROM sales GROUP BY 1, 2 ORDER BY 1, 2"
    assert trial.sql("SELECT country, shop, __rows__ FROM packed_groups ORDER BY 1, 2") == trial.sql(counted)
    assert trial.value("SELECT max(cardinality(__segments__)) FROM packed_groups") == 1
    per_segment = trial.sql("SELECT sum(x_shape[1]) FROM packed GROUP BY __dist_key__")
    assert max(per_segment)[0] / min(per_segment)[0] < 1.05


def test_each_config_of_each_group_equals_a_run_of_its_own(trial: Trial) -> None:
    groups = trial.sql("SELECT country, shop FROM packed_groups ORDER BY __group__")
    assert len(groups) == 12
    for country, shop in groups:
        trial.sql(
            "DROP TABLE IF EXISTS own, own_packed, own_packed_summary, alone, alone_info, alone_summary"
        )
        trial.sql(
            "CREATE TABLE own AS SELECT * FROM sales WHERE country IS NOT DISTINCT FROM %s AND shop = %s",
            country, shop,
        )  # fmt: skip
        trial.pack("own", "own_packed", options={"segments": 1})
        trial.fit("own_packed", "alone", "configs", EPOCHS)
        ours = trial.sql(
            "SELECT mst_key, model_weights FROM models WHERE country IS NOT DISTINCT FROM %s AND shop = %s",
            country, shop,
        )  # fmt: skip
        assert {key: bytes(data) for key, data in ours} == trial.weights("alone")
        metrics = "SELECT mst_key, training_loss_final, training_metrics_final FROM {} {} ORDER BY 1"
        where = "WHERE country IS NOT DISTINCT FROM %s AND shop = %s"
        assert trial.sql(metrics.format("models_info", where), country, shop) == trial.sql(
            metrics.format("alone_info", "")
        )


MOMENTUM = "loss='categorical_crossentropy',optimizer='SGD(lr=0.1,momentum=0.9)',metrics=['accuracy']"


@pytest.mark.parametrize(
    ("net", "compiled"),
    [
        ("Dense(8, activation='relu')", ADAM),
        ("Dense(8, activation='relu'), Dropout(0.3)", MOMENTUM),
    ],
)
def test_groups_trained_as_one_program_equal_those_trained_one_by_one(
    trial: Trial, net: str, compiled: str
) -> None:
    results = [name + suffix for name in ("fused", "apart") for suffix in ("", "_info", "_summary")]
    trial.sql(f"DROP TABLE IF EXISTS nets, few, few_summary, {', '.join(results)}")
    trial.call("load_net", "nets", "packed", net)
    trial.select("few", [1], [compiled], ["batch_size=7,epochs=2"], arch="nets")
    for out, fuse in (("fused", "exact"), ("apart", "off")):
        trial.fit(
            "packed", out, "few", 4, metrics_compute_frequency=2,
            options={"backend": "jax", "fuse": fuse, "checkpoint_every": 3},
        )  # fmt: skip
    kept = "SELECT country, shop, model_weights FROM {} ORDER BY 1, 2"
    assert trial.sql(kept.format("fused")) == trial.sql(kept.format("apart"))
    # What is measured is summed up in another order: the last digit may differ.
    measured = "SELECT training_loss, training_metrics FROM {}_info ORDER BY country, shop"
    ours, theirs = (np.array(trial.sql(measured.format(name))) for name in ("fused", "apart"))
    np.testing.assert_allclose(ours, theirs, rtol=1e-6)
