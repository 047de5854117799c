"""Builds HTML for reports, and for objects that a notebook displays."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from typing import Any

from cerebro_db.terminal import harmless


def text(value: object) -> str:
    """Return a value as HTML text: markup is escaped, and control characters are spelled out."""
    return escape(harmless(value))


def titled(title: str, *parts: str) -> str:
    """Return a block of HTML with a title, followed by `parts`, which are HTML already."""
    return f"<div><b>{text(title)}</b>{''.join(parts)}</div>"


def pairs(rows: Iterable[tuple[str, Any]]) -> str:
    """Return an HTML table of names and values; names whose value is None are left out."""
    shown = "".join(f"<tr><th>{text(name)}</th><td>{cell(v)}</td></tr>" for name, v in rows if v is not None)
    return f"<table>{shown}</table>"


def table(head: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    """Return an HTML table with a row of headings, followed by the rows."""
    top = "".join(f"<th>{text(name)}</th>" for name in head)
    body = "".join(f"<tr>{''.join(f'<td>{cell(value)}</td>' for value in row)}</tr>" for row in rows)
    return f"<table><tr>{top}</tr>{body}</table>"


def cell(value: Any) -> str:
    return "" if value is None else text(number(value) if isinstance(value, float) else value)


def number(value: float | None) -> str:
    return "unknown" if value is None else f"{value:.4g}"
