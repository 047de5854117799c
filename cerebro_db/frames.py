"""Rows as data frames, where pandas is installed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from cerebro_db.errors import needs
from cerebro_db.link import Row

if TYPE_CHECKING:
    import pandas


def library() -> Any:
    """Return pandas, or say how to get it."""
    try:
        import pandas
    except ImportError:
        raise needs("pandas", "pandas, which data frames come from,") from None
    return pandas


def frame(rows: Sequence[Row], columns: Sequence[str] = ()) -> pandas.DataFrame:
    """Make a data frame; `columns` are for the case that there are no rows."""
    return library().DataFrame(list(rows), columns=list(rows[0] if rows else columns))
