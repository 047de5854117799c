"""Shows a plan, a tree of nodes, as JSON like PostgreSQL's EXPLAIN and as text."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, cast

# Nodes within a node, as PostgreSQL names them.
PLAN, PLANS = "Plan", "Plans"
NODE_TYPE, DETAIL = "Node Type", "Detail"
Node = Mapping[str, Any]
_HEAD = (
    NODE_TYPE,
    DETAIL,
    PLANS,
    "Total Time",
    "Total Time Low",
    "Total Time High",
    "Actual Total Time",
    "Work Time",
    "Actual Work Time",
)


def as_json(node: Node) -> str:
    """Return the tree as JSON like that of PostgreSQL's EXPLAIN: an array of one object with the key Plan."""
    return json.dumps([{PLAN: _rounded(node)}], ensure_ascii=False)


def as_text(node: Node) -> list[str]:
    """Return the tree as lines of text, like the QUERY PLAN of PostgreSQL's EXPLAIN."""
    return list(_lines(node, 0))


def _rounded(value: Any) -> Any:
    """Return a value with all numbers rounded to four digits and all keys left out whose value is None."""
    if isinstance(value, float):
        return float(f"{value:.4g}")
    if isinstance(value, Mapping):
        pairs = cast("Mapping[str, Any]", value).items()
        return {key: _rounded(each) for key, each in pairs if each is not None}
    if isinstance(value, list | tuple):
        return [_rounded(each) for each in cast("Sequence[Any]", value)]
    return value


def _lines(node: Node, depth: int) -> Iterator[str]:
    indent = "      " * depth
    lead = f"{indent[:-4]}->  " if depth else ""
    name = " ".join(str(node[key]) for key in (NODE_TYPE, DETAIL) if node.get(key))
    yield f"{lead}{name}{_times(node)}"
    for key, value in node.items():
        if key in _HEAD or value is None or value in ([], {}):
            continue
        yield from _property(f"{indent}  ", key, value)
    for child in node.get(PLANS, ()):
        yield from _lines(child, depth + 1)


def _property(indent: str, key: str, value: Any) -> Iterator[str]:
    items = cast("list[Any]", value) if isinstance(value, list) else []
    if items and not isinstance(items[0], int):
        yield f"{indent}{key}:"
        for item in items:
            yield f"{indent}  {_item(item)}"
        return
    yield f"{indent}{key}: {_item(value) if isinstance(value, Mapping) else shown(key, value)}"


def _item(item: Any) -> str:
    if not isinstance(item, Mapping):
        return str(item)
    return ", ".join(_pairs(cast("Mapping[str, Any]", item)))


def _pairs(values: Mapping[str, Any]) -> Iterator[str]:
    for key, value in values.items():
        if value is not None:
            yield f"{key} {shown(key, value)}" if key != DETAIL else str(value)


def _times(node: Node) -> str:
    found: list[str] = []
    if (total := node.get("Total Time")) is not None:
        low, high = node.get("Total Time Low", total), node.get("Total Time High", total)
        found.append(f"time={seconds(total)}, {seconds(low)} to {seconds(high)}")
    if (work := node.get("Work Time")) is not None:
        found.append(f"work={seconds(work)}")
    text = f"  ({' '.join(found)})" if found else ""
    for key in ("Actual Total Time", "Actual Work Time"):
        if (actual := node.get(key)) is not None:
            text += f" (actual {'time' if 'Total' in key else 'work'}={seconds(actual)})"
    return text


def shown(key: str, value: Any) -> str:
    """Return a value as text with its unit, which the last word of `key` says, for example Bytes."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list):
        return ", ".join(map(str, cast("list[Any]", value)))
    if isinstance(value, int | float):
        last = key.rsplit(" ", 1)[-1]
        if last == "Time":
            return seconds(value)
        if last == "Bytes":
            return size(value)
        if last in ("Share", "Change"):
            return f"{value:+.0%}" if last == "Change" else f"{value:.0%}"
        if isinstance(value, float):
            return f"{value:.3g}"
    return str(value)


def seconds(value: float) -> str:
    if value < 0.0995:
        return f"{value * 1000:.3g} ms"
    if value < 99.5:
        return f"{value:.3g} s"
    minutes = value / 60
    if minutes < 99.5:
        return f"{minutes:.3g} min"
    return f"{minutes / 60:.3g} h"


def size(value: float) -> str:
    for unit in ("bytes", "kB", "MB", "GB", "TB"):
        if abs(value) < 1024 or unit == "TB":
            return f"{value:.0f} {unit}" if unit == "bytes" else f"{value:.3g} {unit}"
        value /= 1024
    return ""
