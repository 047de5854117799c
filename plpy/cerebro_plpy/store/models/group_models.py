"""SQL on the tables of models of groups, to find the model for a row. It runs with the caller's rights."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from cerebro_plpy.database import Database
from cerebro_plpy.errors import WRONG_STATE, CerebroError
from cerebro_plpy.store.models.predictions import standing
from cerebro_plpy.store.names import Table, quote
from cerebro_plpy.store.packed.groups import CONFIG, FALLBACK, KEY_TEXT, PLACE, UNIT, GroupRow, Groups
from cerebro_plpy.store.packed.packed import Expression, SourceColumn
from cerebro_plpy.store.packed.same_group import same_group
from cerebro_plpy.store.plain import as_json

# In place of the key of a group: the model of all rows.
ALL_ROWS = ""
# The key of a group, the config that answers for it, and the weights.
WeightsOfGroup = tuple[str, int, bytes | None]


@dataclass(frozen=True)
class GroupModels:
    """The models of groups, as queries that say which config's model answers for each group."""

    # What messages call them.
    name: str
    # The columns of groups with their types.
    types: Mapping[str, str]
    # A query for the group columns, the key as JSON, and the config that answers for each group. It includes
    # the model of all rows, if there is one.
    chosen: str
    # A query for the columns of all groups that have a model.
    listed: str
    # The config whose models alone answer; None for the best of each group.
    mst_key: int | None = None
    # The groups as JSON, for queries that read them from their first parameter: a text of a statement may be
    # shown to a caller who should see no groups.
    held: str | None = None

    @property
    def parameters(self) -> tuple[list[str], list[str]]:
        """The types and the values of the parameters that the queries take."""
        return ([], []) if self.held is None else (["text"], [self.held])

    @property
    def shown_columns(self) -> str:
        """The names of the columns that make groups, joined by commas, for messages."""
        return ", ".join(self.types)

    def key_of_rows(self, known: Mapping[str, SourceColumn]) -> tuple[str, str]:
        """Return an SQL expression for the key of a row's group, and the join that the expression needs.

        The row has the alias s in the query. The join may be an empty text.

        If the attribute `held` is set, the key consists of the row's own values, which may be equal to the
        group's but written differently.
        """
        if self.held is None:
            return f"g.{KEY_TEXT}", self.joined(known)
        names = ", ".join(f"s.{quote(name)}" for name in self.types)
        return f"(SELECT {as_json('k.*')} FROM (SELECT {names}) AS k)", ""

    def with_keys(self, source: Table, known: Mapping[str, SourceColumn]) -> Table:
        """Return the table with the key of each row's group in a further column, NULL if the group has no
        model.

        A query that reads this table must be given `parameters`.
        """
        listed = ", ".join(f"s.{quote(column)}" for column in known)
        query = f"SELECT {listed}, g.{KEY_TEXT} FROM {source.rows} {self.joined(known)}"
        return replace(source, selection=f"({query})")

    def joined(self, known: Mapping[str, SourceColumn]) -> str:
        """Return the SQL of a join that finds the group (alias g) of each row (alias s).

        Its columns are NULL if the group has no model.
        """
        return f"LEFT JOIN ({self.chosen}) AS g ON {same_group(self.types, known)} AND NOT g.{FALLBACK}"

    def statement(
        self, source: Table, known: Mapping[str, SourceColumn], expressions: Sequence[Expression]
    ) -> str:
        """Return a query that reads rows group by group, with the group's key last; rows of groups without a
        model come at the end."""
        listed = "".join(f"{one.text} AS c{number}, " for number, one in enumerate(expressions))
        return (
            f"SELECT {listed}g.{KEY_TEXT} AS c{len(expressions)} FROM {source.rows} {self.joined(known)}"
            f" ORDER BY g.{KEY_TEXT}"
        )

    def group_of(self, db: Database, values: Mapping[str, str | None]) -> str | None:
        """Return the key of a row's group, or None if the group has no model.

        `values` are the row's values, as texts in JSON.
        """
        given = ", ".join(f"{quote(name)} pg_catalog.text" for name in self.types)
        names = ", ".join(f"i.{quote(name)}" for name in self.types)
        types, held = self.parameters
        row = f"pg_catalog.json_to_record(${len(held) + 1}::pg_catalog.json) AS s ({given})"
        rows = db.query(
            f"SELECT {as_json('k.*')} AS key FROM ({self.listed}) AS i, {row}, LATERAL (SELECT {names}) AS k"
            f" WHERE {same_group(self.types, None, 'i')} LIMIT 1",
            [*types, "text"],
            [*held, json.dumps(values)],
        )
        return rows[0]["key"] if rows else None

    def configs(self, db: Database) -> dict[str, int]:
        """Return the config (`mst_key`) whose model answers for each group, by the key of the group."""
        rows = db.query(f"SELECT g.{KEY_TEXT} AS key, g.mst_key FROM ({self.chosen}) AS g", *self.parameters)
        return {row["key"]: row["mst_key"] for row in rows}


