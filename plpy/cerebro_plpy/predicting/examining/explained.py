"""cerebro.explain_predict: returns what each column of a row adds to the model's answer.

The score of a mean row, plus what all columns add, is the score of the row. The score is the predicted
quantity, or the logarithm of the odds of the predicted class.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from cerebro_plpy.database import Database
from cerebro_plpy.engine.backends.interfaces import ScoreOf
from cerebro_plpy.engine.inside import scores
from cerebro_plpy.engine.inside.slopes import BoundSlopes, Slopes, slopes
from cerebro_plpy.engine.models.inference import Predict, inference
from cerebro_plpy.engine.plain.layers import NotHere
from cerebro_plpy.errors import NOT_SUPPORTED, CerebroError
from cerebro_plpy.explaining.maps import draw_map, is_map
from cerebro_plpy.explaining.means import find_mean_row, find_shares
from cerebro_plpy.explaining.path import attribute
from cerebro_plpy.features.specification import (
    EMBED,
    HASH,
    Array,
    Category,
    Feature,
    FeatureInput,
    Image,
    Specification,
    Text,
)
from cerebro_plpy.madlib.literal import shorten
from cerebro_plpy.predicting import models
from cerebro_plpy.predicting.answering import one
from cerebro_plpy.predicting.answering.one_of_groups import KeptGroups
from cerebro_plpy.predicting.answering.ready import Kept
from cerebro_plpy.predicting.choices import LOGITS_SOFTMAX
from cerebro_plpy.predicting.outputs import Output
from cerebro_plpy.store import session

LONGEST = 100


class ExplainedColumn(NamedTuple):
    """One column of a row with what it adds to the answer, and the answer itself."""

    answer: str | None
    probability: float | None
    prediction: float | None
    score: float
    baseline: float
    column: str
    value: str | None
    contribution: float
    error: float
    # What each pixel of an image adds, as a PNG.
    map: bytes | None


class ColumnPart(NamedTuple):
    """A column's value in a row, and what it adds to the score.

    For an image, `pixels` has what each pixel adds.
    """

    column: str
    value: str | None
    contribution: float
    pixels: np.ndarray | None = None


# Returns what columns add, the greatest part first, from a row's columns, its inputs, what each number of the
# inputs adds, and how many columns at most.
PartsOf = Callable[[Mapping[str, Any], list[np.ndarray], list[np.ndarray], int | None], list[ColumnPart]]


@dataclass(frozen=True)
class Explainer:
    """A model that is ready to explain its answers.

    `slopes` computes how fast the score grows with each number of a row, `start` is the mean row as it enters
    the net, and `parts_of` sums up what the numbers of each column add.
    """

    output: Output
    forward: Predict
    slopes: BoundSlopes
    start: list[np.ndarray]
    parts_of: PartsOf

    def explain(
        self, given: Mapping[str, Any], inputs: list[np.ndarray], most: int | None
    ) -> list[ExplainedColumn]:
        """Return what each column of a row adds to its answer, the greatest part first.

        Return at most `most` columns; None means all.
        """
        answer, probability, prediction, _ = one.name_answer(self.output, self._forward(inputs))
        at = partial(self.slopes.at, given=self._marks(answer))
        found = attribute(at, self.start, self.slopes.enter(inputs), self.slopes.rows)
        parts = self.parts_of(given, inputs, self.slopes.leave(found.parts), most)
        return [
            ExplainedColumn(
                answer=answer,
                probability=probability,
                prediction=prediction,
                score=found.score,
                baseline=found.baseline,
                column=part.column,
                value=part.value,
                contribution=part.contribution,
                error=found.error,
                map=None if part.pixels is None else draw_map(part.pixels),
            )
            for part in parts
        ]

    def _forward(self, inputs: list[np.ndarray]) -> np.ndarray:
        try:
            return self.forward(inputs)[0]
        except NotHere:
            return self.slopes.answer(inputs)

    def _marks(self, answer: str | None) -> np.ndarray:
        """Return an array with a one at the place of the predicted class.

        For a binary output, the array has a single place: 1 for the second class, and 0 for the first.
        """
        marks = np.zeros(self.slopes.width, np.float32)
        if self.output.values is not None:
            place = self.output.values.index(answer)
            marks[0 if self.output.is_binary else place] = place if self.output.is_binary else 1
        return marks


def explain_row(
    make: Callable[[str | None, int | None], Kept | KeptGroups],
    model: str | None,
    row: str | None,
    most: int | None,
    mst_key: int | None,
) -> list[ExplainedColumn]:
    """Return the explanation of a model's answer for a row that is given as JSON.

    The function `make` makes the model ready, once in each statement.
    """
    check_top(most)
    kept = one.ready(model, mst_key)
    if kept is None or (isinstance(kept, Kept) and kept.explainer is None):
        kept = make(model, mst_key)
        one.remember(model, mst_key, kept, by_row=True)
    given = one.parse_row(kept, row)
    own = _of_group(kept, given) if isinstance(kept, KeptGroups) else kept
    if own is None or own.explainer is None or own.rows is None:
        return []
    return own.explainer.explain(given, own.rows.encode(given), most)


def check_top(most: int | None) -> None:
    """Raise an error if `most`, the largest number of columns to return, is below 1."""
    if most is not None and most < 1:
        raise CerebroError(f"top must be at least 1, or NULL for all columns, not {most}")


def _of_group(kept: KeptGroups, given: Mapping[str, Any]) -> Kept | None:
    """Return the model that answers a row, ready to explain; None if the row's group has no model."""
    found = kept.of_row(given)
    if found is not None and found.explainer is None:
        with session.own_names(kept.db):
            _add_explainer(kept.db, found)
    return found


