"""TensorFlow beside the server's JIT: in one process, whoever of the two comes first, and whosever code asks.

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
    """Load libraries whose symbols nobody else sees, and which see their own first.

    TensorFlow has an LLVM inside, and the server's JIT loads another one into the same process. Where either
    finds the other's functions the backend crashes, and with it the whole server.
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
    """Has TensorFlow imported apart, whoever imports it: functions of the user's may, in the same session."""

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
    """From here on TensorFlow comes apart in this process."""
    if not any(isinstance(finder, _Finder) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Finder())  # pyright: ignore[reportArgumentType]
