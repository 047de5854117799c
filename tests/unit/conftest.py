"""Starts an engine for unit tests that need one, and lets all of them draw the same numbers."""

from __future__ import annotations

import random
from collections.abc import Iterator

import numpy as np
import pytest

from engines import BACKEND


@pytest.fixture(autouse=True)
def same_draws() -> None:
    """Let nets that draw their weights draw the same ones in each run of a test."""
    from cerebro_plpy.engine.backends import runtime

    random.seed(3)
    np.random.seed(3)
    if runtime.is_started():
        runtime.seed_generators(3)


@pytest.fixture(scope="module")
def engine() -> Iterator[None]:
    """Start the engine in this process for one test file, and clear its caches of nets afterwards."""
    from cerebro_plpy.engine.backends import runtime
    from cerebro_plpy.engine.models import cut, model

    runtime.start(BACKEND, 1, use_gpus=False)
    yield
    cut.forget()
    model.forget()
