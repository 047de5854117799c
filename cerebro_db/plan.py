"""Plans of runs, which the server's explain functions return before or after a run has begun."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from cerebro_db import markup
from cerebro_db.link import Row
from cerebro_db.protocols import Server

PLANS = "Plans"


class Plan:
    """A plan of a run. `str(plan)` is the text that psql shows; `plan.tree` has it as nested dicts."""

    def __init__(self, tree: Mapping[str, Any], text: str) -> None:
        self.tree = tree
        self._text = text

    def __str__(self) -> str:
        return self._text

    def __repr__(self) -> str:
        return f"<plan of {self.seconds:.3g} s, {self.low:.3g} to {self.high:.3g}>"

    @property
    def seconds(self) -> float:
        """The estimated duration of the run, in seconds."""
        return self.tree["Total Time"]

    @property
    def low(self) -> float:
        """The lower end of the likely range of the run's duration, in seconds."""
        return self.tree["Total Time Low"]

    @property
    def high(self) -> float:
        """The upper end of the likely range of the run's duration, in seconds."""
        return self.tree["Total Time High"]

    @property
    def actual_seconds(self) -> float | None:
        """The time that the run has taken so far, in seconds; None if the run has not begun."""
        return self.tree.get("Actual Total Time")

    @property
    def alternatives(self) -> Sequence[Mapping[str, Any]]:
        """Plans of the same run with other settings, the quickest first."""
        return self.tree.get("Alternatives", ())

    @property
    def advice(self) -> Sequence[str]:
        """Changes that would make the run cheaper, or possible at all."""
        return self.tree.get("Advice", ())

    def _repr_html_(self) -> str:
        """Return the plan as HTML for a notebook: a tree with nodes that can be opened."""
        return _node(self.tree, True)


def explain(db: Server, statement: Callable[[str], str]) -> Plan:
    """Fetch a plan from the server; `statement` returns the SQL for the format "text" or "json"."""
    lines, tree = ([_only(row) for row in db.rows(statement(form))] for form in ("text", "json"))
    return Plan(json.loads(tree[0])[0]["Plan"], "\n".join(lines))


def _only(row: Row) -> str:
    """Return the value of a row that has only one column."""
    (value,) = row.values()
    return value


def _node(node: Mapping[str, Any], opened: bool) -> str:
    rows = "".join(
        f"<tr><td>{markup.text(key)}</td><td>{markup.text(_shown(value))}</td></tr>"
        for key, value in node.items()
        if key not in (PLANS, "Node Type", "Detail") and value not in ([], {})
    )
    title = markup.text(f"{node['Node Type']} {node.get('Detail', '')}".strip())
    inner = "".join(_node(child, False) for child in node.get(PLANS, ()))
    state = " open" if opened else ""
    return (
        f'<details{state} style="margin-left:1em"><summary>{title}{_time(node)}</summary>'
        f"<table>{rows}</table>{inner}</details>"
    )


def _time(node: Mapping[str, Any]) -> str:
    found = node.get("Total Time", node.get("Work Time"))
    return "" if found is None else f" ({found:.3g} s)"


def _shown(value: Any) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{key} {_shown(each)}" for key, each in value.items())
    if isinstance(value, list):
        return "; ".join(map(_shown, value))
    return str(value)
