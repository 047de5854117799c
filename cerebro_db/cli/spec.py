"""Spec files, which describe a run in TOML. Errors in a file are found without a server, with their lines."""

from __future__ import annotations

import difflib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import tomlkit
from jsonschema import Draft202012Validator
from jsonschema.exceptions import ValidationError, best_match
from tomlkit.exceptions import ParseError, TOMLKitError
from tomlkit.items import AoT, Table

from cerebro_db.cli.exits import BadSpec

if TYPE_CHECKING:
    from cerebro_db.database import Database
    from cerebro_db.plan import Plan
    from cerebro_db.run import Run

SCHEMA = Path(__file__).with_name("run.schema.json")
# Keys of a spec that have the same names as arguments of `Database.fit`.
PASSED = ("epochs", "validation", "seed", "out", "every", "name", "description", "gpus")

Place = tuple[Any, ...]


@dataclass(frozen=True)
class Spec:
    """The content of a spec file that has passed every check that needs no server."""

    content: Mapping[str, Any]

    @property
    def architectures(self) -> str:
        """The name of the table of architectures."""
        return self.content.get("architectures", "nets")

    def begin(self, db: Database) -> Run:
        """Begin the run, and return it; raise CerebroError for errors that only the server can find."""
        return db.fit(**self._arguments())

    def explain(self, db: Database) -> Plan:
        """Return the plan of the run, without beginning it."""
        return db.fit(**self._arguments(), explain=True)

    def _arguments(self) -> dict[str, Any]:
        search = dict(self.content.get("search", {}))
        configs = search.pop("configs", None)
        method = search.get("method")
        passed = {name: self.content[name] for name in PASSED if name in self.content}
        return {
            "table": self.content["table"],
            "grid": {name: _values(value) for name, value in self.content["grid"].items()},
            "search": method if method in (None, "random") else search,
            "configs": configs,
            **passed,
            **self.content.get("options", {}),
        }


def read_spec(file: Path) -> Spec:
    """Read a spec file; raise BadSpec with the lines of all errors if it does not fit the schema."""
    try:
        document = tomlkit.parse(file.read_text("utf-8"))
    except ParseError as error:
        raise BadSpec(f"{file}:{error.line}: {str(error).rpartition(' at line ')[0]}") from None
    except TOMLKitError as error:
        raise BadSpec(f"{file}: {error}") from None
    except UnicodeDecodeError:
        raise BadSpec(f"{file} is no text in UTF-8") from None
    content: Mapping[str, Any] = document.unwrap()
    lines = dict(line_numbers(document))
    validator = Draft202012Validator(json.loads(SCHEMA.read_text()))
    problems = sorted(
        {problem for error in validator.iter_errors(content) for problem in _told(error, lines)}
    )
    if problems:
        raise BadSpec("\n".join(f"{file}:{line}: {text}" for line, text in problems))
    return Spec(content)


def line_numbers(document: tomlkit.TOMLDocument) -> Iterator[tuple[Place, int]]:
    """Yield the path of each key in a TOML document, with the number of its line.

    The parser keeps no line numbers, but it keeps all text: the line follows from the text before a key.
    """
    yield (), 1
    yield from _within(document, (), 1)


def _within(container: Any, place: Place, line: int) -> Iterator[tuple[Place, int]]:
    body = container.body if isinstance(container, tomlkit.TOMLDocument) else container.value.body
    for key, item in body:
        if key is None:
            line += item.as_string().count("\n")
            continue
        parts = (*place, *key_parts(key))
        if isinstance(item, AoT):
            yield parts, line
            for number, table in enumerate(item.body):
                yield (*parts, number), line
                yield from _within(table, (*parts, number), line + 1)
                line += 1 + table.as_string().count("\n")
            continue
        yield parts, line
        if isinstance(item, Table):
            head = 0 if item.is_super_table() or key.is_dotted() else 1
            yield from _within(item, parts, line + head)
            line += head + item.as_string().count("\n")
        else:
            yield from _beneath(item, parts, line)
            line += (item.as_string() + item.trivia.trail).count("\n")


