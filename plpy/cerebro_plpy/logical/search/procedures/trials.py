"""Trains configs one after the other, a few at a time: random search or TPE, also with median stopping."""

from __future__ import annotations

from typing import Protocol

from cerebro_plpy.logical.search.sampling import Sampler
from cerebro_plpy.logical.search.template import Decision, GoOn, Result, StartConfig, Stop


class Rule(Protocol):
    """A rule that says, after an epoch, whether a config is to be stopped, and gives the reason."""

    def judge(self, mst_key: int, epoch: int, value: float) -> tuple[bool, str]: ...


class Trials:
    """A procedure that trains `count` configs up to `epochs`. A rule, if given, judges them at every epoch.

    With `in_order`, the sampler learns the results of a config only when all configs before it have ended.
    So its proposals do not depend on timing, but a new config has to wait for the configs before it.
    """

    def __init__(
        self,
        sampler: Sampler,
        count: int,
        epochs: int,
        width: int,
        rule: Rule | None = None,
        *,
        in_order: bool = False,
    ) -> None:
        self._sampler = sampler
        self._count = count
        self._epochs = epochs
        self._width = width
        self._rule = rule
        self._started = 0
        self._values: dict[int, dict[int, float]] = {}
        self._in_order = in_order
        self._told = 0
        self._untold: dict[int, tuple[dict[int, float], bool]] = {}

    def begin(self) -> list[Decision]:
        return [self._new() for _ in range(min(self._width, self._count))]

    def observe(self, result: Result) -> list[Decision]:
        values = self._values.get(result.mst_key)
        if values is None:
            return []
        if result.value is None:
            return self._end(result.mst_key, complete=False)
        values[result.epoch] = result.value
        if result.epoch >= self._epochs:
            return self._end(result.mst_key, complete=True)
        if self._rule is None:
            return []
        stop, reason = self._rule.judge(result.mst_key, result.epoch, result.value)
        if stop:
            return [Stop(result.mst_key, reason), *self._end(result.mst_key, complete=False)]
        return [GoOn(result.mst_key, result.epoch + 1, reason)]

    def _end(self, mst_key: int, *, complete: bool) -> list[Decision]:
        """Report the results of an ended config to the sampler. Return decisions that start new configs.

        `complete` says whether the config was trained to the end.
        """
        self._untold[mst_key] = self._values.pop(mst_key), complete
        decisions: list[Decision] = []
        while (key := self._told + 1 if self._in_order else mst_key) in self._untold:
            self._sampler.tell(key, *self._untold.pop(key))
            self._told += 1
            if self._started < self._count:
                decisions.append(self._new())
        return decisions

    def _new(self) -> Decision:
        self._started += 1
        key = self._started
        config = self._sampler.ask(key)
        self._values[key] = {}
        return StartConfig(
            mst_key=key,
            model_id=config.model_id,
            compile_params=config.compile_params,
            fit_params=config.fit_params,
            epochs=self._epochs if self._rule is None else 1,
            reason=f"config {key} of {self._count}",
        )
