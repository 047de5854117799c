"""Measures which configs do well on many tables, to find the order in which cerebro.train tries them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import mean
from typing import Any

import numpy as np
import real
import server
import tables
from details import Section, Tell

# The most rows of each table; their batch sizes stand for larger ones on larger tables.
MOST_ROWS, EPOCHS, PATIENCE = 2_500, 40, 8
NETS: real.Nets = (
    ("linear", None),
    ("tabular", {"width": [64, 128]}),
    ("tabm", {"width": [64, 128]}),
    ("realmlp", {"width": 128}),
)
RATES, BATCHES = (0.001, 0.003, 0.01), (16, 64)
# The number of configs that are ranked.
RANKED = 10
MODELS = "portfolio"
PACKED = f"{MODELS}_packed"


@dataclass(frozen=True)
class Config:
    """A config that is trained on every table."""

    net: str
    rate: float
    batch: int

    @property
    def shown(self) -> str:
        return f"{self.net}, {self.rate:g}, {'large' if self.batch == BATCHES[-1] else 'small'}"


# The least held-out error of each config.
Errors = Mapping[Config, float]


def portfolio(tell: Tell) -> Section:
    """Train every config on every table; rank the configs by how much each adds to the ones before it."""
    found: dict[str, Errors] = {}
    for source in real.SOURCES:
        rows = real.load(source)
        found[rows.name] = _measure(rows)
        best = min(found[rows.name], key=found[rows.name].__getitem__)
        tell(f"  {rows.name}: {best.shown}")
    ranked = _rank(list(found.values()))
    lines = []
    for place, config in enumerate(ranked, 1):
        within = mean(_excess(ranked[:place], errors) for errors in found.values())
        others = mean(_excess(_rank(_but(found, name))[:place], errors) for name, errors in found.items())
        lines.append([config.shown, f"{within:.1%}", f"{others:.1%}"])
    head = ["net, learning rate, batch", "error above the best config's", "ranked by the other tables"]
    return Section("Portfolio", tables.markdown(head, lines), [])


def _but(found: Mapping[str, Errors], name: str) -> list[Errors]:
    return [errors for other, errors in found.items() if other != name]


def _rank(found: Sequence[Errors]) -> list[Config]:
    """Return the configs in an order in which each next config lowers the mean excess the most."""
    ranked: list[Config] = []
    left = sorted(set.intersection(*({*errors} for errors in found)), key=lambda one: one.shown)
    while left and len(ranked) < RANKED:
        costs = {one: mean(_excess([*ranked, one], errors) for errors in found) for one in left}
        ranked.append(min(left, key=costs.__getitem__))
        left.remove(ranked[-1])
    return ranked


def _excess(some: Sequence[Config], errors: Errors) -> float:
    """Return by what share the least error of some configs exceeds the least error of all configs."""
    return min(errors[one] for one in some) / min(errors.values()) - 1


def _measure(rows: real.Rows) -> Errors:
    """Train all configs on a table; return their errors: log loss, or the root of the mean squared error."""
    names = [f"{PACKED}{end}" for end in ("", "_summary", "_validation", "_validation_summary")]
    names += [f"{MODELS}{end}" for end in ("", "_info", "_summary", "_nets", "_configs", "_configs_summary")]
    names.append(f"{MODELS}_rows")
    with server.session() as connection:
        server.drop(connection, names)
        _prepare(connection, rows)
        server.query(
            connection,
            "SELECT cerebro.madlib_fit_multiple_model(%s, %s, %s, %s, FALSE, %s, 1, options => %s)",
            (
                PACKED, MODELS, f"{MODELS}_configs", EPOCHS, f"{PACKED}_validation",
                json.dumps({"seed": 1, "restore_best": True, "patience": PATIENCE}),
            ),
        )  # fmt: skip
        told = server.query(
            connection,
            "SELECT n.name, substring(i.compile_params from 'learning_rate=([0-9.e-]+)')::float8,"
            " substring(i.fit_params from 'batch_size=([0-9]+)')::int, i.validation_loss_final"
            f" FROM {MODELS}_info AS i JOIN {MODELS}_nets AS n USING (model_id)"
            " WHERE i.validation_loss_final < 'inf'",
        )
        root = 1.0 if rows.classes else 0.5
        return {Config(_short(name), rate, batch): loss**root for name, rate, batch, loss in told}


def _short(name: str) -> str:
    """Return the name of a net with only its parameter `width`, as the other parameters do not differ."""
    kind, *params = name.split()
    return " ".join([kind, *(one for one in params if one.startswith("width="))])


def _prepare(connection: Any, rows: real.Rows) -> None:
    """Pack the rows as cerebro.train does, and create the nets and the model selection table."""
    held = {"share": 0.2, "stratify": True} if rows.classes else 0.2
    options = {"also_categories": True, "validation": held}
    made = real.prepare(connection, MODELS, rows, MOST_ROWS, options, NETS)
    loss = "loss='categorical_crossentropy'" if rows.classes else "loss='mse'"
    weight = "" if rows.classes else f",loss_weights=[{1 / float(np.var(rows.y))!r}]"
    server.query(
        connection,
        "SELECT cerebro.load_model_selection_table(%s, %s, %s, %s, %s)",
        (
            f"{MODELS}_nets", f"{MODELS}_configs", made,
            [f"{loss},optimizer='Adam(learning_rate={rate})'{weight}" for rate in RATES],
            [f"batch_size={batch},epochs=1" for batch in BATCHES],
        ),
    )  # fmt: skip
