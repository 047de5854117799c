"""Several processes that deal rows together make the same buffers as one process alone."""

from __future__ import annotations

import json
from collections import defaultdict
from contextlib import closing
from dataclasses import asdict

import numpy as np
import pytest

from cerebro_plpy.cluster.protocol import DealRows, OpenRows
from cerebro_plpy.cluster.rows import pack_rows
from cerebro_plpy.errors import CerebroError
from cerebro_plpy.packing.columns.sources import CLASSES, VALUES, SourcePart
from cerebro_plpy.packing.dividing.parts import PartsRead
from cerebro_plpy.packing.faults import Faults
from cerebro_plpy.packing.rows import dealing
from cerebro_plpy.packing.rows.labels import one_hot
from cerebro_plpy.packing.rows.reading import hasher_of, open_column, place_of_labels, read_batch
from cerebro_plpy.packing.rows.sorting import Sorter
from cerebro_plpy.store.packed.packed import SourceColumn

ROWS, SEGMENTS, SEED = 1000, 3, 5
BATCH = 100
KEYS = [2, 0, 7]
FOLDS = 3
CLASS_NAMES = ["ant", "bee", "cat"]
PARTS = [
    SourcePart("y", (SourceColumn("y", "text", False, "text", "text", True),), CLASSES),
    SourcePart("x", (SourceColumn("x", "bytea", False, "bytea", "bytea", True),), VALUES),
]
DESCRIBED = [pack_rows.describe(part, None, 1.0) for part in PARTS]
MEGABYTE = 1 << 20


def rows() -> list[list[bytes]]:
    random = np.random.default_rng(1)
    labels = random.integers(0, 3, ROWS)
    return [[CLASS_NAMES[label].encode(), random.bytes(6)] for label in labels]


def in_folds(given: list[list[bytes]]) -> list[list[bytes]]:
    """Return the rows, each with the number of its fold as a further field."""
    return [[*row, str(1 + row[1][0] % FOLDS).encode()] for row in given]


def alone(
    given: list[list[bytes]], how: dealing.Deal, memory: int, folds: PartsRead | None = None
) -> dict[int, list[bytes]]:
    seen = Faults()
    columns = [
        open_column(part, value, None, 1.0, SEED, seen) for part, value in zip(PARTS, given[0], strict=False)
    ]
    values = [[row[0].decode() for row in given], [row[1] for row in given]]
    if folds is not None:
        values.append([row[2].decode() for row in given])
    hasher = hasher_of(columns, SEED)
    with closing(Sorter([column.stored for column in columns], memory, BATCH)) as sorter:
        for start in range(0, ROWS, BATCH):
            batch = [column[start : start + BATCH] for column in values]
            read_batch(batch, columns, sorter, hasher, start, seen, folds)
        assert columns[0].classes is not None
        places = place_of_labels(columns[0].classes.labels, {n: i for i, n in enumerate(CLASS_NAMES)}, None)
        return {
            buffer.segment * how.buffers + buffer.number: [
                one_hot(places[buffer.column(0)[:, 0]], 3).tobytes(),
                buffer.column(1).tobytes(),
            ]
            for buffer in dealing.deal(sorter, how)
        }


def opening(memory: int, folds: int | None = None) -> OpenRows:
    """Return the command OpenRows as a process receives it, after a round trip through JSON."""
    told = OpenRows(
        ticket="ticket", columns=DESCRIBED, sample=[True, True], seed=SEED, memory=memory, parts=folds
    )
    return OpenRows.from_fields(json.loads(json.dumps(asdict(told))))


def shared(
    given: list[list[bytes]], how: dealing.Deal, sizes: list[int], memory: int
) -> dict[int, list[bytes]]:
    """Deal rows as several processes would, with `sizes` rows each; return the rows of each buffer."""
    folds = FOLDS if how.folds else None
    shares = [pack_rows.RowShare(opening(memory, folds), given[0][:2]) for _ in sizes]
    bounds = np.cumsum([0, *sizes])
    for own, first, last in zip(shares, bounds, bounds[1:], strict=False):
        for fields in given[first:last]:
            own.take(fields)
    hashes = [np.frombuffer(own.hashes(), np.uint64) for own in shares]
    assert [len(h) for h in hashes] == sizes
    order = np.argsort(np.concatenate(hashes), kind="stable")
    ranks = np.empty(ROWS, np.int64)
    ranks[order] = np.arange(ROWS)
    pieces = defaultdict(list)
    for own, mine in zip(shares, np.split(ranks, bounds[1:-1]), strict=True):
        places = [CLASS_NAMES.index(str(label)) for label in own.labels()[0] or []]
        dealt = DealRows(ticket="ticket", deal=vars(how), keys=KEYS, places=[places, None], widths=[3, None])
        own.deal(DealRows.from_fields(json.loads(json.dumps(asdict(dealt)))), mine)
        for key, buffer_id, place, fields in own.pieces():
            assert key == KEYS[buffer_id // how.buffers]
            pieces[buffer_id].append((place, fields))
        own.close()
    return {
        number: pack_rows.join([6, 24], [p for p, _ in found], [f for _, f in found])
        for number, found in pieces.items()
    }


@pytest.mark.parametrize("sizes", [[ROWS], [400, 350, 250], [999, 0, 1]])
@pytest.mark.parametrize("memory", [MEGABYTE, 1])
def test_the_buffers_are_those_of_one_process(sizes: list[int], memory: int) -> None:
    """The buffers are the same even if a process has no rows, or has to sort its rows on disk."""
    given, how = rows(), dealing.Deal(ROWS, SEGMENTS, 4)
    assert shared(given, how, sizes, memory) == alone(given, how, memory) == alone(given, how, MEGABYTE)


@pytest.mark.parametrize("sizes", [[ROWS], [400, 350, 250], [999, 0, 1]])
@pytest.mark.parametrize("memory", [MEGABYTE, 1])
def test_so_they_are_where_rows_are_in_folds(sizes: list[int], memory: int) -> None:
    given = in_folds(rows())
    counts = np.bincount([int(row[2]) for row in given])[1:].tolist()
    how, read = dealing.Deal(ROWS, SEGMENTS, 2, counts), PartsRead(FOLDS)
    assert shared(given, how, sizes, memory) == alone(given, how, memory, read)
    assert read.rows.tolist() == counts


def test_rows_are_handed_over_only_with_the_ticket() -> None:
    pack_rows.expect("ticket", pack_rows.RowShare(opening(MEGABYTE), rows()[0]))
    assert pack_rows.take_row("ticket", rows()[0]) == 1
    with pytest.raises(CerebroError, match="no rows are expected"):
        pack_rows.take_row("another", rows()[0])
    pack_rows.close("ticket")
    with pytest.raises(CerebroError, match="no rows are expected"):
        pack_rows.take_row("ticket", rows()[0])
