"""`db.train`: a data frame of mixed columns in, a leaderboard out, and predictions in any query after it."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest
from cerebro_db import CerebroError, Database

ROWS = 400


@pytest.fixture(scope="module")
def frame() -> pd.DataFrame:
    ages = [None if i % 10 == 0 else 18.0 + i * 7 % 60 for i in range(ROWS)]
    plans = [("free", "basic", "pro")[i % 3] for i in range(ROWS)]
    gone = [
        "yes" if (age or 0) > 45 or plan == "pro" else "no" for age, plan in zip(ages, plans, strict=True)
    ]
    return pd.DataFrame(
        {"age": ages, "plan": plans, "joined": pd.date_range("2024", periods=ROWS), "gone": gone}
    )


def test_a_data_frame_is_trained_on_as_it_is(client: Database, frame: pd.DataFrame) -> None:
    board = client.train(frame, "gone", name="churn", configs=3, epochs=4, nets=["linear", "tabular"])
    assert board[0]["best"] and board[0]["metric"] > 0.8
    found = client.rows("SELECT count(p.class) AS n FROM churn_rows c, cerebro.predict('churn', c) p")
    assert found == [{"n": ROWS}]


def test_a_session_that_ran_another_engine_is_no_hindrance(client: Database) -> None:
    how = {"configs": 1, "epochs": 1, "nets": ["linear"], "backend": "jax"}
    assert client.train("churn_rows", "gone", name="by_jax", **how)


def test_columns_are_packed_as_they_are(client: Database) -> None:
    packed = client.pack("churn_rows", x="*", y="gone", into="as_it_is", columns="auto", validation=0.25)
    assert len(packed) + len(client.packed("as_it_is_validation")) == ROWS
    assert packed.summary()["feature_specification"]["inputs"][0]["name"] == "independent_var"


def test_a_file_carries_what_columns_became_and_weights(client: Database, tmp_path: Path) -> None:
    client.rows("CREATE TABLE weighed AS SELECT *, 2 AS w FROM churn_rows")
    packed = client.pack("weighed", x="*", y="gone", columns="auto", weight="w")
    packed.export(tmp_path / "packed.npz")
    again = client.import_packed(tmp_path / "packed.npz", "weighed_again")
    for key in ("feature_specification", "weight_varname", "total_rows"):
        assert again.summary()[key] == packed.summary()[key]
    sums = "SELECT md5(string_agg(__weight__::text || independent_var::text, '' ORDER BY buffer_id)) FROM "
    assert client.rows(sums + "weighed_packed") == client.rows(sums + "weighed_again")


def test_what_is_wrong_is_said(client: Database, frame: pd.DataFrame) -> None:
    with pytest.raises(CerebroError, match="a data frame needs a name"):
        client.train(frame, "gone")
    with pytest.raises(CerebroError, match='column "left" does not exist'):
        client.train("churn_rows", "left", name="other")
