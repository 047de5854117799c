"""The server's plan of a run, begun or not, to be read, shown and compared: what it costs."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from cerebro_db import markup
from cerebro_db.link import Row
from cerebro_db.protocols import Server

PLANS = "Plans"


class Plan:
    """A plan of a run: `str()` is the text that psql shows, `tree` what a program reads."""

    def __init__(self, tree: Mapping[str, Any], text: str) -> None:
        self.tree = tree
        self._text = text

    def __str__(self) -> str:
        return self._text

    def __repr__(self) -> str:
        return f"<plan of {self.seconds:.3g} s, {self.low:.3g} to {self.high:.3g}>"

    @property
    def seconds(self) -> float:
        """How long the run would take."""
        return self.tree["Total Time"]

    @property
    def low(self) -> float:
        """The least time that the run is likely to take."""
        return self.tree["Total Time Low"]

    @property
    def high(self) -> float:
        """The most time that the run is likely to take."""
        return self.tree["Total Time High"]

    @property
    def actual_seconds(self) -> float | None:
        """The time that the run has taken, if it has begun."""
        return self.tree.get("Actual Total Time")

    @property
    def alternatives(self) -> Sequence[Mapping[str, Any]]:
        """Plans of the run with something chosen otherwise, the quickest first."""
        return self.tree.get("Alternatives", ())

    @property
    def advice(self) -> Sequence[str]:
        """Advice that would make the run cheaper, or possible."""
        return self.tree.get("Advice", ())

    def _repr_html_(self) -> str:
        """Return the plan for a notebook, as a tree whose nodes open."""
        return _node(self.tree, True)


def explain(db: Server, statement: Callable[[str], str]) -> Plan:
    """Fetch a plan as text and as a tree; `statement` makes the SQL for a format."""
    lines, tree = ([_only(row) for row in db.rows(statement(form))] for form in ("text", "json"))
    return Plan(json.loads(tree[0])[0]["Plan"], "\n".join(lines))


def _only(row: Row) -> str:
    """Return the one value of a row, whatever its column is called."""
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
