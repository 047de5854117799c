"""SQL on tables of models of groups: which model answers for a row. It runs with the caller's rights."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from cerebro_plpy.database import Database
from cerebro_plpy.store.names import Table, quote
from cerebro_plpy.store.packed import Expression, SourceColumn, select_rows

# The key of the group that a row is of, as JSON; none where no group with a model has it.
GROUP_KEY = "__group_key__"


@dataclass(frozen=True)
class GroupModels:
    """The models of groups: for each group its best config, or one config for all."""

    model: Table
    info: Table
    # The columns of groups with their types.
    types: Mapping[str, str]
    mst_key: int | None
    # Compile parameters, quoted, whose first metric is the better the higher it is.
    higher: Sequence[str]

    @property
    def chosen(self) -> str:
        """A query for the group columns, the key as JSON, and the config of each group that answers."""
        names = ", ".join(f"i.{quote(name)}" for name in self.types)
        higher = f"i.compile_params IN ({', '.join(self.higher)})" if self.higher else "FALSE"
        loss, metric = (
            f"coalesce(i.validation_{what}_final, i.training_{what}_final)" for what in ("loss", "metrics")
        )
        worth = f"CASE WHEN {metric} IS NULL THEN {loss} WHEN {higher} THEN -{metric} ELSE {metric} END"
        which = "" if self.mst_key is None else f" AND i.mst_key = {int(self.mst_key)}"
        return (
            f"SELECT {names}, i.mst_key, (SELECT row_to_json(k)::text FROM (SELECT {names}) AS k) AS key"
            f" FROM (SELECT i.*, row_number() OVER (PARTITION BY {names}"
            f" ORDER BY {worth}, {loss}, i.mst_key) AS place FROM {self.info.quoted} AS i"
            f" WHERE i.model_size IS NOT NULL{which}) AS i WHERE i.place = 1"
        )

    def rows(self, source: Table) -> Table:
        """Rows with the key of the group that each is of, group by group."""
        same = " AND ".join(
            f"ARRAY[s.{quote(name)}::{kind}] = ARRAY[g.{quote(name)}]" for name, kind in self.types.items()
        )
        return replace(
            source,
            selection=f"(SELECT s.*, g.key AS {GROUP_KEY} FROM {source.rows}"
            f" LEFT JOIN ({self.chosen}) AS g ON {same} ORDER BY g.key)",
        )

    def statement(self, source: Table, expressions: Sequence[Expression]) -> str:
        """What reads rows, the key of the group last."""
        key = SourceColumn(GROUP_KEY, "text", False, "text", "text", True)
        return select_rows(self.rows(source), [*expressions, Expression("text", (key,))])

    def weights(self, db: Database) -> Iterator[tuple[str, int, bytes | None]]:
        """The model of each group: the group's key, the config, the weights."""
        same = " AND ".join(f"ARRAY[m.{quote(name)}] = ARRAY[g.{quote(name)}]" for name in self.types)
        batches = db.scan(
            f"SELECT g.key, g.mst_key, m.model_weights AS weights FROM ({self.chosen}) AS g"
            f" JOIN {self.model.quoted} AS m ON m.mst_key = g.mst_key AND {same}",
            batch=1000,
        )
        return ((row["key"], row["mst_key"], row["weights"]) for batch in batches for row in batch)


def types_of(db: Database, model: Table, columns: Sequence[str]) -> dict[str, str]:
    """The types of the columns of groups."""
    rows = db.query(
        "SELECT attname::text AS name, format_type(atttypid, atttypmod) AS kind FROM pg_attribute"
        " WHERE attrelid = $1 AND attname::text = ANY ($2) ORDER BY attnum",
        ["oid", "text[]"],
        [model.oid, list(columns)],
    )
    return {row["name"]: row["kind"] for row in rows}


def compiled(db: Database, info: Table) -> list[tuple[str, str]]:
    """The compile parameters of the configs, as they are and as a literal."""
    rows = db.query(
        f"SELECT DISTINCT compile_params AS text, quote_literal(compile_params) AS quoted FROM {info.quoted}"
    )
    return [(row["text"], row["quoted"]) for row in rows]
