"""Options of the preprocessors are read or refused."""

from __future__ import annotations

import pytest

from cerebro_plpy.errors import CerebroError
from cerebro_plpy.packing.options import TRAINING, VALIDATION, PackOptions, parse


def test_options_are_read() -> None:
    assert parse(None, TRAINING) == PackOptions()
    text = '{"segments": 3, "seed": -5, "shape": {"X": [2, 2]}, "task": "regression", "memory_mb": 64}'
    assert parse(text, TRAINING) == PackOptions(3, -5, {"X": (2, 2)}, "regression", 64)
    assert parse('{"shape": [4]}', TRAINING).shape == {None: (4,)}


@pytest.mark.parametrize(
    "text",
    [
        "[]", "{", '{"segments": 0}', '{"segments": 1.5}',
        '{"segments": true}', '{"task": "guess"}', '{"sede": 1}',
        '{"shape": []}', '{"shape": [0]}', '{"shape": {"x": 3}}', '{"shape": [65536, 65536]}',
        '{"memory_mb": 1}',
    ],
)  # fmt: skip
def test_bad_options_are_refused(text: str) -> None:
    with pytest.raises(CerebroError):
        parse(text, TRAINING)


def test_a_validation_table_takes_the_rest_from_its_training_table() -> None:
    with pytest.raises(CerebroError, match="segments"):
        parse('{"segments": 2}', VALIDATION)
