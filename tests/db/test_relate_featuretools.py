"""cerebro.relate makes the same features from four tables as featuretools."""

from __future__ import annotations

import json

import pytest

from trial import Trial

# Made once by featuretools 1.31.0, of the rows below as data frames of an EntitySet, with keys and times:
#   entities.add_relationship("shops", "shop", "customers", "home"), and so on for the other two keys
#   at = pd.DataFrame([{"id": i, "time": day + pd.Timedelta(days=d, hours=12)} for i in … for d in (40, 80)])
#   made, _ = ft.dfs(entityset=entities, target_dataframe_name="customers", cutoff_time=at, max_depth=2,
#       trans_primitives=[], agg_primitives=["count", "sum", "mean", "min", "max", "std"])
# Its names of the columns are, in this order: COUNT(orders), SUM(orders.amount), … STD(orders.amount),
# COUNT(items), SUM(items.price), MEAN(items.price), MAX(items.price), STD(items.price), shops.size and age.
COLUMNS = (
    "orders_count", "orders_sum_amount", "orders_mean_amount", "orders_min_amount", "orders_max_amount",
    "orders_stddev_amount", "orders_items_count", "orders_items_sum_price", "orders_items_mean_price",
    "orders_items_max_price", "orders_items_stddev_price", "shops_size", "customers_age",
)  # fmt: skip
# By customer and day of the cut-off.
EXPECTED = {
    (1, 40): (2, 12, 6, 5, 7, 1.414213562, 0, 0, None, None, None, 25, 27),
    (1, 80): (4, 16, 4, 1, 7, 2.581988898, 0, 0, None, None, None, 25, 27),
    (2, 40): (3, 21, 7, 5, 9, 2, 9, 94, 10.444444444, 21, 7.401201104, 10, 34),
    (2, 80): (6, 45, 7.5, 5, 10, 1.870828693, 18, 164, 9.111111111, 21, 6.798692685, 10, 34),
    (3, 40): (4, 52, 13, 10, 16, 2.581988898, 8, 85, 10.625, 21, 7.424621203, 25, 41),
    (3, 80): (8, 100, 12.5, 9, 16, 2.449489743, 16, 176, 11, 21, 7.183313998, 25, 41),
    (4, 40): (4, 30, 7.5, 0, 15, 7.593857167, 4, 42, 10.5, 17, 6.027713773, 10, 48),
    (4, 80): (6, 34, 5.666666667, 0, 15, 6.562519841, 6, 70, 11.666666667, 19, 5.921711464, 10, 48),
    (5, 40): (0, 0, None, None, None, None, 0, 0, None, None, None, 25, 24),
    (5, 80): (0, 0, None, None, None, None, 0, 0, None, None, None, 25, 24),
}
TABLES = """
CREATE TABLE shops AS SELECT * FROM (VALUES (1, 10::real), (2, 25)) AS v (shop, size);
ALTER TABLE shops ADD PRIMARY KEY (shop);
CREATE TABLE customers AS SELECT i AS id, 20 + i * 7 % 31 AS age, 1 + i % 2 AS home
FROM generate_series(1, 5) AS i;
ALTER TABLE customers ADD PRIMARY KEY (id), ADD FOREIGN KEY (home) REFERENCES shops;
CREATE TABLE orders AS SELECT i AS number, 1 + i * 3 % 4 AS customer, i * 13 % 17 AS amount,
       timestamp '2026-01-01' + i * 37 % 100 * interval '1 day' AS placed FROM generate_series(1, 30) AS i;
ALTER TABLE orders ADD PRIMARY KEY (number), ADD FOREIGN KEY (customer) REFERENCES customers;
CREATE TABLE items (
    item integer PRIMARY KEY, number integer REFERENCES orders, price integer, added timestamp
);
INSERT INTO items SELECT 10 * number + j, number, (number * 7 + j * 5) % 23, placed + j * interval '1 hour'
FROM orders, generate_series(0, number % 4 - 1) AS j;
CREATE TABLE cutoffs AS SELECT id, timestamp '2026-01-01 12:00' + d * interval '1 day' AS at, d
FROM customers, unnest(ARRAY[40, 80]) AS d
"""


def test_the_features_are_those_of_featuretools(trial: Trial) -> None:
    trial.sql(TABLES)
    trial.sql(
        "SELECT cerebro.relate('SELECT id, at, d FROM cutoffs', 'made', 'customers', 'at',"
        " times => %s, aggregates => ARRAY['count', 'sum', 'mean', 'min', 'max', 'stddev'])",
        json.dumps({"orders": "placed", "items": "added"}),
    )
    found = trial.sql(f"SELECT id, d, {', '.join(COLUMNS)} FROM made")
    assert {row[:2] for row in found} == set(EXPECTED)
    for customer, day, *values in found:
        for name, value, wanted in zip(COLUMNS, values, EXPECTED[customer, day], strict=True):
            known = None if wanted is None else pytest.approx(wanted, abs=1e-8)
            assert value == known, (customer, day, name)
