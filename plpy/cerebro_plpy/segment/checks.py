"""Checks that need Keras, made before a run begins: do architectures, parameters and rows fit together?"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from cerebro_plpy.engine import architecture
from cerebro_plpy.errors import CerebroError
from cerebro_plpy.madlib.params import parse_compile


def check(request: Mapping[str, Any]) -> Mapping[str, Any]:
    """Describe each architecture and check each config against the packed table's shapes."""
    from cerebro_plpy.engine import check as fits

    limit = request["max_parameters"]
    shapes = tuple(tuple(shape) for shape in request["input_shapes"])
    described = {
        model_id: _describe(model_id, text, limit, shapes)
        for model_id, text in request["architectures"].items()
    }
    for config in request["configs"]:
        try:
            fits.check_config(
                described[str(config["model_id"])],
                parse_compile(config["compile_params"]),
                shapes,
                tuple(tuple(shape) for shape in request["target_shapes"]),
                request["target_kinds"],
            )
        except CerebroError as error:
            raise _about(error, f"config {config['mst_key']}") from None
    return {model_id: _facts(found) for model_id, found in described.items()}


def check_model(request: Mapping[str, Any]) -> Mapping[str, Any]:
    """Check one architecture on its own, and that its weights have the right length."""
    found = architecture.describe(request["model_arch"], max_parameters=request["max_parameters"])
    given = request["weights_bytes"]
    expected = sum(math.prod(shape) for shape in found.weight_shapes)
    if given is not None and given != 4 * expected:
        raise CerebroError(
            f"model_weights has {given} bytes, the architecture has {expected} weights of 4 bytes each",
            hint="Concatenate the flattened float32 arrays of model.get_weights().",
        )
    return {**_facts(found), "adaptable": list(found.adaptable)}


def _describe(
    model_id: str, text: str, limit: int, shapes: tuple[tuple[int, ...], ...]
) -> architecture.Architecture:
    try:
        return architecture.describe(text, input_shapes=shapes, max_parameters=limit)
    except CerebroError as error:
        raise _about(error, f"model_id {model_id}") from None


def _about(error: CerebroError, whom: str) -> CerebroError:
    return CerebroError(
        f"{whom}: {error.message}", detail=error.detail, hint=error.hint, sqlstate=error.sqlstate
    )


def _facts(found: architecture.Architecture) -> Mapping[str, Any]:
    return {
        "json": found.json,
        "parameters": found.parameters,
        "flops_per_row": found.flops_per_row,
        "inputs": [list(shape) for shape in found.inputs],
        "outputs": [list(shape) for shape in found.outputs],
    }