@dataclass(frozen=True)
class GroupTables:
    """Two result tables of a run of groups: the table of models, and the table that describes them."""

    model: Table
    info: Table
    # The columns of groups with their types.
    types: Mapping[str, str]

    def choose(self, mst_key: int | None, higher: Sequence[str]) -> GroupModels:
        """Return the queries for the best model of each group or, with `mst_key`, the models of this config.

        `higher` lists compile parameters, as SQL literals, with which a higher value of the first metric is
        better.
        """
        names = ", ".join(f"i.{quote(name)}" for name in self.types)
        there = "i.model_size IS NOT NULL"
        return GroupModels(
            self.model.quoted,
            self.types,
            self._chosen(names, there, mst_key, higher),
            f"SELECT {names} FROM {self.info.quoted} AS i WHERE {there} AND NOT i.{FALLBACK}",
            mst_key,
        )

    def _chosen(self, names: str, there: str, mst_key: int | None, higher: Sequence[str]) -> str:
        equals = "OPERATOR(pg_catalog.=)"
        is_higher = (
            f"i.compile_params::pg_catalog.text {equals} ANY (ARRAY[{', '.join(higher)}]::pg_catalog.text[])"
            if higher
            else "FALSE"
        )
        loss, metric = (
            f"coalesce(i.validation_{what}_final, i.training_{what}_final)" for what in ("loss", "metrics")
        )
        worth = (
            f"CASE WHEN {loss} {equals} ANY ('{{NaN,Infinity,-Infinity}}'::pg_catalog.float8[]) THEN NULL"
            f" WHEN {metric} IS NULL THEN {loss}"
            f" WHEN {is_higher} THEN OPERATOR(pg_catalog.-) {metric} ELSE {metric} END"
        )
        which = "" if mst_key is None else f" AND i.mst_key {equals} {int(mst_key)}"
        return (
            f"SELECT {names}, i.{FALLBACK}, i.mst_key, CASE WHEN i.{FALLBACK} THEN '{ALL_ROWS}'"
            f" ELSE {as_json('k.*')} END AS {KEY_TEXT}"
            f" FROM (SELECT i.*, pg_catalog.row_number() OVER (PARTITION BY i.{FALLBACK}, {names}"
            f" ORDER BY {worth}, {loss}, i.mst_key) AS {PLACE} FROM {self.info.quoted} AS i"
            # Early versions of Greenplum 7 take no subquery with an outer reference in its place.
            f" WHERE {there}{which}) AS i, LATERAL (SELECT {names}) AS k"
            f" WHERE i.{PLACE} {equals} 1"
        )

    def weights(self, db: Database, chosen: GroupModels) -> Iterator[WeightsOfGroup]:
        """Yield each group's key, the config that answers for it, and the weights of its model."""
        batches = db.scan(
            f"SELECT g.{KEY_TEXT} AS key, g.mst_key, m.model_weights AS weights FROM ({chosen.chosen}) AS g"
            f" JOIN {self.model.quoted} AS m ON m.mst_key = g.mst_key AND {_alike(self.types)}"
            f" AND m.{FALLBACK} = g.{FALLBACK}",
            batch=1000,
        )
        return ((row["key"], row["mst_key"], row["weights"]) for batch in batches for row in batch)


def weights_from(
    db: Database, table: str, types: Mapping[str, str], rows: Sequence[Mapping[str, Any]]
) -> dict[int, bytes]:
    """Return the weights of the models that `rows` name, by the number `unit` in the row of each model.

    Raise an error if a model has no weights. `row_of` makes such rows; `types` has the types of the columns
    that make groups.
    """
    named = ", ".join(f"{quote(name)} {kind}" for name, kind in types.items())
    found = db.query(
        f"SELECT g.{UNIT} AS unit, m.model_weights AS weights FROM json_to_recordset($1::json)"
        f" AS g ({UNIT} integer, {CONFIG} integer, {FALLBACK} boolean, {named})"
        f" JOIN {table} AS m ON m.mst_key = g.{CONFIG} AND m.{FALLBACK} = g.{FALLBACK}"
        f" AND {_alike(types)} WHERE m.model_weights IS NOT NULL",
        ["text"],
        [json.dumps(list(rows))],
    )
    if len(found) < len(rows):
        raise CerebroError(
            f"{table} has no weights for {len(rows) - len(found)} of {len(rows)} groups",
            detail="The table that describes its models has these groups.",
            sqlstate=WRONG_STATE,
        )
    return {row["unit"]: row["weights"] for row in found}


_AT_ONCE = 10_000


def delete(
    db: Database, tables: Sequence[str], types: Mapping[str, str], rows: Sequence[Mapping[str, Any]]
) -> None:
    """From these tables, delete the models that `rows` name.

    `row_of` makes such rows; `types` has the types of the columns that make groups.
    """
    named = ", ".join(f"{quote(name)} {kind}" for name, kind in types.items())
    for first in range(0, len(rows), _AT_ONCE):
        some = json.dumps(list(rows[first : first + _AT_ONCE]))
        for table in tables:
            db.query(
                f"DELETE FROM {table} AS m USING json_to_recordset($1::json)"
                f" AS g ({CONFIG} integer, {FALLBACK} boolean, {named})"
                f" WHERE m.mst_key = g.{CONFIG} AND m.{FALLBACK} = g.{FALLBACK} AND {_alike(types)}",
                ["text"],
                [some],
            )


