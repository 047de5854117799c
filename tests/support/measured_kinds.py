"""Kinds of configs, and measurements of them on a simulated machine whose speed is given by a formula."""

from __future__ import annotations

from cerebro_plpy.planner.estimating.rates import Observation
from cerebro_plpy.planner.estimating.work import ConfigKind


def kind(units: int, batch: int = 32, backend: str = "jax") -> ConfigKind:
    """Return the kind of a config that trains a dense net with one hidden layer of `units` units."""
    flops = 2.0 * 64 * units + 2.0 * units * 10
    work = {"dense": flops, "layers": 3, "steps": 0, "numbers": units + 10.0}
    name = f"dense-{units}"
    return ConfigKind(1, name, name, batch, 1, backend, work, 64 * units + 10 * units, 100_000, 50_000)


def true_seconds(of: ConfigKind) -> float:
    return 2e-4 + 3e-5 * 3 + 8e-11 * of.batch_size * of.work["dense"] + 5e-10 * of.parameters


def observed(of: ConfigKind, factor: float = 1.0, threads: int = 1) -> Observation:
    return Observation(
        host="localhost",
        backend=of.backend,
        threads=threads,
        kind=of.name,
        architecture=of.architecture,
        batch_size=of.batch_size,
        work=of.work,
        parameters=of.parameters,
        state_bytes=of.state_bytes,
        visits=8,
        batch_seconds=true_seconds(of) * factor,
        compile_seconds=0.5,
        write_seconds=0.003,
        rest_seconds=0.002,
        evaluation_seconds=true_seconds(of) / 3 * factor,
        read_seconds=0.01,
    )


GRID = [kind(units, batch) for units in (32, 128, 512) for batch in (16, 128)]
