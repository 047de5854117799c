"""Check tables of architectures, configs and rungs, and write them with the caller's rights."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from cerebro_plpy.commands import CheckModel
from cerebro_plpy.database import Database
from cerebro_plpy.errors import NULL_NOT_ALLOWED, CerebroError
from cerebro_plpy.executor.starting import request as requests
from cerebro_plpy.logical.options import FitOptions
from cerebro_plpy.logical.search.procedures import hyperband
from cerebro_plpy.madlib.spaces import grid
from cerebro_plpy.predicting.models import fits_dense, has_old_sigmoid, is_usual, runs_engine
from cerebro_plpy.store import names, session
from cerebro_plpy.store.models import functions as registry
from cerebro_plpy.store.models import models
from cerebro_plpy.store.models.models import Selected
from cerebro_plpy.store.names import Table, TargetTable, find_table, quote, resolve_table, target_table
from cerebro_plpy.topology import Topology
from cerebro_plpy.topology.choose import RowsToHand, choose, find_topology
from cerebro_plpy.topology.inline import InlineTopology
from cerebro_plpy.topology.local import LocalTopology, list_started


def load_model(
    db: Database,
    table_name: str | None,
    model_arch: str | None,
    weights: bytes | None,
    name: str | None,
    description: str | None,
    quiet: bool = False,
    is_point: bool = False,
) -> int:
    """Check an architecture, add it to a table of architectures, and return its `model_id`.

    The table is created if it does not exist. `is_point` says that the net is a starting point, whose layers
    fit together: without an engine, its size is all that is left to check.
    """
    if model_arch is None:
        raise CerebroError("model_arch is NULL", sqlstate=NULL_NOT_ALLOWED)
    table = find_table(db, table_name, "model architecture table")
    if table is not None:
        models.check_architectures(db, table)
    registry.begin(db)
    nbytes = None if weights is None else len(weights)
    most = _find_engines(db).max_parameters
    if not is_usual(model_arch, nbytes, most) and not (is_point and fits_dense(model_arch, most)):
        _check_by_engine(db, model_arch, weights)
    if weights is not None and has_old_sigmoid(model_arch):
        db.warning(
            "hard_sigmoid is clip(x / 6 + 0.5) here, and was clip(x / 5 + 0.5) in Keras 2, which wrote this"
            " architecture: with these weights, the net answers otherwise than there"
        )
    if table is None:
        target = target_table(db, table_name, "model architecture table")
        models.create_architectures(db, target)
        quoted = target.quoted
    else:
        quoted = table.quoted
    model_id = models.add_architecture(
        db, quoted=quoted, model_arch=model_arch, weights=weights, name=name, description=description
    )
    if not quiet:
        db.notice(f"model_id {model_id} is in {quoted}")
    return model_id


def _check_by_engine(db: Database, model_arch: str, weights: bytes | None) -> None:
    """Have Keras check a net that is to be trained; warn of layers that do nothing without weights."""
    found = check_architecture(db, model_arch, weights)
    if weights is None and found["quantized"]:
        raise CerebroError(
            f"layer {found['quantized'][0]} is quantized, and no weights are given",
            detail="Its kernel would be 0, and stay so: what is quantized does not train.",
            hint="Give model_weights.",
        )
    if weights is None:
        _warn_of_no_statistics(db, found["adaptable"])


def _warn_of_no_statistics(db: Database, layers: Sequence[str]) -> None:
    """Send a warning that the Normalization layers `layers` have no mean and variance in their JSON."""
    if layers:
        db.warning(
            f"Normalization layers let all values pass as they are: {', '.join(layers)}. The JSON holds no "
            "mean and no variance of theirs. Give model_weights, or the layers' arguments mean and variance."
        )


def check_architecture(
    db: Database, model_arch: str, weights: bytes | None, *, layers: bool = False
) -> Mapping[str, Any]:
    """Have Keras check a net, and return the facts that Keras found; with `layers`, also facts on each layer.

    An engine that already runs, here or in a segment session, is used, since all engines find the same facts.
    """
    engines = _find_engines(db)
    if runs_engine():
        return _ask(db, InlineTopology(db), engines, (model_arch, weights), layers=layers)
    topology = choose(db, [])
    started = list_started(session.current_user(db))
    if started and (engines.backend, engines.threads) not in started:
        engines = replace(engines, backend=started[0][0], threads=started[0][1])
    return _ask(db, topology, engines, (model_arch, weights), layers=layers)


def _find_engines(db: Database) -> requests.Engines:
    return requests.engines(db, FitOptions(), False, session.usual_segments(db))


def select(
    db: Database, name: str, configs: Iterable[Selected], arch_table: str, object_table: str | None = None
) -> None:
    """Create a model selection table with these configs, which keep their `mst_key`."""
    made = target_table(db, name, "model selection table", ("_summary",))
    models.create_selection(db, made)
    for config in configs:
        models.add_selected(db, made.quoted, config)
    arch = resolve_table(db, arch_table, "model architecture table")
    models.create_selection_summary(db, made, arch, arch_table, object_table)


def begin_start(db: Database, oid: int, backend: str, rows: RowsToHand, segments: int | None) -> None:
    """Let segment sessions start now, to be ready when the rows of the source table have been packed.

    `oid` is the source table. Sessions start only if the rows can be handed to them.
    """
    handed = rows.sessions if db.server.hands_rows else 0
    topology = find_topology(db, [oid], rows)[0] if handed else None
    if isinstance(topology, LocalTopology):
        usual = segments or session.usual_segments(db)
        engine = requests.engines(db, FitOptions(backend=backend), False, usual).start(backend, False)
        topology.begin_opening([engine], min(usual, handed))


def start_early(db: Database, topology: Topology, backend: str, segments: int) -> None:
    """Start now the engines that will train on this transaction's tables; they also check the nets."""
    engine = requests.engines(db, FitOptions(backend=backend), False, segments).start(backend, False)
    if isinstance(topology, InlineTopology):
        engine = replace(engine, or_any=True)
    topology.open([engine], segments)


