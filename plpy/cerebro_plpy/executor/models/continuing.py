"""The warm start of cerebro.retrain: train a version's net further, from its weights, on the present rows.

The rows are packed by the feature specification of the version, so that its weights still fit the inputs.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from cerebro_plpy.database import Database
from cerebro_plpy.errors import NOT_SUPPORTED, WRONG_STATE, CerebroError
from cerebro_plpy.executor.calls import train, train_order
from cerebro_plpy.executor.calls.fit import FitCall
from cerebro_plpy.executor.starting import begin, tables
from cerebro_plpy.packing import options as pack_options
from cerebro_plpy.packing import preprocess
from cerebro_plpy.packing.columns import sources
from cerebro_plpy.packing.dividing import holdout
from cerebro_plpy.packing.job import Rules
from cerebro_plpy.packing.pack import pack
from cerebro_plpy.predicting import models
from cerebro_plpy.predicting.holders import TrainedModel
from cerebro_plpy.predicting.trained import find_model
from cerebro_plpy.store import names, session
from cerebro_plpy.store.models import retraining
from cerebro_plpy.store.names import Table
from cerebro_plpy.store.packed import packed, source_rows
from cerebro_plpy.topology.inline import InlineTopology

# The epochs without improvement after which the training ends.
PATIENCE = 5
# The key of the only config of a run.
_KEY = 1


# The options of a training that a warm start follows. All others shape the net, which is there already.
_FOLLOWED = ("backend", "epochs", "segments", "seed", "validation", "weight")


def check_options(given: Mapping[str, Any]) -> None:
    """Raise an error if the call gives an option that a warm start does not follow."""
    for name, value in given.items():
        if value is not None and name not in _FOLLOWED:
            raise CerebroError(
                f"options warm_start and {name} are both given",
                detail="A warm start trains the net of the version further, by the columns that it knows.",
                hint=f"Leave one of them out. With warm_start go {', '.join(_FOLLOWED)}.",
                sqlstate=NOT_SUPPORTED,
            )


def train_on(db: Database, reference: str, call: train.TrainCall, seconds: int) -> None:
    """Train the net of a version further, and write the result tables that cerebro.train would write."""
    ends_at = time.monotonic() + seconds
    given = json.loads(call.options or "{}")
    found = find_model(db, reference, None)
    source = names.resolve_table(db, call.source_table, "source table")
    training = _packed_like(db, found, given, source)
    backend = given.get("backend") or train.choose_backend(db, here=True)
    validation = given.get("validation")
    said = None if validation is None else holdout.option("validation", validation)
    rows = _pack(db, source, training, said, (str(call.source_table), str(call.target)))
    retraining.keep_recipe(db, rows.quoted, json.dumps(call.recipe))
    tables.start_early(db, InlineTopology(db), backend, training.segments)
    model_id = tables.load_model(
        db,
        _named("nets"),
        found.stored.model_arch,
        weights=found.holder.weights(db, found),
        name=reference,
        description=f"the net of {reference}",
        quiet=True,
    )
    chosen = replace(found.selected, mst_key=_KEY, model_id=model_id)
    tables.select(db, _named("best"), [chosen], _named("nets"))
    options = {"max_seconds": seconds, "restore_best": True, "patience": PATIENCE, "backend": backend}
    begin.begin(
        db,
        FitCall(
            source_table=_named("packed"),
            model_output_table=call.name,
            model_selection_table=_named("best"),
            num_iterations=given.get("epochs", train_order.EPOCHS),
            use_gpus=False,
            validation_table=_named("packed" + preprocess.VALIDATION),
            metrics_compute_frequency=1,
            warm_start=False,
            name=reference,
            description=f"cerebro.retrain of {reference}, from its weights",
            use_caching=False,
            options=json.dumps({**options, "seed": training.seed}),
        ),
        ends_at=ends_at,
    )


def _named(what: str) -> str:
    return names.temporary(f"{retraining.MODELS}_{what}")


def _packed_like(
    db: Database, found: TrainedModel, given: Mapping[str, Any], source: Table
) -> packed.PackedSummary:
    """Return a packed summary with a version's features and classes, by which rows of `source` can be packed.

    `given` may have the number of segments, the seed and the name of the weight column.
    """
    summary = found.holder.summary(db)
    features = models.features_of(summary)
    if features is None:
        raise CerebroError(
            f"{found.holder.name} cannot go on from its weights: what its columns became is not known",
            hint="Leave warm_start out.",
            sqlstate=WRONG_STATE,
        )
    classes = found.holder.class_values(db, summary["dependent_varname"])
    widths = [None if values is None else len(values) for values in classes]
    known = packed.columns_of(db, source)
    # A number is a class in each spelling, such as 1 and 1.0.
    compared = {
        name: known[name].base_type if known[name].element in sources.NUMBERS else "text"
        for name in summary["dependent_varname"]
    }
    segments = given.get("segments") or session.usual_segments(db)
    return packed.PackedSummary(
        source_table="",
        output_table="",
        dependent_varname=summary["dependent_varname"],
        independent_varname=summary["independent_varname"],
        dependent_vartype=["text"] * len(widths),
        class_values=classes,
        buffer_size=0,
        normalizing_const=float(summary.get("normalizing_const") or 1.0),
        num_classes=list(widths),
        distribution_rules=Rules().shown,
        internal_gpu_config=Rules().gpu_config,
        segments=segments,
        seed=given.get("seed", 1),
        total_rows=0,
        class_value_types={name + packed.CLASS_VALUES: f"{kind}[]" for name, kind in compared.items()},
        dist_keys=db.server.distribution_keys(segments, Rules()),
        target_shapes=[[width or 1] for width in widths],
        input_shapes=[list(one.shape) for one in features.inputs],
        features=features,
        weight_varname=given.get("weight"),
    )


def _pack(
    db: Database,
    source: names.Table,
    training: packed.PackedSummary,
    said: Mapping[str, Any] | None,
    spelled: tuple[str, str],
) -> names.Table:
    """Pack the source's rows in two tables: rows to train on, and rows by which the best epoch is chosen.

    `said` says which rows these are, None for a share of them; `spelled` are the source and the target as the
    call names them. Return the summary table of the rows to train on.
    """
    known = packed.columns_of(db, source)
    label = known[training.dependent_varname[0]]
    said = said or {"share": min(holdout.SHARE, train.HELD_ROWS / max(1, source_rows.count(db, source)))}
    parts = holdout.tables(db, source, known, said=said, label=label, seed=training.seed)
    memory = pack_options.parse(None, pack_options.VALIDATION).memory_mb << 20
    for part, what in zip(parts, ("packed", "packed" + preprocess.VALIDATION), strict=True):
        made = names.target_table(db, _named(what), suffixes=(packed.SUMMARY,))
        pack(
            db,
            preprocess.job_like(
                db,
                training,
                source=part,
                target=made,
                spelled=(spelled[0], _named(what)),
                dependents=spelled[1],
                independents=None,
                memory=memory,
            ),
        )
    return names.resolve_table(db, _named("packed" + packed.SUMMARY))
