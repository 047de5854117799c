"""A config that needs more memory than a machine has is refused before a run, unless it trains in shards."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from cerebro_plpy.errors import CerebroError
from cerebro_plpy.executor.starting import cutting
from cerebro_plpy.executor.starting.request import Chosen, Request


def check(sizes: dict[Any, dict[str, int]]) -> None:
    request = SimpleNamespace(
        engines=SimpleNamespace(use_gpus=False),
        groups=None,
        source=SimpleNamespace(summary=SimpleNamespace(folds=None, total_rows=100)),
        limits=SimpleNamespace(epochs_per_pass=None),
        segments=2,
        cross_validates=False,
    )
    facts = {"7": {"trained": 10**13, "work": {"kept": 0}, "kept_again": 0, "sizes": sizes}}
    cutting.check_memory(cast("Request", request), [Chosen(3, 7, "", "", 16, 1)], facts)


# Keys are strings if the answer came from another session as JSON.
@pytest.mark.parametrize("sizes", [{3: {"shards": 2}}, {"3": {"shards": 2}}])
def test_a_net_in_shards_is_not_checked_as_a_whole(sizes: dict[Any, dict[str, int]]) -> None:
    check(sizes)


@pytest.mark.parametrize("sizes", [{}, {3: {"shards": 1}}, {4: {"shards": 2}}])
def test_any_other_is(sizes: dict[Any, dict[str, int]]) -> None:
    with pytest.raises(CerebroError, match="config 3 needs at least .* of memory"):
        check(sizes)