def _ask(
    db: Database,
    topology: Topology,
    engines: requests.Engines,
    net: tuple[str, bytes | None],
    *,
    layers: bool = False,
) -> Mapping[str, Any]:
    model_arch, weights = net
    topology.open([replace(engines.start(engines.backend, False), or_any=True)], 1)
    return topology.ask(
        engines.backend,
        CheckModel(
            model_arch=model_arch,
            weights_bytes=None if weights is None else len(weights),
            max_parameters=engines.max_parameters,
            functions=registry.needed(db, [], [model_arch]),
            layers=layers,
        ),
    )


def delete_model(db: Database, table_name: str | None, model_id: int | None) -> None:
    table = resolve_table(db, table_name, "model architecture table")
    if model_id is None:
        raise CerebroError("model_id is NULL", sqlstate=NULL_NOT_ALLOWED)
    models.check_architectures(db, table)
    models.delete_architecture(db, table, model_id)


def load_selection(
    db: Database,
    arch_table_name: str | None,
    table_name: str | None,
    model_ids: list[int] | None,
    compile_list: list[str] | None,
    fit_list: list[str] | None,
    object_table: str | None,
) -> None:
    """Create a model selection table with every combination of architectures, compile and fit parameters."""
    registry.begin(db)
    listed = requests.object_table(db, object_table)
    for what, given in (
        ("model_id_list", model_ids),
        ("compile_params_list", compile_list),
        ("fit_params_list", fit_list),
    ):
        if not given:
            raise CerebroError(f"{what} is NULL or empty", sqlstate=NULL_NOT_ALLOWED)
    target = target_table(db, table_name, "model selection table", ("_summary",))
    arch_table = resolve_table(db, arch_table_name, "model architecture table")
    configs = grid.list_configs(model_ids or [], compile_list or [], fit_list or [])
    models.architectures(db, arch_table, sorted({c.model_id for c in configs}))
    _create_selection(
        db,
        target=target,
        arch_table=arch_table,
        spelled=str(arch_table_name),
        configs=configs,
        object_table=listed,
    )


