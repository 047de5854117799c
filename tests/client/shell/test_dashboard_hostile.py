"""The live page's server checks every value of a request, and refuses wrong ones in its own words."""

from __future__ import annotations

import itertools
import json
import re
import urllib.parse
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import psycopg2
import pytest
import sqlalchemy
from cerebro_db.dashboard.app import make_app

import nets
from shell import Page, dashboard
from trial import SGD, Trial, blobs, rows_of

FEATURES = 6
NUMBERS = ["0", "1", "-1", "00", "2147483648", "9223372036854775808", "9" * 20, "9" * 400, "1.5", "1e308"]
TEXTS = [
    "", "NaN", "-inf", "٣", "0x10", "\0", "a\0b", "%s", "%(run)s", "%", "'; DROP TABLE packed; --", '"', "\\",
    "{}", "[1]", "\u202e", "\U0001f600", "public.packed", "x" * 9_000, "x " * 4_000, "a=b " * 2_000,
]  # fmt: skip
# Percent-encoded bytes that are no UTF-8.
BYTES = ["%ff%fe", "%ed%a0%80", "%"]
QUERIES = {
    "/api/compare": ["runs"],
    "/api/runs/{run_id:int}": ["metrics", "visits", "decisions", "group", "x"],
    "/api/runs/{run_id:int}/groups": ["limit", "offset", "order", "search", "down"],
    "/api/runs/{run_id:int}/configs/{config:int}/predictions": ["rows", "table", "columns"],
}
# Words of the database or of Python, which show that a value has reached them unchecked.
RAW = re.compile(
    r"function [\w.]+\(|operator does not exist|out of range|invalid input|syntax error|Traceback|psycopg2"
)
ACTIONS: dict[str, dict[str, Any]] = {
    "set_epochs": {"config": 1, "epochs": 5},
    "clone_config": {"config": 1, "compile_params": SGD, "fit_params": "batch_size=10", "with_state": True},
    "add_table": {"model_selection_table": "configs"},
    "add_space": {
        "model_id_list": [1], "compile_params_grid": "{}", "fit_params_grid": "{}", "search_type": "random",
        "num_configs": 2, "random_state": 1,
    },
    "go_on": {"epochs": 1},
    "stop_config": {"config": 1},
    "resume_config": {"config": 1},
    "delete_config": {"config": 1},
}  # fmt: skip
VALUES: list[Any] = [
    0, -1, 2**31, 2**63, 10**30, 1.5, 1e308, True, None, "", "1", "x", "x\0", "\u202e", "y" * 9_000, [], [1],
    [None], ["x"], [2**40], [1.5], [True],
]  # fmt: skip


@pytest.fixture(scope="module")
def run(database: str) -> int:
    with closing(psycopg2.connect(dbname=database)) as connection:
        connection.autocommit = True
        trial = Trial(connection)
        trial.sql("INSERT INTO cerebro.settings VALUES ('backend', 'jax')")
        trial.table("blobs", "x real[], y integer", rows_of(*blobs(60, features=FEATURES)))
        trial.pack("blobs", "packed")
        trial.model(nets.mlp(FEATURES))
        trial.select("configs", [1], [SGD], ["batch_size=10"])
        return trial.fit("packed", "models", "configs", 1)


@pytest.fixture(scope="module")
def page(database: str, run: int) -> Iterator[Page]:
    with dashboard(database) as served:
        yield served


def check(answer: tuple[int, dict[str, str], str], asked: str) -> None:
    """Check that an answer has an expected status, and that an error is in the page's own words."""
    status, _, text = answer
    assert status in (200, 307, 400, 404, 405, 409, 414), (asked[:200], status, text[:500])
    if status >= 400:
        assert not RAW.search(text), (asked[:200], status, text)


def routes() -> list[str]:
    engine = sqlalchemy.create_engine("postgresql+psycopg2://")
    return [getattr(route, "path", "") for route in make_app(engine, engine, "token", "localhost", 1).routes]


