"""Makes data frames from rows; pandas need not be installed until a data frame is made."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from cerebro_db.errors import needs
from cerebro_db.link import Row

if TYPE_CHECKING:
    import pandas


def library() -> Any:
    """Return the pandas module; raise CerebroError with a hint if pandas is not installed."""
    try:
        import pandas
    except ImportError:
        raise needs("pandas", "pandas, which data frames come from,") from None
    return pandas


def frame(rows: Sequence[Row], columns: Sequence[str] = ()) -> pandas.DataFrame:
    """Return the rows as a data frame; `columns` names its columns if there are no rows."""
    return library().DataFrame(list(rows), columns=list(rows[0] if rows else columns))
