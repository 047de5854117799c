"""Make nets without Python: write them to fit a packed table, have Keras check them, show their layers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from cerebro_plpy.commands import CheckModel, Engine
from cerebro_plpy.database import Database
from cerebro_plpy.errors import NULL_NOT_ALLOWED, CerebroError
from cerebro_plpy.executor import request as requests
from cerebro_plpy.executor import tables
from cerebro_plpy.logical.options import FitOptions
from cerebro_plpy.nets import lora, points
from cerebro_plpy.nets.fitting import NetRows
from cerebro_plpy.store import functions as registry
from cerebro_plpy.store import models, packed, results, session
from cerebro_plpy.store.names import resolve_table
from cerebro_plpy.topology.choose import choose


def load_net(
    db: Database,
    arch_table: str | None,
    packed_table: str | None,
    net: str | None,
    params: str | None,
    quiet: bool = False,
) -> list[int]:
    """Add nets for a packed table to a table of architectures, one for each combination of parameters."""
    if net is None or not net.strip():
        raise CerebroError("net is NULL or empty", sqlstate=NULL_NOT_ALLOWED)
    table = resolve_table(db, packed_table, "packed table")
    rows = _rows(packed.summary(db, table.schema, table.name))
    about = f"made by load_net for {table.quoted}"
    return [
        tables.load_model(db, arch_table, model_arch, weights=None, name=name, description=about, quiet=quiet)
        for name, model_arch in points.nets(net, params, rows)
    ]


def _rows(summary: packed.PackedSummary) -> NetRows:
    outputs = zip(summary.dependent_varname, summary.target_shapes, summary.one_hot, strict=True)
    return NetRows(summary.input_shapes, list(outputs), summary.features)


def enable_lora(
    db: Database,
    arch_table: str | None,
    model_id: int | None,
    rank: int | None,
    layers: Sequence[str] | None,
    train: Sequence[str] | None,
) -> int:
    """Add a copy of a net, with adapters."""
    table = resolve_table(db, arch_table, "model architecture table")
    if model_id is None:
        raise CerebroError("model_id is NULL", sqlstate=NULL_NOT_ALLOWED)
    for what, names in (("layers", layers), ("train", train)):
        if names is not None and None in names:
            raise CerebroError(f"{what} holds NULL", sqlstate=NULL_NOT_ALLOWED)
    stored = models.architectures(db, table, [model_id])[0]
    registry.begin(db)
    found = tables.check_architecture(db, stored.model_arch, None)
    model_arch = lora.adapted(found["json"], rank, layers, train)
    if not stored.has_weights:
        db.warning(
            f"model_id {model_id} has no weights: adapters will correct kernels that nobody has trained."
            " Give cerebro.load_keras_model the weights as well."
        )
    weights = results.weights_from(db, table.quoted, "model_id", model_id) if stored.has_weights else None
    about = f"model {model_id} with adapters of rank {rank}, by enable_lora"
    return tables.load_model(db, arch_table, model_arch, weights=weights, name=None, description=about)


def show_net(db: Database, arch_table: str | None, model_id: int | None) -> Iterator[tuple[Any, ...]]:
    """Yield a row for each layer of a net."""
    table = resolve_table(db, arch_table, "model architecture table")
    if model_id is None:
        raise CerebroError("model_id is NULL", sqlstate=NULL_NOT_ALLOWED)
    models.check_architectures(db, table)
    stored = models.architectures(db, table, [model_id])[0]
    registry.begin(db)
    engines = requests.engines(db, FitOptions(), False, session.usual_segments(db))
    topology = choose(db, [])
    topology.open([Engine(engines.backend, engines.threads, False)], 1)
    found = topology.ask(
        engines.backend,
        CheckModel(
            model_arch=stored.model_arch,
            weights_bytes=None,
            max_parameters=engines.max_parameters,
            functions=registry.needed(db, [], [stored.model_arch]),
            layers=True,
        ),
    )
    return iter([tuple(layer) for layer in found["layers"]])
