"""What a run is asked to do: rows, configs, budget. Not a word on how it is done."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Final

from ..errors import CerebroError
from ..madlib.params import CompileParams, FitParams
from .options import BACKENDS

MOST_EPOCHS: Final = 2**31 - 1


@dataclass(frozen=True)
class ConfigSpec:
    """One candidate: architecture, compile and fit parameters, and the backend that trains it."""

    mst_key: int
    model_id: int
    compile_text: str
    fit_text: str
    compile: CompileParams
    fit: FitParams
    backend: str

    def __post_init__(self) -> None:
        if self.backend not in BACKENDS:
            raise CerebroError(
                f"unknown backend {self.backend:.60}", detail=f"Possible: {', '.join(BACKENDS)}."
            )

    def to_json(self) -> str:
        """Write it as JSON."""
        parsed = {"compile": self.compile.to_json(), "fit": self.fit.to_json()}
        return json.dumps({**vars(self), **parsed}, sort_keys=True)

    @classmethod
    def from_json(cls, text: str) -> ConfigSpec:
        """Read what `to_json` wrote."""
        values = json.loads(text)
        compiled, fitted = values.pop("compile"), values.pop("fit")
        return cls(**values, compile=CompileParams.from_json(compiled), fit=FitParams.from_json(fitted))


@dataclass(frozen=True)
class RunSpec:
    """One call: which rows, which configs, how many epochs, evaluated how often, from which seed."""

    seed: int
    epochs: int
    metrics_frequency: int
    configs: tuple[ConfigSpec, ...]
    source: str
    validation: str | None = None
    warm_start: bool = False

    def __post_init__(self) -> None:
        check_budget(self.epochs, self.metrics_frequency)
        if not self.configs:
            raise CerebroError(
                "a run needs at least one config", detail="The model selection table is empty."
            )
        keys = [config.mst_key for config in self.configs]
        twice = sorted({key for key in keys if keys.count(key) > 1}) if len(set(keys)) < len(keys) else []
        if twice:
            raise CerebroError(f"mst_key {twice[0]} stands for more than one config")

    def to_json(self) -> str:
        """Write it as JSON."""
        configs = [config.to_json() for config in self.configs]
        return json.dumps({**vars(self), "configs": configs}, sort_keys=True)

    @classmethod
    def from_json(cls, text: str) -> RunSpec:
        """Read what `to_json` wrote."""
        values = json.loads(text)
        configs = tuple(ConfigSpec.from_json(item) for item in values.pop("configs"))
        return cls(**values, configs=configs)

    @property
    def evaluations(self) -> list[int]:
        """Give the epochs after which the metrics are computed."""
        return evaluation_epochs(self.epochs, self.metrics_frequency)


def check_budget(num_iterations: int | None, metrics_compute_frequency: int | None) -> tuple[int, int]:
    """Check both numbers; the metrics are computed at the end alone where nothing is said."""
    if num_iterations is None or not 1 <= num_iterations <= MOST_EPOCHS:
        raise CerebroError(
            f"Number of iterations cannot be < 1: {num_iterations}",
            hint="Give the number of epochs in num_iterations.",
        )
    frequency = num_iterations if metrics_compute_frequency is None else metrics_compute_frequency
    if not 1 <= frequency <= num_iterations:
        raise CerebroError(
            f"metrics_compute_frequency must be in the range (1 - {num_iterations}): {frequency}"
        )
    return num_iterations, frequency


def evaluation_epochs(num_iterations: int, frequency: int) -> list[int]:
    """Give the epochs, counted from 1, after which the metrics are computed: every so many, and the last."""
    epochs = list(range(frequency, num_iterations + 1, frequency))
    return epochs if epochs and epochs[-1] == num_iterations else [*epochs, num_iterations]
