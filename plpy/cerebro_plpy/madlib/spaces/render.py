"""Writes parameters as the texts in a model selection table."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from typing import Protocol, TypeVar

from cerebro_plpy.madlib.literal import Call, Value
from cerebro_plpy.madlib.params import parse_fit, reparse_compile


class _Canonical(Protocol):
    def to_json(self) -> str: ...


P = TypeVar("P", bound=_Canonical)


def render_row(values: Mapping[str, Value]) -> str:
    """Return the parameters as `name=value` pairs with commas and no spaces, as MADlib writes them."""
    return ",".join(f"{key}={render_value(value)}" for key, value in values.items())


def render_value(value: Value) -> str:
    """Return a value as a literal."""
    if isinstance(value, Call):
        if value.function is not None and not value.kwargs:
            return repr(value.name)
        return f"{value.name}({render_row(dict(value.kwargs))})"
    if isinstance(value, list):
        return "[" + ",".join(render_value(item) for item in value) + "]"
    if isinstance(value, dict):
        return "{" + ",".join(f"{key!r}:{render_value(item)}" for key, item in value.items()) + "}"
    return repr(value)


def to_plain_json(compile_params: str, fit_params: str) -> str:
    """Return what the two texts of a config mean, as JSON that can be read without MADlib's grammar."""
    values = {**vars(reparse_compile(compile_params)), **vars(parse_fit(fit_params))}
    return json.dumps({key: _plain(value) for key, value in values.items()})


def _plain(value: Value) -> object:
    if isinstance(value, Call):
        return {"name": value.name, "arguments": {key: _plain(item) for key, item in value.kwargs}}
    if isinstance(value, list):
        return [_plain(item) for item in value]
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    return value


def deduplicate(texts: Iterable[str], parse: Callable[[str], P]) -> list[tuple[str, P]]:
    """Return one text of each meaning, with its parameters.

    Of several texts that mean the same, the last one is returned, in the place of the first.
    """
    found: dict[str, tuple[str, P]] = {}
    for text in texts:
        params = parse(text)
        found[params.to_json()] = (text, params)
    return list(found.values())
