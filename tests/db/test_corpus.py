"""SQL calls with the bad inputs of tests/corpus: each raises a proper error, and the session goes on."""

from __future__ import annotations

from pathlib import Path

import psycopg2
import pytest

import corpus
import nets
from trial import ADAM, SGD, Trial, blobs, rows_of

# Invalid parameter, invalid text (of JSON), not supported, program limit, untranslatable character.
REFUSALS = {"22023", "22P02", "0A000", "54000", "54001", "22P05"}
GRID = "{'batch_size': [8], 'epochs': [1]}"
SELECT = "SELECT cerebro.load_model_selection_table('arch', 'out', '{{1}}', ARRAY[{}], ARRAY[{}])"
CALLS = {
    "architectures": "SELECT cerebro.load_keras_model('arch', %s)",
    "compile": SELECT.format("%s", "'epochs=1'"),
    "fit": SELECT.format(f"$${SGD}$$", "%s"),
    "grids": f"SELECT cerebro.generate_model_configs('arch', 'out', '{{1}}', %s, $${GRID}$$)",
    "options": "SELECT cerebro.madlib_fit_multiple_model('packed', 'out', 'mst', 1, options => %s)",
}


@pytest.fixture(scope="module", autouse=True)
def tables(trial: Trial) -> None:
    trial.table("good", "x real[], y integer", rows_of(*blobs(40)))
    trial.pack("good", "packed")
    trial.model(nets.mlp())
    trial.select("mst", [1], [ADAM], ["batch_size=8,epochs=1"])


@pytest.mark.parametrize("kind", CALLS)
def test_bad_input_is_refused(trial: Trial, kind: str) -> None:
    pid = trial.value("SELECT pg_backend_pid()")
    for text in corpus.inputs(kind):
        try:
            trial.sql(CALLS[kind], text)
        except psycopg2.Error as error:
            assert error.pgcode in REFUSALS, (text[:300], error)
            assert "Traceback" not in (error.diag.message_primary or "")
        else:
            pytest.fail(f"not refused: {text[:300]}")
    assert trial.value("SELECT pg_backend_pid()") == pid
    assert trial.value("SELECT to_regclass('out')") is None
    assert trial.sql("SELECT (SELECT count(*) FROM arch), (SELECT count(*) FROM mst)") == [(1, 1)]
    assert not Path("/tmp/cerebro-was-here").exists()
