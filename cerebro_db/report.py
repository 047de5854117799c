"""Writes a report of a run as one HTML file, for readers who did not follow the run."""

from __future__ import annotations

import platform
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cerebro_db import groups, judged, markup, plots
from cerebro_db.link import Row
from cerebro_db.watch import duration

if TYPE_CHECKING:
    from cerebro_db.protocols import RunRows

SHOWN = 50
FEW = 6
_SHOWN_OF_GROUPS = ("group_key", "rows", "status", "mst_key", "value", "loss", "reason")
# Groups without a value come first. Whether a higher value is better is in the rows of cerebro.metrics.
_LOWEST = f"""
SELECT g.* FROM cerebro.groups AS g WHERE g.run_id = %s AND NOT g.is_fallback
ORDER BY g.metric NULLS FIRST, CASE WHEN (
    SELECT bool_or(m.higher_is_better) FROM cerebro.metrics AS m
    WHERE m.run_id = g.run_id AND m.mst_key = g.unit_key AND m.metric = g.metric
) THEN g.value ELSE -g.value END, g.group_key LIMIT {SHOWN}
"""
_HEAD = ("name", "type", "element", "kind", "input", "statistics")
COMPARES = "<p>A search compares losses, whatever metric ranks the leaderboard.</p>"
_STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; max-width: 62em; margin: 2em auto; padding: 0 1em; color: #222 }
h1 { margin-bottom: 0 } h2 { margin-top: 2em; border-bottom: 1px solid #ccc }
table { border-collapse: collapse; margin: 1em 0; display: block; overflow-x: auto }
th, td { text-align: left; padding: .2em .8em .2em 0; vertical-align: top }
tr:nth-child(even) td { background: #f6f6f6 } pre { background: #f6f6f6; padding: 1em; overflow-x: auto }
svg { max-width: 100%; height: auto } .quiet { color: #666 }
"""


def write(run: RunRows, path: Path, rows: str | None = None) -> Path:
    """Write the report of a run to `path`, and return the path.

    If `rows` names a table that has the label, the report also says how much each column is worth to the best
    config.
    """
    info = run.info()
    title = info["name"] or f"Run {info['run_id']}"
    sections = [
        f"<h1>{markup.text(title)}</h1>",
        f"<p class='quiet'>{markup.text(_lead(info))}</p>",
        _description(info),
        *(_of_groups(run, info) if info["groups"] else _of_configs(run, info)),
        *_importance(run, rows),
        "<h2>Machine and versions</h2>",
        _machine(run, info),
    ]
    body = "\n".join(sections)
    path.write_text(
        f"<!doctype html>\n<html lang='en'><head><meta charset='utf-8'><title>{markup.text(title)}</title>"
        f"<style>{_STYLE}</style></head>\n<body>\n{body}\n</body></html>\n",
        encoding="utf-8",
    )
    return path


def _importance(run: RunRows, rows: str | None) -> list[str]:
    if rows is None:
        return []
    found = judged.importance(run.db, run.models(), rows, {})
    return ["<h2>What the best config goes by</h2>", plots.importance(found, f"On the rows of {rows}").svg()]


def _of_configs(run: RunRows, info: Row) -> list[str]:
    ranked = plots.configs(run)
    return [
        "<h2>The best config</h2>",
        _best(ranked),
        "<h2>What was asked</h2>",
        _asked(run, info),
        *_columns(run.specification()),
        "<h2>Leaderboard</h2>",
        _leaderboard(ranked),
        "<h2>How they learned</h2>",
        plots.picture(run, "curves").svg(),
        plots.picture(run, "configs").svg(),
        "<h2>What was stopped, and why</h2>",
        _stopped(run, info),
        "<h2>Where the time went</h2>",
        _times(run, info),
        plots.picture(run, "timeline").svg(),
    ]


def _of_groups(run: RunRows, info: Row) -> list[str]:
    """Return the report's sections for a run of groups; they list only the groups with the worst results."""
    listed = run.rows(_LOWEST)
    metric = next((row["metric"] for row in listed if row["metric"]), "value")
    head = ["group", "rows", "status", "config", metric, "loss", "reason"]
    rows = [[row[name] for name in _SHOWN_OF_GROUPS] for row in listed]
    more = f"<p class='quiet'>and {info['groups'] - SHOWN} more</p>" if info["groups"] > SHOWN else ""
    return [
        "<h2>What was asked</h2>",
        _asked(run, info),
        *_columns(run.specification()),
        "<h2>How the groups are spread</h2>",
        markup.pairs(groups.spread(run).items()),
        plots.picture(run, "groups").svg(),
        f"<h2>The {SHOWN} groups whose best config has reached least</h2>",
        markup.table(head, rows) + more,
        "<h2>Where the time went</h2>",
        _times(run, info),
    ]


def _lead(info: Row) -> str:
    done = f"{info['visits_done']} of {info['visits_total']} visits"
    began = f"{info['started_at']:%Y-%m-%d %H:%M:%S %Z}"
    why = f" ({info['detail']})" if info["detail"] else ""
    return (
        f"Run {info['run_id']} of {info['owner']}: {info['status']}{why}. Began {began},"
        f" took {duration(info['seconds'])}, {done}."
    )


def _description(info: Row) -> str:
    return f"<p>{markup.text(info['description'])}</p>" if info["description"] else ""


def _best(ranked: Sequence[Row]) -> str:
    if not ranked:
        return "<p>No config has been measured.</p>"
    best = ranked[0]
    said = (
        f"Config {best['mst_key']} reached {best['dataset']} {best['metric']} {markup.number(best['value'])}"
        f" (loss {markup.number(best['loss'])}) after epoch {best['epoch']}."
    )
    if best["best_epoch"] != best["epoch"]:
        said += f" Its best was {markup.number(best['best_value'])} after epoch {best['best_epoch']}."
    return f"<p><b>{markup.text(said)}</b></p>" + markup.pairs(
        [("architecture", f"model_id {best['model_id']}"), *plots.flat(best["params"]).items()]
    )


def _asked(run: RunRows, info: Row) -> str:
    rows = [
        ("packed table", info["source_table"]),
        ("validation table", info["validation_table"] or "none: the training rows decide"),
        ("configs", f"{info['configs']}, of which {info['failed_configs']} failed"),
        ("epochs", info["epochs"]),
        ("segments", f"{info['segments']} ({info['topology']})"),
        ("seed", info["seed"]),
        ("models", info["model_table"]),
    ]
    statements = ";\n".join(run.statements)
    return markup.pairs(rows) + (f"<pre>{markup.text(statements)};</pre>" if statements else "")


def _columns(found: Mapping[str, Any] | None) -> list[str]:
    """Return the section that says what features each column became; none without a feature specification."""
    if found is None:
        return []
    rows: list[list[Any]] = []
    for column in found["columns"]:
        head = [column[key] for key in ("name", "type", "kind", "input")]
        way = {key: value for key, value in column.items() if key not in _HEAD}
        rows.append([*head[:2], f"{head[2]}: {_said(way)}", head[3], _said(column["statistics"])])
    rows += [[name, "", f"left out: {why}", "", ""] for name, why in found["left_out"].items()]
    head = ["column", "type", "what it became", "input of the net", "in the training rows"]
    return ["<h2>What the columns became</h2>", markup.table(head, rows)]


def _said(values: Mapping[str, Any]) -> str:
    """Return keys and values as text: texts first, long lists cut short, and empty values left out."""
    said: list[str] = []
    for key, value in sorted(values.items(), key=lambda item: not isinstance(item[1], str)):
        if isinstance(value, list):
            shown = [str(item) for item in value[:FEW]]
            more = f" and {len(value) - FEW} more" if len(value) > FEW else ""
            said += [f"{key} {', '.join(shown)}{more}"] if value else []
        elif value is True:
            said.append(key)
        elif value is not None and value is not False and (key, value) != ("buckets", 0):
            said.append(f"{key} {markup.number(value) if isinstance(value, float) else value}")
    return ", ".join(said)


def _leaderboard(ranked: Sequence[Row]) -> str:
    differing = plots.differing([row["params"] for row in ranked])
    head = [
        "rank",
        "config",
        "model",
        *differing,
        ranked[0]["metric"] if ranked else "value",
        "loss",
        "epoch",
    ]
    rows = [
        [row["rank"], row["mst_key"], row["model_id"], *(column[number] for column in differing.values())]
        + [row["value"], row["loss"], row["epoch"]]
        for number, row in enumerate(ranked[:SHOWN])
    ]
    more = f"<p class='quiet'>and {len(ranked) - SHOWN} more</p>" if len(ranked) > SHOWN else ""
    return markup.table(head, rows) + more


def _stopped(run: RunRows, info: Row) -> str:
    failed = run.rows(
        "SELECT mst_key, failure FROM cerebro.leaderboard WHERE run_id = %s AND failure IS NOT NULL"
        " ORDER BY mst_key"
    )
    decided = run.rows(
        "SELECT mst_key, epoch, decision, decided_by AS who, reason"
        " FROM cerebro.decisions WHERE run_id = %s AND decision IN ('stop', 'delete', 'refused')"
        " ORDER BY number"
    )
    rows: list[list[Any]] = [[row["mst_key"], "", "failed", "", row["failure"]] for row in failed]
    by = {None: "a budget", "early_stopping": "early stopping"}.get(info["search"], "the search")
    rows += [
        [row["mst_key"], row["epoch"], row["decision"], row["who"] or by, row["reason"]] for row in decided
    ]
    if not rows:
        return "<p>Nothing was: every config trained for all its epochs.</p>"
    lead = "" if info["search"] in (None, "early_stopping") else COMPARES
    return lead + markup.table(["config", "after epoch", "what", "by", "why"], rows)


def _times(run: RunRows, info: Row) -> str:
    rows = run.rows(
        'SELECT segment, count(*) AS visits, sum("rows") AS rows, sum(read_seconds) AS read,'
        " sum(train_seconds) AS train, sum(write_seconds) AS write"
        " FROM cerebro.visits WHERE run_id = %s GROUP BY segment ORDER BY segment"
    )
    head = ["segment", "visits", "rows trained on", "s reading", "s training", "s writing"]
    head += ["s of all else: evaluating, waiting", "s in all"]
    total = info["seconds"]
    for row in rows:
        rest = total - row["read"] - row["train"] - row["write"]
        row.update({"else": max(0.0, rest), "all": total})
    return markup.table(head, [list(row.values()) for row in rows])


def _machine(run: RunRows, info: Row) -> str:
    found = run.db.look(
        "SELECT pg_catalog.version() AS server,"
        " (SELECT extversion FROM pg_catalog.pg_extension WHERE extname = 'cerebro') AS extension"
    )[0]
    return markup.pairs(
        [
            ("server", found["server"]),
            ("extension cerebro", found["extension"]),
            ("segments", f"{info['segments']} sessions"),
            ("client cerebro-db", version("cerebro-db")),
            ("client's Python", f"{platform.python_version()} on {platform.platform()}"),
        ]
    )