def make_ready(db: Database, model: str | None, mst_key: int | None) -> Kept | KeptGroups:
    """Return the model that a reference means, ready to explain rows that are given as JSON."""
    db.server.check_predicts_in_queries()
    kept = one.make_ready(db, model, mst_key)
    if isinstance(kept, Kept) and kept.explainer is None:
        _add_explainer(db, kept)
    return kept


def _add_explainer(db: Database, kept: Kept) -> None:
    kept.explainer, nbytes = _make(db, kept)
    kept.nbytes += nbytes


def _make(db: Database, kept: Kept) -> tuple[Explainer, int]:
    model = kept.model
    known = model.features
    described = models.describe_by_engine(db, model, model.input_shapes)
    net = slopes(described, score_of(kept.output))
    if known is None:
        mean, shares = _zeros(described.inputs), [None]
        parts_of: PartsOf = partial(_of_array, model.independents[0], model.divisor)
    else:
        _check_codes(net, known)
        mean, shares = find_mean_row(known), [find_shares(each, known.rows) for each in known.inputs]
        parts_of = _ColumnAdds(known.inputs)
    loaded = inference(described).load(model.weights())
    bound = net.bound(loaded)
    start = bound.enter_mean(mean, shares)
    return Explainer(kept.output, kept.forward, bound, start, parts_of), loaded.nbytes


def _zeros(shapes: Sequence[Sequence[int | None]]) -> list[np.ndarray]:
    for shape in shapes:
        if None in shape:
            raise CerebroError(
                "a net whose rows are of any length cannot be explained",
                detail=f"Its input has the shape {list(shape)}.",
                sqlstate=NOT_SUPPORTED,
            )
    return [np.zeros([size or 1 for size in shape], np.float32) for shape in shapes]


def score_of(output: Output) -> ScoreOf:
    """Return the function that computes the score of an answer.

    The score is the predicted quantity, or the logarithm of the odds of the class that the function is given.
    """
    if output.values is None:
        return scores.quantity
    if output.logits is None:
        return scores.odds_of_probability if output.is_binary else scores.odds_of_probabilities
    if output.is_binary:
        return scores.odds_of_logit
    return scores.odds_of_logits if output.logits == LOGITS_SOFTMAX else scores.chosen


