"""A config that needs more memory than a machine has is refused before a run, unless it trains in shards."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from cerebro_plpy.errors import CerebroError
from cerebro_plpy.executor.starting import cutting
from cerebro_plpy.executor.starting import request as requests
from cerebro_plpy.executor.starting.request import Chosen, Request


def check(sizes: dict[Any, dict[str, int]], arguments: str = "", kept: int = 0) -> None:
    request = SimpleNamespace(
        engines=SimpleNamespace(use_gpus=False),
        groups=None,
        source=SimpleNamespace(summary=SimpleNamespace(folds=None, total_rows=100)),
        limits=SimpleNamespace(epochs_per_pass=None),
        segments=2,
        cross_validates=False,
    )
    facts = {
        "7": {"trained": 0 if kept else 10**13, "work": {"kept": kept}, "kept_again": kept, "sizes": sizes}
    }
    compiled = f"loss='mse',optimizer='SGD({arguments})'"
    cutting.check_memory(cast("Request", request), [Chosen(3, 7, compiled, "", 16, 1)], facts)


# Keys are strings if the answer came from another session as JSON.
@pytest.mark.parametrize("sizes", [{3: {"shards": 2}}, {"3": {"shards": 2}}])
def test_a_net_in_shards_is_not_checked_as_a_whole(sizes: dict[Any, dict[str, int]]) -> None:
    check(sizes)


@pytest.mark.parametrize("sizes", [{}, {3: {"shards": 1}}, {4: {"shards": 2}}])
def test_any_other_is(sizes: dict[Any, dict[str, int]]) -> None:
    with pytest.raises(CerebroError, match="config 3 needs at least .* of memory"):
        check(sizes)


def test_steps_that_are_accumulated_already_count_in_the_advice() -> None:
    with pytest.raises(CerebroError) as caught:
        check({}, "gradient_accumulation_steps=3", kept=requests.machine_memory() // 30)
    # Half of the numbers are certainly kept, in four bytes each: 16 rows exceed the memory.
    hint = caught.value.hint or ""
    assert "batch_size=4 " in hint and "gradient_accumulation_steps=12 " in hint
