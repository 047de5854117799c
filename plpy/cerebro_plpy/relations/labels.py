"""Labels from the rows that follow a cut-off: an aggregate of children, perhaps compared with a number."""

from __future__ import annotations

import re
from dataclasses import dataclass

from cerebro_plpy.errors import CerebroError
from cerebro_plpy.relations.planning import COUNT, MAX, MEAN, MIN, SUM

AGGREGATES = (COUNT, SUM, MEAN, MIN, MAX)
_FORM = re.compile(
    r"\s*(?P<aggregate>\w+)\s*\((?P<inside>.+)\)\s*"
    r"(?:(?P<comparison>=|<>|!=|<=|>=|<|>)\s*(?P<number>-?\d+(?:\.\d+)?))?\s*",
    re.DOTALL,
)


@dataclass(frozen=True)
class LabelTerm:
    """An aggregate of what a text in brackets names; with a comparison the label is true or false."""

    aggregate: str
    inside: str
    comparison: str | None
    number: str | None


def parse(text: str | None) -> LabelTerm:
    """Read such a term as it is written: count(orders) = 0, or sum(orders.amount)."""
    found = _FORM.fullmatch(text or "")
    if found is None or found["aggregate"].lower() not in AGGREGATES:
        raise CerebroError(
            f"target {text} is not a label",
            detail=f"A label is an aggregate of children: {', '.join(AGGREGATES)}.",
            hint="Write count(orders) = 0, or sum(orders.amount), or mean(orders.amount) > 10.",
        )
    return LabelTerm(found["aggregate"].lower(), found["inside"], found["comparison"], found["number"])
