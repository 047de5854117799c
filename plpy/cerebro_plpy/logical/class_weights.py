"""Computes the weight of each class in training, for every output, from the fit parameter class_weight."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from cerebro_plpy.errors import NOT_SUPPORTED, CerebroError
from cerebro_plpy.madlib.literal import shorten
from cerebro_plpy.madlib.nearest import unknown
from cerebro_plpy.madlib.params import BALANCED, ClassWeight, FitParams

# How many rows each class of an output has, by the output's name; None where that is not known.
ClassCounts = Mapping[str, Sequence[int] | None]


def settle(fit: FitParams, counts: ClassCounts) -> list[dict[int, float] | None] | None:
    """Return the weights of the classes of each output, in order; None if all classes count the same."""
    given = fit.class_weight
    if given is None:
        return None
    named = _by_output(given, counts)
    for name in named:
        if name not in counts:
            raise unknown(f"class_weight names the output {shorten(name, 60)}", name, list(counts))
    found = [_settled(name, named.get(name), of) for name, of in counts.items()]
    return found if any(found) else None


def _by_output(given: ClassWeight | dict[str, ClassWeight], counts: ClassCounts) -> Mapping[str, ClassWeight]:
    if isinstance(given, str):
        return dict.fromkeys(counts, given)
    by_class: dict[int, float] = {}
    named: dict[str, ClassWeight] = {}
    for key, value in given.items():
        if isinstance(value, float):
            by_class[int(key)] = value
        elif not isinstance(value, int):
            named[str(key)] = value
    if by_class and len(counts) > 1:
        raise _of_which(counts)
    return dict.fromkeys(counts, by_class) if by_class else named


def _of_which(counts: ClassCounts) -> CerebroError:
    return CerebroError(
        f"class_weight says what classes count, but not of which output; there are {', '.join(counts)}",
        hint="Write class_weight={'output': {0: 2.0}}, or class_weight='balanced' for all.",
        sqlstate=NOT_SUPPORTED,
    )


def _settled(name: str, given: ClassWeight | None, counts: Sequence[int] | None) -> dict[int, float] | None:
    if not isinstance(given, str):
        return given
    if counts is None:
        raise CerebroError(
            f"class_weight is '{BALANCED}', but how many rows each class of {name} has is not known",
            detail="It is a quantity, or its packed table comes from an earlier release.",
            hint="Name the outputs with classes, or pack the table again.",
        )
    present = {place: count for place, count in enumerate(counts) if count}
    rows = sum(present.values())
    return {place: rows / (len(present) * count) for place, count in present.items()}
