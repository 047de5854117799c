"""Read the newest state of a config, variable by variable."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import NamedTuple

from cerebro_plpy.database import Database, as_owner
from cerebro_plpy.engine import state as states
from cerebro_plpy.errors import WRONG_STATE, CerebroError
from cerebro_plpy.store import session
from cerebro_plpy.store.runs import runs, state_rows


class Variable(NamedTuple):
    """One variable of a model or its optimizer."""

    number: int
    name: str
    kind: str
    shape: list[int]
    dtype: str
    data: bytes


def newest(db: Database, run_id: int | None, mst_key: int | None) -> Iterator[Variable]:
    """Yield the variables of a config's newest state."""
    found = _read(db, run_id, mst_key, session.current_user(db))
    return (
        Variable(
            number=number,
            name=name,
            kind=kind,
            shape=list(array.shape),
            dtype=str(array.dtype),
            data=array.tobytes(),
        )
        for number, (name, kind, array) in enumerate(zip(found.names, found.kinds, found.arrays, strict=True))
    )


@as_owner
def _read(db: Database, run_id: int | None, mst_key: int | None, role: str) -> states.State:
    run = runs.own_run(db, run_id, role, members=True)
    origin, step = _newest(db, run.run_id, mst_key, role)
    frozen = states.finder(partial(state_rows.frozen, db, run.run_id))
    return states.of_config(state_rows.read(db, run.run_id, origin, step), run.run_id, origin, step, frozen)


def _newest(db: Database, run_id: int, mst_key: int | None, role: str) -> tuple[int, int]:
    """Return the `mst_key` and the step under which a config's newest state is stored.

    For a clone without visits, they are the key and the step of its source's state.
    """
    config = next((c for c in runs.configs(db, run_id) if c.mst_key == mst_key), None)
    if config is None:
        raise CerebroError(f"run {run_id} has no config {mst_key}")
    kept = {row["mst_key"]: row["step"] for row in state_rows.newest(db, run_id, role)}
    if config.mst_key in kept:
        return config.mst_key, kept[config.mst_key]
    if config.source_step is None:
        raise CerebroError(
            f"there is no state of config {mst_key} of run {run_id}",
            detail="It has had no visit, or its states were removed.",
            sqlstate=WRONG_STATE,
        )
    return runs.state_origin(db, run_id, config.mst_key, config.source_step), config.source_step
