"""Every bad architecture of the corpus raises CerebroError and takes little memory."""

from __future__ import annotations

import resource
from pathlib import Path

import pytest

import corpus
from cerebro_plpy.engine.checks import architecture
from cerebro_plpy.errors import CerebroError

pytestmark = pytest.mark.usefixtures("engine")

MOST_KB = 300_000
CASES = [pytest.param(text, id=corpus.short(text)) for text in corpus.inputs("architectures")]


@pytest.mark.parametrize("text", CASES)
def test_bad_architecture_is_refused(text: str) -> None:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(CerebroError) as caught:
        architecture.describe(text)
    error = caught.value
    assert len(error.message) + len(error.detail or "") + len(error.hint or "") < 4000
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < MOST_KB
    assert not Path("/tmp/cerebro-was-here").exists()
