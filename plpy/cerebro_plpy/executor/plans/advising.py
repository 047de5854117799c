"""cerebro.advise: find problems in the loss curves of a run, and say what to try next."""

from __future__ import annotations

from cerebro_plpy.database import Database
from cerebro_plpy.logical import advice
from cerebro_plpy.logical.advice import Advice, ConfigCurves, LossCurve
from cerebro_plpy.store.runs import measurements, runs


def advise(db: Database, run_id: int | None) -> list[Advice]:
    """Return advice on the problems of a run of the caller; an empty list if none is found."""
    found = {key: LossCurve(*values) for key, values in measurements.read_curves(db, run_id).items()}
    failures = measurements.read_failures(db, run_id)
    return advice.advise(
        [
            ConfigCurves(key, found.get((key, "training")), found.get((key, "validation")), failures.get(key))
            for key in sorted({mst_key for mst_key, _ in found} | failures.keys())
        ],
        keeps_best=run_id is not None and bool(runs.read_limit(db, run_id, "restore_best")),
    )
