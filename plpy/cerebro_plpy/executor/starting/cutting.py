"""Choose the frozen layers that a run computes only once. The choice is stored with the run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from fnmatch import fnmatchcase
from typing import Any

from cerebro_plpy.errors import NOT_SUPPORTED, OUT_OF_MEMORY, WRONG_STATE, CerebroError
from cerebro_plpy.executor.starting import request as requests
from cerebro_plpy.logical.budget import Limits, evaluation_epochs
from cerebro_plpy.logical.options import EXACT, FAST
from cerebro_plpy.madlib import recomputed
from cerebro_plpy.madlib.literal import Call
from cerebro_plpy.madlib.params import parse_fit, reparse_compile
from cerebro_plpy.planner.cuts import LayerCost, TrunkChoice, Use, candidates, choice, operations
from cerebro_plpy.planner.estimating.needs import BatchNeeds, needs_of
from cerebro_plpy.planner.tree import size
from cerebro_plpy.store.packed.stored_features import StoredFeatures

MB = 2**20


def settled(
    request: requests.Request,
    examples: Sequence[requests.Chosen],
    described: Mapping[str, Mapping[str, Any]],
) -> requests.Request:
    """Return the request with the frozen layers that the run computes only once, for each architecture.

    No layers are chosen for architectures without stored weights (each config then has frozen weights of its
    own), for groups, or with the option `device_memory_mb`.
    """
    request = with_stored(request, described, examples)
    if request.limits.device_memory_mb is not None:
        # Layers that are computed once would have to fit on the device as a whole.
        return request
    if not request.limits.materialize or request.groups is not None or request.source.summary.stored:
        return request
    configs = request.configs or examples
    cuts: dict[str, Sequence[Mapping[str, Any]]] = {}
    for architecture in request.architectures:
        own = [config for config in configs if config.model_id == architecture.model_id]
        if own and architecture.has_weights:
            found = _candidates(request, own, described[str(architecture.model_id)])
            if found:
                cuts[str(architecture.model_id)] = [asdict(one) for one in found]
    return replace(request, limits=replace(request.limits, cuts=cuts)) if cuts else request


def with_stored(
    request: requests.Request,
    described: Mapping[str, Mapping[str, Any]],
    configs: Sequence[requests.Chosen],
) -> requests.Request:
    """Return the request with the frozen layers whose outputs its tables of features hold.

    Raise an error if a net lacks one of these layers, or if a config unfreezes one.
    """
    stored: dict[str, Mapping[str, Any]] = {}
    cuts: Mapping[str, Sequence[Mapping[str, Any]]] = {}
    thawed = {name for config in configs for name in parse_fit(config.fit_params).thawed()}
    for data in (request.source, request.validation):
        found = None if data is None else data.summary.stored
        if data is None or found is None:
            continue
        for model_id, facts in described.items():
            frozen = {layer["name"] for layer in facts["trunk"]}
            missing = [name for name in found.layers if name not in frozen]
            if missing:
                raise CerebroError(
                    f'model_id {model_id} has no frozen layer "{missing[0]}"',
                    detail=f'{data.table.quoted} holds what leaves the layers up to "{found.layer}".',
                    hint=f"Train it on {found.source_table}, or train nets that have the frozen layers of"
                    f" model_id {found.model_id} in {found.arch_table}.",
                    sqlstate=WRONG_STATE,
                )
        for name in found.layers:
            if any(fnmatchcase(name, pattern) for pattern in thawed):
                raise CerebroError(
                    f'unfreeze_at names layer "{name}", whose outputs are stored in {data.table.quoted}',
                    hint=f"Train on {found.source_table}.",
                    sqlstate=WRONG_STATE,
                )
        stored[data.table.quoted] = {"layer": found.layer, "layers": found.layers, "digest": found.digest}
        if data is request.source:
            cuts = {model_id: [asdict(_stored_choice(found, facts))] for model_id, facts in described.items()}
    return replace(request, limits=replace(request.limits, stored=stored, cuts=cuts)) if stored else request


def _stored_choice(stored: StoredFeatures, facts: Mapping[str, Any]) -> TrunkChoice:
    """Return the layers whose outputs a table of features holds, in the form of a choice by the planner."""
    trunk = [LayerCost(**layer) for layer in facts["trunk"]]
    return choice(trunk, [place for place, layer in enumerate(trunk) if layer.name in stored.layers])


def _candidates(
    request: requests.Request, configs: Sequence[requests.Chosen], facts: Mapping[str, Any]
) -> list[TrunkChoice]:
    trunk = [LayerCost(**layer) for layer in facts["trunk"]]
    measured = len(evaluation_epochs(request.epochs, request.metrics_frequency)) if request.epochs else 0
    tables = [request.source, request.validation] if request.validation else [request.source]
    epochs = sum(config.passes * request.epochs + measured for config in configs)
    use = Use(
        operations=operations(facts["work"]),
        passes=-(-epochs // (request.limits.epochs_per_pass or 1)),
        batch_sizes=len({config.batch_size for config in configs}),
        rows=sum(data.summary.total_rows for data in tables),
        budget_bytes=request.limits.budget_mb * MB // len(request.architectures),
    )
    return candidates(trunk, use)


def chosen(cuts: Mapping[str, Sequence[Mapping[str, Any]]], model_id: int) -> TrunkChoice | None:
    """Return the layers of an architecture that the run computes only once, or None if there are none."""
    found = cuts.get(str(model_id))
    return TrunkChoice(**found[0]) if found else None


def mark(limits: Limits, model_id: int, fit_params: str) -> tuple[int, int] | None:
    """Return the key by which configs share outputs of frozen layers: `model_id` and batch size.

    Return None if the run computes no layers of the architecture only once.
    """
    if limits.stored or str(model_id) not in limits.cuts:
        return None
    return model_id, parse_fit(fit_params).batch_size


def check_recomputed(request: requests.Request, described: Mapping[str, Mapping[str, Any]]) -> None:
    """Raise an error if the option `recompute` is combined with `fuse` "exact" or "fast".

    Also raise an error if `recompute` names layers that no net has or that cannot be computed again.
    """
    asked, fuse = request.limits.recompute, request.limits.fuse
    if not asked:
        return
    if fuse in (EXACT, FAST):
        raise CerebroError(
            f"option fuse is {fuse}, and recompute is given",
            detail="Nets that compute layers again train by themselves.",
            hint="Leave out one of the two.",
            sqlstate=NOT_SUPPORTED,
        )
    if asked is not True:
        recomputed.check(asked, [facts["json"] for facts in described.values()])


def check_device(request: requests.Request) -> None:
    """Raise an error if nets are to be cut into shards (`device_memory_mb`) where this is not supported.

    It is supported only on JAX, without `fuse` or `recompute`, and neither on groups nor on stored features.
    """
    if request.limits.device_memory_mb is None:
        return
    fuse, others = request.limits.fuse, [name for name in request.backends if name != "jax"]
    because, hint = None, "Leave out one of the two."
    if others:
        because, hint = f"backend is {' and '.join(others)}", 'Train with {"backend": "jax"}.'
    elif fuse in (EXACT, FAST):
        because = f"fuse is {fuse}"
    elif request.limits.recompute:
        because, hint = "recompute is given", "Leave out recompute: every shard is computed again."
    elif request.groups is not None:
        because, hint = "the table is in groups", "Leave out the option: nets of groups are small."
    elif request.source.summary.stored:
        because = f"{request.source.table.quoted} is a table of features"
        hint = "Train on the table that the features were made from."
    if because is not None:
        raise CerebroError(
            f"option device_memory_mb is given, and {because}", hint=hint, sqlstate=NOT_SUPPORTED
        )


def check_memory(
    request: requests.Request,
    examples: Sequence[requests.Chosen],
    described: Mapping[str, Mapping[str, Any]],
) -> None:
    """Raise an error for a config whose mini-batch does not fit into the memory of this machine.

    Nets on GPUs, of groups, and in shards are not checked: GPUs report this themselves, nets of groups are
    small, and a net in shards need not fit as a whole.
    """
    if request.engines.use_gpus or request.groups is not None:
        return
    summary, memory = request.source.summary, requests.machine_memory()
    # A config leaves one fold out, and an epoch may have only a part of the other rows.
    left = 1 - 1 / summary.folds if summary.folds and request.cross_validates else 1.0
    rows = int(left * summary.total_rows / request.segments / (request.limits.epochs_per_pass or 1))
    for config in examples:
        facts = described[str(config.model_id)]
        needs = needs_of(facts, min(config.batch_size, rows))
        if needs.bytes > memory and not _is_in_shards(facts, config):
            raise _too_large(config, needs, memory)


def _is_in_shards(facts: Mapping[str, Any], config: requests.Chosen) -> bool:
    """Return whether a config's net is cut into shards, because it does not fit on the device as a whole."""
    sizes = facts["sizes"].get(config.mst_key) or facts["sizes"].get(str(config.mst_key)) or {}
    return sizes.get("shards", 1) > 1


