"""The client's SQL: values arrive at the server unchanged, and grids become the server's parameters."""

from __future__ import annotations

import json

import cerebro_db
import pytest
from cerebro_db import CerebroError, Database, by_model, choice, integer, loguniform, uniform
from cerebro_db.space import read_grid
from cerebro_db.statements import call, identifier, literal, names, table_name
from hypothesis import given, settings
from hypothesis import strategies as st

AWKWARD = [
    "",
    "it's",
    'a "b"',
    "back\\slash",
    "per%cent",
    "$$",
    "new\nline",
    "ü…",
    "\\'; DROP TABLE cars; --",
]


@pytest.mark.parametrize("escaping", ["on", "off"])
def test_a_text_arrives_as_it_was(client: Database, escaping: str) -> None:
    with client.session() as connection, connection.cursor() as cursor:
        cursor.execute(f"SET standard_conforming_strings = {escaping}")
        cursor.execute("SET escape_string_warning = off")
        for text in AWKWARD:
            cursor.execute(f"SELECT {literal(text)}")
            assert cursor.fetchone() == (text,)
        cursor.execute("RESET ALL")


def test_every_kind_of_value_arrives_as_it_was(client: Database) -> None:
    values = [None, True, 3, 0.5, "a", [1, 2], ["x", "y's"], b"\x00\xff", b""]
    row = client.rows(f"SELECT {', '.join(f'{literal(v)} AS c{i}' for i, v in enumerate(values))}")[0]
    found = [bytes(value) if isinstance(value, memoryview) else value for value in row.values()]
    assert found == values


@given(st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), min_size=1, max_size=20))
@settings(max_examples=50, deadline=None)
def test_an_identifier_is_one_name(client: Database, text: str) -> None:
    with client.session() as connection, connection.cursor() as cursor:
        cursor.execute(f"SELECT 1 AS {identifier(text)}".replace("%", "%%"), ())
        assert cursor.description is not None
        assert text.startswith(cursor.description[0].name)


@pytest.mark.parametrize("name", ["", "a b", "a;b", "a.b.c", '"a', "a'--", "1a"])
def test_what_is_no_table_never_reaches_a_statement(name: str) -> None:
    with pytest.raises(CerebroError, match="is not the name of a table"):
        table_name(name)


def test_the_name_of_a_table_takes_a_suffix_within_its_quotes() -> None:
    assert [table_name(name, "_x") for name in ("a", "s.a", '"A b"', 's."A"')] == [
        "a_x", "s.a_x", '"A b_x"', 's."A_x"',
    ]  # fmt: skip


def test_columns_are_named_as_in_sql() -> None:
    assert names(["a", "B c", ["d", "e"]]) == 'a, "B c", ARRAY[d, e]'


def test_a_short_call_stands_on_one_line() -> None:
    assert call("stop", 3) == "SELECT cerebro.stop(3)"


def test_a_grid_is_sorted_into_the_parts_that_the_server_takes() -> None:
    grid = read_grid(
        {
            "loss": "mse",
            "metrics": ["mae", "mse"],
            "optimizer": ["Adam", {"optimizer": "SGD", "momentum": uniform(0, 0.9, 0.3)}],
            "learning_rate": loguniform(1e-4, 1e-1),
            "batch_size": integer(8, 32, step=8),
            "shuffle": choice([True, False]),
            "epochs": by_model({1: [1, 2], 2: 1}),
        }
    )
    rate = {"float": [1e-4, 1e-1], "log": True}
    assert grid.compile == {
        "loss": "mse",
        "metrics": [["mae", "mse"]],
        "optimizer_params_list": [
            {"optimizer": "Adam", "learning_rate": rate},
            {"learning_rate": rate, "optimizer": "SGD", "momentum": {"float": [0, 0.9], "step": 0.3}},
        ],
    }
    assert grid.fit == {
        "batch_size": {"int": [8, 32], "step": 8},
        "shuffle": {"choice": [True, False]},
        "epochs": {"by_model": {"1": [1, 2], "2": 1}},
    }
    assert not grid.is_finite


def test_a_list_that_looks_like_a_distribution_is_a_list(client: Database) -> None:
    grid = read_grid({"loss": "mse", "optimizer": "SGD", "learning_rate": [0.1, 0.2, "log"]})
    assert grid.compile["optimizer_params_list"][0]["learning_rate"] == {"choice": [0.1, 0.2, "log"]}


def test_class_weights_keep_their_numbers() -> None:
    compiled, fit = read_grid(
        {"loss": "mse", "class_weight": {0: 1.0, 1: 2.5}, "batch_size": [8, 16]}
    ).texts()
    assert json.loads(compiled)["loss"] == "mse"
    assert fit == "{'class_weight': [{0: 1.0, 1: 2.5}], 'batch_size': [8, 16]}"


def test_layers_to_unfreeze_and_epochs_to_anneal_at_are_fit_parameters() -> None:
    grid = read_grid({"loss": "mse", "optimizer": "SGD", "anneal_at": 3, "unfreeze_at": {2: ["l*"]}})
    compiled, fit = grid.texts()
    assert json.loads(compiled)["optimizer_params_list"] == [{"optimizer": "SGD"}]
    assert fit == "{'anneal_at': [3], 'unfreeze_at': [{2: ['l*']}]}"


def test_a_grid_without_a_loss_says_so() -> None:
    with pytest.raises(CerebroError, match="names no loss"):
        read_grid({"optimizer": "Adam"})


@pytest.mark.parametrize("address", ["postgresql:/alice:s3cret@h/db", "s3cret"])
def test_an_address_that_cannot_be_read_is_not_repeated(address: str) -> None:
    with pytest.raises(CerebroError, match="not the address of a database") as refused:
        cerebro_db.connect(address)
    assert "s3cret" not in str(refused.value)
