"""Labels from the rows after a cut-off: an aggregate of child rows, perhaps compared with a number."""

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
    """A label such as `count(orders) = 0`: an aggregate, perhaps compared with a number.

    `inside` is the text in brackets, which names what is aggregated. With a comparison, the label is true or
    false; without one, it is a number.
    """

    aggregate: str
    inside: str
    comparison: str | None
    number: str | None


def parse(text: str | None) -> LabelTerm:
    """Return the label that a text such as `count(orders) = 0` or `sum(orders.amount)` means."""
    found = _FORM.fullmatch(text or "")
    if found is None or found["aggregate"].lower() not in AGGREGATES:
        raise CerebroError(
            f"target {text} is not a label",
            detail=f"A label is an aggregate of children: {', '.join(AGGREGATES)}.",
            hint="Write count(orders) = 0, or sum(orders.amount), or mean(orders.amount) > 10.",
        )
    return LabelTerm(found["aggregate"].lower(), found["inside"], found["comparison"], found["number"])
