"""Partitions in a file, by which the caller's session passes on rows that only its transaction sees."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, replace
from typing import Any

from cerebro_plpy import memory
from cerebro_plpy.database import Database
from cerebro_plpy.engine.models.data import Dataset, concatenate
from cerebro_plpy.segment import rows
from cerebro_plpy.store.packed import partitions
from cerebro_plpy.store.runs import runs
from cerebro_plpy.store.runs.handed import (
    HandedFile,
    HandedFiles,
    HandedPlace,
    HandedRows,
    refusing_full_disk,
)

_PLACE = "handed"


def hand_over(db: Database, run: runs.RunRow) -> runs.RunRow:
    """Copy the rows of a run's packed tables into a file.

    Return the run with the versions of its tables, and with the place of the file.
    """
    run = rows.with_versions(db, run)
    with refusing_full_disk():
        place = asdict(_write(db, run))
    found = json.loads(run.packed_versions)
    return replace(
        run, packed_versions=json.dumps({table: {**facts, _PLACE: place} for table, facts in found.items()})
    )


def _write(db: Database, run: runs.RunRow) -> HandedPlace:
    file = memory.get_instance(HandedFiles)[run.run_id] = HandedFile()
    for table in rows.tables(run):
        known = rows.layout(db, table, runs.below(run, table))
        for segment in range(run.segments):
            source = rows.TableSource(db, run.owner, table, segment, known)
            _, buffers = source.look()
            written = [file.write_row(source.read(number)) for number in range(len(buffers))]
            facts = {"columns": asdict(known.columns), "kinds": known.kinds}
            listed = [[asdict(b), fields] for b, fields in zip(buffers, written, strict=True)]
            file.add_partition(table, facts, listed)
    return file.finish()


class HandedSource:
    """A source that reads a partition from the file that the caller's session has written."""

    def __init__(self, found: HandedRows, run: runs.RunRow, table: str, segment: int) -> None:
        about: Mapping[str, Any] = found.index[table][segment]
        self._found = found
        self._digest: str = json.loads(run.versions)[table][segment]
        self._layout = rows.Layout(
            partitions.Columns(**about["columns"]), tuple(about["kinds"]), keys=(), version=0, class_counts={}
        )
        self._buffers = [partitions.Buffer(**buffer) for buffer, _ in about["buffers"]]
        self._fields = [fields for _, fields in about["buffers"]]

    def look(self) -> tuple[object, list[partitions.Buffer]]:
        return self._digest, self._buffers

    def digest(self) -> str:
        return self._digest

    def load(self, number: int) -> Dataset:
        return self._layout.dataset(self._found.read_row(self._fields[number]))

    def load_all(self, within_budget: bool) -> Dataset | None:
        if not within_budget:
            return None
        return concatenate(map(self.load, range(len(self._buffers))), sum(b.rows for b in self._buffers))


def find_handed(run: runs.RunRow, table: str, segment: int) -> HandedSource | None:
    """Return the source of a partition in the file that the caller's session has written.

    Return None if the run has no such file, or if the caller's session has ended.
    """
    place = json.loads(run.packed_versions).get(table, {}).get(_PLACE)
    found = None if place is None else HandedRows.open(HandedPlace(**place))
    return None if found is None else HandedSource(found, run, table, segment)