def places(route: str, run: int) -> Iterator[str]:
    """Yield paths of a route, each with a hostile text in place of one of the route's parameters."""
    names = re.findall(r"{[^}]*}", route)
    for name, hostile in itertools.product(names, [*NUMBERS, *TEXTS]):
        path = route.replace(name, urllib.parse.quote(hostile, safe=""))
        yield re.sub(r"{config[^}]*}|{run_id[^}]*}", str(run), path).replace("{action}", "pause")


def test_every_route_refuses_what_is_no_address(page: Page, run: int) -> None:
    asked = [path for route in routes() for path in places(route, run)]
    assert len(asked) > 200
    for path in asked:
        check(page.ask(path), path)
    for path in places("/api/runs/{run_id:int}/{action}", run):
        check(page.ask(path, method="POST", body={"with": {}}), path)
    for text in [*NUMBERS, *TEXTS]:
        path = f"/static/{urllib.parse.quote(text, safe='')}"
        check(page.ask(path), path)
    assert page.ask("/api/overview")[0] == 200


@pytest.mark.slow
def test_every_route_refuses_what_is_no_parameter(page: Page, run: int) -> None:
    assert set(QUERIES) <= set(routes())
    hostile = [*(urllib.parse.quote(text, safe="") for text in [*NUMBERS, *TEXTS]), *BYTES]
    for route in routes():
        path = re.sub(r"{run_id[^}]*}", str(run), route).replace("{config:int}", "1")
        for name, value in itertools.product(QUERIES.get(route, ["x"]), hostile):
            if "{" not in path:
                check(page.ask(f"{path}?{name}={value}"), f"{path}?{name}={value}")


@pytest.mark.parametrize("preview", [True, False])
@pytest.mark.parametrize("action", ACTIONS)
def test_every_action_refuses_what_is_no_value(page: Page, run: int, action: str, preview: bool) -> None:
    given = ACTIONS[action]
    for name, value in itertools.product(given, VALUES):
        if action == "go_on" and type(value) is int and value == 1:
            continue
        body = {"preview": preview, "with": {**given, name: value}}
        check(page.ask(f"/api/runs/{run}/{action}", method="POST", body=body), f"{action} {body}")
    check(page.ask(f"/api/runs/{10**30}/{action}", method="POST", body={"with": given}), action)


@pytest.mark.parametrize(
    ("path", "status", "said"),
    [
        ("/api/runs/1/configs/99999999999999999999/confusion", 404, "has no config 99999999999999999999"),
        ("/api/runs/1/configs/2147483648/predictions?table=blobs&columns=x", 404, "has no config 2147483648"),
        ("/api/runs/1?visits=1e308", 400, "'visits' is '1e308', and must be a number from -9e+12 to 9e+12"),
        ("/api/runs/1?metrics=1e18", 400, "'metrics' is '1e18', and must be"),
        ("/api/forecast/reasons?name=f", 400, "series must be a JSON object"),
        ("/api/forecast?name=f&series=[", 400, "series must be a JSON object"),
        (f"/api/runs/1/groups?search={'x' * 1_001}", 400, "more than 1000 characters"),
    ],
)
def test_the_page_says_what_is_wrong(page: Page, path: str, status: int, said: str) -> None:
    found, _, text = page.ask(path)
    assert (found, said in json.loads(text)["error"]) == (status, True), text


@pytest.mark.parametrize(
    ("action", "given", "said"),
    [
        ("set_epochs", {"config": 1, "epochs": 1.5}, "epochs is 1.5, and must be a whole number from 1 to"),
        ("stop_config", {"config": 10**20}, f"config is {10**20}, and must be a whole number from 1 to"),
        ("add_table", {"model_selection_table": 3}, "model_selection_table is 3, and must be text"),
        (
            "add_space",
            {**ACTIONS["add_space"], "model_id_list": ["x"]},
            'model_id_list is ["x"], and must be',
        ),
        (
            "clone_config",
            {**ACTIONS["clone_config"], "with_state": 2},
            "with_state is 2, and must be true or",
        ),
    ],
)
def test_an_action_says_what_is_wrong(
    page: Page, run: int, action: str, given: dict[str, Any], said: str
) -> None:
    status, _, text = page.ask(f"/api/runs/{run}/{action}", method="POST", body={"with": given})
    assert (status, said in json.loads(text)["error"]) == (400, True), text
