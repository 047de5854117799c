"""cerebro.inspect_net: finds faults inside a net, layer by layer, with the rows of a table."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from cerebro_plpy import seeding
from cerebro_plpy.database import Database
from cerebro_plpy.engine.backends.interfaces import ScoreOf
from cerebro_plpy.engine.inside import scores
from cerebro_plpy.engine.inside.inspecting import Batch, LayerFacts, inspect
from cerebro_plpy.engine.models.inference import inference
from cerebro_plpy.predicting import models, trained
from cerebro_plpy.predicting.examining.explained import score_of
from cerebro_plpy.predicting.examining.importance import mix_column
from cerebro_plpy.predicting.examining.labeled import Judge, find_judge
from cerebro_plpy.predicting.holders import may_only_predict
from cerebro_plpy.store.models import model_versions

# The number of rows, which chance chooses, and the length of their batches.
ROWS, BATCH, SEED = 2_000, 200, 1
# A share of units beyond which a layer has lost much of what it could say.
MUCH = 0.5
# A gradient vanishes if it is below this share of the greatest of all layers, and explodes if it is above
# this multiple of the weights.
VANISHED, EXPLODED = 1e-4, 10.0
# Answers that differ by less do not differ.
_SAME = 1e-6
COLUMN = "column"
OK = "ok"


class InspectedPart(NamedTuple):
    """A layer, or a column that the net does not use, with a verdict in words."""

    layer: str
    kind: str
    units: int | None
    weights: float | None
    gradient: float | None
    dead: float | None
    saturated: float | None
    verdict: str


def inspect_net(
    db: Database, model: str | None, source: str | None, mst_key: int | None
) -> list[InspectedPart]:
    """Return what is wrong with each layer of a net and what to try; then the columns it does not use."""
    _check_readable(db, model)
    judge = find_judge(db, model, source, mst_key)
    rows = list(judge.read(ROWS, SEED))
    inputs = [np.concatenate(same) for same in zip(*(part.inputs for part in rows), strict=True)]
    truth = np.concatenate([part.truth for part in rows])
    shapes = [column.shape for column in judge.columns]
    forward = inference(models.describe_by_engine(db, judge.model, shapes))
    loaded = forward.load(judge.model.weights())
    facts = inspect(forward, loaded, _loss_of(judge, truth), _batches(judge, inputs, truth))
    greatest = max((one.gradient or 0.0 for one in facts), default=0.0)
    parts = [_part(one, greatest) for one in facts]
    return [*parts, *(_unused(name) for name in _find_unused(judge, inputs))]


def _check_readable(db: Database, model: str | None) -> None:
    """Raise an error if the caller may only predict with the model.

    The sizes of weights, which inspect_net returns, say something of the weights.
    """
    holder = trained.resolve(db, model)
    if may_only_predict(holder):
        raise model_versions.may_only_predict(holder.name)


def _loss_of(judge: Judge, truth: np.ndarray) -> ScoreOf:
    """Return the function that computes the loss of an answer.

    For a quantity, errors are divided by the spread of the true values, because gradients grow with the unit.
    """
    if not judge.is_classes:
        return scores.make_squared_error(float(truth.std()) or 1.0)
    return scores.make_log_loss(score_of(judge.output))


def _batches(judge: Judge, inputs: Sequence[np.ndarray], truth: np.ndarray) -> Iterator[Batch]:
    """Yield batches of equal length, so that an engine makes one program.

    Rows that fill no batch are left out.
    """
    given = _as_outputs(judge, truth)
    length = min(BATCH, len(given))
    for first in range(0, len(given) - length + 1, length):
        judge.tick()
        yield [one[first : first + length] for one in inputs], given[first : first + length]


def _as_outputs(judge: Judge, truth: np.ndarray) -> np.ndarray:
    """Return the true labels in the form of the net's output.

    A class is a one at its place, and a quantity is the quantity itself.
    """
    output = judge.output
    if output.is_binary:
        return truth[:, 1:].astype(np.float32)
    given = np.zeros((len(truth), output.width), np.float32)
    given[:, : truth.shape[1]] = truth
    return given


def _part(facts: LayerFacts, greatest: float) -> InspectedPart:
    return InspectedPart(
        layer=facts.name,
        kind=facts.kind,
        units=facts.units,
        weights=_number(facts.weights),
        gradient=_number(facts.gradient),
        dead=facts.dead,
        saturated=facts.saturated,
        verdict="; ".join(_verdicts(facts, greatest)) or OK,
    )


def _number(value: float | None) -> float | None:
    return value if value is None or math.isfinite(value) else None


def _verdicts(facts: LayerFacts, greatest: float) -> Iterator[str]:
    if not facts.is_finite or (facts.gradient is not None and not math.isfinite(facts.gradient)):
        yield "weights or gradients are no finite numbers: train with a smaller learning rate"
        return
    if facts.gradient is not None and facts.weights is not None:
        if facts.gradient > EXPLODED * max(facts.weights, _SAME):
            yield "gradients explode, larger than the weights: try clipnorm or a smaller learning rate"
        elif facts.gradient < VANISHED * greatest:
            yield "gradients vanish, beside those of other layers: try normalization, relu or fewer layers"
    if facts.dead is not None and facts.dead > MUCH:
        share = f"{facts.dead:.0%} of the units are dead, 0 for each row"
        yield f"{share}: try a smaller learning rate or leaky_relu"
    if facts.saturated is not None and facts.saturated > MUCH:
        share = f"{facts.saturated:.0%} of the units are saturated, at an end of their range"
        yield f"{share}: scale the inputs, or try a smaller learning rate"


def _find_unused(judge: Judge, inputs: Sequence[np.ndarray]) -> list[str]:
    """Return the names of the columns whose values change no answer."""
    answers = judge.answer(inputs)
    found = []
    for name, places in judge.find_places().items():
        order = seeding.permutation(len(answers), SEED, "inspect", name, 0)
        changed = np.abs(judge.answer(mix_column(inputs, places, order)) - answers)
        if not (changed > _SAME * (1 + np.abs(answers))).any():
            found.append(name)
    return found


def _unused(column: str) -> InspectedPart:
    verdict = "the net does not use it, or it is constant in these rows"
    return InspectedPart(column, COLUMN, None, None, None, None, None, verdict)
