"""Predicts a table's rows on Greenplum: each segment predicts its own rows and stores the predictions."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from dataclasses import asdict

from cerebro_plpy.cluster.protocol import CloseRows, ExpectRows, PredictRest, TakeGpu, tell, tell_all
from cerebro_plpy.cluster.rows import pack, pack_rows
from cerebro_plpy.commands import Engine
from cerebro_plpy.database import Database
from cerebro_plpy.engine.backends import runtime
from cerebro_plpy.packing.faults import Faults
from cerebro_plpy.packing.rows.reading import fields, samples
from cerebro_plpy.planner import gpus
from cerebro_plpy.predicting.answering.rows import Prediction
from cerebro_plpy.store import session
from cerebro_plpy.store.cluster import places
from cerebro_plpy.store.models import predictions
from cerebro_plpy.store.packed import packed


class PredictorOnSegments:
    """A predictor whose work the segments' processes do; the coordinator's host need not have a GPU."""

    uses_gpus_here = False

    def __init__(self, db: Database, use_gpus: bool) -> None:
        self._db, self._use_gpus = db, use_gpus
        self._shares = _deal_gpus(db) if use_gpus else ()

    def predict(self, asked: Prediction) -> None:
        ticket = secrets.token_hex(16)
        source = asked.source
        expressions = [
            packed.Expression(packed.TEXT, (source.id_column,)),
            *fields(source.inputs),
        ]
        expected = self._expected(asked, ticket)
        given = samples(asked.sample, source.inputs, before=1)
        sent = [*(value for value in given if value is not None), asked.model.weights()]

        def expect() -> None:
            for key, own in zip(places.keys(self._db, len(self._shares)), self._shares, strict=True):
                tell(self._db, key, TakeGpu(**own.told()))
            tell_all(self._db, expected, sent)

        try:
            pack.hand_out(
                self._db,
                table=source.table,
                statement=source.statement,
                expressions=expressions,
                ticket=ticket,
                expect=expect,
            )
            found = tell_all(self._db, PredictRest(ticket=ticket))
            seen = Faults()
            for segment, own in enumerate(found):
                seen.join(own.result["faults"], segment)
            if seen:
                raise seen.error(sum(own.result["rows"] for own in found))
            predictions.create(self._db, asked.output, source.table, asked.about)
            places.write_predictions(self._db, asked.output, ticket)
        finally:
            tell_all(self._db, CloseRows(ticket=ticket))
            places.drop_temporary(self._db)

    def _expected(self, asked: Prediction, ticket: str) -> ExpectRows:
        backend = runtime.backend()
        folder = session.setting(self._db, session.CACHE_FOLDER)
        return ExpectRows(
            ticket=ticket,
            engine=Engine(backend, runtime.threads_of(backend) or 1, self._use_gpus, cache_folder=folder),
            seed=0,
            columns=[pack_rows.describe(column.part, None, asked.model.divisor) for column in asked.columns],
            shapes=[list(column.shape) for column in asked.columns],
            model_arch=asked.model.model_arch,
            functions=asked.net.functions,
            outputs=[asdict(output) for output in asked.net.outputs],
            choice=asdict(asked.source.choice),
            batch_rows=asked.batch_rows,
        )


def _deal_gpus(db: Database) -> Sequence[gpus.GpuShare]:
    """Return each segment's GPU share, in segment order; raise an error if a host has no GPU."""
    cluster = places.cluster(db)
    shares = gpus.deal(cluster)
    for line in gpus.crowded(cluster):
        db.warning(line)
    return shares
