"""Let a search begin with the configs that were best in the role's earlier searches on similar tables."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Final

from cerebro_plpy.database import Database
from cerebro_plpy.executor.running import replay
from cerebro_plpy.logical.options import FitOptions
from cerebro_plpy.logical.search import experience
from cerebro_plpy.logical.search.automl import SearchCall, refuse_proposing
from cerebro_plpy.logical.search.experience import EarlierSearch, TableFacts
from cerebro_plpy.madlib.spaces.grid import GridRow
from cerebro_plpy.planner.explanation import counted
from cerebro_plpy.store import session
from cerebro_plpy.store.models import models
from cerebro_plpy.store.packed import packed
from cerebro_plpy.store.runs import decisions, runs

OPTION: Final = "experience"


@dataclass(frozen=True)
class SearchFacts:
    """Facts about a search's table and nets, which are stored with the search for later searches."""

    table: TableFacts
    nets: Mapping[int, str]

    @staticmethod
    def describe(summary: packed.PackedSummary, architectures: Sequence[models.Architecture]) -> SearchFacts:
        return SearchFacts(_describe_table(summary), {a.model_id: _name_net(a) for a in architectures})

    @property
    def as_json(self) -> Mapping[str, Any]:
        """The facts, by the keys that they have in the stored description of the search."""
        return {replay.TABLE: asdict(self.table), replay.NETS: self.nets}


def _describe_table(summary: packed.PackedSummary) -> TableFacts:
    columns: dict[str, int] = {}
    for feature in summary.features.columns.values() if summary.features else ():
        columns[feature.way.kind] = columns.get(feature.way.kind, 0) + 1
    shapes = [] if summary.features else summary.input_shapes
    return TableFacts(summary.total_rows, [n or 0 for n in summary.num_classes], columns, shapes)


def _name_net(architecture: models.Architecture) -> str:
    """Return the name by which later searches recognize a net: its own name, or a digest of its layers."""
    digest = hashlib.md5(architecture.model_arch.encode(), usedforsecurity=False)
    return architecture.name or f"md5:{digest.hexdigest()}"


def begin_with_best(db: Database, given: FitOptions, search: SearchCall, facts: SearchFacts) -> SearchCall:
    """Return the search with the best configs of earlier searches placed before its own configs.

    Without the option `experience`, return the search unchanged.
    """
    if not given.experience:
        return search
    if not search.method.takes_configs:
        raise refuse_proposing(search.method, OPTION)
    if given.replay is not None:
        return _repeat(db, search, given.replay, given.max_configs)
    examples = {row.model_id: row for row in reversed(search.examples())}
    configs = search.method.params.get("num_configs")
    most = experience.MOST_CONFIGS
    if isinstance(configs, int):
        most = min(most, math.ceil(configs * experience.SHARE))
    nearest = [
        replace(known, configs=_rank_configs(db, known.run_id))
        for known in experience.find_nearest(facts.table, _read_earlier(db))
    ]
    found, used = experience.choose_configs(nearest, facts.nets, examples, most)
    if found:
        which = f"{counted(len(found), 'config')} of run{'s' * (len(used) > 1)} {', '.join(map(str, used))}"
        db.notice(f"experience: the search begins with {which}")
    else:
        db.notice("experience: no earlier search of yours has trained these nets on a table like this one")
    return search.with_before(found, given.max_configs) if found else search


def _repeat(db: Database, search: SearchCall, run_id: int, most: int | None) -> SearchCall:
    """Return the search with the configs of earlier searches with which the replayed run `run_id` began.

    A new look at the earlier searches might find other configs. The other configs are those of `search`.
    """
    searched = runs.searched(runs.own_run(db, run_id, session.current_user(db))) or {}
    arguments = searched.get("arguments", {})
    first = [GridRow(**row) for row in arguments.get("first", ())]
    # Without the parameter num_configs, they stand before those that the call tries first.
    found = first[: arguments.get("added", 0) or max(0, len(first) - len(search.first))]
    return search.with_before(found, most) if found else search


def _read_earlier(db: Database) -> list[EarlierSearch]:
    return [
        EarlierSearch(
            run_id,
            TableFacts(**described[replay.TABLE]),
            {int(model_id): name for model_id, name in described[replay.NETS].items()},
        )
        for run_id, described in decisions.ended_searches(db, session.current_user(db))
    ]


def _rank_configs(db: Database, run_id: int) -> list[GridRow]:
    """Return the configs of a search, sorted by the best value that was measured for each.

    Configs without a measured value, such as failed ones, are left out.
    """
    best: dict[int, float] = {}
    for entry in decisions.entries(db, run_id):
        if entry.decision == decisions.MEASURED and entry.mst_key is not None and entry.value is not None:
            best[entry.mst_key] = min(entry.value, best.get(entry.mst_key, math.inf))
    configs = {config.mst_key: config for config in runs.configs(db, run_id)}
    ranked = (configs[key] for key in sorted(best, key=lambda key: (best[key], key)))
    return [GridRow(one.model_id, one.compile_params, one.fit_params) for one in ranked]
