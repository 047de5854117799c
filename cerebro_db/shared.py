"""Imports `portable`, the module of the server's package that predicts rows without a server.

The client includes the source of the server's package, because `cerebro init` needs it. So predictions
without a server use the same code as predictions in the server.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
from pathlib import Path
from typing import Any

from cerebro_db.errors import CerebroError, needs

_PACKAGE = "cerebro_plpy"
_SOURCE = Path(__file__).parent / "server" / "plpy" / _PACKAGE
_PYTHON = (3, 11)


def portable() -> Any:
    """Import the server's module `cerebro_plpy.portable` and return it; raise CerebroError if that fails."""
    if sys.version_info < _PYTHON:
        raise CerebroError(
            f"models away from the database need Python {'.'.join(map(str, _PYTHON))} or newer",
            detail=f"This is Python {sys.version.split()[0]}.",
        )
    if _PACKAGE not in sys.modules:
        _import_package()
    try:
        return importlib.import_module(f"{_PACKAGE}.portable")
    except ModuleNotFoundError as error:
        if error.name != "numpy":
            raise
        raise needs("predict", "NumPy, which computes the answers,") from None


def _import_package() -> None:
    """Import the server's package from the client's own folder, without adding a folder to `sys.path`."""
    spec = importlib.util.spec_from_file_location(
        _PACKAGE, _SOURCE / "__init__.py", submodule_search_locations=[str(_SOURCE)]
    )
    if spec is None or spec.loader is None or not (_SOURCE / "__init__.py").exists():
        raise CerebroError(
            "the source of the extension is not beside the client", hint="Install the client by pip."
        )
    package = importlib.util.module_from_spec(spec)
    sys.modules[_PACKAGE] = package
    spec.loader.exec_module(package)
