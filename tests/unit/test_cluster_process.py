"""On Greenplum, a segment's process reports the states that it lacks before it does any work."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from cerebro_plpy.cluster.process import ToldSupply
from cerebro_plpy.cluster.protocol import Lacking
from cerebro_plpy.errors import CerebroError

DB: Any = None
RUN, KEYS, STEP = 7, (1, 2), 3


def test_states_of_a_bundle_that_it_may_not_read_are_asked_for() -> None:
    with pytest.raises(Lacking) as lacking:
        ToldSupply(DB, commits=False).states(RUN, KEYS, STEP)
    assert lacking.value.what == ["states", RUN, STEP, *KEYS]


@pytest.mark.parametrize("found", [None, {}, {1: [b"first"]}])
def test_states_of_a_bundle_that_other_servers_do_not_give_are_asked_for(
    monkeypatch: pytest.MonkeyPatch, found: Mapping[int, Sequence[bytes]] | None
) -> None:
    supply = ToldSupply(DB)
    monkeypatch.setattr(supply.connections, "states", lambda *asked: found)
    with pytest.raises(Lacking) as lacking:
        supply.states(RUN, KEYS, STEP)
    assert lacking.value.what == ["states", RUN, STEP, *KEYS]


def test_an_error_to_which_jax_has_added_a_note_is_raised_anew_elsewhere() -> None:
    error = CerebroError("no such layer", detail="It is not there.", hint="Name another.", sqlstate="42704")
    error.add_note("JAX has removed its own frames from the traceback")
    again = CerebroError(**error.arguments)
    assert str(again) == "no such layer" and again.arguments == error.arguments
    assert (again.detail, again.hint, again.sqlstate) == ("It is not there.", "Name another.", "42704")
