"""Carries out the calls about related tables, by the names that SQL has for them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from cerebro_plpy.database import Database
from cerebro_plpy.executor import relating


def _relate(db: Database, *arguments: Any) -> str:
    return relating.relate(db, relating.RelateCall(*arguments))


CALLS: Mapping[str, Callable[..., Any]] = {"relate": _relate}
