"""Fixtures for the tests of Citus."""

from __future__ import annotations

from warm import trial

__all__ = ["trial"]
