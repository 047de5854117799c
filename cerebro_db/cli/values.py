"""Parses values of command-line options: lists with commas, and JSON objects."""

from __future__ import annotations

import json
from typing import Any

import click


def read_list(_context: click.Context, _option: click.Parameter, text: str | None) -> list[str] | None:
    """Return the words of an option whose value is a list with commas."""
    return None if text is None else [word.strip() for word in text.split(",")]


def read_object(_context: click.Context, _option: click.Parameter, text: str | None) -> dict[str, Any] | None:
    """Return the dict of an option whose value is a JSON object; raise BadParameter if it is none."""
    try:
        found = None if text is None else json.loads(text)
    except ValueError:
        raise click.BadParameter("it is not JSON") from None
    if found is not None and not isinstance(found, dict):
        raise click.BadParameter('it is a JSON object, such as {"name": 1}')
    return found
