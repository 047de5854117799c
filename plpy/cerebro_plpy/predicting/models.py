"""Makes a trained model ready to predict, in the caller's own session."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from cerebro_plpy.database import Database
from cerebro_plpy.engine.backends import runtime
from cerebro_plpy.engine.checks import architecture, custom
from cerebro_plpy.engine.checks.architecture import DescribedModel, describe
from cerebro_plpy.engine.plain import forward, usual
from cerebro_plpy.errors import NULL_NOT_ALLOWED, CerebroError
from cerebro_plpy.features.specification import Specification
from cerebro_plpy.features.specification import read as read_specification
from cerebro_plpy.madlib.params import reparse_compile
from cerebro_plpy.planner import gpus
from cerebro_plpy.predicting import outputs as output
from cerebro_plpy.predicting.holders import TrainedModel
from cerebro_plpy.predicting.outputs import Dependent, Output
from cerebro_plpy.programs import NOT_KEPT
from cerebro_plpy.store import interrupts, session
from cerebro_plpy.store.models import functions, models
from cerebro_plpy.store.names import Table
from cerebro_plpy.store.packed.packed import FEATURES
from cerebro_plpy.store.runs import results
from cerebro_plpy.threads import Threads

# NumPy counts weights by a product with zeros, which takes memory: larger nets are left to an engine.
_COUNTED = 4_000_000


@dataclass(frozen=True)
class Model:
    """A model to predict with. `weights()` reads its weights, so that they are read only after all checks."""

    model_arch: str
    backend: str | None
    divisor: float
    outputs: Callable[[DescribedModel], list[Output]]
    weights: Callable[[], bytes]
    # What the columns of the training rows became, where they were prepared.
    features: Specification | None = None
    # The columns of the training table that were the inputs.
    independents: Sequence[str] = ()

    @property
    def input_shapes(self) -> tuple[tuple[int, ...], ...]:
        """The shapes of the inputs by the feature specification; empty if the model has no specification."""
        return () if self.features is None else tuple(tuple(one.shape) for one in self.features.inputs)


def trained(db: Database, found: TrainedModel) -> Model:
    """Return the model to predict with for a model that a run has trained."""
    row = found.holder.summary(db)
    dependents = output.dependents_of(row, found.holder.class_values(db, row["dependent_varname"]))
    loss = reparse_compile(found.selected.compile_params).loss
    return Model(
        model_arch=found.stored.model_arch,
        backend=found.backend,
        divisor=float(row.get("normalizing_const") or 1.0),
        outputs=lambda described: output.settle(described, dependents, loss),
        weights=partial(found.holder.weights, db, found),
        features=features_of(row),
        independents=row.get("independent_varname") or (),
    )


def features_of(row: Mapping[str, Any]) -> Specification | None:
    """Return the feature specification in a model's summary; None if the summary has none."""
    given = row.get(FEATURES[0])
    return None if given is None else read_specification(json.dumps(given))


@dataclass(frozen=True)
class GivenModel:
    """The arguments of madlib_predict_byom that describe the caller's own model."""

    class_values: list[Any] | None
    normalizing_const: float | None
    dependent_count: int | None
    # The feature specification of its training rows, as JSON.
    features: str | None


def read_own_model(db: Database, arch_table: Table, model_id: int | None, given: GivenModel) -> Model:
    """Return a model of an architecture table with its stored weights.

    Raise an error if it has no weights.
    """
    if model_id is None:
        raise CerebroError("model_id is NULL", sqlstate=NULL_NOT_ALLOWED)
    stored = models.architectures(db, arch_table, [model_id])[0]
    if not stored.has_weights:
        raise CerebroError(
            f"model_id {model_id} of {arch_table.quoted} has no model_weights",
            hint="Give cerebro.load_keras_model the weights as well.",
            sqlstate=NULL_NOT_ALLOWED,
        )
    divisor = 1.0 if given.normalizing_const is None else given.normalizing_const
    if not 0 < divisor < float("inf"):
        raise CerebroError(f"normalizing_const must be a positive number or NULL, not {divisor:g}")
    prepared = None if given.features is None else read_specification(given.features)
    if prepared is not None and divisor != 1:
        raise CerebroError(
            f"normalizing_const is {divisor:g}, but features says how columns are scaled",
            hint="Leave normalizing_const out.",
        )
    count = 1 if given.dependent_count is None else given.dependent_count
    values = _class_values(given.class_values, count)
    return Model(
        model_arch=stored.model_arch,
        backend=None,
        divisor=divisor,
        outputs=lambda described: _own_outputs(described, values),
        weights=partial(results.weights_from, db, arch_table.quoted, "model_id", model_id),
        features=prepared,
    )


def _class_values(given: list[Any] | None, count: int) -> list[list[str | None] | None]:
    """Return the class values of each dependent variable; None for a variable without class values.

    SQL arrays are rectangular, so NULLs fill up the shorter lists.
    """
    if count < 1:
        raise CerebroError(f"dependent_count must be at least 1, not {count}")
    if given is None:
        return [None] * count
    lists = given if given and isinstance(given[0], list) else [given]
    if any(isinstance(value, list) for values in lists for value in values):
        raise CerebroError(
            "class_values has more than two dimensions",
            hint="Give ARRAY[…] for one dependent variable, ARRAY[ARRAY[…], ARRAY[…]] for several.",
        )
    if len(lists) != count:
        raise CerebroError(
            f"class_values has {len(lists)} lists for {count} dependent variables",
            hint="Give dependent_count, and class_values as ARRAY[ARRAY[…], ARRAY[…]], one for each output.",
        )
    return [values if any(value is not None for value in values) else None for values in lists]


