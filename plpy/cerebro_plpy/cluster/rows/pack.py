"""Packing on Greenplum: each segment reads, sorts and deals its own rows; this module orders all rows.

The buffers are the same as on PostgreSQL, byte for byte, because rows are ordered by their hashes and not by
the segment where they were stored before.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Sequence
from dataclasses import asdict
from functools import partial
from typing import Any

import numpy as np

from cerebro_plpy.cluster.protocol import (
    CloseRows,
    DealRows,
    GiveClasses,
    OpenRows,
    SortRows,
    tell,
    tell_all,
)
from cerebro_plpy.cluster.rows import pack_rows
from cerebro_plpy.database import Database, Row
from cerebro_plpy.errors import WRONG_STATE, CerebroError
from cerebro_plpy.packing.columns.classes import Labels
from cerebro_plpy.packing.dividing.parts import PartsRead
from cerebro_plpy.packing.faults import Faults
from cerebro_plpy.packing.job import Job
from cerebro_plpy.packing.rows import dealing
from cerebro_plpy.packing.rows.dealing_groups import ClassesSeen, GroupDeal
from cerebro_plpy.packing.rows.reading import Column, samples
from cerebro_plpy.store.cluster import places
from cerebro_plpy.store.names import Table
from cerebro_plpy.store.packed.packed import Expression, PackedOutput

# The least memory that a segment's process may use for sorting its rows.
LEAST_BYTES = 16 << 20


def hand_out(
    db: Database,
    table: Table,
    statement: str,
    expressions: Sequence[Expression],
    ticket: str,
    expect: Callable[[], object],
) -> None:
    """Pass each row of a statement to the process on the row's segment; `expect` prepares the processes.

    If the rows are not on segments, such as those of some views, first copy them to a temporary table there.
    """
    expect()
    try:
        places.hand_out_rows(db, statement, expressions, ticket)
        return
    except CerebroError as error:
        if error.sqlstate != WRONG_STATE or places.is_spread(db, table):
            raise
    # Rows that are not stored on segments, for example of a view.
    expect()
    places.hand_out_rows(db, places.stage(db, statement), expressions, ticket)


class RowsOnSegments:
    """The rows of a table to be packed, each in the memory of the process on its segment."""

    def __init__(
        self, db: Database, job: Job, columns: Sequence[Column], seen: Faults, parts: PartsRead | None
    ) -> None:
        self._db, self._job, self._columns, self._seen = db, job, columns, seen
        self._parts = parts
        self._ticket = secrets.token_hex(16)
        self._hashes: list[np.ndarray] = []
        self._labels: list[list[Any]] = []

    def read(self, statement: str, sample: Row) -> int:
        """Have each process receive and sort the rows of its segment; return the total number of rows."""
        self._hand_out(statement, sample)
        found = tell_all(self._db, SortRows(ticket=self._ticket))
        for segment, own in enumerate(found):
            self._seen.join(own.result["faults"], segment)
            if self._parts is not None:
                self._parts.rows += own.result["parts"]
        self._labels = [own.result["labels"] for own in found]
        for labels, counts in zip(self._labels, (own.result["counts"] for own in found), strict=True):
            for column, own, counted in zip(self._columns, labels, counts, strict=True):
                if column.classes is not None:
                    column.add_counts(np.bincount(column.classes.codes(own), counted))
                else:
                    column.add_counts(np.array(counted, np.int64))
        self._hashes = [np.frombuffer(own.parts[0], np.uint64) for own in found]
        return sum(own.result["rows"] for own in found)

    def _hand_out(self, statement: str, sample: Row) -> None:
        expressions = self._job.fields
        hand_out(
            self._db,
            table=self._job.source,
            statement=statement,
            expressions=expressions,
            ticket=self._ticket,
            expect=partial(self._open, sample),
        )

    def _open(self, sample: Row) -> None:
        values = samples(sample, self._job.parts)
        given = [value.encode() if isinstance(value, str) else value for value in values]
        shapes = [list(c.shape) if c.reader is not None else None for c in self._columns]
        columns = [
            pack_rows.describe(column.part, shape, self._job.divisor_of(column.part))
            for column, shape in zip(self._columns, shapes, strict=True)
        ]
        memory = max(LEAST_BYTES, self._job.memory // places.primaries(self._db))
        opening = OpenRows(
            ticket=self._ticket,
            columns=columns,
            sample=[value is not None for value in given],
            seed=self._job.seed,
            memory=memory,
            parts=None if self._parts is None else len(self._parts.rows),
        )
        tell_all(self._db, opening, [value for value in given if value is not None])

    def write(
        self, output: PackedOutput, labels: Sequence[Labels], how: dealing.Deal | GroupDeal
    ) -> Sequence[int] | None:
        """Have each process deal its rows to the segments of the packed table, and write the buffers.

        Return the number of classes in each group, or None if rows are not dealt by groups with classes.
        """
        keys = places.keys(self._db, len(self._hashes))
        for key, ranks, own in zip(keys, self._ranks(), self._labels, strict=True):
            dealt = DealRows(
                ticket=self._ticket,
                deal=asdict(how),
                keys=list(output.dist_keys or ()),
                places=self._places(labels, own),
                widths=[label.width for label in labels] + [None] * (len(self._job.parts) - len(labels)),
                grouped=isinstance(how, GroupDeal),
            )
            tell(self._db, key, dealt, [ranks.astype("<i8").tobytes()])
        places.send_pieces(self._db, self._ticket)
        shapes = [self._shape(number, labels) for number in range(len(self._columns))]
        widths = [
            2 * shape[0] if column.classes is not None else column.nbytes
            for column, shape in zip(self._columns, shapes, strict=True)
        ]
        in_order = [part for segment in range(how.segments) for part in _parts_of(how, segment)]
        places.join_pieces(self._db, output, shapes, widths, in_order, how.buffers_before)
        return self._classes_seen(how, labels[0].width)

    def _classes_seen(self, how: dealing.Deal | GroupDeal, width: int | None) -> Sequence[int] | None:
        if not isinstance(how, GroupDeal) or not width:
            return None
        seen = ClassesSeen(len(how.groups), width)
        for own in tell_all(self._db, GiveClasses(ticket=self._ticket)):
            seen.join(np.frombuffer(own.parts[0], "<i8"))
        return seen.counts()

    def _shape(self, number: int, labels: Sequence[Labels]) -> list[int]:
        """Return the shape of one row of a column in the packed table."""
        column = self._columns[number]
        return list(column.shape) if column.classes is None else [labels[number].width or 0]

    def _ranks(self) -> list[np.ndarray]:
        """Return, for each process, the places of its sorted rows in the order of all rows."""
        order = np.argsort(np.concatenate(self._hashes), kind="stable")
        ranks = np.empty(len(order), np.int64)
        ranks[order] = np.arange(len(order))
        return np.split(ranks, np.cumsum([len(hashes) for hashes in self._hashes])[:-1])

    def _places(self, labels: Sequence[Labels], own: Sequence[Any]) -> list[list[int] | None]:
        """Return, for each column, the class numbers of `own`, a process's labels; None without classes."""
        found: list[list[int] | None] = []
        for number, column in enumerate(self._columns):
            places_ = labels[number].places if number < len(labels) else None
            if column.classes is None or places_ is None:
                found.append(None)
            else:
                found.append(places_[column.classes.codes(own[number])].tolist())
        return found

    def close(self) -> None:
        tell_all(self._db, CloseRows(ticket=self._ticket))
        places.drop_temporary(self._db)


def _parts_of(how: dealing.Deal | GroupDeal, segment: int) -> list[int | list[list[int]] | None]:
    """Return, for each buffer of a segment, its fold or its groups, or None if it has neither."""
    found = [one.fold or one.groups for one in how.slices(segment)]
    return [*found, *[None] * (how.buffers - len(found))]
