"""The money and energy that a time on cores and GPUs costs, by the settings of prices and watts."""

from __future__ import annotations

import pytest

from cerebro_plpy.planner.estimating.tariffs import Tariff, tariff_of


def test_nothing_is_said_where_nothing_is_set() -> None:
    assert tariff_of({"backend": "jax"}) == Tariff()
    assert Tariff().price(3600, 3600) is None and Tariff().watt_hours(3600, 0) is None


def test_time_has_a_price() -> None:
    tariff = tariff_of({"price_per_core_hour": "0.05", "price_per_gpu_hour": "2", "watts_per_core": "8"})
    assert tariff.price(7200, 1800) == pytest.approx(2 * 0.05 + 0.5 * 2)
    assert tariff.watt_hours(7200, 1800) == pytest.approx(16)
