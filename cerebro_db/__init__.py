"""Trains many Keras nets at once, where the rows are: the client of Cerebro DB."""

from __future__ import annotations

from importlib.metadata import version

from .architectures import Architectures
from .config import Config
from .database import Database, connect
from .errors import CerebroError, CerebroWarning
from .packing import Packed
from .run import Run
from .space import by_model, choice, integer, loguniform, uniform

__version__ = version("cerebro-db")

__all__ = [
    "Architectures",
    "CerebroError",
    "CerebroWarning",
    "Config",
    "Database",
    "Packed",
    "Run",
    "by_model",
    "choice",
    "connect",
    "integer",
    "loguniform",
    "uniform",
]
