"""SQL on the models of a cross-validated run, each of which was trained without the rows of one fold."""

from __future__ import annotations

from collections.abc import Sequence

from cerebro_plpy.database import Database
from cerebro_plpy.store.names import Table, find_missing_columns
from cerebro_plpy.store.runs import results


def has_models_by_fold(db: Database, info: Table) -> bool:
    """Return whether a run is cross-validated: it has models that were trained without one fold.

    `info` is the table that describes the run's models.
    """
    return not find_missing_columns(db, info, [results.CONFIG_KEY])


def models_of_configs(db: Database, info: Table) -> dict[int, dict[int | None, int]]:
    """Return, for each config, the keys of its models by the fold that each model has not seen.

    A config is left out if one of its models is missing. In a run without folds, the only model of a config
    has the fold None.
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