def generate_configs(
    db: Database,
    arch_table_name: str | None,
    table_name: str | None,
    model_ids: list[int] | None,
    compile_grid: str | None,
    fit_grid: str | None,
    search_type: str | None,
    num_configs: int | None,
    random_state: int | None,
    object_table: str | None,
) -> None:
    """Add the configs of a grid to a model selection table, which is created if it does not exist."""
    registry.begin(db)
    listed = requests.object_table(db, object_table)
    arch_table = resolve_table(db, arch_table_name, "model architecture table")
    table = find_table(db, table_name, "model selection table")
    known = [] if table is None else _known_configs(db, table, arch_table)
    configs, seed = grid.new_configs(
        known=known,
        model_ids=model_ids or [],
        compile_grid=compile_grid or "",
        fit_grid=fit_grid or "",
        search_type=search_type,
        num_configs=num_configs,
        random_state=random_state,
    )
    models.architectures(db, arch_table, sorted({c.model_id for c in configs}))
    if table is None:
        target = target_table(db, table_name, "model selection table", ("_summary",))
        _create_selection(
            db,
            target=target,
            arch_table=arch_table,
            spelled=str(arch_table_name),
            configs=configs,
            object_table=listed,
        )
    else:
        models.add_selection(db, table.quoted, configs)
        if _selection_summary(db, table) is None:
            selection = names.target(db, table.schema, table.name)
            models.create_selection_summary(db, selection, arch_table, str(arch_table_name), listed)
    if seed is not None and random_state is None:
        db.notice(f"the configs were drawn with random_state {seed}")


def write_schedule(
    db: Database,
    table_name: str | None,
    most: int | None,
    eta: int | None,
    skip_last: int | None,
) -> None:
    """Create a table with the rungs of a Hyperband search; `most` is the largest number of epochs."""
    for what, given in (("r", most), ("eta", eta), ("skip_last", skip_last)):
        if given is None:
            raise CerebroError(f"hyperband_schedule: {what} is NULL", sqlstate=NULL_NOT_ALLOWED)
    rungs = hyperband.schedule("hyperband_schedule", most or 0, eta or 0, skip_last or 0)
    target = target_table(db, table_name, "schedule table")
    models.create_schedule(db, target.quoted, [(rung.s, rung.i, rung.n_i, rung.r_i) for rung in rungs])


def _create_selection(
    db: Database,
    target: TargetTable,
    arch_table: Table,
    spelled: str,
    configs: list[grid.GridRow],
    object_table: str | None,
) -> None:
    models.create_selection(db, target)
    models.add_selection(db, target.quoted, configs)
    models.create_selection_summary(db, target, arch_table, spelled, object_table)


def _selection_summary(db: Database, table: Table) -> Table | None:
    """Return the summary of a model selection table, or None if it was dropped."""
    name = quote(table.schema, table.name + "_summary")
    return find_table(db, name, "model selection summary")


def _known_configs(db: Database, table: Table, arch_table: Table) -> list[grid.GridRow]:
    """Return the configs of a model selection table; raise an error if they need other architectures.

    A table whose summary was dropped is taken to belong to `arch_table`.
    """
    summary = _selection_summary(db, table)
    known = arch_table
    if summary is not None:
        name = models.selection_tables(db, summary).arch_table
        known = resolve_table(db, name, "model architecture table")
    if known.oid != arch_table.oid:
        raise CerebroError(
            f"DL: Inconsistent model arch table: {table.quoted} belongs to {known.quoted},"
            f" not to {arch_table.quoted}",
            hint="Use the same architecture table, or another name for the new model selection table.",
        )
    return [
        grid.GridRow(row.model_id, row.compile_params, row.fit_params) for row in models.selection(db, table)
    ]
