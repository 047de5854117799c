"""SQL on models that have not seen a fold, as a cross-validated run keeps them."""

from __future__ import annotations

from collections.abc import Sequence

from cerebro_plpy.database import Database
from cerebro_plpy.store.names import Table, has_columns
from cerebro_plpy.store.runs import results


def has_models_by_fold(db: Database, info: Table) -> bool:
    """Return whether a cross-validated run has kept the models that have not seen a fold."""
    return not has_columns(db, info, [results.CONFIG_KEY])


def models_of_configs(db: Database, info: Table) -> dict[int, dict[int | None, int]]:
    """Return the keys of each config's models by the folds that they have not seen, if none is missing.

    A config without folds has the one model, and so no fold.
    """
    if not has_models_by_fold(db, info):
        keys = sorted(row["mst_key"] for row in results.measured(db, info.quoted))
        return {key: {None: key} for key in keys}
    rows = db.query(
        f"SELECT i.{results.CONFIG_KEY} AS config, i.{results.FOLD} AS fold, i.mst_key,"
        " i.model_size IS NOT NULL AS there"
        f" FROM {info.quoted} AS i WHERE i.{results.FOLD} IS NOT NULL ORDER BY 1, 2"
    )
    incomplete = {row["config"] for row in rows if not row["there"]}
    found: dict[int, dict[int | None, int]] = {}
    for row in rows:
        if row["config"] not in incomplete:
            found.setdefault(row["config"], {})[row["fold"]] = row["mst_key"]
    return found


def drop_tables(db: Database, tables: Sequence[Table]) -> None:
    db.query(f"DROP TABLE {', '.join(table.quoted for table in tables)}")
