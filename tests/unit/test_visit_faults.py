"""Errors in an engine during a visit become messages that say what the user can do."""

from __future__ import annotations

import pytest

from cerebro_plpy.errors import CONFIG_FAILED, OUT_OF_MEMORY, CerebroError
from cerebro_plpy.segment.visits import own_faults


@pytest.mark.parametrize("error", [MemoryError(), RuntimeError("RESOURCE_EXHAUSTED: 8 GB")])
def test_memory_that_ran_out_names_the_first_means(error: Exception) -> None:
    with pytest.raises(CerebroError, match="gradient_accumulation_steps=4") as told, own_faults("trained"):
        raise error
    assert told.value.sqlstate == OUT_OF_MEMORY


def test_another_fault_is_told_by_its_first_line() -> None:
    expected = "it failed while it trained: no such place$"
    with pytest.raises(CerebroError, match=expected) as told, own_faults("trained"):
        raise ValueError("no such place\nand more")
    assert told.value.sqlstate == CONFIG_FAILED
