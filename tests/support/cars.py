"""A table whose price is a linear function of weight and power, and a grid, for the client's tests."""

from __future__ import annotations

CARS = """CREATE TABLE cars AS
    SELECT i AS id, (1 + i % 7 / 10.0)::real AS weight, (i % 5 / 5.0)::real AS power,
           (3 * (1 + i % 7 / 10.0) - i % 5 / 5.0)::real AS price, 'kind ' || i % 3 AS kind
    FROM generate_series(1, 200) AS i"""
GRID = {
    "loss": "mse",
    "metrics": ["mae"],
    "optimizer": "Adam",
    "learning_rate": [0.01, 0.1],
    "batch_size": 20,
}