def _own_outputs(described: DescribedModel, values: list[list[str | None] | None]) -> list[Output]:
    """Return the outputs of the caller's own model.

    An output without class values has numbered classes. Only a single unit without a sigmoid predicts a
    number.
    """
    if len(values) != len(described.outputs):
        raise CerebroError(
            f"the model has {len(described.outputs)} outputs, dependent_count is {len(values)}",
            detail=f"The outputs are {', '.join(described.output_names)}.",
        )
    plain = ["dependent_var"] if len(values) == 1 else [f"dependent_var_{n}" for n in range(len(values))]
    dependents = []
    for number, (name, known) in enumerate(zip(plain, values, strict=True)):
        shape = described.outputs[number]
        has_classes = known is not None or shape != (1,) or output.is_binary(described, number)
        fitting = known if known is None or len(shape) != 1 else _fit(known, shape[0])
        dependents.append(Dependent(name, fitting, has_classes))
    return output.settle(described, dependents)


def _fit(values: list[str | None], width: int | None) -> list[str | None]:
    """Return the class values without the NULLs that only fill up a list of a two-dimensional array."""
    wanted = max(2, width or 0)
    return values[:wanted] if all(value is None for value in values[wanted:]) else values


def start_engine(db: Database, backend: str | None, use_gpus: bool) -> None:
    """Start Keras in this process, unless it runs already.

    A running Keras is used whatever its backend is.
    """
    if not runs_engine():
        chosen = backend or session.setting(db, "backend") or session.default_backend()
        fixed = session.setting(db, session.CACHE_FOLDER)
        gpu = _first_gpu(db) if use_gpus else None
        runtime.start(chosen, _threads(db), use_gpus, gpu, fixed, calls=count_sessions(db))
        if reason := runtime.get_keras_backend().not_kept:
            db.notice(f"{NOT_KEPT}: {reason}")


def _first_gpu(db: Database) -> runtime.Gpu | None:
    """Return one GPU of the host, with a share of its memory; None if the host has no GPU.

    An engine that is given no such share would take all memory of every GPU.
    """
    found = session.host_facts(db)["devices"]
    if not found:
        return None
    return runtime.Gpu(**gpus.deal([gpus.Seat(gpus.HERE, 0, 0, 1, found)])[0].told())


def start_chosen(
    backend: str, threads: int, use_gpus: bool, gpu: runtime.Gpu | None, cache_folder: str | None
) -> None:
    """Start Keras with the given settings, unless it runs already.

    This is for a process that cannot read the settings by itself.
    """
    if not runs_engine():
        runtime.start(backend, threads, use_gpus, gpu, cache_folder)


def is_usual(model_arch: str, weights_bytes: int | None, max_parameters: int) -> bool:
    """Return whether a net, and weights of so many bytes, are surely right, so that no engine must look."""
    return usual.is_usual(model_arch, weights_bytes, max_parameters)


def fits_dense(model_arch: str, max_parameters: int) -> bool:
    """Return whether a net without convolutions and recurrent layers is surely small enough."""
    return forward.count_weights(model_arch, min(max_parameters, _COUNTED)) is not None


def is_dense(model_arch: str) -> bool:
    """Return whether a net consists of dense, embedding, normalization and such layers."""
    return forward.is_dense(model_arch)


def has_old_sigmoid(model_arch: str) -> bool:
    """Return whether a net would answer otherwise than in Keras 2, which wrote it, for its `hard_sigmoid`."""
    return architecture.has_old_sigmoid(model_arch)


def runs_engine() -> bool:
    """Return whether an engine runs in this process."""
    return running_engine() is not None


def running_engine() -> str | None:
    """Return the name of the engine that runs in this process, or None. A process can run only one engine."""
    return runtime.backend() if runtime.is_started() else None


def _threads(db: Database) -> int:
    """Return the engine's number of threads: as many as a segment session has.

    If this session trains later, it thus computes the same bits as a segment session.
    """
    cores = len(os.sched_getaffinity(0))
    return int(session.setting(db, "threads") or max(1, cores // count_sessions(db)))


def open_threads(db: Database) -> Threads:
    """Return threads that compute nets by NumPy or call the engine.

    There are as many threads as sessions that train at a time.
    """
    return Threads(count_sessions(db), partial(interrupts.tick, db))


def count_sessions(db: Database) -> int:
    """Return how many sessions train at a time: the setting `segments`, or else the number of cores."""
    return int(session.setting(db, "segments") or len(os.sched_getaffinity(0)))


def take_functions(db: Database, model: Model) -> list[dict[str, Any]]:
    """Load the registered functions that a model's architecture uses, and return them.

    The caller must be allowed to use them.
    """
    functions.begin(db)
    found = functions.needed(db, [], [model.model_arch])
    custom.take(found)
    return found


def describe_by_engine(db: Database, model: Model, input_shapes: Sequence[Sequence[int]]) -> DescribedModel:
    """Describe a model's architecture by an engine. If no engine runs yet, start one, which takes seconds."""
    start_engine(db, model.backend, False)
    take_functions(db, model)
    return described(model, input_shapes)


def described(model: Model, input_shapes: Sequence[Sequence[int]]) -> DescribedModel:
    """Describe a model's architecture.

    The shapes of the rows replace the input shapes that it leaves open.
    """
    return describe(model.model_arch, input_shapes=tuple(tuple(shape) for shape in input_shapes))
