"""Nets `realmlp` and `tabm` and their ensemble, for quantities in different scales and for classes."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, NamedTuple

# Known rows train, later ones measure. Bills go from some 200 to some 60,000.
BILLS = """CREATE TABLE bills AS
SELECT i AS id, sin(i)::float8 AS a, cos(i * 1.7)::float8 AS b, chr(97 + mod(i, 3)) AS plan,
       exp(8 + sin(i) + cos(i * 1.7) + 0.5 * mod(i, 3))::float8 AS bill,
       CASE WHEN sin(i) > 0.4 THEN 'much' WHEN cos(i * 1.7) > 0 THEN 'some' ELSE 'none' END AS kind
  FROM generate_series(1, 400) AS i;
CREATE VIEW known AS SELECT * FROM bills WHERE id <= 300;
CREATE VIEW later AS SELECT * FROM bills WHERE id > 300"""
# Some rows that trained, some that did not, and some unlike both.
ASKED = """CREATE TABLE asked AS
SELECT id, a, b, plan FROM bills WHERE mod(id, 9) = 0
UNION ALL VALUES (1001, 40, -25, 'a'), (1002, -1e6, 0, 'never'), (1003, NULL, 0.5, NULL)"""
ASKED_ROWS = 47
NETS = ("realmlp", "tabm", "ensemble")
SMALL: dict[str, dict[str, object]] = {
    "realmlp": {"width": 32, "depth": 1, "dropout": 0.0},
    "tabm": {"width": 16, "depth": 1, "members": 4, "pieces": 6, "embedding": 4},
}


class Target(NamedTuple):
    """A way to learn a column: the column, the parameters of its nets, its loss and its metric."""

    column: str
    params: dict[str, object]
    loss: str
    metric: str


TARGETS = {
    "standard": Target("bill", {"target_scale": "standard"}, "mse", "mae"),
    "log": Target("bill", {"target_scale": "log"}, "msle", "mae"),
    "clamp": Target("bill", {"clamp": True}, "mse", "mae"),
    "classes": Target("kind", {}, "categorical_crossentropy", "accuracy"),
}
QUANTITIES = tuple(way for way, target in TARGETS.items() if target.column == "bill")


def pack(sql: Callable[..., Any]) -> None:
    """Make the rows, and pack them for each of the two columns that are learned."""
    sql(BILLS)
    sql(ASKED)
    options = json.dumps({"columns": {"plan": {"encode": "embed"}}, "segments": 1})
    for column in ("bill", "kind"):
        packed = f"{column}_rows"
        ask = "SELECT cerebro.training_preprocessor_dl('known', %s, %s, 'a, b, plan', options => %s)"
        sql(ask, packed, column, options)
        ask = "SELECT cerebro.validation_preprocessor_dl('later', %s, %s, 'a, b, plan', %s)"
        sql(ask, f"{packed}_later", column, packed)


def load(sql: Callable[..., Any], table: str, way: str, net: str) -> None:
    """Load a small net for a target into a table of architectures."""
    target = TARGETS[way]
    params = json.dumps({**SMALL[net], **target.params})
    sql("SELECT cerebro.load_net(%s, %s, %s, %s)", table, f"{target.column}_rows", net, params)


def train(sql: Callable[..., Any], way: str, epochs: int = 8) -> None:
    """Train both nets for a target; mst_key 1 is `realmlp`, 2 is `tabm`; join them to an ensemble."""
    target = TARGETS[way]
    for net in SMALL:
        load(sql, f"{way}_nets", way, net)
    sql(
        "SELECT cerebro.load_model_selection_table(%s, %s, ARRAY[1, 2], ARRAY[%s], ARRAY['batch_size=16'])",
        f"{way}_nets", f"{way}_mst",
        f"loss='{target.loss}',metrics=['{target.metric}'],optimizer='Adam(learning_rate=0.02)'",
    )  # fmt: skip
    judges = f"{target.column}_rows_later"
    sql(
        "SELECT cerebro.madlib_fit_multiple_model(%s, %s, %s, %s, validation_table => %s, options => %s)",
        f"{target.column}_rows", f"{way}_models", f"{way}_mst", epochs, judges,
        json.dumps({"threads": 1, "seed": 7}),
    )  # fmt: skip
    if target.column == "bill":
        judges = _pack_rows_between(sql, way)
    ask = "SELECT * FROM cerebro.ensemble(%s, %s, packed_table => %s)"
    sql(ask, f"{way}_models", f"{way}_joined", judges)


def _pack_rows_between(sql: Callable[..., Any], way: str) -> str:
    """Pack the later rows whose bill is between the two nets' answers: the best mean has both nets."""
    for key in (1, 2):
        ask = "SELECT cerebro.madlib_predict(%s, 'later', 'id', '*', %s, mst_key => %s)"
        sql(ask, f"{way}_models", f"{way}_told_{key}", key)
    sql(
        f"CREATE TABLE {way}_between AS SELECT s.* FROM later AS s JOIN {way}_told_1 AS o USING (id)"
        f" JOIN {way}_told_2 AS t USING (id) WHERE (o.prediction < bill) <> (t.prediction < bill)"
    )
    packed = f"{way}_between_rows"
    ask = "SELECT cerebro.validation_preprocessor_dl(%s, %s, 'bill', 'a, b, plan', 'bill_rows')"
    sql(ask, f"{way}_between", packed)
    return packed


def model(way: str, net: str) -> tuple[str, int | None]:
    """Return the model table of a net or of the ensemble, and its mst_key if the table has several."""
    return (f"{way}_joined", None) if net == "ensemble" else (f"{way}_models", NETS.index(net) + 1)
