"""Loads TensorFlow so that it can share a process with the server's JIT, whichever is loaded first.

This module does not import NumPy, because every session that calls a function of the extension uses it to
watch for the import of TensorFlow.
"""

from __future__ import annotations

import importlib.machinery
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from types import ModuleType


@contextmanager
def apart() -> Iterator[None]:
    """Hide the symbols of libraries that are loaded within the `with` block from all other libraries.

    The loaded libraries find their own symbols first. TensorFlow contains an LLVM, and the server's JIT loads
    another LLVM into the same process. If either calls functions of the other, the server process crashes,
    and with it the whole server.
    """
    # This module would share the symbols with all libraries; TensorFlow works without the module.
    sys.modules["tensorflow.python.pywrap_dlopen_global_flags"] = None  # pyright: ignore[reportArgumentType]
    before = sys.getdlopenflags()
    sys.setdlopenflags(os.RTLD_NOW | os.RTLD_LOCAL | os.RTLD_DEEPBIND)
    try:
        yield
    finally:
        sys.setdlopenflags(before)


class _Finder:
    """An import finder that hides TensorFlow's symbols, even if a user's function imports TensorFlow."""

    def find_spec(
        self, fullname: str, path: object = None, target: object = None
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname != "tensorflow":
            return None
        spec = importlib.machinery.PathFinder.find_spec(fullname)
        if spec is not None and spec.loader is not None:
            spec.loader.exec_module = partial(_run_apart, spec.loader.exec_module)
        return spec


def _run_apart(run: Callable[[ModuleType], None], module: ModuleType) -> None:
    with apart():
        run(module)


def watch() -> None:
    """Install the import finder that hides TensorFlow's symbols in this process."""
    if not any(isinstance(finder, _Finder) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Finder())  # pyright: ignore[reportArgumentType]