def _check_codes(net: Slopes, known: Specification) -> None:
    """Raise an error if the net reads codes of categories or words as numbers.

    Such a net cannot be explained, since the numbers between two codes mean nothing.
    """
    for number, each in enumerate(known.inputs):
        coded = [feature.name for feature in each.features if _is_coded(feature.way)]
        takers = net.takers(number)
        if coded and takers:
            raise CerebroError(
                f'layer "{takers[0]}" cannot be explained: it takes the codes of "{coded[0]}" as numbers',
                hint="Codes of categories and words belong into an Embedding.",
                sqlstate=NOT_SUPPORTED,
            )


def _is_coded(way: object) -> bool:
    return isinstance(way, Text) or (isinstance(way, Category) and way.encode in (EMBED, HASH))


class _ColumnAdds:
    """A function that sums up what the numbers of each column add.

    It finds the places of each column's numbers once, not for each row.
    """

    def __init__(self, known: Sequence[FeatureInput]) -> None:
        self._places: dict[str, list[tuple[int, slice, Feature]]] = {}
        self._starts = []
        for number, each in enumerate(known):
            ends = np.cumsum([feature.width for feature in each.features]).tolist()
            self._starts.append(np.array([0, *ends[:-1]]))
            for feature, end in zip(each.features, ends, strict=True):
                place = number, slice(end - feature.width, end), feature
                self._places.setdefault(feature.name, []).append(place)
        # Where each column's sums are among those of all features, one after the other.
        names = [feature.name for each in known for feature in each.features]
        order = {name: column for column, name in enumerate(self._places)}
        self._columns = np.array([order[name] for name in names])
        self._names = list(self._places)

    def __call__(
        self, given: Mapping[str, Any], inputs: list[np.ndarray], parts: list[np.ndarray], most: int | None
    ) -> list[ColumnPart]:
        """Return the columns that add most to the score, with the amounts, the greatest first.

        If a column became several features, the amount is the sum of what these features add.
        """
        flat = [np.asarray(part, np.float64).ravel() for part in parts]
        sums = [np.add.reduceat(one, starts) for one, starts in zip(flat, self._starts, strict=True)]
        added = np.bincount(self._columns, np.concatenate(sums), len(self._names)).tolist()
        found = sorted(range(len(added)), key=lambda column: -abs(added[column]))[:most]
        return [self._part(given, flat, self._names[column], added[column]) for column in found]

    def _part(self, given: Mapping[str, Any], flat: list[np.ndarray], name: str, added: float) -> ColumnPart:
        number, place, feature = self._places[name][-1]
        way = feature.way
        shape = way.shape if isinstance(way, Image | Array) else ()
        # The bytes of an image say nothing to people.
        shown = None if isinstance(way, Image) else _shown(given[name])
        return ColumnPart(name, shown, added, flat[number][place].reshape(shape) if is_map(shape) else None)


def _of_array(
    name: str,
    divisor: float,
    given: Mapping[str, Any],
    inputs: list[np.ndarray],
    parts: list[np.ndarray],
    most: int | None,
) -> list[ColumnPart]:
    """Return the elements of an array that add most to the score, each with the amount.

    An array of several dimensions is returned as one part. The values that are shown are multiplied by
    `divisor`, by which they were divided when they entered the net.
    """
    if parts[0].ndim > 1:
        pixels = parts[0] if is_map(parts[0].shape) else None
        return [ColumnPart(name, None, float(parts[0].sum()), pixels)]
    added, values = parts[0].tolist(), inputs[0][0] * np.float32(divisor)
    found = sorted(range(len(added)), key=lambda place: -abs(added[place]))[:most]
    return [ColumnPart(f"{name}[{place + 1}]", str(values[place]), added[place]) for place in found]


def _shown(value: Any) -> str | None:
    if value is None or isinstance(value, str):
        return None if value is None else shorten(str(value), LONGEST)
    return shorten(json.dumps(value, ensure_ascii=False), LONGEST)
