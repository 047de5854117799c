"""Shows a run of groups on the dashboard: the distribution of their results, and a list of groups."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Engine

from cerebro_db.dashboard import views
from cerebro_db.dashboard.actions import UnknownAction

Row = dict[str, Any]

MOST_ROWS = 200
# Limits the length of a search, each word of which is searched for in every group.
MOST_SEARCH = 1000
BARS = 40
# Columns of cerebro.groups that rows may be sorted by; what begins with a dot is a column that makes groups.
SORTED = ("group_key", "rows", "status", "mst_key", "value", "best_value", "loss", "epoch", "configs")
MAKES_GROUPS = "."

# One statement, so that the groups are read only once. NaN becomes NULL, as JSON has no NaN.
_GROUPS = """
WITH g AS MATERIALIZED (
    SELECT group_key, group_key::jsonb AS key, "rows", segments, status, left(reason, 500) AS reason, configs,
        failed_configs, mst_key, unit_key, dataset, metric, epoch, is_fallback,
        CASE WHEN value NOT IN ('NaN', 'Infinity', '-Infinity') THEN value END AS value,
        CASE WHEN best_value NOT IN ('NaN', 'Infinity', '-Infinity') THEN best_value END AS best_value,
        CASE WHEN loss NOT IN ('NaN', 'Infinity', '-Infinity') THEN loss END AS loss
    FROM cerebro.groups WHERE run_id = %(run)s
), found AS MATERIALIZED (
    SELECT * FROM g WHERE NOT EXISTS (
        SELECT FROM unnest(%(words)s::text[]) AS w (word)
        WHERE strpos(lower(concat_ws(' ', g.status, g.reason, CASE WHEN g.is_fallback THEN 'all rows' END,
            (SELECT string_agg(k.value, ' ') FROM jsonb_each_text(g.key) AS k))), w.word) = 0
    ) AND NOT EXISTS (
        SELECT FROM unnest(%(names)s::text[], %(values)s::text[]) AS e (name, value)
        WHERE lower(coalesce(g.key ->> e.name, 'null')) IS DISTINCT FROM e.value
    )
), reached AS MATERIALIZED (
    SELECT value FROM found WHERE value IS NOT NULL AND NOT is_fallback
), spread AS MATERIALIZED (
    SELECT count(*) AS number, min(value) AS lowest, max(value) AS highest, avg(value) AS mean,
        percentile_cont(ARRAY[0.05, 0.25, 0.5, 0.75, 0.95]) WITHIN GROUP (ORDER BY value) AS quantiles
    FROM reached
), bars AS (
    SELECT CASE WHEN s.highest > s.lowest
        THEN least(width_bucket(r.value, s.lowest, s.highest, {bars}), {bars}) - 1 ELSE 0 END AS bar,
        count(*) AS number
    FROM reached AS r CROSS JOIN spread AS s GROUP BY 1
), page AS (
    SELECT * FROM found ORDER BY {order}, is_fallback DESC, key NULLS FIRST LIMIT %(limit)s OFFSET %(offset)s
)
SELECT
    (SELECT count(*) FROM g WHERE NOT is_fallback) AS total,
    (SELECT count(*) FROM found) AS found,
    (SELECT json_object_agg(status, number) FROM (
        SELECT status, count(*) AS number FROM g WHERE NOT is_fallback GROUP BY status) AS s) AS statuses,
    (SELECT json_agg(k) FROM json_object_keys(
        (SELECT group_key::json FROM g WHERE NOT is_fallback LIMIT 1)) AS k) AS columns,
    (SELECT max(configs) FROM g) AS configs,
    (SELECT min(concat_ws(' ', dataset, metric)) FROM g WHERE metric IS NOT NULL) AS deciding,
    (SELECT row_to_json(spread) FROM spread) AS spread,
    (SELECT json_agg(json_build_array(bar, number) ORDER BY bar) FROM bars) AS bars,
    (SELECT json_agg(page) FROM page) AS rows
"""


@dataclass(frozen=True)
class Asked:
    """A search for groups, with the order of the groups found and the part of them to show."""

    search: str = ""
    order: str = "group_key"
    down: bool = False
    limit: int = 50
    offset: int = 0


def asked(given: Mapping[str, str]) -> Asked:
    """Return the search that a request's query string describes, whose numbers are already checked."""
    order = given.get("order", "group_key")
    if order not in SORTED and not order.startswith(MAKES_GROUPS):
        raise UnknownAction(f"groups are sorted by {', '.join(SORTED)}, or by .column")
    if "\0" in order + given.get("search", ""):
        raise UnknownAction("the database can hold no such text")
    if len(given.get("search", "")) > MOST_SEARCH:
        raise UnknownAction(f"the search has more than {MOST_SEARCH} characters")
    limit, offset = (int(given.get(name, default)) for name, default in (("limit", "50"), ("offset", "0")))
    return Asked(given.get("search", ""), order, given.get("down") == "true", min(limit, MOST_ROWS), offset)


def groups(engine: Engine, run_id: int, which: Asked) -> Row | None:
    """Return a part of the groups found, and the distribution of all found; None if there is no such run."""
    words = which.search.lower().split()
    pairs = [word.partition("=") for word in which.search.split() if word.partition("=")[1]]
    way = "DESC" if which.down else "ASC"
    column = "key -> %(column)s" if which.order.startswith(MAKES_GROUPS) else f'"{which.order}"'
    if which.order == "group_key":
        column = "key"
    with engine.connect() as connection:
        if not views.rows(connection, views.RUN, run=run_id):
            return None
        (found,) = views.rows(
            connection,
            _GROUPS.format(bars=BARS, order=f"{column} {way} NULLS LAST"),
            run=run_id,
            words=[word for word in words if "=" not in word],
            names=[name for name, _, _ in pairs],
            values=[value.lower() for _, _, value in pairs],
            column=which.order.removeprefix(MAKES_GROUPS),
            limit=which.limit,
            offset=which.offset,
        )
        return found
