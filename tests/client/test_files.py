"""Rows and packed tables are written to files and read from them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from cerebro_db import CerebroError, Database, Packed


@pytest.fixture(scope="module")
def several(client: Database) -> Packed:
    """A packed table with two inputs, two outputs and several buffers."""
    return client.pack(
        "cars", x=[["weight", "power"], ["id"]], y=["kind", "price"], into='"Two by two"', buffer_size=30
    )


@pytest.mark.parametrize("ending", ["npz", "parquet"])
def test_a_packed_table_comes_back_to_the_bit(
    client: Database, several: Packed, tmp_path: Path, ending: str
) -> None:
    path = several.export(tmp_path / f"packed.{ending}")
    back = client.import_packed(path, f"back_{ending}")
    there, here = (client.rows(f"SELECT * FROM {t} ORDER BY buffer_id") for t in (several.table, back.table))
    assert len(there) > 4
    assert [list(map(_plain, row.values())) for row in there] == [list(map(_plain, r.values())) for r in here]
    old, new = several.summary(), back.summary()
    assert {**old, "output_table": back.table} == new
    kinds = (
        "SELECT attname, format_type(atttypid, -1) AS kind FROM pg_attribute"
        " WHERE attrelid = %s::regclass AND attnum > 0 ORDER BY attnum"
    )
    for suffix in ("", "_summary"):
        assert client.rows(kinds, f'"Two by two{suffix}"') == client.rows(kinds, f"{back.table}{suffix}")


def _plain(value: object) -> object:
    return bytes(value) if isinstance(value, memoryview) else value


def test_an_npz_file_holds_the_rows_as_arrays(client: Database, packed: Packed, tmp_path: Path) -> None:
    with np.load(packed.export(tmp_path / "packed.npz")) as file:
        x, y = file["independent_var"], file["price"]
    assert (x.shape, x.dtype, y.shape) == ((200, 2), np.float32, (200, 1))
    np.testing.assert_allclose(y[:, 0], 3 * x[:, 0] - x[:, 1], atol=1e-5)


def test_a_parquet_file_holds_a_row_for_each_example(packed: Packed, tmp_path: Path) -> None:
    frame = pd.read_parquet(packed.export(tmp_path / "packed.parquet"))
    assert len(frame) == 200
    x = np.stack(list(frame["independent_var"]))
    np.testing.assert_allclose([y[0] for y in frame["price"]], 3 * x[:, 0] - x[:, 1], atol=1e-5)


def test_a_table_from_a_file_trains_as_the_original(
    client: Database, packed: Packed, model: int, tmp_path: Path
) -> None:
    back = client.import_packed(packed.export(tmp_path / "packed.npz"), "elsewhere")
    grid = {"model": model, "loss": "mse"}
    runs = [client.fit(t, grid, epochs=1, seed=5, wait=True, backend="jax") for t in (packed, back)]
    weights = [
        bytes(client.rows(f"SELECT model_weights FROM {run.info()['model_table']}")[0]["model_weights"])
        for run in runs
    ]
    assert weights[0] == weights[1]


def test_a_file_of_somebody_elses_is_no_packed_table(client: Database, tmp_path: Path) -> None:
    np.savez(tmp_path / "other.npz", x=np.zeros(3))
    pd.DataFrame({"x": [1.0]}).to_parquet(tmp_path / "other.parquet")
    for name in ("other.npz", "other.parquet"):
        with pytest.raises(CerebroError, match=r"not written by Packed\.export"):
            client.import_packed(tmp_path / name, "other")


def test_rows_of_every_kind_become_a_table(client: Database) -> None:
    frame = pd.DataFrame(
        {
            "id": [1, 2],
            "ratio": [0.1, None],
            "good": [True, False],
            "at": pd.to_datetime(["2026-01-02 03:04:05", None]),
            "said": ['comma, "quote"', None],
            "vector": [np.array([1.0, 2.0]), [3.0, 4.5]],
            "hot": [[0, 1], np.array([1, 0])],
            "raw": [b"\x00\xff", b""],
        }
    )
    assert client.load("every_kind", frame) == 2
    first, second = client.rows("SELECT * FROM every_kind ORDER BY id")
    assert (first["id"], first["ratio"], first["good"]) == (1, 0.1, True)
    assert first["at"] == pd.Timestamp("2026-01-02 03:04:05")
    assert (first["said"], first["vector"], bytes(first["raw"])) == (
        'comma, "quote"',
        [1.0, 2.0],
        b"\x00\xff",
    )
    # Numbers of classes would be quantities if they were floats.
    assert client.rows("SELECT pg_typeof(hot)::text AS kind FROM every_kind")[0]["kind"] == "bigint[]"
    assert (first["hot"], second["hot"]) == ([0, 1], [1, 0])
    assert (second["ratio"], second["at"], second["said"], second["vector"]) == (None, None, None, [3.0, 4.5])


def test_groups_and_folds_are_not_lost_in_a_file(client: Database, tmp_path: Path) -> None:
    grouped = client.pack("cars", x=["weight", "power"], y="kind", into="by_kind", group_by=["kind"])
    folded = client.pack("cars", x=["weight", "power"], y="kind", into="in_folds", folds=3)
    for packed, what in ((grouped, "groups"), (folded, "folds")):
        with pytest.raises(CerebroError, match=f"it has {what}, which the file would lose"):
            packed.export(tmp_path / "packed.npz")
    assert not list(tmp_path.iterdir())


def test_files_of_rows_are_loaded_and_packed(client: Database, tmp_path: Path) -> None:
    x, y = np.arange(24, dtype=np.float32).reshape(4, 2, 3), np.array(["a", "b", "a", "b"])
    np.savez(tmp_path / "rows.npz", x=x, y=y)
    assert client.load("from_npz", tmp_path / "rows.npz") == 4
    assert client.pack("from_npz", x="x", y="y").summary()["num_classes"] == [2]
    pd.DataFrame({"a": [1.5, 2.5], "b": [1, 2]}).to_parquet(tmp_path / "rows.parquet")
    client.load("from_parquet", str(tmp_path / "rows.parquet"))
    assert client.rows("SELECT * FROM from_parquet ORDER BY b") == [{"a": 1.5, "b": 1}, {"a": 2.5, "b": 2}]


def test_columns_of_different_lengths_are_refused(client: Database) -> None:
    with pytest.raises(CerebroError, match="must have the same number"):
        client.load("ragged", {"x": np.zeros(2), "y": np.zeros(3)})
    assert client.rows("SELECT to_regclass('ragged') IS NULL AS gone") == [{"gone": True}]
