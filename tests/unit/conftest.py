"""Starts an engine for unit tests that need one."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from engines import BACKEND


@pytest.fixture(scope="module")
def engine() -> Iterator[None]:
    """Start the engine in this process for one test file, and clear its caches of nets afterwards."""
    from cerebro_plpy.engine.backends import runtime
    from cerebro_plpy.engine.models import cut, model

    runtime.start(BACKEND, 1, use_gpus=False)
    yield
    cut.forget()
    model.forget()
