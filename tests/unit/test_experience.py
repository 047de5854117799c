"""Which earlier searches were on similar tables, and which of their configs a new search tries first."""

from __future__ import annotations

import json
import math
from dataclasses import asdict, replace

import pytest

from cerebro_plpy.logical.search.experience import (
    MOST_SEARCHES,
    EarlierSearch,
    TableFacts,
    choose_configs,
    find_nearest,
)
from cerebro_plpy.madlib.literal import read_arguments
from cerebro_plpy.madlib.spaces.grid import GridRow

TABLE = TableFacts(rows=1023, outputs=[3], columns={"number": 7, "category": 1})
LOSS = "loss='categorical_crossentropy',metrics=['accuracy']"


def make_search(run_id: int, *configs: GridRow, facts: TableFacts = TABLE) -> EarlierSearch:
    return EarlierSearch(run_id, facts, {1: "small", 2: "large"}, configs)


def make_row(model_id: int, rate: float, batch: int = 16, loss: str = LOSS) -> GridRow:
    return GridRow(model_id, f"optimizer='Adam(learning_rate={rate})',{loss}", f"batch_size={batch}")


@pytest.mark.parametrize("change, doublings", [
    ({}, 0),
    ({"rows": 4095}, 2),
    ({"rows": 255}, 2),
    ({"outputs": [7]}, 1),
    ({"columns": {"number": 15, "category": 3}}, 2),
    ({"columns": {"number": 7, "category": 1, "text": 1}}, 1),
    ({"columns": {"number": 7}}, 1),
    # Tables with other outputs or inputs are never similar.
    ({"outputs": [0]}, math.inf),
    ({"outputs": [3, 3]}, math.inf),
    ({"columns": {}, "shapes": [[8]]}, math.inf),
])  # fmt: skip
def test_tables_are_told_apart_by_the_doublings_of_their_counts(
    change: dict[str, object], doublings: float
) -> None:
    other = replace(TABLE, **change)
    assert TABLE.measure_distance(other) == other.measure_distance(TABLE) == doublings


def test_tables_packed_as_they_are_are_told_apart_by_their_shapes() -> None:
    images = TableFacts(1023, [3], shapes=[[31, 31, 3]])
    assert images.measure_distance(replace(images, shapes=[[63, 31, 3]])) == 1
    assert images.measure_distance(replace(images, shapes=[[31 * 31 * 3]])) == math.inf


def test_facts_come_back_from_json() -> None:
    written = json.loads(json.dumps(asdict(TABLE)))
    assert TableFacts(**written) == TABLE


def test_the_nearest_searches_come_first_and_of_equal_ones_the_latest() -> None:
    known = [
        make_search(4),
        make_search(5, facts=replace(TABLE, rows=2047)),
        make_search(6),
        make_search(7, facts=replace(TABLE, rows=2**16)),
    ]
    assert [search.run_id for search in find_nearest(TABLE, known)] == [6, 4, 5]
    many = [make_search(n) for n in range(MOST_SEARCHES + 5)]
    assert len(find_nearest(TABLE, many)) == MOST_SEARCHES


def test_the_best_of_each_search_comes_before_the_second_of_any() -> None:
    searches = [
        make_search(9, make_row(1, 0.01), make_row(2, 0.3)),
        make_search(4, make_row(2, 0.1), make_row(1, 0.2)),
    ]
    nets, examples = {7: "large", 8: "small"}, {7: make_row(7, 9.0), 8: make_row(8, 9.0)}
    found, used = choose_configs(searches, nets, examples, 3)
    assert found == [make_row(8, 0.01), make_row(7, 0.1), make_row(7, 0.3)] and used == [4, 9]


def test_a_config_keeps_its_optimizer_and_gets_the_loss_of_the_search() -> None:
    theirs = make_row(1, 0.01, loss="loss='mse',loss_weights=[0.1]")
    found, _ = choose_configs([make_search(3, theirs)], {1: "small"}, {1: make_row(1, 5.0, 64)}, 8)
    assert found == [make_row(1, 0.01)]


def test_weights_of_classes_are_those_of_the_search() -> None:
    weighted = replace(make_row(1, 0.01), fit_params="batch_size=16,epochs=1,class_weight='balanced'")
    plain = make_row(1, 0.01)
    for theirs, ours, expected in ((weighted, plain, {}), (plain, weighted, {"class_weight": "balanced"})):
        ((found, *_), _) = choose_configs([make_search(3, theirs)], {1: "small"}, {1: ours}, 8)
        kept = read_arguments(found.fit_params)
        assert {key: value for key, value in kept.items() if key == "class_weight"} == expected
        assert kept["batch_size"] == read_arguments(theirs.fit_params)["batch_size"]


def test_layers_to_unfreeze_are_those_of_the_search() -> None:
    """The net of the same name may have other layers now."""
    theirs = replace(make_row(1, 0.01), fit_params="batch_size=16,epochs=1,unfreeze_at={3: 'upper'}")
    ((found, *_), _) = choose_configs([make_search(3, theirs)], {1: "small"}, {1: make_row(1, 0.01)}, 8)
    assert "unfreeze_at" not in read_arguments(found.fit_params)


def test_what_means_the_same_counts_once_and_strange_nets_do_not_count() -> None:
    spelled = GridRow(1, f"{LOSS},optimizer='adam(lr=0.01)'", "batch_size=16,epochs=1")
    strange = GridRow(5, spelled.compile_params, spelled.fit_params)
    searches = [make_search(3, make_row(1, 0.01), strange), make_search(2, spelled)]
    found, used = choose_configs(searches, {1: "small"}, {1: make_row(1, 1.0)}, 8)
    assert found == [make_row(1, 0.01)] and used == [2, 3]
