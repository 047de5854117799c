"""Every bad parameter string, grid and set of options of the corpus raises CerebroError."""

from __future__ import annotations

from pathlib import Path

import pytest

import corpus
from cerebro_plpy.errors import CerebroError
from cerebro_plpy.logical.options import parse_fit_options
from cerebro_plpy.madlib.params import parse_compile, parse_fit
from cerebro_plpy.madlib.spaces.grid import search_configs

GRID = "{'loss': ['mse'], 'optimizer_params_list': [{'optimizer': ['SGD'], 'lr': [0.1]}]}"
FIT = "{'batch_size': [8], 'epochs': [1]}"


def search(compile_grid: str) -> None:
    rows, _ = search_configs([1], compile_grid, FIT, "grid", None)
    for row in rows:
        parse_compile(row.compile_params)


READERS = {"compile": parse_compile, "fit": parse_fit, "grids": search, "options": parse_fit_options}
CASES = [
    pytest.param(kind, text, id=f"{kind} {corpus.short(text)}")
    for kind in READERS
    for text in corpus.inputs(kind)
]


@pytest.mark.parametrize(("kind", "text"), CASES)
def test_bad_input_is_refused(kind: str, text: str) -> None:
    with pytest.raises(CerebroError) as caught:
        READERS[kind](text)
    error = caught.value
    assert len(error.message) + len(error.detail or "") + len(error.hint or "") < 4000
    assert not Path("/tmp/cerebro-was-here").exists()


def test_what_the_corpus_differs_from_is_good() -> None:
    search(GRID)
    parse_fit("batch_size=8,epochs=1")
    parse_fit_options('{"seed": 1}')
