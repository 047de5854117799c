"""Paths along foreign keys, the features made along them, and the recipe stored with a model."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from cerebro_plpy.errors import DATA_CORRUPTED, CerebroError
from cerebro_plpy.relations import labels, recipe
from cerebro_plpy.relations.paths import (
    CATEGORY,
    MOMENT,
    NUMBER,
    ForeignKey,
    RelatedColumn,
    RelatedSchema,
    RelatedTable,
    base_of,
    is_of_siblings,
    walk,
)
from cerebro_plpy.relations.planning import AGGREGATES, Wishes, describe, plan
from cerebro_plpy.relations.recipe import RelationRecipe
from cerebro_plpy.store.related import features_sql

SHOPS, CUSTOMERS, ORDERS, ITEMS = (("public", name) for name in ("shops", "customers", "orders", "items"))
KEYS = [
    ForeignKey(CUSTOMERS, ("home",), SHOPS, ("shop",)),
    ForeignKey(ORDERS, ("customer",), CUSTOMERS, ("id",)),
    ForeignKey(ITEMS, ("number",), ORDERS, ("number",)),
]
PLACED = RelatedColumn("placed", MOMENT, "timestamp")
SCHEMA = RelatedSchema(
    CUSTOMERS,
    {
        SHOPS: RelatedTable(SHOPS, ("shop",), (RelatedColumn("region", CATEGORY, "text"),)),
        CUSTOMERS: RelatedTable(CUSTOMERS, ("id",), (RelatedColumn("age", NUMBER, "int4"),)),
        ORDERS: RelatedTable(
            ORDERS,
            ("number",),
            (PLACED, RelatedColumn("amount", NUMBER, "numeric"), RelatedColumn("number", NUMBER, "int4")),
        ),
        ITEMS: RelatedTable(ITEMS, (), (RelatedColumn("kind", CATEGORY, "text"),)),
    },
    KEYS,
)  # fmt: skip
WISHES = Wishes(AGGREGATES, [None, "7 days"], {ORDERS: PLACED})


def named_paths(depth: int) -> list[str]:
    return [SCHEMA.label(path) for path in walk(CUSTOMERS, KEYS, depth)]


def test_paths_go_up_and_down_and_not_back() -> None:
    assert named_paths(0) == ["customers"]
    assert named_paths(1) == ["customers", "orders", "shops"]
    assert named_paths(2) == [*named_paths(1), "orders_items", "shops_customers"]
    assert [SCHEMA.label(path) for path in walk(CUSTOMERS, KEYS, 2, {ORDERS})] == [
        "customers", "shops", "shops_customers"
    ]  # fmt: skip
    siblings = [SCHEMA.label(path) for path in walk(CUSTOMERS, KEYS, 3) if is_of_siblings(path)]
    assert siblings == ["shops_customers", "shops_customers_orders"]
    bases = {SCHEMA.label(base_of(path)) for path in walk(ORDERS, KEYS, 2)}
    assert bases == {"customers", "items"} - {"customers"} | {SCHEMA.label(()), "customers_orders"}


def planned(*taken: str) -> dict[str, Any]:
    paths = [path for path in walk(CUSTOMERS, KEYS, 2) if not is_of_siblings(path)]
    return {one.name: one for one in plan(SCHEMA, paths, WISHES, taken)}


def test_features_have_windows_where_there_are_times() -> None:
    found = planned()
    assert {"customers_age", "shops_region", "orders_count", "orders_count_7_days"} <= found.keys()
    assert {"orders_stddev_amount_7_days", "orders_items_share_of_top_kind_7_days"} <= found.keys()
    # Features that are left out: the last row is the same in a shorter window; keys and the time say nothing.
    empty = {"orders_last_amount_7_days", "orders_mean_number", "orders_mean_days_since_placed"}
    assert not empty & found.keys()
    words = describe(found["orders_mean_amount_7_days"], "orders")
    assert words == "mean of amount in orders in the 7 days before the cut-off"


def test_no_name_is_taken_twice_or_too_long() -> None:
    again = planned("orders_count", "orders_count_2")
    assert "orders_count_3" in again and "orders_count" not in again
    columns = tuple(RelatedColumn("x" * length, NUMBER, "int4") for length in (62, 63))
    long = RelatedTable(("public", "é" * 40), (), columns)
    schema = RelatedSchema(long.name, {long.name: long}, [])
    names = [one.name for one in plan(schema, [()], WISHES, ())]
    assert len(set(names)) == 2 and all(len(name.encode()) <= 63 for name in names)


MADE = RelationRecipe(
    query="SELECT id, at FROM labels",
    entity=CUSTOMERS,
    key=("id",),
    cutoff="at",
    zone="UTC",
    zoned=False,
    times={ORDERS: PLACED},
    features=tuple(planned().values()),
)


def test_a_recipe_comes_back_as_it_was() -> None:
    assert recipe.read(MADE.as_json()) == MADE
    assert features_sql.statement(recipe.read(MADE.as_json()), ["id", "at"], PLACED)


def changed(change: Callable[[dict[str, Any]], object]) -> str:
    given = json.loads(MADE.as_json())
    change(given)
    return json.dumps(given)


PATH = json.loads(MADE.as_json())["features"][-1]["path"]
WRONG: dict[str, str] = {
    "no JSON": "{",
    "no object": "[]",
    "nothing": "{}",
    "another version": changed(lambda given: given.update(version=2)),
    "no key": changed(lambda given: given.update(key=[])),
    "a key that is a text": changed(lambda given: given.update(key="id")),
    "a table of three parts": changed(lambda given: given.update(entity=["a", "b", "c"])),
    "an aggregate that is code": changed(lambda given: given["features"][-1].update(aggregate="1; --")),
    "an aggregate of no children": changed(lambda given: given["features"][0].update(aggregate="mean")),
    "no aggregate of children": changed(lambda given: given["features"][-1].update(aggregate=None)),
    "no column": changed(lambda given: given["features"][0].update(column=None)),
    "another kind": changed(lambda given: given["features"][0].update(column=["age", "code", "int4"])),
    "a path too long": changed(lambda given: given["features"][-1]["path"].extend(PATH * 2)),
    "a step to nowhere": changed(lambda given: given["features"][-1]["path"][0].update(of=["a", "b"])),
    "a time of another type": changed(lambda given: given["times"][0].__setitem__(4, "int4; --")),
    "a window that is a number": changed(lambda given: given["features"][-1].update(window=7)),
    "a zone that is none": changed(lambda given: given.update(zone=None)),
    "too many features": changed(lambda given: given.update(features=given["features"] * 100)),
}


@pytest.mark.parametrize("text", WRONG.values(), ids=WRONG)
def test_a_recipe_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(CerebroError) as caught:
        recipe.read(text)
    assert caught.value.sqlstate == DATA_CORRUPTED


def test_names_and_windows_of_a_strangers_recipe_stay_data() -> None:
    def spoil(given: dict[str, Any]) -> None:
        given["entity"] = ["public", 'a" AS x; DROP TABLE y; --']
        given["zone"] = "'; DROP TABLE y; --"
        for feature in given["features"]:
            feature["window"] = feature["window"] and "1 day'; DROP TABLE y; --"
            feature["name"] += '"; DROP TABLE y; --'

    text = features_sql.statement(recipe.read(changed(spoil)), ["id"], PLACED)
    bare = "".join(text.replace("''", "").replace('""', "").split("'")[::2])
    outside = "".join(bare.split('"')[::2])
    assert "DROP" not in outside and "DROP" in text


def test_a_label_is_an_aggregate_and_a_comparison() -> None:
    assert labels.parse(" COUNT ( orders ) = 0 ") == labels.LabelTerm("count", " orders ", "=", "0")
    assert labels.parse("sum(orders.amount)") == labels.LabelTerm("sum", "orders.amount", None, None)
    assert labels.parse("mean(o.x) >= -1.5").number == "-1.5"
    for text in (None, "", "orders", "count(o) = 0; DROP", "count(o) = a", "avg(o)", "count()"):
        with pytest.raises(CerebroError, match="is not a label"):
            labels.parse(text)
