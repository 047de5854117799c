"""Prints rows as a table for people, or as JSON or CSV for programs."""

from __future__ import annotations

import csv
import datetime
import decimal
import io
import json
import math
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar, cast

import click

from cerebro_db.terminal import harmless

C = TypeVar("C", bound=Callable[..., Any])
Row = Mapping[str, Any]

# Control characters that JSON does not escape by itself; escaped, they mean the same.
_CONTROLS = re.compile(r"[\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")
# The longest cell of a table; the other formats have everything.
LONGEST = 1000
FORMATS = ("table", "json", "csv")
STATUS_COLOURS = {
    "running": "blue",
    "training": "blue",
    "evaluating": "blue",
    "finished": "green",
    "ok": "green",
    "paused": "yellow",
    "stopped": "yellow",
    "interrupted": "yellow",
    "note": "yellow",
    "warn": "yellow",
    "failed": "red",
    "alarm": "red",
    "wrong": "red",
}


def formatted(command: C) -> C:
    """Add the option `--format`, for table, json or csv, to a command that shows rows."""
    return click.option(
        "--format", "form", type=click.Choice(FORMATS), default="table", show_default=True,
        help="How rows are printed; json and csv have every column.",
    )(command)  # fmt: skip


def show(rows: Sequence[Row], form: str, columns: Sequence[str], all_columns: Sequence[str] = ()) -> None:
    """Print rows: as a table of the columns `columns`, or as JSON or CSV with every column."""
    if form == "json":
        text = json.dumps([_plain_row(row) for row in rows], indent=2, ensure_ascii=False, default=str)
        click.echo(_CONTROLS.sub(lambda found: f"\\u{ord(found[0]):04x}", text))
    elif form == "csv":
        text = _csv(rows, list(rows[0]) if rows else list(all_columns or columns))
        # A program gets the values as they are.
        click.echo(harmless(text) if sys.stdout.isatty() else text, nl=False, color=True)
    else:
        click.echo(_table(rows, columns))


def say(text: object, *, err: bool = False) -> None:
    """Print a line that may hold other people's text, with control characters spelled out."""
    click.echo(harmless(text), err=err)


def _plain_row(row: Row) -> dict[str, Any]:
    return {name: _plain(value) for name, value in row.items()}


def _plain(value: Any) -> Any:
    """Return a value in a form that JSON can hold."""
    if isinstance(value, Mapping):
        return {name: _plain(one) for name, one in cast("Mapping[str, Any]", value).items()}
    if isinstance(value, list):
        return [_plain(one) for one in cast("list[Any]", value)]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, decimal.Decimal):
        return float(value)
    if isinstance(value, datetime.date | datetime.time):
        return value.isoformat()
    if isinstance(value, memoryview | bytes):
        return bytes(value).hex()
    return value


def _csv(rows: Sequence[Row], columns: Sequence[str]) -> str:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(columns)
    for row in rows:
        writer.writerow(["" if row[name] is None else _field(_plain(row[name])) for name in columns])
    return text.getvalue()


def _field(value: Any) -> Any:
    """Return a value as a field of CSV: an object or a list as its JSON."""
    return json.dumps(value) if isinstance(value, dict | list) else value


def _table(rows: Sequence[Row], columns: Sequence[str]) -> str:
    names = [harmless(name) for name in columns]
    cells = [[_readable(row[name]) for name in columns] for row in rows]
    widths = [max([len(name), *(len(line[place]) for line in cells)]) for place, name in enumerate(names)]
    if not rows or not _is_number(rows[0][columns[-1]]):
        widths[-1] = 0  # nothing stands behind it that would have to be kept away
    right = [rows != [] and all(_is_number(row[name]) for row in rows) for name in columns]
    lines = [_line(names, widths, [False] * len(columns), head=True)]
    lines += [_line(line, widths, right) for line in cells]
    return "\n".join(lines) if rows else lines[0] + "\n" + click.style("(none)", dim=True)


def _line(cells: Sequence[str], widths: Sequence[int], right: Sequence[bool], *, head: bool = False) -> str:
    padded = [
        cell.rjust(width) if to_right else cell.ljust(width)
        for cell, width, to_right in zip(cells, widths, right, strict=True)
    ]
    painted = [
        click.style(text, bold=True) if head else click.style(text, fg=STATUS_COLOURS.get(cell))
        for text, cell in zip(padded, cells, strict=True)
    ]
    return "  ".join(painted)


def _is_number(value: Any) -> bool:
    return value is None or (isinstance(value, int | float | decimal.Decimal) and not isinstance(value, bool))


def _readable(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.4f}" if value == 0 or 0.001 <= abs(value) < 100_000 else f"{value:.3g}"
    if isinstance(value, datetime.datetime):
        return value.astimezone().strftime("%Y-%m-%d %H:%M:%S")
    if isinstance(value, list):
        return ", ".join(map(_readable, value))[:LONGEST]
    if isinstance(value, Mapping):
        value = json.dumps(value, ensure_ascii=False, default=str)
    # A row is printed on one line, cut to a readable length.
    text = harmless(" ".join(str(value)[: 2 * LONGEST].split()))
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 1]}…"