def _alike(types: Mapping[str, str], of: str = "g") -> str:
    """Return the condition that the rows with aliases m and `of` are of the same group; NULL equals NULL."""
    return " AND ".join(f"ARRAY[m.{quote(name)}] = ARRAY[{of}.{quote(name)}]" for name in types)


def measured(db: Database, tables: GroupTables, chosen: GroupModels) -> dict[str, Mapping[str, Any]]:
    """Return the last losses and metrics of each group's model, by the key of the group.

    A value that is not finite is NULL.
    """
    known = [f"{data}_{what}_final" for data in ("training", "validation") for what in ("loss", "metrics")]
    finite = ", ".join(
        f"CASE WHEN m.{name} NOT IN ('NaN', 'Infinity', '-Infinity') THEN m.{name} END AS {name}"
        for name in known
    )
    rows = db.query(
        f"SELECT g.{KEY_TEXT} AS key, m.metrics_type, {finite} FROM ({chosen.chosen}) AS g"
        f" JOIN {tables.info.quoted} AS m ON m.mst_key = g.mst_key AND {_alike(tables.types)}"
        f" AND m.{FALLBACK} = g.{FALLBACK} AND m.model_size IS NOT NULL"
    )
    return {row["key"]: row for row in rows}


@dataclass(frozen=True)
class TrainedUnit:
    """A config of a group, as a run's tables describe it: its parameters, and whether the tables have its
    weights."""

    model_id: int
    compile_params: str
    fit_params: str
    has_weights: bool


def trained(db: Database, found: GroupTables) -> dict[tuple[str, int], TrainedUnit]:
    """Return the configs of groups that have models, by the key of the group and the config's `mst_key`."""
    names = ", ".join(f"i.{quote(name)}" for name in found.types)
    rows = db.query(
        f"SELECT CASE WHEN i.{FALLBACK} THEN '{ALL_ROWS}' ELSE {as_json('k.*')} END AS key,"
        " i.mst_key, i.model_id, i.compile_params, i.fit_params, m.mst_key IS NOT NULL AS has_weights"
        f" FROM {found.info.quoted} AS i LEFT JOIN {found.model.quoted} AS m ON m.mst_key = i.mst_key"
        f" AND m.{FALLBACK} = i.{FALLBACK} AND m.model_weights IS NOT NULL AND"
        f" {_alike(found.types, 'i')}, LATERAL (SELECT {names}) AS k WHERE i.model_size IS NOT NULL"
    )
    return {(row.pop("key"), row.pop("mst_key")): TrainedUnit(**row) for row in map(dict, rows)}


def keys_here(db: Database, found: Groups, keys: Iterable[str]) -> dict[str, str]:
    """Return the key that a group has in `found`, by the key of the same group in `keys`.

    Only keys that are equal but written differently, such as 1.0 and 1.00, are returned.
    """
    own = {group.key for group in found.rows.values()}
    others = sorted({*keys} - own - {ALL_ROWS})
    if not others:
        return {}
    given = ", ".join(f"{quote(name)} text" for name in found.types)
    names = ", ".join(f"g.{quote(name)}" for name in found.types)
    rows = db.query(
        f"SELECT x.key, {as_json('k.*')} AS here FROM json_array_elements_text($1::json) AS x (key),"
        f" LATERAL json_to_record(x.key::json) AS s ({given}), {found.table} AS g,"
        f" LATERAL (SELECT {names}) AS k WHERE {same_group(found.types, None)}",
        ["text"],
        [json.dumps(others)],
    )
    return {row["key"]: row["here"] for row in rows}


def row_of(types: Iterable[str], unit: int, mst_key: int, group: GroupRow | None) -> dict[str, Any]:
    """Return the row that names a model for `weights_from` and `delete`.

    It is the model of a group, or of all rows if `group` is None. `weights_from` returns its weights under
    the number `unit`.
    """
    values = dict.fromkeys(types) if group is None else group.values
    return {**values, UNIT: unit, CONFIG: mst_key, FALLBACK: group is None}


def compiled(db: Database, info: Table) -> list[tuple[str, str]]:
    """Return the different compile parameters of the configs: as text, and as SQL literals for `choose`."""
    rows = db.query(
        f"SELECT DISTINCT compile_params AS text, quote_literal(compile_params) AS quoted FROM {info.quoted}"
    )
    return [(row["text"], row["quoted"]) for row in rows]


def version(db: Database, found: GroupTables) -> str:
    """Return a text that changes with the models, the tables that describe them, and the current user.

    The server raises an error if the caller may not read all of these.
    """
    models = standing(found.model.quoted, "model_weights", "model_arch")
    infos = standing(found.info.quoted, "compile_params", "model_size")
    summary = standing(quote(found.model.schema, found.model.name + "_summary"))
    rows = db.query(f"SELECT concat_ws('/', current_user::text, {models}, {infos}, {summary}) AS found")
    return rows[0]["found"]
