"""Rows of runs: makes the rows that store a new run, and reads rows on other servers for views."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from cerebro_plpy.database import Database
from cerebro_plpy.executor.starting import request as requests
from cerebro_plpy.madlib.params import BALANCED
from cerebro_plpy.store import citus, session
from cerebro_plpy.store.runs import runs


@dataclass(frozen=True)
class Warm:
    """The state of an earlier run from which a config continues."""

    run_id: int
    step: int
    epochs: int
    # The config's key in that run, if it differs.
    key: int | None = None


def run_row(
    db: Database, request: requests.Request, run_id: int, *, kind: str, model_table: str | None, topology: str
) -> runs.RunRow:
    return runs.RunRow(
        run_id=run_id,
        owner=session.current_user(db),
        kind=kind,
        source_table=request.source.table.quoted,
        validation_table=request.validation.table.quoted if request.validation else None,
        model_table=model_table,
        epochs=request.epochs,
        metrics_frequency=request.metrics_frequency,
        segments=request.segments,
        seed=request.seed,
        memory_mb=request.engines.memory_mb,
        threads=request.engines.threads,
        use_gpus=request.engines.use_gpus,
        topology=topology,
        arch_table=request.arch_table.quoted,
        selection_table=request.selection_table,
        warm_start=request.warm_start,
        name=request.name,
        description=request.description,
        search=None if request.search is None else json.dumps(request.search),
        limits=json.dumps(asdict(request.limits)),
        spelled=json.dumps(dict(request.spelled)),
        object_table=request.object_table,
        packed_versions=json.dumps(_versions_read(request)),
    )


def _versions_read(request: requests.Request) -> Mapping[str, Any]:
    """Return the versions of the packed tables whose groups were read, by name of the table."""
    read = [data for data in (request.source, request.validation) if data and request.groups]
    return {data.table.quoted: {"version": data.summary.version} for data in read}


def architectures(described: Mapping[str, Mapping[str, Any]]) -> list[runs.ArchitectureRow]:
    """Return the rows that store the architectures, made from the engine's descriptions."""
    return [
        runs.ArchitectureRow(
            model_id=int(model_id),
            model_arch=facts["json"],
            parameters=facts["parameters"],
            flops_per_row=facts["flops_per_row"],
            work=json.dumps(facts["work"]),
        )
        for model_id, facts in described.items()
    ]


def config_row(request: requests.Request, chosen: requests.Chosen, warm: Warm | None) -> runs.ConfigRow:
    """Return the row that stores a config, with the earlier state from which it continues, if any."""
    balanced = BALANCED in chosen.fit_params
    return runs.ConfigRow(
        mst_key=chosen.mst_key,
        model_id=chosen.model_id,
        compile_params=chosen.compile_params,
        fit_params=chosen.fit_params,
        backend=request.engines.find_engine(chosen.model_id),
        warm_run_id=None if warm is None else warm.run_id,
        warm_step=None if warm is None else warm.step,
        warm_key=None if warm is None else warm.key,
        epochs_before=0 if warm is None else warm.epochs,
        config_key=chosen.config_key,
        fold=chosen.fold,
        group_id=chosen.group_id,
        # Configs without counts can share visits, so only configs that need the counts get them.
        class_counts=request.class_counts.get(chosen.group_id or 0) if balanced else None,
    )


def find_visible(db: Database, wanted: str) -> list[str]:
    """Return as JSON all visits, evaluations or states that the current role may see; `wanted` says which."""
    return citus.read_visible(db, wanted, session.current_user(db))
