"""Reads the Python literals and keyword calls of parameter strings. Nothing is ever evaluated."""

from __future__ import annotations

import ast
import warnings
from dataclasses import dataclass
from typing import TypeAlias, Union

from cerebro_plpy.errors import CerebroError
from cerebro_plpy.madlib.registered import Function

MAX_LENGTH = 100_000
MAX_DEPTH = 12
# The parser recurses in C: brackets and signs are counted before it sees the text.
MAX_NESTING = 60


@dataclass(frozen=True)
class Call:
    """A name with keyword arguments, such as Adam(learning_rate=0.001)."""

    name: str
    kwargs: tuple[tuple[str, Value], ...] = ()
    # The registered function that is called, if the name is not one of Keras' own.
    function: Function | None = None

    def get(self, key: str) -> Value:
        """Return the value of an argument; None if the call does not have it."""
        return dict(self.kwargs).get(key)


Value: TypeAlias = Union[None, bool, int, float, str, Call, "list[Value]", "dict[str | int, Value]"]


def read_arguments(text: str) -> dict[str, Value]:
    """Return the values in a text such as `name=value, name=value`, by name."""
    node = _parse(f"f({text})", text)
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name):
        raise _malformed(text, "it is not a list of name=value pairs")
    return _arguments(node, "", text, 0)


def read_layers(text: str) -> list[tuple[Call, list[Value]]]:
    """Return the layers in a text such as `Dense(64, activation='relu'), Dropout(0.2)`.

    Each is a call with its named arguments, and a list of the arguments without names.
    """
    try:
        node = _parse(f"f({text})", text)
    except CerebroError as error:
        error.hint = "Write layers with commas between them: Dense(64, activation='relu'), Dropout(0.2)."
        raise
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name) or node.keywords:
        raise _malformed(text, "it is not a list of layers")
    found: list[tuple[Call, list[Value]]] = []
    for number, one in enumerate(node.args):
        if not isinstance(one, ast.Call) or not isinstance(one.func, ast.Name):
            raise _malformed(text, "it is not a call such as Dense(64)", f"layer {number + 1}")
        path = one.func.id
        values = [_value(arg, path, text, 1) for arg in one.args]
        one.args = []
        found.append((Call(path, tuple(_arguments(one, path, text, 1).items())), values))
    return found


def read_value(text: str) -> Value:
    """Return the value of one literal: a constant, list, tuple, dict or call."""
    return _value(_parse(text.strip(), text), "", text, 0)


def read_call(text: str) -> Call:
    """Return the call in a text such as `Adam(lr=0.1)`; a name alone, such as `adam`, is a call, too."""
    value = read_value(text)
    if isinstance(value, str):
        return Call(value)
    if not isinstance(value, Call):
        raise _malformed(text, "it is neither a name nor a call with keyword arguments")
    return value


def shorten(text: object, limit: int = 200) -> str:
    """Return a value as text for a message, cut off after `limit` characters."""
    whole = text if isinstance(text, str) else repr(text)
    return whole if len(whole) <= limit else whole[:limit] + "…"


def _parse(source: str, text: str) -> ast.expr:
    if len(text) > MAX_LENGTH:
        raise _malformed(text, f"it is longer than {MAX_LENGTH} characters")
    if count_nesting(text) > MAX_NESTING:
        raise _malformed(text, "it is nested too deeply")
    try:
        with warnings.catch_warnings():
            # Invalid escapes in a user's string are no concern of the server's log.
            warnings.simplefilter("ignore")
            return ast.parse(source, mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        reason = error.msg if isinstance(error, SyntaxError) else "it cannot be parsed"
        raise _malformed(text, reason) from None


def count_nesting(text: str) -> int:
    """Return an upper bound of how deeply a text is nested. It counts brackets in strings as well."""
    depth = deepest = run = 0
    for char in text:
        depth += (char in "([{") - (char in ")]}")
        run = run + 1 if char in "+-~" else run if char.isspace() else 0
        deepest = max(deepest, depth, run)
    return deepest


def _malformed(text: str, reason: str, path: str = "") -> CerebroError:
    sentence = f"At {shorten(path, 120)}: {reason}" if path else reason[:1].upper() + reason[1:]
    return CerebroError(
        f"malformed parameters: {shorten(text)}",
        detail=f"{sentence.rstrip('?.')}.",
        hint="Write name=value pairs; values are constants, lists, dicts and calls such as 'Adam(lr=0.001)'.",
    )


def _value(node: ast.expr, path: str, text: str, depth: int) -> Value:
    if depth > MAX_DEPTH:
        raise _malformed(text, "it is nested too deeply")
    match node:
        case ast.Constant(value=None | bool() | int() | float() | str()):
            return node.value  # type: ignore[return-value]
        case ast.UnaryOp():
            return _signed(node, path, text)
        case ast.Name():
            return node.id
        case ast.List() | ast.Tuple():
            return [_value(item, f"{path}[{i}]", text, depth + 1) for i, item in enumerate(node.elts)]
        case ast.Dict():
            return _dict(node, path, text, depth)
        case ast.Call(func=ast.Name(id=name)):
            inner = f"{path}.{name}" if path else name
            return Call(name, tuple(_arguments(node, inner, text, depth).items()))
        case _:
            raise _malformed(text, "this is neither a constant nor a call by name", path)


def _signed(node: ast.UnaryOp, path: str, text: str) -> int | float:
    operand = node.operand
    if isinstance(operand, ast.Constant) and type(operand.value) in (int, float):
        if isinstance(node.op, ast.USub):
            return -operand.value  # type: ignore[operator]
        if isinstance(node.op, ast.UAdd):
            return operand.value  # type: ignore[return-value]
    raise _malformed(text, "a sign stands before something that is not a number", path)


def _dict(node: ast.Dict, path: str, text: str, depth: int) -> dict[str | int, Value]:
    result: dict[str | int, Value] = {}
    for key_node, item in zip(node.keys, node.values, strict=True):
        key = None if key_node is None else _value(key_node, path, text, depth + 1)
        if not isinstance(key, str | int) or isinstance(key, bool):
            raise _malformed(text, "a key is neither a string nor an integer", path)
        if key in result:
            raise _malformed(text, f"the key {shorten(key)} is written twice", path)
        result[key] = _value(item, f"{path}[{key!r}]", text, depth + 1)
    return result


def _arguments(node: ast.Call, path: str, text: str, depth: int) -> dict[str, Value]:
    if node.args:
        raise _malformed(text, "arguments must be written as name=value", path)
    result: dict[str, Value] = {}
    for keyword in node.keywords:
        if keyword.arg is None:
            raise _malformed(text, "** is not allowed", path)
        if keyword.arg in result:
            raise _malformed(text, f"{shorten(keyword.arg, 60)} is written twice", path)
        inner = f"{path}.{keyword.arg}" if path else keyword.arg
        result[keyword.arg] = _value(keyword.value, inner, text, depth + 1)
    return result
