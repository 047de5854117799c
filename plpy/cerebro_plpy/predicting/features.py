"""materialize_features and refresh_features: store the outputs of a net's frozen layers for packed rows.

Both work in the caller's own session and transaction, with the caller's rights, one buffer at a time.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import asdict, dataclass, replace
from typing import cast

from cerebro_plpy.database import Database
from cerebro_plpy.engine import weights
from cerebro_plpy.engine.checks import architecture, custom
from cerebro_plpy.engine.models import cut
from cerebro_plpy.engine.models.data import whole
from cerebro_plpy.errors import (
    INSUFFICIENT_PRIVILEGE,
    NOT_SUPPORTED,
    NULL_NOT_ALLOWED,
    PROGRAM_LIMIT_EXCEEDED,
    WRONG_STATE,
    CerebroError,
)
from cerebro_plpy.madlib.nearest import nearest
from cerebro_plpy.planner.cuts import LayerCost, choice
from cerebro_plpy.predicting import models
from cerebro_plpy.segment import rows
from cerebro_plpy.segment.cancel import ticker
from cerebro_plpy.segment.features import other_weights
from cerebro_plpy.store.models import functions as registry
from cerebro_plpy.store.models import models as architectures
from cerebro_plpy.store.names import Table, TargetTable, resolve_table, target_table
from cerebro_plpy.store.packed import append, packed, partitions, stored_features
from cerebro_plpy.store.packed.stored_features import StoredFeatures
from cerebro_plpy.store.runs import results

# The last bits of a row's features may depend on how many rows are computed at a time.
BATCH = 32
# A field has 1 GB at most, and room is needed beside it.
MOST_BYTES = 900 * 2**20


@dataclass(frozen=True)
class FeatureNet:
    """A net with its weights. The outputs of its frozen layers are the features that are stored."""

    table: Table
    model_id: int
    described: architecture.DescribedModel
    weights: bytes

    def up_to(self, layer: str | None) -> list[str]:
        """Return the names of a layer and of all layers that lead to it.

        Raise an error if training may change the layer's output, or if the rest of the net also takes the
        output of another of these layers.
        """
        if layer is None:
            raise CerebroError("layer is NULL", sqlstate=NULL_NOT_ALLOWED)
        trunk = [LayerCost(**asdict(one)) for one in self.described.trunk]
        last = next((place for place, one in enumerate(trunk) if one.name == layer and one.sources), None)
        if last is None:
            raise self._not_in(layer, [one.name for one in trunk if one.sources])
        inside = {last}
        # Each layer comes after its sources, so one pass from the last layer to the first finds them all.
        for place in range(last, -1, -1):
            inside |= set(trunk[place].sources) if place in inside else set()
        beside = [one.name for place, one in enumerate(trunk) if not one.sources and place not in inside]
        if beside:
            raise CerebroError(
                f'input "{beside[0]}" does not lead to layer "{layer}": the rest of the net takes it, too',
                hint="Name a layer that all ways through the net lead through.",
                sqlstate=NOT_SUPPORTED,
            )
        chosen = choice(trunk, sorted(inside))
        others = [name for name in chosen.leaving if name != layer]
        if others:
            raise CerebroError(
                f'layer "{layer}" is not all that the rest of the net takes: it takes "{others[0]}", too',
                hint="Name a layer that all ways through the net lead through.",
                sqlstate=NOT_SUPPORTED,
            )
        return list(chosen.names)

    def graft_weights(self, model_arch: str, names: Collection[str]) -> bytes:
        """Return weights for the net `model_arch`.

        Its layers with the given names get the weights of this net's layers. All other weights are drawn at
        random.
        """
        return weights.graft_weights(self.described.json, self.weights, model_arch, names)

    def _not_in(self, layer: str, trunk: Sequence[str]) -> CerebroError:
        match = nearest(layer, trunk)
        return CerebroError(
            f'no output of layer "{layer}" can be kept',
            detail="There is no such layer, or it or one before it trains, draws at random or is registered."
            f" Those whose outputs no training changes: {', '.join(trunk) or 'none'}.",
            hint=f'Did you mean "{match}"?' if match else 'Freeze layers with "trainable": false.',
        )


@dataclass(frozen=True)
class _FeatureMaker:
    """A packed table, and the layers with their weights that make features of its buffers."""

    source: Table
    layout: rows.Layout
    trunk: cut.Trunk
    weights: bytes
    # The digest of all layers from the net's inputs on.
    digest: str


def materialize(
    db: Database,
    packed_table: str | None,
    arch_table: str | None,
    model_id: int | None,
    layer: str | None,
    output_table: str | None,
) -> int:
    """Make a table of features, and return the number of its rows."""
    source = resolve_table(db, packed_table, "packed table")
    nets = resolve_table(db, arch_table, "model architecture table")
    summary = packed.summary(db, source.schema, source.name)
    if summary.group_by is not None:
        raise CerebroError(
            f"{source.quoted} was packed in groups: its features cannot be stored",
            hint="Pack the rows without group_by.",
            sqlstate=NOT_SUPPORTED,
        )
    target = target_table(db, output_table, suffixes=(packed.SUMMARY,))
    net = read_net(db, nets, model_id, summary)
    names = net.up_to(layer)
    making = _making(db, net, names, summary, source)
    column = "features" if "features" not in summary.dependent_varname else "features_of_net"
    output = _output(target, summary, column)
    packed.create(db, output, f'Outputs of layer "{layer}" of model {net.model_id} for {source.quoted}')
    done = _write(db, making, output, summary, first=0)
    stored = StoredFeatures(
        source_table=source.quoted,
        arch_table=nets.quoted,
        model_id=net.model_id,
        layer=str(layer),
        layers=names,
        digest=making.digest,
        column=column,
        input_shapes=summary.input_shapes,
    )
    made = replace(summary, source_table=source.quoted, output_table=str(output_table), stored=stored)
    packed.write_summary(db, output, made, f"How {output_table} was made")
    return done


def refresh(db: Database, features_table: str | None) -> int:
    """Compute the features of the rows that were added to the packed table since the last call.

    Return the number of these rows.
    """
    table = resolve_table(db, features_table, "table of features")
    known = packed.summary(db, table.schema, table.name)
    if known.stored is None:
        raise CerebroError(
            f"{table.quoted} is no table of features",
            hint="Make one with cerebro.materialize_features.",
            sqlstate=WRONG_STATE,
        )
    if not architectures.owns(db, table):
        # Rows are read with the caller's rights and written to the table, so only its owner may do this.
        raise CerebroError(f"must be owner of table {table.quoted}", sqlstate=INSUFFICIENT_PRIVILEGE)
    append.check_rights(db, table, known.quoted)
    append.lock(db, known.quoted)
    known = packed.summary(db, table.schema, table.name)
    stored = cast("StoredFeatures", known.stored)
    source = resolve_table(db, stored.source_table, "packed table")
    now = packed.summary(db, source.schema, source.name)
    is_same = list(now.versions[: len(known.versions)]) == list(known.versions) and _goes_on(known, now)
    if not known.versions or not is_same:
        raise CerebroError(
            f"{source.quoted} is not what {table.quoted} was made of",
            detail="It has been packed again since, or does not know its versions.",
            hint="Make the table of features again.",
            sqlstate=WRONG_STATE,
        )
    net = read_net(db, resolve_table(db, stored.arch_table, "model architecture table"), stored.model_id, now)
    making = _making(db, net, stored.layers, now, source)
    if making.digest != stored.digest:
        raise other_weights(table.quoted, stored.layer)
    output = _output(TargetTable(table.schema, table.name, table.quoted), known, stored.column)
    done = _write(db, making, output, now, first=known.below or 0)
    values = zip(now.class_value_types.items(), now.class_values, strict=True)
    counts = zip(now.dependent_varname, now.class_counts, strict=True)
    classes: dict[str, tuple[str, Sequence[str | int | None]]] = {
        **{column: (kind, found) for (column, kind), found in values if found is not None},
        **{n + packed.CLASS_COUNTS: ("bigint[]", list(map(str, c))) for n, c in counts if c is not None},
    }
    append.write(db, known.quoted, now.versions, now.buffer_size, classes)
    return done


def _goes_on(known: packed.PackedSummary, now: packed.PackedSummary) -> bool:
    """Return whether rows packed as `now` says continue those of `known`: with more classes at most."""
    pairs = zip(known.class_values, now.class_values, strict=False)
    return (
        (known.dependent_varname, known.normalizing_const, known.seed)
        == (now.dependent_varname, now.normalizing_const, now.seed)
        and (known.features is None or known.features == now.features)
        and all(old is None or new is not None and list(new[: len(old)]) == list(old) for old, new in pairs)
    )


def read_net(db: Database, table: Table, model_id: int | None, summary: packed.PackedSummary) -> FeatureNet:
    """Return a net with its weights. Raise an error if it does not take the rows of the packed table."""
    if model_id is None:
        raise CerebroError("model_id is NULL", sqlstate=NULL_NOT_ALLOWED)
    found = architectures.architectures(db, table, [model_id])[0]
    if not found.has_weights:
        raise CerebroError(
            f"model_id {model_id} of {table.quoted} has no weights",
            hint="Give cerebro.load_keras_model the weights as well.",
            sqlstate=WRONG_STATE,
        )
    models.start_engine(db, None, False)
    registry.begin(db)
    custom.take(registry.needed(db, [], [found.model_arch]))
    shapes = tuple(tuple(shape) for shape in summary.input_shapes)
    described = architecture.describe(found.model_arch, input_shapes=shapes)
    if not _takes(described.inputs, shapes):
        raise CerebroError(
            f"model_id {model_id} takes rows of {described.inputs}, the packed table has rows of {shapes}",
            hint="Name the net that was made for this table, or pack the rows in its shape.",
        )
    own = results.weights_from(db, table.quoted, "model_id", model_id)
    return FeatureNet(table, model_id, described, own)


def _takes(inputs: Sequence[architecture.Shape], shapes: Sequence[architecture.Shape]) -> bool:
    """Return whether a net takes rows of these shapes. An open dimension of the net takes any size."""
    return len(inputs) == len(shapes) and all(
        len(own) == len(shape) and all(a in (None, b) for a, b in zip(own, shape, strict=True))
        for own, shape in zip(inputs, shapes, strict=True)
    )


def _check_size(buffer_size: int, trunk: cut.Trunk, source: Table) -> None:
    """Raise an error if the features of one buffer would not fit in a field."""
    size = 4 * buffer_size * sum(math.prod(d or 1 for d in shape) for shape in trunk.shapes)
    if size > MOST_BYTES:
        raise CerebroError(
            f"the features of one buffer of {source.quoted} would have {size >> 20} MB",
            detail=f"A buffer has {buffer_size} rows, and a field may have {MOST_BYTES >> 20} MB.",
            hint="Name a later layer, or pack the rows with a smaller buffer_size.",
            sqlstate=PROGRAM_LIMIT_EXCEEDED,
        )


def _making(
    db: Database, net: FeatureNet, names: Sequence[str], summary: packed.PackedSummary, source: Table
) -> _FeatureMaker:
    text, before = net.described.json, summary.stored
    if not set(names) <= {layer.name for layer in net.described.trunk}:
        raise other_weights(source.quoted, names[-1])
    whole_trunk = cut.Trunk(text, names)
    trunk = whole_trunk
    if before is not None:
        if not set(before.layers) < set(names):
            raise CerebroError(
                f'{source.quoted} holds outputs of layer "{before.layer}", which is not before the other',
                hint=f"Make the features of {before.source_table}.",
                sqlstate=WRONG_STATE,
            )
        first = cut.Trunk(text, before.layers)
        if first.digest(first.of_weights(net.weights)) != before.digest:
            raise other_weights(source.quoted, before.layer)
        trunk = cut.Trunk(text, names, before.layers)
    _check_size(summary.buffer_size, trunk, source)
    digest = whole_trunk.digest(whole_trunk.of_weights(net.weights))
    return _FeatureMaker(source, rows.layout(db, source.quoted, summary.below), trunk, net.weights, digest)


def _output(target: TargetTable, summary: packed.PackedSummary, column: str) -> packed.PackedOutput:
    return packed.PackedOutput(
        target,
        summary.dependent_varname,
        [column],
        segments=summary.segments,
        dist_keys=summary.dist_keys,
        weighted=summary.weight_varname is not None,
        folded=summary.folds is not None,
    )


def _write(
    db: Database,
    making: _FeatureMaker,
    output: packed.PackedOutput,
    summary: packed.PackedSummary,
    first: int,
) -> int:
    """Compute and insert the features of the buffers from number `first` on; return the number of rows."""
    tick, done, table = ticker(db), 0, making.source.quoted
    values = making.trunk.of_weights(making.weights)
    for key in summary.keys:
        _, buffers = partitions.parse(
            partitions.look(db, partitions.looking(table, key, making.layout.columns))
        )
        for buffer in buffers:
            if buffer.buffer_id < first:
                continue
            row = partitions.read_buffer(db, table, key, buffer.buffer_id, making.layout.columns)
            blocks = [whole(making.layout.dataset(row))]
            (found,) = making.trunk.features(values, blocks, buffer.rows, BATCH, tick)
            stored_features.write(db, output, table, key, buffer.buffer_id, packed.as_field(found))
            done += buffer.rows
    return done
