"""Executes the source of registered functions: once in a process for each version that is needed.

Only a superuser can have written the source: it is read from the extension's own table.
"""

from __future__ import annotations

import inspect
import linecache
import traceback
import types
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from cerebro_plpy import errors, memory
from cerebro_plpy.engine import losses
from cerebro_plpy.engine.backends import runtime
from cerebro_plpy.errors import CerebroError
from cerebro_plpy.madlib import registered
from cerebro_plpy.madlib.registered import LAYER, LOSS

if TYPE_CHECKING:
    from cerebro_plpy.madlib.literal import Call

# Errors that compiling a source may raise.
_MALFORMED = (SyntaxError, ValueError, RecursionError, MemoryError, OverflowError)


@dataclass(frozen=True)
class FunctionSource:
    """One version of a registered function, as it is stored."""

    name: str
    kind: str
    digest: str
    source: str
    higher_is_better: bool | None = None

    @property
    def file(self) -> str:
        return f"<registered function {self.name} {self.digest[:12]}>"


class _Taken:
    """The sources of registered functions in this process, and the objects that they define, by digest."""

    def __init__(self) -> None:
        self.sources: dict[str, FunctionSource] = {}
        self.objects: dict[str, Any] = {}


def take(sources: Iterable[Mapping[str, Any]]) -> list[registered.Function]:
    """Keep the sources of registered functions in this process; return the functions that a call may name.

    Raise an error if a source does not match its digest.
    """
    taken = [FunctionSource(**source) for source in sources]
    for source in taken:
        known = registered.digest(source.name, source.kind, source.higher_is_better, source.source)
        if known != source.digest:
            raise CerebroError(
                f"the stored source of the registered function {source.name} is damaged",
                sqlstate=errors.DATA_CORRUPTED,
            )
        memory.get_instance(_Taken).sources[source.digest] = source
    return [registered.Function(s.name, s.kind, s.digest, s.higher_is_better) for s in taken]


def get(digest: str) -> Any:
    """Return the function or class that the source with this digest defines; execute it at the first use."""
    known = memory.get_instance(_Taken)
    if digest not in known.objects:
        if digest not in known.sources:
            raise CerebroError("a registered function is missing here", sqlstate=errors.INTERNAL)
        known.objects[digest] = _execute(known.sources[digest])
    return known.objects[digest]


def loss(call: Call) -> Any:
    """Return the loss that a call of a registered function makes, in a form for compile(loss=)."""
    found, kwargs = _find_function(call), dict(call.kwargs)
    if isinstance(found, type):
        return losses.weighable(_made(call, partial(found, **kwargs)))
    _check_arguments(call, found)
    made = runtime.keras().src.losses.losses.LossFunctionWrapper(found, name=call.name, **kwargs)
    return losses.weighable(made)


def metric(call: Call) -> Any:
    """Return the metric that a call of a registered function makes, in a form for compile(metrics=).

    Its results have the name of the registered function. Only for a class, the call can give another name.
    """
    found, kwargs = _find_function(call), dict(call.kwargs)
    keras = runtime.keras()
    if not isinstance(found, type):
        _check_arguments(call, found)
        return keras.metrics.MeanMetricWrapper(found, name=call.name, **kwargs)
    made = _made(call, partial(found, **kwargs))
    if isinstance(made, keras.losses.Loss):
        return keras.metrics.MeanMetricWrapper(made.call, name=call.name)
    if "name" not in kwargs:
        made.name = call.name
    return made


def _find_function(call: Call) -> Any:
    return get(call.function.digest if call.function is not None else "")


def _made(call: Call, make: Any) -> Any:
    try:
        return make()
    except CerebroError:
        raise
    except Exception as error:
        raise _refused(call, f"It says: {type(error).__name__}: {error}") from error


def _check_arguments(call: Call, found: Any) -> None:
    """Raise an error if a function does not take labels, predictions and the arguments of the call."""
    try:
        inspect.signature(found).bind(None, None, **dict(call.kwargs))
    except TypeError as error:
        raise _refused(call, f"The function is called with y_true and y_pred: {error}.") from None
    except ValueError:
        # A function that is written in C may have no signature.
        pass


def _refused(call: Call, detail: str) -> CerebroError:
    return CerebroError(
        f"cannot make the registered function {call.name}", detail=" ".join(detail.split())[:600]
    )


def _execute(source: FunctionSource) -> Any:
    module = types.ModuleType(f"cerebro_function_{source.digest[:12]}")
    # TensorFlow looks for the text of what it compiles, and a traceback for the line.
    lines = source.source.splitlines(keepends=True)
    linecache.cache[source.file] = (len(source.source), None, lines, source.file)
    try:
        code = compile(source.source, source.file, "exec", dont_inherit=True)
    except _MALFORMED as error:
        line = error.lineno if isinstance(error, SyntaxError) else None
        raise _wrong(source, error, line) from None
    with runtime.generators_kept(), unregistered():
        try:
            exec(code, module.__dict__)  # noqa: S102 - it is what a superuser wants
        except CerebroError:
            raise
        except (Exception, SystemExit) as error:
            raise _wrong(source, error, line_of(error, source.file)) from None
    return _checked(source, module)


@contextmanager
def unregistered() -> Iterator[None]:
    """Undo all registrations with Keras that are made within the `with` block."""
    registration = runtime.keras().src.saving.object_registration
    lists = registration.GLOBAL_CUSTOM_OBJECTS, registration.GLOBAL_CUSTOM_NAMES
    before = [dict(each) for each in lists]
    try:
        yield
    finally:
        for each, kept in zip(lists, before, strict=True):
            each.clear()
            each.update(kept)


def _checked(source: FunctionSource, module: types.ModuleType) -> Any:
    found, keras = getattr(module, source.name, None), runtime.keras()
    if found is None:
        raise CerebroError(
            f"the source does not define {source.name}",
            hint=f"Give the function or class in it the name that it is registered with: {source.name}.",
        )
    kinds = {LOSS: keras.losses.Loss, LAYER: keras.layers.Layer}
    base = kinds.get(source.kind, keras.metrics.Metric)
    is_class = isinstance(found, type)
    fits = issubclass(found, base) if is_class else callable(found) and source.kind != LAYER
    if not fits or (is_class and issubclass(found, keras.Model)):
        wanted = f"a subclass of keras.{base.__module__.split('.')[2]}.{base.__name__}"
        either = "" if source.kind == LAYER else " or a function of y_true and y_pred"
        raise CerebroError(
            f"{source.name} is not what a {source.kind} is made of",
            detail=f"It must be {wanted}{either}.",
            sqlstate=errors.WRONG_OBJECT,
        )
    return found


def line_of(error: BaseException, file: str) -> int | None:
    """Return the last line of `file` in the traceback of an error; None if the file is not in it."""
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == file]
    return lines[-1] if lines else None


def place_of(error: BaseException) -> str:
    """Return ` (line 3 of name)` if an error arose in the registered function `name`; else an empty text."""
    for source in memory.get_instance(_Taken).sources.values():
        line = line_of(error, source.file)
        if line is not None:
            return f" (line {line} of {source.name})"
    return ""


def _wrong(source: FunctionSource, error: BaseException, line: int | None) -> CerebroError:
    said = error.msg if isinstance(error, SyntaxError) else str(error)
    where = f" in line {line}" if line is not None else ""
    detail = " ".join(f"{type(error).__name__}{where}: {said}".split())
    return CerebroError(f"the source of {source.name} does not run", detail=detail[:600])