def key_parts(key: Any) -> tuple[str, ...]:
    return tuple(part.key for part in key)


def _beneath(item: Any, place: Place, line: int) -> Iterator[tuple[Place, int]]:
    """Yield the path of everything inside an array or inline table, with the line on which this begins."""
    if isinstance(item, Mapping):
        for name, value in item.items():
            yield (*place, name), line
            yield from _beneath(value, (*place, name), line)
    elif isinstance(item, Sequence) and not isinstance(item, str):
        for number, value in enumerate(item):
            yield (*place, number), line
            yield from _beneath(value, (*place, number), line)


def _told(error: ValidationError, lines: Mapping[Place, int]) -> Iterator[tuple[int, str]]:
    place = tuple(error.absolute_path)
    if error.validator == "additionalProperties" and isinstance(error.instance, Mapping):
        schema: Any = error.schema
        known = schema.get("properties", {})
        for name in error.instance:
            if name not in known:
                yield lines.get((*place, name), lines[place]), _unknown(name, place, known)
        return
    if error.validator in ("anyOf", "oneOf"):
        error = best_match([error]) or error
        place = tuple(error.absolute_path)
        if error.validator == "additionalProperties":
            yield from _told(error, lines)
            return
    yield lines.get(place, 1), _sentence(error, place)


def _unknown(name: str, place: Place, known: Mapping[str, Any]) -> str:
    near = difflib.get_close_matches(name, known, 1)
    where = f"in {_path(place)}" if place else "in a spec file"
    advice = f"did you mean {near[0]!r}?" if near else f"there are {', '.join(known)}"
    return f"nothing is called {name!r} {where}; {advice}"


def _sentence(error: ValidationError, place: Place) -> str:
    name = _path(place)
    found: Any = error.instance
    rule: Any = error.validator_value
    match error.validator:
        case "required":
            missing = [key for key in rule if key not in found]
            where = f" in [{name}]" if place else ""
            return f"{', '.join(missing)} is missing{where}"
        case "type":
            wanted = " or ".join(WORDS[kind] for kind in ([rule] if isinstance(rule, str) else rule))
            return f"{name} is {json.dumps(found)}, not {wanted}"
        case "enum":
            near = difflib.get_close_matches(str(found), rule, 1)
            return f"{name} is {json.dumps(found)}; it is one of {', '.join(rule)}" + (
                f" (did you mean {near[0]!r}?)" if near else ""
            )
        case "minimum":
            return f"{name} is {found}; it is at least {rule}"
        case "minItems" | "maxItems" if rule == 2:
            return f"{name} has {len(found)} values; a range has a lower and an upper bound"
        case "anyOf" | "oneOf" if place[:1] == ("grid",):
            return f"{name} is {json.dumps(found)}; it is a value, a list, or a range such as {RANGE}"
        case _:
            return f"{name} is {json.dumps(found)}, which it cannot be: {error.message}"


WORDS = {
    "string": "a text",
    "integer": "an integer",
    "number": "a number",
    "boolean": "true or false",
    "array": "a list",
    "object": "a table",
}


RANGE = "{float = [1e-4, 0.1], log = true}"


def _path(place: Place) -> str:
    text = ""
    for part in place:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else part
    return text or "the file"


def _values(value: Any) -> Any:
    """Convert ranges and values by model, as a spec file writes them, to those of `cerebro_db.space`."""
    from cerebro_db.space import Range, by_model

    if isinstance(value, list):
        return [_values(item) for item in value]
    if not isinstance(value, dict):
        return value
    for kind in ("int", "float"):
        if kind in value:
            low, high = value[kind]
            return Range(kind, low, high, log=value.get("log", False), step=value.get("step"))
    if "by_model" in value:
        return by_model({int(model): _values(item) for model, item in value["by_model"].items()})
    return {name: _values(item) for name, item in value.items()}
