"""Checks that need Keras, before a run begins: whether architectures, parameters and rows fit together."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from fnmatch import fnmatchcase
from typing import Any

from cerebro_plpy.commands import Check, CheckedConfig, CheckModel, FunctionRow
from cerebro_plpy.engine.activations import counting
from cerebro_plpy.engine.checks import architecture, custom, lora, quantized, taken
from cerebro_plpy.engine.models import stages
from cerebro_plpy.errors import CerebroError
from cerebro_plpy.madlib import recomputed, registered
from cerebro_plpy.madlib.layers import layers as all_layers
from cerebro_plpy.madlib.layers import name_of
from cerebro_plpy.madlib.nearest import unknown
from cerebro_plpy.madlib.params import CompileParams, functions_in, parse_compile


def check(asked: Check) -> Mapping[str, Any]:
    """Check each config against the packed table's shapes; return a description of each architecture.

    Raise an error that names the config or architecture that does not fit.
    """
    with registered.scope(custom.take(asked.functions)):
        return _check(asked)


def _check(asked: Check) -> Mapping[str, Any]:
    from cerebro_plpy.engine.checks import check as fits
    from cerebro_plpy.engine.models import sizing

    shapes = tuple(tuple(shape) for shape in asked.input_shapes)
    described = {
        model_id: _describe(model_id, text, asked.max_parameters, shapes)
        for model_id, text in asked.architectures.items()
    }
    used = {model_id: set(found.functions) for model_id, found in described.items()}
    sized: dict[str, dict[int, Mapping[str, Any]]] = {model_id: {} for model_id in described}
    made: set[fits.Compiled] = set()
    for config in asked.configs:
        model_id, params = str(config.model_id), parse_compile(config.compile_params)
        used[model_id] |= {function.digest for function in functions_in(params)}
        try:
            fits.check_config(
                described[model_id],
                params,
                shapes,
                target_shapes=tuple(tuple(shape) for shape in asked.target_shapes),
                target_kinds=tuple(asked.target_kinds),
                null_classes=tuple(asked.null_classes),
                made=made,
            )
        except CerebroError as error:
            raise _about(error, f"config {config.mst_key}") from None
        _check_thawed(config, described[model_id].json)
        parts = _shards(config, described[model_id].json, params, asked.device_memory_mb)
        if asked.sizes:
            sizes = sizing.of_config(described[model_id].json, params)
            sized[model_id][config.mst_key] = {**asdict(sizes), **parts}
    return {
        model_id: {
            **_facts(found, asked.recompute),
            "functions": list(used[model_id]),
            "sizes": sized[model_id],
        }
        for model_id, found in described.items()
    }


def _shards(
    config: CheckedConfig, model_arch: str, params: CompileParams, device_memory_mb: int | None
) -> Mapping[str, int]:
    """Return how many shards a config's net is cut into at most, and the memory they need on the device.

    The net may be cut into more shards once `unfreeze_at` has let frozen layers train. Return an empty
    mapping if `device_memory_mb` is None.
    """
    from cerebro_plpy.engine.activations import shards
    from cerebro_plpy.engine.models import sizing
    from cerebro_plpy.segment.visits import room_on_device

    room = room_on_device(device_memory_mb, config.batch_size)
    if room is None:
        return {}
    stages_of = [model_arch, *([stages.thawed(model_arch, config.thawed)] if config.thawed else [])]
    try:
        found = [sizing.shards_of(text, params, room) for text in stages_of]
    except CerebroError as error:
        raise _about(error, f"config {config.mst_key}") from None
    spans = max(found, key=len)
    return {"shards": len(spans), "device_bytes": shards.peak_bytes(spans, room)}


def _check_thawed(config: CheckedConfig, model_arch: str) -> None:
    known = stages.names(model_arch) if config.thawed else []
    for pattern in config.thawed:
        if not any(fnmatchcase(name, pattern) for name in known):
            message = f'config {config.mst_key}: unfreeze_at names "{pattern}", and the net has no such layer'
            raise unknown(message, pattern, known)


def check_model(asked: CheckModel) -> Mapping[str, Any]:
    """Check one architecture and the length of its weights; return a description of it."""
    with registered.scope(custom.take(asked.functions)):
        found = architecture.describe(asked.model_arch, max_parameters=asked.max_parameters)
        layers = architecture.layers(found.json) if asked.layers else []
    given = asked.weights_bytes
    expected = sum(math.prod(shape) for shape in found.weight_shapes)
    if given not in (None, 4 * expected, 4 * lora.base_size(found.weight_shapes, found.adapters)):
        raise CerebroError(
            f"model_weights has {given} bytes, the architecture has {expected} weights of 4 bytes each",
            hint="Concatenate the flattened float32 arrays of model.get_weights().",
        )
    fixed = [name_of(layer) for layer in all_layers(json.loads(found.json)) if quantized.mode_of(layer)]
    return {
        **_facts(found),
        "adaptable": list(found.adaptable),
        "quantized": fixed,
        "layers": layers,
    }


def check_functions(sources: Sequence[FunctionRow]) -> Mapping[str, Any]:
    """Execute the sources of functions that are to be registered.

    Raise an error if a name is taken, or if a source does not define the function that it should.
    """
    for function in custom.take(sources):
        taken.check(function.name)
        custom.get(function.digest)
    return {}


def _describe(
    model_id: str, text: str, limit: int, shapes: tuple[tuple[int, ...], ...]
) -> architecture.DescribedModel:
    try:
        return architecture.describe(text, input_shapes=shapes, max_parameters=limit)
    except CerebroError as error:
        raise _about(error, f"model_id {model_id}") from None


def _about(error: CerebroError, whom: str) -> CerebroError:
    return CerebroError(
        f"{whom}: {error.message}", detail=error.detail, hint=error.hint, sqlstate=error.sqlstate
    )


def _facts(found: architecture.DescribedModel, recompute: bool | Sequence[str] = False) -> Mapping[str, Any]:
    never = recomputed.kept(found.json)
    return {
        "json": found.json,
        "parameters": found.parameters,
        "flops_per_row": found.flops_per_row,
        "work": {**found.work, "kept": counting.count_kept(found.uses, recompute, never)},
        "kept_again": counting.count_kept(found.uses, True, never),
        "trained": found.trained,
        "inputs": [list(shape) for shape in found.inputs],
        "outputs": [list(shape) for shape in found.outputs],
        "trunk": [asdict(layer) for layer in found.trunk],
    }
