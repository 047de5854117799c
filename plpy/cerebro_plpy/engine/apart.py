"""Loads TensorFlow so that it can share a process with the server's JIT, whichever of the two comes first.

Nothing here needs NumPy: every session that calls a function of the extension looks out for the import.
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
    """Load libraries with symbols that nobody else sees, and that see their own first.

    TensorFlow has an LLVM inside, and the server's JIT loads another one into the same process. If either
    finds the other's functions, the backend crashes, and with it the whole server.
    """
    # It is there to share the symbols with everybody; TensorFlow does without if it is missing.
    sys.modules["tensorflow.python.pywrap_dlopen_global_flags"] = None  # pyright: ignore[reportArgumentType]
    before = sys.getdlopenflags()
    sys.setdlopenflags(os.RTLD_NOW | os.RTLD_LOCAL | os.RTLD_DEEPBIND)
    try:
        yield
    finally:
        sys.setdlopenflags(before)


class _Finder:
    """An import finder that loads TensorFlow apart, whoever imports it: a user's function may do so, too."""

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
    """Have TensorFlow loaded apart in this process from here on."""
    if not any(isinstance(finder, _Finder) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Finder())  # pyright: ignore[reportArgumentType]
