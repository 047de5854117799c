"""Two trained configs for tests of registered models, and the predictions of a model for all rows."""

from __future__ import annotations

from fixtures import Rows
from mixed import CUSTOMERS
from trial import Trial

COLUMNS = "age, city, plan, x"
CONFIGS = [
    f"loss='categorical_crossentropy',optimizer='Adam(lr={rate})',metrics=['accuracy']"
    for rate in (0.01, 0.00001)
]
ASKED = (
    "SELECT c.id, p.class, p.probability, p.probabilities"
    " FROM customers AS c, cerebro.predict(%s, c{key}) AS p ORDER BY 1"
)


def train(trial: Trial, rows: int = 400) -> None:
    """Train two configs on the table `customers`; their learning rates and so their predictions differ."""
    trial.sql(CUSTOMERS, rows)
    options = {"columns": "auto", "validation": 0.3, "segments": 2}
    trial.pack("customers", "packed", "gone", COLUMNS, options=options)
    trial.sql("SELECT cerebro.load_net('arch', 'packed', 'tabular', '{\"width\": 8}')")
    trial.select("configs", [1], CONFIGS, ["batch_size=32"])
    trial.fit("packed", "models", "configs", 3, validation_table="packed_validation")


def answers(trial: Trial, model: str, key: int | None = None) -> Rows:
    if trial.topology != "greenplum":
        return trial.sql(ASKED.format(key="" if key is None else f", {key}"), model)
    trial.sql("DROP TABLE IF EXISTS answered")
    trial.call("madlib_predict", model, "customers", "id", "*", "answered", "response", mst_key=key)
    return trial.sql("SELECT id, class_value, prob FROM answered ORDER BY 1")
