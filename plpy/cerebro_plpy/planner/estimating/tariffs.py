"""Computes the price and the energy of processor and GPU time, if an administrator has set a tariff."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields

_HOUR = 3600.0


@dataclass(frozen=True)
class Tariff:
    """The price of an hour and the power in watts of a core and of a GPU; None for what is not set."""

    price_per_core_hour: float | None = None
    price_per_gpu_hour: float | None = None
    watts_per_core: float | None = None
    watts_per_gpu: float | None = None

    def price(self, core_seconds: float, gpu_seconds: float) -> float | None:
        """Return the price of this time in the currency of the settings, or None if no price is set."""
        found = _total(self.price_per_core_hour, core_seconds, self.price_per_gpu_hour, gpu_seconds)
        return None if found is None else found / _HOUR

    def watt_hours(self, core_seconds: float, gpu_seconds: float) -> float | None:
        found = _total(self.watts_per_core, core_seconds, self.watts_per_gpu, gpu_seconds)
        return None if found is None else found / _HOUR


def tariff_of(settings: Mapping[str, str]) -> Tariff:
    """Return the tariff in an administrator's settings, which have the names of the fields of `Tariff`."""
    names = {field.name for field in fields(Tariff)}
    return Tariff(**{name: float(text) for name, text in settings.items() if name in names})


def _total(core: float | None, core_seconds: float, gpu: float | None, gpu_seconds: float) -> float | None:
    if core is None and gpu is None:
        return None
    return (core or 0.0) * core_seconds + (gpu or 0.0) * gpu_seconds
