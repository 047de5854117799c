"""Carries out the messages by which a segment's process packs or predicts the rows of a scan."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np

from cerebro_plpy import memory
from cerebro_plpy.cluster.protocol import (
    CloseRows,
    DealRows,
    ExpectRows,
    GiveClasses,
    Message,
    OpenRows,
    PredictRest,
    SortRows,
    TakeGpu,
)
from cerebro_plpy.cluster.rows import pack_rows
from cerebro_plpy.engine.backends import runtime

Parts = Sequence[bytes | memoryview]
Ticker = Callable[[], Callable[[], None]]
RowReply = tuple[Any, list[bytes]]


class _OwnGpu:
    gpu: runtime.Gpu | None = None


def _open(asked: OpenRows, parts: Parts, ticker: Ticker) -> RowReply:
    rest = iter(parts)
    sample = [bytes(next(rest)) if there else None for there in asked.sample]
    pack_rows.expect(asked.ticket, pack_rows.RowShare(asked, sample))
    return None, []


def _sort(asked: SortRows, parts: Parts, ticker: Ticker) -> RowReply:
    own = pack_rows.find_taker(asked.ticket, pack_rows.RowShare)
    hashes = own.hashes()
    counts = [column.counts.tolist() for column in own.columns]
    parts_rows = None if own.parts is None else own.parts.rows.tolist()
    found = {
        "rows": own.rows,
        "labels": own.labels(),
        "counts": counts,
        "faults": own.faults.list_faults(),
        "parts": parts_rows,
    }
    return found, [hashes]


def _deal(asked: DealRows, parts: Parts, ticker: Ticker) -> RowReply:
    pack_rows.find_taker(asked.ticket, pack_rows.RowShare).deal(asked, np.frombuffer(parts[0], "<i8"))
    return None, []


def _give_classes(asked: GiveClasses, parts: Parts, ticker: Ticker) -> RowReply:
    return None, [pack_rows.find_taker(asked.ticket, pack_rows.RowShare).classes_seen()]


def _take_gpu(asked: TakeGpu, parts: Parts, ticker: Ticker) -> RowReply:
    memory.get_instance(_OwnGpu).gpu = runtime.Gpu(**asdict(asked))
    return None, []


def _expect_rows(asked: ExpectRows, parts: Parts, ticker: Ticker) -> RowReply:
    """Start the engine, load the model, and prepare to receive the rows to predict."""
    from cerebro_plpy.cluster.rows.predict_rows import Predicting
    from cerebro_plpy.predicting import models

    engine = asked.engine
    models.start_chosen(
        engine.backend,
        engine.threads,
        bool(engine.use_gpus),
        memory.get_instance(_OwnGpu).gpu,
        engine.cache_folder,
    )
    *sample, weights = parts
    rest = iter(sample)
    given = [None if "features" in column else bytes(next(rest)) for column in asked.columns]
    pack_rows.expect(asked.ticket, Predicting(asked, given, bytes(weights), ticker()))
    return None, []


def _predict_rest(asked: PredictRest, parts: Parts, ticker: Ticker) -> RowReply:
    from cerebro_plpy.cluster.rows.predict_rows import Predicting

    own = pack_rows.find_taker(asked.ticket, Predicting)
    own.finish()
    return {"rows": own.rows, "faults": own.faults.list_faults()}, []


def _close(asked: CloseRows, parts: Parts, ticker: Ticker) -> RowReply:
    pack_rows.close(asked.ticket)
    return None, []


ABOUT_ROWS: Mapping[type[Message], Callable[[Any, Parts, Ticker], RowReply]] = {
    OpenRows: _open,
    SortRows: _sort,
    DealRows: _deal,
    GiveClasses: _give_classes,
    TakeGpu: _take_gpu,
    ExpectRows: _expect_rows,
    PredictRest: _predict_rest,
    CloseRows: _close,
}
