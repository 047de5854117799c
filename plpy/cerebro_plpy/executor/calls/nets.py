"""Make nets without Python: write nets that fit a packed table, check them, and list their layers."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from cerebro_plpy.database import Database
from cerebro_plpy.errors import NULL_NOT_ALLOWED, OUT_OF_RANGE, CerebroError
from cerebro_plpy.executor.models import model_rights
from cerebro_plpy.executor.starting import tables
from cerebro_plpy.logical.options import boolean, integer, one_of, read_object, wrong
from cerebro_plpy.nets import joining, lora, points
from cerebro_plpy.nets.fitting import (
    LOG,
    NONE,
    STANDARD,
    TARGET_SCALES,
    Moments,
    NetOutput,
    NetRows,
    TargetScale,
)
from cerebro_plpy.packing.columns import target
from cerebro_plpy.packing.rows.read import FEATURES, decode_buffer, scan
from cerebro_plpy.predicting import features
from cerebro_plpy.registry import references
from cerebro_plpy.store.models import functions as registry
from cerebro_plpy.store.models import models
from cerebro_plpy.store.names import Table, resolve_table
from cerebro_plpy.store.packed import packed, partitions
from cerebro_plpy.store.runs import results

ENOUGH_ROWS = 20_000
# The parameters that all nets take.
SCALE, CLAMP = "target_scale", "clamp"
# The parameters of a line of layers on a trained net.
BASE, FEATURE_LAYER = "base", "feature_layer"
LARGEST_ID = 2**31 - 1
# A net's scale is too coarse for a group with less than a twentieth of the deviation of all rows.
COARSE = 1 / 20


def load_net(
    db: Database,
    arch_table: str | None,
    packed_table: str | None,
    net: str | None,
    params: str | None,
) -> list[int]:
    """Add nets that fit a packed table to a table of architectures; return the `model_id` of each.

    Each combination of the values in `params` makes a net of its own.
    """
    if net is None or not net.strip():
        raise CerebroError("net is NULL or empty", sqlstate=NULL_NOT_ALLOWED)
    table = resolve_table(db, packed_table, "packed table")
    given = dict(read_object(params, "params", 'Write {"width": [64, 128]}.')) if params is not None else {}
    scale, trained = _take_scale(given), _take_trained(given, net)
    rows = read_rows(db, table, scale)
    if scale != TargetScale() and all(output.is_classes for output in rows.outputs):
        raise refuse_scale(rows.outputs[0].name, SCALE if scale.way != STANDARD else CLAMP)
    if trained is not None:
        return _load_on_layers(db, arch_table, table, net=net, trained=trained, rows=rows)
    return add_nets(db, arch_table, table, points.nets(net, json.dumps(given) if given else None, rows))


def refuse_scale(label: str, what: str) -> CerebroError:
    """Return the error for a parameter that suits only numeric labels, while `label` is learned as classes.

    `what` names the parameter, for example `target_scale`.
    """
    return CerebroError(
        f"{label} is learned as classes, and {what} is for quantities",
        hint='Leave it out, or pack the rows with {"task": "regression"}.',
    )


@dataclass(frozen=True)
class _Trained:
    """A trained net, and those of its layers on which new layers are to be put."""

    base: int
    layers: Sequence[str]


def _take_trained(given: dict[str, object], net: str) -> _Trained | None:
    """Remove `base` and `feature_layer` from the parameters, and return the trained net that they name.

    Return None if neither is given.
    """
    if BASE not in given and FEATURE_LAYER not in given:
        return None
    base, said = given.pop(BASE, None), given.pop(FEATURE_LAYER, None)
    layers: list[Any] = said if isinstance(said, list) else [said]
    why = None
    if base is None or not layers or None in layers:
        there, missing = (FEATURE_LAYER, BASE) if base is None else (BASE, FEATURE_LAYER)
        why = f"{there} is given without {missing}"
    elif net.strip() in points.POINTS:
        why = f"'{net.strip()}' is a whole net, and only a line of layers goes on layers of another"
    elif given:
        why = f"parameter {next(iter(given))} is not for layers on a trained net"
    if why is not None:
        raise CerebroError(
            why,
            hint=f"Write cerebro.load_net('nets', 'packed', $$Dense(32, 'relu')$$,"
            f""" '{{"{BASE}": 1, "{FEATURE_LAYER}": ["conv2d_1", "conv2d_2"]}}').""",
        )
    for layer in layers:
        if not isinstance(layer, str):
            raise wrong(FEATURE_LAYER, layer, "the name of a layer")
    return _Trained(integer(1, LARGEST_ID)(BASE, base), list(dict.fromkeys(layers)))


def _load_on_layers(
    db: Database, arch_table: str | None, packed_table: Table, net: str, trained: _Trained, rows: NetRows
) -> list[int]:
    """Put each line of layers in `net` on each named layer of a trained net; return each `model_id`.

    Each pair of a line and a named layer makes a net of its own: the trained net up to that layer, with its
    trained weights, and then the line. `rows` says which inputs and labels the nets must fit.
    """
    table = resolve_table(db, arch_table, "model architecture table")
    summary = packed.summary(db, packed_table.schema, packed_table.name)
    base = features.read_net(db, table, trained.base, summary)
    text, layers = list_layers(db, base.described.json)
    ranks = {name: len(shape) for name, _, shape, *_ in layers if shape is not None}
    made: list[tuple[str, str, str, Sequence[str]]] = []
    for layer in trained.layers:
        begin = partial(joining.begin_on, text, layer, ranks.get(layer, 1))
        names = begin().names
        made += [(layer, name, arch, names) for name, arch in points.nets_on_layer(net, begin, rows)]
    return [
        tables.load_model(
            db,
            table.quoted,
            arch,
            weights=base.graft_weights(arch, names),
            name=name,
            description=f"on layer {layer} of model {trained.base}, by load_net",
        )
        for layer, name, arch, names in made
    ]


def _take_scale(given: dict[str, object]) -> TargetScale:
    """Remove `target_scale` and `clamp` from the parameters, and return how nets are to learn quantities."""
    way = one_of(*TARGET_SCALES)(SCALE, given.pop(SCALE, STANDARD))
    clamp = boolean()(CLAMP, given.pop(CLAMP, False))
    return check_scale(TargetScale(way, clamp))


def check_scale(scale: TargetScale) -> TargetScale:
    """Return the scale; raise an error if `clamp` is set and `target_scale` is `none`."""
    if scale.clamp and scale.way == NONE:
        raise CerebroError(
            f"{CLAMP} is given, and {SCALE} is none",
            detail="Without a scale, the least and the greatest value of the label are not looked up.",
            hint=f"Use {SCALE} standard or log.",
        )
    return scale


def add_nets(
    db: Database,
    arch_table: str | None,
    table: Table,
    made: Sequence[tuple[str, str]],
    quiet: bool = False,
) -> list[int]:
    """Add nets, given by title and JSON, to a table of architectures; return the `model_id` of each.

    A notice names each, unless `quiet`. `table` is the packed table that the nets fit.
    """
    about = f"made by load_net for {table.quoted}"
    load = partial(tables.load_model, db, arch_table, quiet=quiet, weights=None, description=about)
    return [load(arch, name=title, is_point=points.is_title(title)) for title, arch in made]


def refuse_negative(label: str, value: float) -> CerebroError:
    return CerebroError(
        f'"{label}" has the value {value:g}, and target_scale log takes no value below 0',
        hint="Use target_scale standard, or add a constant in a view.",
        sqlstate=OUT_OF_RANGE,
    )


def measure_label(db: Database, packed_table: str, label: str, scale: TargetScale) -> Moments | None:
    """Return the moments of a numeric label, such as its mean and its deviation.

    Return None if the label is learned unscaled: because `target_scale` is `none`, or because 32-bit floats
    cannot hold the moments.
    """
    if scale.way == NONE:
        return None
    rows, mean, squares = 0, np.zeros(1), np.zeros(1)
    low, high = np.array([np.inf]), np.array([-np.inf])
    for buffer in scan(db, packed_table, label, FEATURES):
        values = buffer.astype(np.float64).reshape(len(buffer), -1)
        if scale.way == LOG:
            if values.min() < 0:
                raise refuse_negative(label, values.min())
            values = np.log1p(values)
        apart, before = values.mean(axis=0) - mean, rows
        rows += len(values)
        low, high = np.minimum(low, values.min(axis=0)), np.maximum(high, values.max(axis=0))
        mean = mean + apart * len(values) / rows
        squares = squares + values.var(axis=0) * len(values) + apart**2 * before * len(values) / rows
    deviations = np.sqrt(squares / max(rows, 1))
    # A label that is constant, as far as 32-bit floats can tell, is only shifted, not scaled.
    deviations = np.where(deviations > target.FLOAT_STEP * np.abs(mean), deviations, 1.0)
    with np.errstate(all="ignore"):
        held = np.stack([mean, deviations, 1 / np.square(deviations)]).astype(np.float32)
    if not np.isfinite(held).all() or not held[1:].all():
        return None
    ends = ((low - mean) / deviations).tolist(), ((high - mean) / deviations).tolist()
    return Moments(
        mean.tolist(), deviations.tolist(), logarithmic=scale.way == LOG, ends=ends if scale.clamp else None
    )


def read_rows(db: Database, table: Table, scale: TargetScale) -> NetRows:
    """Return the shapes and labels of a packed table that nets must fit, with moments of numeric labels."""
    summary = packed.summary(db, table.schema, table.name)
    labels = zip(summary.dependent_varname, summary.target_shapes, summary.one_hot, strict=True)
    measure = partial(measure_label, db, table.quoted, scale=scale)
    outputs = [
        NetOutput(name, shape, is_classes, None if is_classes else measure(name))
        for name, shape, is_classes in labels
    ]
    if summary.group_by:
        _tell_groups_apart(db, table, summary, outputs)
    return NetRows(summary.input_shapes, outputs, summary.features, partial(_read_values, db, table, summary))


def _tell_groups_apart(
    db: Database, table: Table, summary: packed.PackedSummary, labels: Sequence[NetOutput]
) -> None:
    """Say if a quantity hardly varies in a group beside all rows: one scale for all is too coarse for it."""
    for label in labels:
        if label.moments is None or label.moments.logarithmic or label.width != 1:
            continue
        deviation = label.moments.deviations[0]
        spreads = _measure_groups(db, table, summary.below, label.name)
        coarse = spreads[(spreads > 0) & (spreads < COARSE * deviation)]
        if len(coarse):
            db.notice(
                f"{label.name} deviates by {deviation:.4g} in all rows, and in {len(coarse)} of"
                f" {np.count_nonzero(spreads >= 0)} groups by less than a twentieth of that, such as"
                f" {coarse.min():.4g}: a net with one scale for all groups answers coarsely there."
                f' {{"{SCALE}": "{LOG}"}} suits groups of other sizes; or pack such groups by themselves.'
            )


def _measure_groups(db: Database, table: Table, below: int | None, label: str) -> np.ndarray:
    """Return the deviation of a quantity in each group, by the group's number; NaN for numbers without rows.

    Sums are of distances from the first value of each group, so that a constant group deviates by 0.
    """
    first, sums = np.zeros(0), np.zeros((0, 3))
    for buffer in partitions.labels_of_groups(db, table, [label], below):
        numbers, rows = np.array(buffer["groups"], np.int64).reshape(-1, 2).T
        values = decode_buffer(buffer[label], buffer[label + packed.SHAPE], FEATURES)
        values, starts = values.reshape(-1).astype(np.float64), np.cumsum(rows) - rows
        missing = max(0, int(numbers.max(initial=-1)) + 1 - len(first))
        first = np.pad(first, (0, missing), constant_values=np.nan)
        sums = np.pad(sums, ((0, missing), (0, 0)))
        first[numbers] = np.where(np.isnan(first[numbers]), values[starts], first[numbers])
        apart = values - np.repeat(first[numbers], rows)
        each = rows, np.add.reduceat(apart, starts), np.add.reduceat(apart**2, starts)
        np.add.at(sums, numbers, np.stack(each, axis=1))
    count, total, squares = sums.T
    with np.errstate(all="ignore"):
        return np.sqrt(np.maximum(0, squares / count - (total / count) ** 2))


def _read_values(db: Database, table: Table, summary: packed.PackedSummary, number: int) -> np.ndarray:
    """Return the values of input number `number`, for as many rows as it takes to estimate quantiles."""
    name, width = summary.independent_varname[number], math.prod(summary.input_shapes[number])
    buffers = scan(db, table.quoted, name, FEATURES, ENOUGH_ROWS)
    found = [buffer.reshape(len(buffer), width) for buffer in buffers]
    return np.concatenate([np.empty((0, width)), *found])


def enable_lora(
    db: Database,
    arch_table: str | None,
    model_id: int | None,
    rank: int | None,
    layers: Sequence[str] | None,
    train: Sequence[str] | None,
) -> int:
    """Give a copy of a net LoRA adapters, and add it to the table of architectures; return its `model_id`.

    Layers that match `layers` get adapters of this rank, layers that match `train` train as they are, and all
    others are frozen.
    """
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
    """Return a row for each layer of a net.

    The net is in a table of architectures. If `model_id` is None, `arch_table` may name a registered model.
    """
    if model_id is None and arch_table is not None and references.is_marked(arch_table):
        registry.begin(db)
        _, layers = list_layers(db, model_rights.find_readable(db, arch_table).read(db).model_arch)
        return iter(layers)
    table = resolve_table(db, arch_table, "model architecture table")
    if model_id is None:
        raise CerebroError("model_id is NULL", sqlstate=NULL_NOT_ALLOWED)
    models.check_architectures(db, table)
    stored = models.architectures(db, table, [model_id])[0]
    registry.begin(db)
    _, layers = list_layers(db, stored.model_arch)
    return iter(layers)


def list_layers(db: Database, model_arch: str) -> tuple[str, list[tuple[Any, ...]]]:
    """Have Keras check a net; return the net's JSON, and the row that `show_net` returns for each layer."""
    found = tables.check_architecture(db, model_arch, None, layers=True)
    return found["json"], [tuple(layer) for layer in found["layers"]]
