"""Pieces of HTML that a report consists of, and that a notebook shows of an object."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from typing import Any


def titled(title: str, *parts: str) -> str:
    """Return a titled block of HTML, as which a notebook shows one object."""
    return f"<div><b>{escape(title)}</b>{''.join(parts)}</div>"


def pairs(rows: Iterable[tuple[str, Any]]) -> str:
    """Return names with their values as a table; those that are None are left out."""
    shown = "".join(
        f"<tr><th>{escape(name)}</th><td>{cell(v)}</td></tr>" for name, v in rows if v is not None
    )
    return f"<table>{shown}</table>"


def table(head: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    """Return rows under their headings."""
    top = "".join(f"<th>{escape(name)}</th>" for name in head)
    body = "".join(f"<tr>{''.join(f'<td>{cell(value)}</td>' for value in row)}</tr>" for row in rows)
    return f"<table><tr>{top}</tr>{body}</table>"


def cell(value: Any) -> str:
    return "" if value is None else escape(number(value) if isinstance(value, float) else str(value))


def number(value: float | None) -> str:
    return "unknown" if value is None else f"{value:.4g}"
