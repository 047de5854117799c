"""Warm starts of runs on groups: each config on each group continues from its own earlier model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial

from cerebro_plpy.commands import WeightsOfGroups
from cerebro_plpy.database import Database
from cerebro_plpy.errors import WRONG_OBJECT, WRONG_STATE, CerebroError
from cerebro_plpy.executor.running import run as runner
from cerebro_plpy.executor.running.run_rows import Warm
from cerebro_plpy.executor.starting import groups as groups_of_run
from cerebro_plpy.executor.starting import request as requests
from cerebro_plpy.store import session
from cerebro_plpy.store.models import group_models
from cerebro_plpy.store.models.group_models import ALL_ROWS, GroupTables, TrainedUnit
from cerebro_plpy.store.names import Table, TargetTable
from cerebro_plpy.store.packed import groups, partitions
from cerebro_plpy.store.packed.groups import Groups
from cerebro_plpy.store.runs import replacing, results, run_groups, runs

# The key of a model in result tables: the key of its group, and its config.
ModelKey = tuple[str, int]


def check(db: Database, found: Groups | None, earlier: Sequence[Table]) -> None:
    """Raise an error if the models of the earlier run have other group columns than the rows."""
    model, summary = earlier[0], earlier[-1]
    theirs: Sequence[str] = results.summary_row(db, summary.quoted).get(results.GROUP_BY[0]) or ()
    ours = () if found is None else tuple(found.types)
    if sorted(theirs) != sorted(ours):
        which, rows = (f"groups of {', '.join(names)}" if names else "no groups" for names in (theirs, ours))
        raise CerebroError(
            f"a warm start cannot go on from {model.quoted}: its models are of {which}, the rows of {rows}",
            hint="Set warm_start to FALSE and give another name.",
            sqlstate=WRONG_OBJECT,
        )


def trained(db: Database, found: Groups, earlier: Sequence[Table]) -> dict[ModelKey, TrainedUnit]:
    """Return the models of an earlier run, by the key that their group has now and by config."""
    before = group_models.trained(db, _models(db, found.types, earlier))
    here = group_models.keys_here(db, found, {key for key, _ in before})
    return {(here.get(key, key), config): one for (key, config), one in before.items()}


def _models(db: Database, types: Mapping[str, str], earlier: Sequence[Table]) -> GroupTables:
    model, info, _ = earlier
    own = groups.types_of(db, model.quoted)
    return GroupTables(model, info, {name: own[name] for name in types})


def unit(config: requests.Chosen, found: Groups) -> ModelKey:
    return (ALL_ROWS if config.group_id is None else found.rows[config.group_id].key), config.key


def start(
    db: Database,
    request: requests.Request,
    found: Groups,
    earlier: Sequence[Table],
    cold: runner.Start,
) -> runner.Start:
    """Return a start in which each config continues from its earlier state, or else from its earlier weights.

    Configs that the earlier run did not train for their group start as in `cold`.
    """
    models = _models(db, found.types, earlier)
    before = trained(db, found, earlier)
    _tell_of_other_models(db, request, found, before)
    known = [
        config
        for config in request.configs
        if (one := before.get(unit(config, found))) is not None and one.model_id == config.model_id
    ]
    run_id = results.summary_row(db, earlier[-1].quoted).get("run_id")
    states = _states(db, run_id, found)
    warm = {
        config.mst_key: state for config in known if (state := states.get(unit(config, found))) is not None
    }
    bare = [c for c in known if c.mst_key not in warm and before[unit(c, found)].has_weights]
    _tell(db, len(request.configs), len(bare), len(request.configs) - len(known))
    weights = [
        WeightsOfGroups(
            model_id=model_id,
            table=models.model.quoted,
            types=models.types,
            rows=[
                group_models.row_of(
                    models.types, c.mst_key, c.key, None if c.group_id is None else found.rows[c.group_id]
                )
                for c in bare
                if c.model_id == model_id
            ],
        )
        for model_id in sorted({c.model_id for c in bare})
    ]
    return runner.Start(cold.weights, warm, weights)


def _states(db: Database, run_id: int | None, groups: Groups) -> dict[ModelKey, Warm]:
    """Return the states that configs of groups can continue from, by group key and config.

    They are the last states of the earlier run and, for models that it did not train again, of the runs
    before it. States that are gone or that the caller may not use are left out.
    """
    found: dict[ModelKey, Warm] = {}
    while run_id is not None:
        states = runner.kept_states(db, run_id)
        units = [row for row in run_groups.units(db, run_id) if row["mst_key"] in states] if states else []
        here = group_models.keys_here(db, groups, {row["key"] for row in units})
        for row in units:
            warm = replace(states[row["mst_key"]], key=row["mst_key"])
            key: str = row["key"]
            found.setdefault((here.get(key, key), row["config"]), warm)
        run_id = runs.read_limit(db, run_id, "changed_since")
    return found


def _tell_of_other_models(
    db: Database, request: requests.Request, found: Groups, before: Mapping[ModelKey, TrainedUnit]
) -> None:
    """Send a notice for each config that has another architecture than in `before`, and so starts anew.

    A config on several groups gets only one notice.
    """
    told: dict[int, tuple[requests.Chosen, int]] = {}
    for config in request.configs:
        one = before.get(unit(config, found))
        if one is not None and one.model_id != config.model_id:
            told[config.key] = replace(config, mst_key=config.key), one.model_id
    for config, model_id in told.values():
        requests.tell_of_another_model(db, config, model_id)


def _tell(db: Database, count: int, bare: int, new: int) -> None:
    if bare:
        db.notice(
            f"{bare} of {count} models go on from their weights alone: the states of the earlier run, with"
            " the optimizers' variables, are gone"
        )
    if new:
        db.notice(f"{new} of {count} models begin anew: the tables have none of their group and config")


def only_changed(
    db: Database, request: requests.Request, earlier: Sequence[Table] | None
) -> requests.Request:
    """Return the request with only the models that need training.

    The others are in the tables `earlier`, trained on the same rows with the same parameters.
    """
    found = request.groups
    if earlier is None or found is None:
        raise CerebroError(
            'option groups is "changed", and nothing says since when',
            hint="Set warm_start to TRUE: the tables of the earlier run say what it has trained.",
        )
    check(db, found, earlier)
    before = trained(db, found, earlier)
    version = _trained_version(db, request, earlier)
    if not version:
        # No model may stay: the summary will describe other rows than those that it has learned from.
        return replace(request, limits=replace(request.limits, changed_groups=False))

    def stays(config: requests.Chosen) -> bool:
        now = request.source.summary.version if config.group_id is None else _version(found, config.group_id)
        one = before.get(unit(config, found))
        same = one is not None and (one.model_id, one.compile_params, one.fit_params) == (
            config.model_id, config.compile_params, config.fit_params,
        )  # fmt: skip
        return same and now <= version

    left = [config for config in request.configs if not stays(config)]
    db.notice(f"{len(left)} of {len(request.configs)} models are trained, the others stay as they are")
    run_id = results.summary_row(db, earlier[-1].quoted).get("run_id")
    limits = replace(request.limits, changed_since=run_id)
    search = request.search
    if search is not None:
        keys = [config.mst_key for config in left]
        search = {**search, "arguments": {**search["arguments"], "mst_keys": keys}}
    return replace(request, configs=left, search=search, limits=limits)


def _version(found: Groups, number: int) -> int:
    return found.rows[number].version or 0


def _trained_version(db: Database, request: requests.Request, earlier: Sequence[Table]) -> int:
    """Return the version that the request's packed table had when the earlier run trained on it.

    Return 0 if that run trained on another table, or if rows have since changed other than by added ones.
    """
    run_id = results.summary_row(db, earlier[-1].quoted).get("run_id")
    source, role = request.source, session.current_user(db)
    try:
        run = runs.own_run(db, run_id, role)
    except CerebroError:
        raise CerebroError(
            f"what has changed is not known: you have no run {run_id}, which has left {earlier[0].quoted}",
            hint='Leave {"groups": "changed"} out: then all groups are trained.',
            sqlstate=WRONG_STATE,
        ) from None
    known = runs.trained_on(run, source.table.quoted)
    if known is not None:
        columns = partitions.columns_of(source.summary, known.below)
        read = partial(partitions.contents, db, source.table.quoted, source.summary.keys, columns)
        now = db.as_caller(role, read)
        if [now[key] for key in source.summary.keys] == known.digests:
            return known.version
    db.notice(f"{source.table.quoted} is not the table of run {run_id} with rows added: all groups are new")
    return 0


def make_room(
    db: Database, tables: Sequence[TargetTable], request: requests.Request, outcome: runner.Outcome
) -> None:
    """Delete the models that this run has trained again, and the summary's row, from the result tables."""
    found = request.groups
    if found is None:
        return
    replacing.lock(db, tables)
    model, info, summary = tables
    configs = [ended.config for ended in outcome.ended.values()]
    few = groups_of_run.left_out(request)
    asked = [(c.key, c.group_id) for c in configs]
    asked += [(key, number) for number in few for key in {c.key for c in configs}]
    rows = [
        group_models.row_of(found.types, 0, key, None if number is None else found.rows[number])
        for key, number in asked
    ]
    group_models.delete(db, [model.quoted, info.quoted], found.types, rows)
    results.empty(db, summary.quoted)
