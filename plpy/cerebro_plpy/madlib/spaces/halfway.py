"""Makes a config that lies halfway between a good config and a random one."""

from __future__ import annotations

import math
from dataclasses import replace

from cerebro_plpy.madlib.literal import Value
from cerebro_plpy.madlib.params import parse_compile, parse_fit
from cerebro_plpy.madlib.spaces.dimension import Dimension, is_number
from cerebro_plpy.madlib.spaces.grid import GridRow, to_row
from cerebro_plpy.madlib.spaces.space import Choice, Space


def meet(space: Space, good: GridRow, drawn: Choice) -> GridRow:
    """Return a config with the net of `good`, its drawn numbers halfway between `good` and `drawn`.

    Numbers are drawn if the space has a distribution for them; all other values are those of `drawn`. If both
    have different optimizers, or the net has parameters of its own, return `drawn`.
    """
    compiled, fitted = parse_compile(good.compile_params), vars(parse_fit(good.fit_params))
    other = parse_compile(to_row(drawn).compile_params).optimizer
    own = any(item.models is not None for item in space.dimensions())
    if own or other.name != compiled.optimizer.name:
        return to_row(drawn)
    optimizer, fit = dict(drawn.optimizer), dict(drawn.fit)
    for item in space.optimizers[drawn.group]:
        # Checked parameters have Keras' name for what MADlib calls lr.
        name = "learning_rate" if item.name == "lr" else item.name
        optimizer[item.name] = _middle(item, compiled.optimizer.get(name), optimizer[item.name])
    for item in space.fit:
        fit[item.name] = _middle(item, fitted.get(item.name), fit[item.name])
    return to_row(replace(drawn, model_id=good.model_id, optimizer=optimizer, fit=fit))


def _middle(item: Dimension, good: Value, drawn: Value) -> Value:
    """Return the value in the middle of two, on the scale on which the parameter is drawn."""
    if not item.is_drawn or not is_number(good) or not is_number(drawn):
        return drawn
    if item.distribution == "log":
        return item.clip(math.sqrt(item.clip(good) * drawn))
    if item.distribution == "log_near_one":
        return item.clip(1 - math.sqrt((1 - item.clip(good)) * (1 - drawn)))
    return item.clip((item.clip(good) + drawn) / 2)
