"""The client of Cerebro DB, which trains many Keras nets at once inside a database."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from cerebro_db.architectures import Architectures
    from cerebro_db.database import Database, connect
    from cerebro_db.errors import CerebroError, CerebroWarning
    from cerebro_db.functions import Functions
    from cerebro_db.packing import Packed
    from cerebro_db.plan import Plan
    from cerebro_db.run import Config, Run
    from cerebro_db.saved import load_model
    from cerebro_db.space import by_model, choice, integer, loguniform, uniform

# Where each name is at home. Each is fetched when it is first asked for: the command `cerebro` shall answer
# --help at once, and SQLAlchemy alone takes longer than that to come up.
_HOMES = {
    "Architectures": "architectures",
    "CerebroError": "errors",
    "CerebroWarning": "errors",
    "Config": "run",
    "Database": "database",
    "Functions": "functions",
    "Packed": "packing",
    "Plan": "plan",
    "Run": "run",
    "by_model": "space",
    "choice": "space",
    "connect": "database",
    "integer": "space",
    "load_model": "saved",
    "loguniform": "space",
    "uniform": "space",
}

__all__ = [
    "Architectures",
    "CerebroError",
    "CerebroWarning",
    "Config",
    "Database",
    "Functions",
    "Packed",
    "Plan",
    "Run",
    "by_model",
    "choice",
    "connect",
    "integer",
    "load_model",
    "loguniform",
    "uniform",
]


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from importlib.metadata import version

        return version("cerebro-db")
    if name in _HOMES:
        return getattr(import_module(f".{_HOMES[name]}", __name__), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
