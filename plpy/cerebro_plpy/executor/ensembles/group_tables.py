"""Writes an ensemble of models of groups, one net with weights for each group, like a run on groups."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from cerebro_plpy.database import Database
from cerebro_plpy.executor.ensembles.candidates import Candidate, JudgingGroups
from cerebro_plpy.executor.ensembles.contest import Contest
from cerebro_plpy.executor.ensembles.joined import JoinedNet
from cerebro_plpy.executor.running import output
from cerebro_plpy.predicting.trained import ONLY
from cerebro_plpy.store import names
from cerebro_plpy.store.models.group_models import ALL_ROWS
from cerebro_plpy.store.packed.groups import FALLBACK
from cerebro_plpy.store.runs import results

# The suffix of the table that describes the models of groups.
INFO = "_info"
# The most groups that one statement writes.
_AT_ONCE = 1000


@dataclass(frozen=True)
class GroupEnsemble:
    """An ensemble of models of groups: its net, the configs in it, and its answers."""

    net: JoinedNet
    parts: Sequence[Candidate]
    # The groups of the rows that chose.
    judging: JudgingGroups
    # The answers for the rows that chose: for each half of them, what the other half chose.
    apart: np.ndarray
    description: str

    @property
    def groups(self) -> list[str]:
        """The keys of all groups; each config of the ensemble has a model for every group."""
        return list(self.parts[0].of_groups)

    def join(self, group: str) -> bytes:
        """Return the weights of the joined net for a group."""
        return self.net.join([one.of_groups[group] for one in self.parts])


def write_tables(db: Database, target: names.TargetTable, contest: Contest, made: GroupEnsemble) -> None:
    """Create and fill the three result tables that a run on groups has."""
    types = contest.summary.class_value_types
    columns = results.columns_of_many(types, groups=made.judging.types)
    info, summary = (names.target(db, target.schema, target.name + end) for end in (INFO, "_summary"))
    for table, own in zip((target, info, summary), columns, strict=True):
        results.create(db, table, own)
    _write_models(db, target, made, contest.about["segments"])
    results.add_rows(db, info.quoted, list(_info_rows(contest, made)))
    known = {name for name, _ in columns[2]} - types.keys()
    row = {
        **{name: value for name, value in contest.about.items() if name in known},
        "model": target.quoted,
        "model_info": info.quoted,
        "validation_table": contest.rows.quoted,
        "qualified_names": contest.name_tables(model=target.quoted, model_info=info.quoted),
        "description": made.description,
    }
    results.add_summary(db, summary.quoted, row, types, contest.summary.class_values)


def _write_models(db: Database, target: names.TargetTable, made: GroupEnsemble, segments: int) -> None:
    groups = made.groups
    for first in range(0, len(groups), _AT_ONCE):
        some = groups[first : first + _AT_ONCE]
        results.add_models_of_groups(
            db,
            quoted=target.quoted,
            columns=list(made.judging.types),
            keys=[ONLY] * len(some),
            groups=[None if group == ALL_ROWS else group for group in some],
            weights=[output.field(db, ONLY, made.join(group)) for group in some],
            nets=[made.net.model_arch] * len(some),
            places=[number % segments for number in range(first, first + len(some))],
        )


def _info_rows(contest: Contest, made: GroupEnsemble) -> Iterator[dict[str, Any]]:
    """Yield the info row of each group, with the loss on the group's own rows (None if it has no rows)."""
    first = made.parts[0].parts[0].found
    places: dict[str, list[int]] = {}
    for place, group in enumerate(made.judging.keys):
        places.setdefault(group, []).append(place)
    for group in made.groups:
        is_fallback, own = group == ALL_ROWS, places.get(group)
        values = dict.fromkeys(made.judging.types) if is_fallback else json.loads(group, parse_float=str)
        yield {
            **values,
            FALLBACK: is_fallback,
            "mst_key": ONLY,
            "model_id": first.selected.model_id,
            "compile_params": first.selected.compile_params,
            "fit_params": first.selected.fit_params,
            "model_type": "madlib_keras",
            "model_size": sum(place.stop - place.start for _, place in made.net.pieces) / 1024,
            "loss_type": contest.loss_type,
            "validation_loss_final": None if own is None else contest.measure_loss(made.apart, own),
            "status": "finished",
            "backend": first.backend,
        }
