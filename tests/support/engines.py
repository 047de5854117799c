"""The engine that runs in the process of the tests: TensorFlow, JAX or PyTorch."""

from __future__ import annotations

import os

import reference

BACKEND = os.environ.get("CEREBRO_TEST_BACKEND", reference.BACKEND)


def nothing() -> None:
    """Do nothing, in place of the function that training calls now and then to look for a cancel."""
