"""What a segment's process is told of the rows that a scan hands to it, to pack or to predict."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from cerebro_plpy import memory
from cerebro_plpy.cluster import pack_rows
from cerebro_plpy.engine import runtime
from cerebro_plpy.segment.commands import CommandRequest

Parts = Sequence[bytes | memoryview]
Ticker = Callable[[], Callable[[], None]]
RowReply = tuple[Any, list[bytes]]


class _OwnGpu:
    gpu: runtime.Gpu | None = None


def _sample(request: CommandRequest, parts: Parts) -> list[bytes | None]:
    rest = iter(parts)
    return [bytes(next(rest)) if there else None for there in request["sample"]]


def _open(request: CommandRequest, parts: Parts, ticker: Ticker) -> RowReply:
    pack_rows.expect(request["ticket"], pack_rows.RowShare(request, _sample(request, parts)))
    return None, []


def _sort(request: CommandRequest, parts: Parts, ticker: Ticker) -> RowReply:
    own = pack_rows.found(request["ticket"], pack_rows.RowShare)
    hashes = own.hashes()
    return {"rows": own.rows, "labels": own.labels(), "faults": own.faults.found()}, [hashes]


def _deal(request: CommandRequest, parts: Parts, ticker: Ticker) -> RowReply:
    pack_rows.found(request["ticket"], pack_rows.RowShare).deal(request, np.frombuffer(parts[0], "<i8"))
    return None, []


def _take_gpu(request: CommandRequest, parts: Parts, ticker: Ticker) -> RowReply:
    """What is said to all processes at once cannot name the GPU of each."""
    memory.of(_OwnGpu).gpu = runtime.Gpu(**request)
    return None, []


def _expect_rows(request: CommandRequest, parts: Parts, ticker: Ticker) -> RowReply:
    """Make ready to predict: the model is there before a row is."""
    from cerebro_plpy.cluster.predict_rows import Predicting
    from cerebro_plpy.predicting import models

    models.start_chosen(**request["engine"], gpu=memory.of(_OwnGpu).gpu)
    *sample, weights = parts
    given = [bytes(value) for value in sample]
    pack_rows.expect(request["ticket"], Predicting(request, given, bytes(weights), ticker()))
    return None, []


def _predict_rest(request: CommandRequest, parts: Parts, ticker: Ticker) -> RowReply:
    from cerebro_plpy.cluster.predict_rows import Predicting

    own = pack_rows.found(request["ticket"], Predicting)
    own.finish()
    return {"rows": own.rows, "faults": own.faults.found()}, []


def _close(request: CommandRequest, parts: Parts, ticker: Ticker) -> RowReply:
    pack_rows.close(request["ticket"])
    return None, []


COMMANDS: Mapping[str, Callable[[CommandRequest, Parts, Ticker], RowReply]] = {
    "open": _open,
    "sort": _sort,
    "deal": _deal,
    "take_gpu": _take_gpu,
    "expect_rows": _expect_rows,
    "predict_rest": _predict_rest,
    "close": _close,
}
