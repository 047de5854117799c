"""The engine of the unit tests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from engines import BACKEND


@pytest.fixture(scope="module")
def engine() -> Iterator[None]:
    """Start the engine in this process, and forget the nets of the file at its end."""
    from cerebro_plpy.engine.backends import runtime
    from cerebro_plpy.engine.models import cut, model

    runtime.start(BACKEND, 1, use_gpus=False)
    yield
    cut.forget()
    model.forget()
