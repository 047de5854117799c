"""cerebro.promote: let an alias point at a version that answers better than the alias's present version."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import astuple, dataclass, replace
from typing import Any

from cerebro_plpy.database import Database
from cerebro_plpy.errors import WRONG_STATE, CerebroError
from cerebro_plpy.executor.ensembles import comparing
from cerebro_plpy.executor.models import aliases
from cerebro_plpy.executor.starting import request as requests
from cerebro_plpy.predicting import belonging
from cerebro_plpy.predicting.examining import scoring
from cerebro_plpy.predicting.trained import find_model
from cerebro_plpy.registry import references
from cerebro_plpy.store import names
from cerebro_plpy.store.models import model_versions
from cerebro_plpy.store.runs import results


@dataclass(frozen=True)
class Promotion:
    """The outcome of a promotion: whether the alias was moved, and the values that decided it."""

    promoted: bool
    version: int
    previous: int | None
    metric: str | None = None
    value: float | None = None
    previous_value: float | None = None
    # By how much the error is smaller, and the interval of this difference.
    gain: float | None = None
    gain_low: float | None = None
    gain_high: float | None = None


def promote(
    db: Database,
    name: str | None,
    version: int | None,
    alias: str | None,
    packed_table: str | None,
    metric: str | None,
) -> Iterator[tuple[object, ...]]:
    """Let an alias point at a version, and return an iterator over one row, the values of a `Promotion`.

    With `packed_table`, the alias moves only if the version has less error on the table's rows than the
    version at which the alias points now.
    """
    known = aliases.begin_change(db, name)
    moved = references.check_name(alias, "an alias")
    asked = aliases.check_version(db, known, version)
    previous = model_versions.aliases(db, known).get(moved)
    if packed_table is None:
        if metric is not None:
            raise CerebroError(
                "metric is given, and if_better_on is not", hint="Name a packed table: if_better_on => '…'."
            )
        found = Promotion(previous != asked, asked, previous)
    else:
        found = _compare(db, known, asked, previous, packed_table, metric)
    if found.promoted:
        aliases.point(db, known, moved, asked)
    return iter([astuple(found)])


def _compare(
    db: Database, name: str, version: int, previous: int | None, packed_table: str, metric: str | None
) -> Promotion:
    rows = requests.data(db, packed_table, "packed table")
    known = [one for one in dict.fromkeys((version, previous)) if one is not None]
    models = {one: find_model(db, f"{name}@{one}", None) for one in known}
    for one, found in models.items():
        belonging.check(db, found.holder, rows.summary, rows.table.quoted)
        _check_unseen(db, found.holder.name, model_versions.lineage(db, name, one), rows)
    judging = comparing.read_rows(db, rows)
    chosen = scoring.check_metric(metric, judging.is_classes)
    scoring.check_rows(chosen, judging.truth.sum(axis=0), rows.table.quoted)
    answers = {one: judging.checked_answer(db, found) for one, found in models.items()}
    errors = {one: judging.measure(own, chosen) for one, own in answers.items()}
    found = Promotion(True, version, previous, chosen, scoring.shown(chosen, errors[version]))
    if previous is None:
        return found
    gain, chance = scoring.gain(
        *(scoring.jackknife(answers[one], judging.truth, chosen) for one in (version, previous))
    )
    return replace(
        found,
        promoted=errors[version] < errors[previous],
        previous_value=scoring.shown(chosen, errors[previous]),
        gain=gain,
        gain_low=gain - chance,
        gain_high=gain + chance,
    )


def _check_unseen(db: Database, reference: str, lineage: Mapping[str, Any], rows: requests.Data) -> None:
    """Raise an error if a version was trained on these rows; send a notice if it was validated on them."""
    seen = ["source_table"] if lineage.get(results.FOLDS[0]) is None else ["source_table", "validation_table"]
    if any(_is_table(db, lineage.get(column), rows) for column in seen):
        raise CerebroError(
            f"{reference} was trained on the rows of {rows.table.quoted}, so they cannot decide",
            hint="Name a packed table of other rows.",
            sqlstate=WRONG_STATE,
        )
    if _is_table(db, lineage.get("validation_table"), rows):
        db.notice(f"{reference} was validated with the rows of {rows.table.quoted} while it was trained")


def _is_table(db: Database, name: str | None, rows: requests.Data) -> bool:
    return name is not None and names.find_table(db, name) == rows.table
