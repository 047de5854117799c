"""SQL on the weights that configs of runs start from; with the rights of the extension's owner."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from cerebro_plpy.database import Database, as_owner

# In place of a config's key: the weights serve every config of an architecture.
EVERY_CONFIG = -1


@as_owner
def add(db: Database, run_id: int, model_id: int, mst_key: int, weights: bytes) -> None:
    """Store the weights from which a config starts or, if `mst_key` is `EVERY_CONFIG`, every config of an
    architecture."""
    db.query(
        "INSERT INTO cerebro._weights (run_id, model_id, mst_key, weights) VALUES ($1, $2, $3, $4)",
        ["bigint", "integer", "integer", "bytea"],
        [run_id, model_id, mst_key, weights],
    )


@as_owner
def add_several(db: Database, run_id: int, model_id: int, weights: Mapping[int, bytes]) -> None:
    """Store the weights from which several configs of an architecture start, by the configs' keys."""
    db.query(
        "INSERT INTO cerebro._weights (run_id, model_id, mst_key, weights)"
        " SELECT $1, $2, w.mst_key, w.weights FROM ROWS FROM"
        " (pg_catalog.unnest($3), pg_catalog.unnest($4)) AS w (mst_key, weights)",
        ["bigint", "integer", "integer[]", "bytea[]"],
        [run_id, model_id, list(weights), list(weights.values())],
    )


@as_owner
def any_of(db: Database, run_id: int) -> bool:
    """Return whether any config of a run starts from stored weights."""
    return bool(db.query("SELECT FROM cerebro._weights WHERE run_id = $1 LIMIT 1", ["bigint"], [run_id]))


@as_owner
def of_config(db: Database, run_id: int, model_id: int, mst_key: int) -> bytes | None:
    """Return the weights from which a config starts: its own or else those of its architecture; None if there
    are none."""
    rows = db.query(
        "SELECT weights FROM cerebro._weights WHERE run_id = $1 AND model_id = $2 AND mst_key IN ($3, $4)"
        " ORDER BY mst_key DESC LIMIT 1",
        ["bigint", "integer", "integer", "integer"],
        [run_id, model_id, mst_key, EVERY_CONFIG],
    )
    return rows[0]["weights"] if rows else None


@as_owner
def read_own_weights(db: Database, run_id: int, keys: Sequence[int]) -> dict[int, bytes]:
    """Return the weights from which these configs start, by key; configs without weights of their own are
    left out."""
    rows = db.query(
        "SELECT mst_key, weights FROM cerebro._weights WHERE run_id = $1 AND mst_key = ANY ($2)",
        ["bigint", "integer[]"],
        [run_id, list(keys)],
    )
    return {row["mst_key"]: row["weights"] for row in rows}