def _too_large(config: requests.Chosen, needs: BatchNeeds, memory: int) -> CerebroError:
    parts = needs.parts(memory)
    if parts is None:
        hint = "Use a smaller net, or adapters on one that is frozen."
    else:
        optimizer = reparse_compile(config.compile_params).optimizer
        before = optimizer.get("gradient_accumulation_steps") if isinstance(optimizer, Call) else None
        steps = parts * (before if isinstance(before, int) else 1)
        alike = "nearly the same" if needs.rows % parts else "the same"
        hint = (
            f"Use batch_size={needs.rows // parts} in its fit parameters; with"
            f" gradient_accumulation_steps={steps} in the optimizer, its steps stay {alike}. An epoch then"
            f" has {parts} times as many batches."
        )
    if needs.fits_again(memory):
        hint += " Or set the option recompute: the forward pass is made twice, a third more work."
    return CerebroError(
        f"config {config.key} needs at least {size(needs.bytes)} of memory,"
        f" and this machine has {size(memory)}",
        detail=f"Weights and gradients take {size(needs.fixed_bytes)}, and the outputs of layers"
        f" {size(needs.bytes - needs.fixed_bytes)} for a mini-batch of {needs.rows} rows.",
        hint=hint,
        sqlstate=OUT_OF_MEMORY,
    )
