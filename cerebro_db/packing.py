"""Packed tables: rows in the form that training reads."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cerebro_db import markup, packed_files
from cerebro_db.errors import CerebroError
from cerebro_db.statements import Columns, call, names, table_name

if TYPE_CHECKING:
    from cerebro_db.protocols import Server


class Packed:
    """A packed table; `x` and `y` are the columns that it was packed from, if they are known."""

    def __init__(self, db: Server, table: str, x: Columns | None = None, y: Columns | None = None) -> None:
        self._db = db
        self.table = table
        self.x = x
        self.y = y
        self._source = ""
        self._like: Packed | None = None

    def __repr__(self) -> str:
        return f"<packed table {self.table}>"

    def _repr_html_(self) -> str:
        found = self.summary()
        wanted = ("total_rows", "segments", "independent_varname", "dependent_varname", "num_classes")
        shown = [(name.replace("_", " "), found[name]) for name in wanted if name in found]
        return markup.titled(f"Packed table {self.table}", markup.pairs(shown))

    @classmethod
    def from_table(cls, db: Server, table: Packed | str) -> Packed:
        """Return a Packed for the name of a packed table; return a Packed unchanged."""
        return cls(db, table) if isinstance(table, str) else table

    @classmethod
    def plan(
        cls,
        db: Server,
        source: str,
        x: Columns | None,
        y: Columns | None,
        into: str | None,
        like: Packed | str | None,
    ) -> Packed:
        """Return the table that `db.pack` will create; by default, its columns are those of `like`."""
        training = cls.from_table(db, like) if like is not None else None
        if training is not None:
            x, y = x or training.x, y or training.y
        if not x or not y:
            raise CerebroError(
                "x and y name the columns to pack",
                hint='For example x=["a", "b"], y="c".',
                shell="For example --x a,b --y c.",
            )
        packed = cls(db, into or table_name(source, "_packed"), x, y)
        packed._source, packed._like = source, training
        return packed

    def statement(self, *, options: Mapping[str, Any], **named: Any) -> str:
        """Return the SQL call that packs the table."""
        if self.x is None or self.y is None:
            raise CerebroError(f"{self.table} is packed already")
        arguments = (self._source, self.table, names(self.y), names(self.x))
        given = {key: value for key, value in named.items() if value is not None}
        if self._like is None:
            return call("training_preprocessor_dl", *arguments, **given, options=dict(options) or None)
        refused = sorted(given.keys() - {"buffer_size"})
        if refused:
            raise CerebroError(f"{', '.join(refused)}: validation rows are packed as {self._like.table} was")
        return call(
            "validation_preprocessor_dl", *arguments, self._like.table, **given, options=dict(options) or None
        )

    def summary(self) -> dict[str, Any]:
        """Return the row of the table's summary, which describes how the table was packed."""
        return self._db.rows(f"SELECT * FROM {table_name(self.table, '_summary')}")[0]

    def export(self, path: str | Path) -> Path:
        """Write the table to a `.parquet` or `.npz` file, which `db.import_packed` reads."""
        return packed_files.save(self._db, self.table, Path(path))

    def __len__(self) -> int:
        return self.summary()["total_rows"]
