"""Writes models of groups from a saved folder into temporary tables, which `cerebro.register` reads."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cerebro_db import saved
from cerebro_db.statements import Raw, identifier, literal, select_list

if TYPE_CHECKING:
    from cerebro_db.protocols import Server

# Names of the server's own types. A length or precision in brackets does not change the groups.
_KIND = re.compile(
    r"(double precision|(?:character|bit) varying|[a-z][a-z0-9_]*)(?:\([0-9]+(?:,-?[0-9]+)?\))?"
    r"((?: with| without) time zone)?((?:\[\])?)"
)
# Columns of the info table of a run, with the keys of the measurement that each one holds.
_COLUMNS = {
    f"{what}_{name}_final": (what, key)
    for what in ("training", "validation")
    for key, name in (("loss", "loss"), ("value", "metrics"))
}


@dataclass(frozen=True)
class SavedGroups:
    """The models of groups that a saved folder describes.

    `types` has the SQL types of the columns that define groups, `nets` the nets by number, and `rows` the
    group, the net and the place of the weights of each model.
    """

    types: Mapping[str, str]
    nets: Mapping[int, Mapping[str, Any]]
    rows: Sequence[Mapping[str, Any]]

    def values(self, weights: bytes) -> list[object]:
        """Return the parameters of the first statement that the function `statements` returns."""
        return [weights, json.dumps(self.rows), json.dumps(self.nets)]


def read(folder: Path, found: Mapping[str, Any], weights: bytes) -> SavedGroups:
    """Return the models of groups in the description of a folder; raise CerebroError if it is invalid."""
    try:
        types = {str(name): str(kind) for name, kind in found["group_by"].items()}
        nets = {_number(key): _net(net) for key, net in found["nets"].items()}
        rows = list(_rows(found["groups"], types, nets))
        size = sum(row["size"] for row in rows)
    except (KeyError, TypeError, ValueError, AttributeError, IndexError, OverflowError) as error:
        raise saved.no_model(folder, f"its groups cannot be read, {error!r}") from None
    if not types or not rows or size != len(weights):
        raise saved.no_model(folder, f"its groups have {size} bytes of weights, and the file {len(weights)}")
    return SavedGroups(types, nets, rows)


def _number(value: Any) -> int:
    """Return `value` as an int; raise ValueError unless it is from 0 to 2**31 - 1."""
    number = int(value)
    if isinstance(value, bool | float) or not 0 <= number < 2**31:
        raise ValueError(f"{value!r} is no number of a config or of weights")
    return number


def _net(net: Mapping[str, Any]) -> dict[str, Any]:
    if not isinstance(net["architecture"], dict):
        raise TypeError("a net is no object")
    return {
        "model_arch": net["architecture"],
        "compile_params": str(net["compile_params"]),
        "fit_params": str(net["fit_params"]),
    }


def _rows(
    groups: Sequence[Mapping[str, Any]], types: Mapping[str, str], nets: Mapping[int, Any]
) -> Iterator[dict[str, Any]]:
    first = 0
    for one in groups:
        key, size, group = _number(one["net"]), 4 * _number(one["numbers"]), one["group"]
        if key not in nets or (group is not None and group.keys() != types.keys()):
            raise ValueError(f"a group has no net, or not the columns {', '.join(types)}")
        yield {
            "is_fallback": group is None,
            "values": group or {},
            "mst_key": key,
            "first": first,
            "size": size,
            **_measurements(one.get("metrics") or {}),
        }
        first += size


def _measurements(metrics: Mapping[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {"metric": None}
    for column, (what, key) in _COLUMNS.items():
        own = metrics.get(what) or {}
        # As text, which can also hold NaN and infinity.
        found[column] = None if own.get(key) is None else str(float(own[key]))
        found["metric"] = found["metric"] or own.get("metric")
    return found


def find_types(db: Server, folder: Path, types: Mapping[str, str]) -> dict[str, str]:
    """Return the server's own name for the type of each column; text from a folder must not become SQL."""
    asked = {name: _KIND.fullmatch(kind) for name, kind in types.items()}
    found = {
        name: _of_server(db, "".join(filter(None, match.groups())))
        for name, match in asked.items()
        if match is not None
    }
    for name, kind in types.items():
        if found.get(name) is None:
            raise saved.no_model(
                folder, f"column {name} is of type {kind[:60]!r}, which is none of the server's"
            )
    return {name: kind for name, kind in found.items() if kind is not None}


def _of_server(db: Server, kind: str) -> str | None:
    rows = db.look(
        "SELECT t.typname AS name FROM pg_catalog.pg_type AS t"
        " WHERE t.oid = pg_catalog.to_regtype(%s) AND t.typnamespace = 'pg_catalog'::pg_catalog.regnamespace"
        " AND t.typtype = 'b'",
        kind,
    )
    return f"pg_catalog.{identifier(rows[0]['name'])}" if rows else None


def statements(table: str, types: Mapping[str, str], summary: Mapping[str, Raw]) -> dict[str, str]:
    """Return the statements that create the tables, by the suffix of the table's name.

    The first statement takes the parameters `SavedGroups.values`.
    """
    names = ", ".join(map(identifier, types))
    parts = {
        "is_fallback": "bool", "values": "json", "mst_key": "int4", "first": "int4", "size": "int4",
        "metric": "text", **dict.fromkeys(_COLUMNS, "float8"),
    }  # fmt: skip
    # The statement has parameters, so a literal % must be doubled.
    own, listed = (
        ", ".join(each).replace("%", "%%")
        for each in (
            [f"v.{identifier(name)}" for name in types],
            [f"{identifier(name)} {kind}" for name, kind in types.items()],
        )
    )
    rows = (
        f"SELECT {own}, r.is_fallback, r.mst_key, r.metric, {', '.join(f'r.{name}' for name in _COLUMNS)},"
        " n.model_arch, n.compile_params, n.fit_params,"
        " pg_catalog.substr(w.data, r.first + 1, r.size) AS model_weights"
        " FROM (SELECT %s::pg_catalog.bytea AS data) AS w,"
        f" pg_catalog.json_to_recordset(%s::pg_catalog.json) AS r ({_columns(parts)}),"
        f" LATERAL pg_catalog.json_to_record(r.values) AS v ({listed}),"
        f" LATERAL pg_catalog.json_to_record(%s::pg_catalog.json -> r.mst_key::pg_catalog.text)"
        f" AS n ({_columns({'model_arch': 'json', 'compile_params': 'text', 'fit_params': 'text'})})"
    )
    queries = {
        "_all": rows,
        "": f"SELECT {names}, is_fallback, mst_key, model_weights, model_arch FROM pg_temp.{table}_all",
        "_info": f"SELECT {names}, is_fallback, mst_key, mst_key AS model_id, compile_params, fit_params,"
        f" 0::pg_catalog.float8 AS model_size, ARRAY[metric] AS metrics_type, {', '.join(_COLUMNS)},"
        " 'finished'::pg_catalog.text AS status, NULL::pg_catalog.text AS backend"
        f" FROM pg_temp.{table}_all",
        "_summary": "SELECT "
        + select_list({**summary, "group_by": Raw(f"{literal(list(types))}::pg_catalog.text[]")}),
    }
    return {
        suffix: f"CREATE TEMPORARY TABLE {table}{suffix} ON COMMIT DROP AS {query}"
        for suffix, query in queries.items()
    }


def _columns(types: Mapping[str, str]) -> str:
    return ", ".join(f'"{name}" pg_catalog.{kind}' for name, kind in types.items())
