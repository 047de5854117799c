"""Finds the candidates for an ensemble of models of groups: each model answers the rows of its own group."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial

import numpy as np

from cerebro_plpy.database import Database
from cerebro_plpy.errors import WRONG_STATE, CerebroError
from cerebro_plpy.executor.calls import evaluate_groups
from cerebro_plpy.executor.ensembles.candidates import Candidate, CandidatePart, JudgingGroups
from cerebro_plpy.executor.ensembles.comparing import JudgingRows
from cerebro_plpy.executor.starting import request as requests
from cerebro_plpy.predicting.answering import grouped
from cerebro_plpy.predicting.group_holders import TableOfGroups
from cerebro_plpy.store import interrupts
from cerebro_plpy.store.models import group_models
from cerebro_plpy.store.packed import partitions


def read_candidates(
    db: Database, found: TableOfGroups, rows: requests.Data, judging: JudgingRows, keys: Iterable[int]
) -> tuple[JudgingRows, JudgingGroups, list[Candidate]]:
    """Return the rows of groups that have models, their groups, and the configs in `keys` as candidates.

    One ensemble is chosen on the rows of all groups, since single groups have few rows. A config that lacks
    a model for one of the groups is left out.
    """
    nets = {key: _open(db, found, key) for key in keys}
    most = {group for answers in nets.values() for group in answers.weights}
    groups = _groups_of_rows(db, found, rows, most)[: len(judging.truth)]
    places = np.flatnonzero([group in most for group in groups])
    if not places.size:
        raise CerebroError(
            f"{found.models.name} has no model of the groups of {rows.table.quoted}", sqlstate=WRONG_STATE
        )
    chosen = [groups[place] for place in places]
    judging = replace(judging, inputs=[one[places] for one in judging.inputs], truth=judging.truth[places])
    candidates = list(_candidates(db, found, nets, most, judging, chosen))
    return judging, JudgingGroups(found.models.types, chosen), candidates


def _open(db: Database, found: TableOfGroups, key: int) -> grouped.Answers:
    return grouped.Answers(db, replace(found, models=found.tables.choose(key, ())))


def _groups_of_rows(
    db: Database, found: TableOfGroups, rows: requests.Data, known: Iterable[str]
) -> list[str]:
    """Return the key of each row's group, in the form that the models use."""
    groups = evaluate_groups.read_groups(db, found.models, rows)
    theirs = {here: key for key, here in group_models.keys_here(db, groups, known).items()}
    names = {number: theirs.get(group.key, group.key) for number, group in groups.rows.items()}
    lengths = partitions.groups_of_buffers(db, rows.table.quoted, rows.summary.below)
    return [names[number] for number, count in lengths for _ in range(count)]


def _candidates(
    db: Database,
    found: TableOfGroups,
    nets: Mapping[int, grouped.Answers],
    most: set[str],
    judging: JudgingRows,
    groups: Sequence[str],
) -> Iterator[Candidate]:
    for key, answers in nets.items():
        lacking = len(most - answers.weights.keys())
        if lacking:
            db.notice(f"mst_key {key} is left out: {lacking} of {len(most)} groups have no model of it")
            continue
        part = _part(db, found, key, answers)
        answers.shapes = tuple(tuple(one.shape[1:]) for one in judging.inputs)
        width = judging.truth.shape[1]
        said, _ = answers.answer_rows(judging.inputs, groups, width, partial(interrupts.tick, db))
        yield Candidate(key, [part], said.astype(np.float64), answers.weights)


def _part(db: Database, found: TableOfGroups, key: int, answers: grouped.Answers) -> CandidatePart:
    """Return a config's net as part of an ensemble, with the weights of any one group.

    Any group's weights will do, since each group's ensemble is joined from the group's own weights.
    """
    model = answers.models[key]
    some = next(iter(answers.weights.values()))
    return CandidatePart(found.any_group(db, key), replace(model, weights=lambda: some))
