"""The fit parameter `class_weight` is resolved to a weight of each class, for every output."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.utils.class_weight import compute_class_weight

from cerebro_plpy.errors import CerebroError
from cerebro_plpy.logical.class_weights import settle
from cerebro_plpy.madlib.params import parse_fit


def settled(text: str, **counts: list[int] | None) -> object:
    return settle(parse_fit(f"class_weight={text}"), counts)


def test_balanced_is_scikit_learns() -> None:
    labels = np.repeat([0, 2, 3], [70, 20, 10])
    found = settled("'balanced'", kind=[70, 0, 20, 10])
    present = [0, 2, 3]
    assert found == [
        dict(zip(present, compute_class_weight("balanced", classes=np.array(present), y=labels), strict=True))
    ]


def test_each_output_may_have_its_own() -> None:
    found = settled("{'kind': 'balanced', 'size': {1: 3}}", kind=[1, 3], size=[2, 2], price=None)
    assert found == [{0: 2.0, 1: 2 / 3}, {1: 3.0}, None]
    assert settled("{1: 3}", kind=None) == [{1: 3.0}]
    assert settled("None", kind=[1, 3]) is None


@pytest.mark.parametrize(
    ("text", "counts", "words"),
    [
        ("{'knid': {0: 1}}", {"kind": [1], "size": [1]}, "names the output knid"),
        ("{0: 1}", {"kind": [1], "size": [1]}, "not of which output"),
        ("'balanced'", {"kind": [1], "price": None}, "each class of price has is not known"),
    ],
)
def test_what_cannot_be_is_refused(text: str, counts: dict[str, list[int] | None], words: str) -> None:
    with pytest.raises(CerebroError, match=words):
        settled(text, **counts)
