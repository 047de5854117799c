"""The live page's server: who may use it, what it shows, and what it does."""

from __future__ import annotations

import asyncio
import http.client
import json
import select
import socket
import subprocess
import sys
import time
import urllib.parse
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import psycopg2
import pytest
from cerebro_db.dashboard import guard
from cerebro_db.dashboard.connections import MOST_CONNECTIONS
from starlette.responses import PlainTextResponse
from starlette.types import Receive, Scope, Send

import nets
from fixtures import Connect, MakeRole, Sql, execute
from shell import CLIENT, Page, cerebro, dashboard, environment, fake_browser
from trial import SGD, Trial, blobs, rows_of

FEATURES = 6
END_DRIVER = """SELECT pg_terminate_backend(pid) FROM pg_stat_activity
    WHERE datname = current_database() AND application_name LIKE 'cerebro drive%%'"""


@pytest.fixture(scope="module")
def run(database: str) -> int:
    """The number of a finished run that has decisions and a config that failed."""
    with closing(psycopg2.connect(dbname=database)) as connection:
        connection.autocommit = True
        trial = Trial(connection)
        trial.sql("INSERT INTO cerebro.settings VALUES ('backend', 'jax')")
        trial.table(
            "blobs",
            "id serial, x real[], y integer",
            [(i, *r) for i, r in enumerate(rows_of(*blobs(60, features=FEATURES)))],
        )
        trial.pack("blobs", "packed")
        trial.model(nets.mlp(FEATURES))
        trial.select("configs", [1], [SGD, SGD.replace("0.1", "1e30")], ["batch_size=10"])
        return trial.fit(
            "packed", "models", "configs", 3, name="<b>first</b>", metrics_compute_frequency=1,
            options={"target": 0.999},
        )  # fmt: skip


@pytest.fixture(scope="module")
def page(database: str, run: int) -> Iterator[Page]:
    with dashboard(database) as served:
        yield served


def content(answer: tuple[int, dict[str, str], str]) -> Any:
    assert answer[0] == 200, answer
    return json.loads(answer[2])


def test_a_run_is_shown_with_all_that_belongs_to_it(page: Page, run: int, sql: Sql) -> None:
    overview = content(page.ask("/api/overview"))
    assert overview["who"]["role"] == "postgres" and overview["who"]["draws"] is True
    assert [(one["run_id"], one["name"], one["status"]) for one in overview["runs"]] == [
        (run, "<b>first</b>", "finished")
    ]
    found = content(page.ask(f"/api/runs/{run}"))
    (visits,) = sql("SELECT count(*) FROM cerebro.visits WHERE run_id = %s", run)
    assert len(found["visits"]["rows"]) == visits[0]
    assert [(c["mst_key"], c["status"]) for c in found["configs"]] == [(1, "finished"), (2, "failed")]
    assert "nan" in found["configs"][1]["failure"] or "inf" in found["configs"][1]["failure"]
    assert {row[3] for row in found["metrics"]["rows"]} == {"accuracy", "loss"}


def test_a_run_that_has_ended_says_what_it_has_cost(page: Page, run: int, sql: Sql) -> None:
    (taken,) = content(page.ask(f"/api/runs/{run}"))["costs"]
    assert taken["core_seconds"] > 0 and taken["moved_bytes"] > 0
    assert taken["price"] is None and taken["watt_hours"] is None
    sql("INSERT INTO cerebro.settings VALUES ('price_per_core_hour', '36')")
    (priced,) = content(page.ask(f"/api/runs/{run}"))["costs"]
    sql("DELETE FROM cerebro.settings WHERE name = 'price_per_core_hour'")
    assert priced["price"] == pytest.approx(taken["core_seconds"] / 100)


@pytest.mark.doors("page", "explain")
def test_a_run_has_its_plan(page: Page, run: int) -> None:
    lines = content(page.ask(f"/api/runs/{run}/plan"))["lines"]
    assert lines[0].startswith(f"Run {run}, finished 2 configs  (time=")
    assert "(actual time=" in lines[0]
    assert page.ask("/api/runs/999999/plan")[0] == 404


def test_a_name_has_a_length_that_a_page_can_show(page: Page, run: int, sql: Sql) -> None:
    ((name,),) = sql("SELECT name FROM cerebro._run WHERE run_id = %s", run)
    change = "UPDATE cerebro._run SET name = %s, description = %s WHERE run_id = %s"
    sql(change, "x" * 100_000, "y" * 100_000, run)
    try:
        shown = content(page.ask("/api/overview"))["runs"][0]
        assert (len(shown["name"]), len(shown["description"])) == (200, 10_000)
    finally:
        sql(change, name, None, run)


def test_only_what_is_new_is_sent_again(page: Page, run: int) -> None:
    first = content(page.ask(f"/api/runs/{run}"))
    later = {name: value + 3600 for name, value in first["next"].items()}
    query = "&".join(f"{name}={value}" for name, value in later.items())
    again = content(page.ask(f"/api/runs/{run}?{query}"))
    assert [again[name]["rows"] for name in ("visits", "metrics", "decisions")] == [[], [], []]
    assert again["configs"] == first["configs"]


def test_every_role_sees_its_own(database: str, run: int, role: MakeRole, connect: Connect) -> None:
    other, monitor = role(), role()
    execute(connect(), f"GRANT pg_monitor TO {monitor}")
    with dashboard(database, other) as page:
        assert content(page.ask("/api/overview"))["runs"] == []
        assert page.ask(f"/api/runs/{run}")[0] == 404
    with dashboard(database, monitor) as page:
        assert content(page.ask(f"/api/runs/{run}"))["run"]["mine"] is False
        status, _, text = act(page, run, "stop")
        assert status == 409 and "you have no run" in text


def test_without_usage_it_says_who_can_help(database: str, role: MakeRole) -> None:
    with dashboard(database, role(usage=False)) as page:
        status, _, text = page.ask("/api/overview")
        assert status == 409
        assert "cerebro.grant_usage" in json.loads(text)["hint"]


def test_without_the_extension_it_says_what_to_do(empty_database: str) -> None:
    with dashboard(empty_database) as page:
        status, _, text = page.ask("/api/overview")
        assert status == 409
        assert "cerebro init" in json.loads(text)["hint"]


def act(
    page: Page, run: int, action: str, preview: bool = False, **given: Any
) -> tuple[int, dict[str, str], str]:
    return page.ask(f"/api/runs/{run}/{action}", method="POST", body={"preview": preview, "with": given})


def test_a_preview_says_what_it_does_and_does_nothing(page: Page, run: int, sql: Sql) -> None:
    found = content(act(page, run, "forget", preview=True))
    assert found["sql"] == f"SELECT cerebro.forget({run})"
    assert "public.models" in found["says"]
    assert sql("SELECT count(*) FROM cerebro.runs WHERE run_id = %s", run) == [(1,)]


def test_values_stand_in_the_sql_as_literals(page: Page, run: int) -> None:
    said = content(act(page, run, "add_table", preview=True, model_selection_table="it's"))
    assert said["sql"] == f"SELECT * FROM cerebro.add_configs({run}, 'it''s')"


@pytest.mark.parametrize(
    ("action", "given", "said"),
    [
        ("explode", {}, "nothing is called"),
        ("set_epochs", {"config": 1}, "needs epochs"),
        ("stop", {"everything": True}, "knows nothing of everything"),
        ("stop_config", {"config": 77}, "has no config 77"),
    ],
)
def test_what_cannot_be_asked_is_refused(
    page: Page, run: int, action: str, given: dict[str, Any], said: str
) -> None:
    status, _, text = act(page, run, action, preview=True, **given)
    assert status == 400
    assert said in json.loads(text)["error"]


NO_REQUESTS = [
    "", "{", "[]", "[" * 100_000, '{"with":' * 5_000, '{"with": 3}', '{"with": {"config": {}}}',
    '{"with": {"config": 1e400}}', '{"with": {"config": NaN}}', '{"with": {"config": "\\u0000"}}',
    '{"with": {"config": "\\ud800"}}', '{"with": {"\\ud800": 1}}', '{"with": {"config": [[1]]}}',
    '{"with": {"config": [{"\\ud800": 1}]}}', '{"with": {"config": 1' + "0" * 5_000 + "}}",
]  # fmt: skip


@pytest.mark.parametrize("preview", [False, True])
@pytest.mark.parametrize("body", NO_REQUESTS, ids=range(len(NO_REQUESTS)))
def test_what_is_no_request_is_refused(page: Page, run: int, body: str, preview: bool) -> None:
    if preview:
        body = body.replace('{"with"', '{"preview": true, "with"', 1)
    status, _, text = page.ask(f"/api/runs/{run}/stop_config", method="POST", body=body)
    assert status in (400, 409), text
    assert json.loads(text)["error"]


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("decisions=nan", 400),
        ("decisions=1e400", 400),
        ("metrics=-inf", 400),
        ("visits=x", 400),
        ("metrics=1e18", 400),
        ("visits=1e308", 400),
        ("decisions=1e300", 400),
        ("visits=-1e9", 200),
    ],
)
def test_times_are_finite_numbers(page: Page, run: int, query: str, expected: int) -> None:
    status, _, text = page.ask(f"/api/runs/{run}?{query}")
    assert status == expected, text
    assert expected == 200 or json.loads(text)["error"]


def test_numbers_of_runs_that_nobody_has(page: Page) -> None:
    assert page.ask(f"/api/runs/{'9' * 100}")[0] == 404
    assert page.ask(f"/api/runs/{'9' * 5_000}")[0] == 414


def test_the_servers_own_words_come_through(page: Page, run: int) -> None:
    status, _, text = act(page, run, "stop")
    assert status == 409
    assert "is finished" in json.loads(text)["error"]


@pytest.mark.slow
def test_a_run_that_is_resumed_here_ends_well_without_the_page(
    database: str, run: int, sql: Sql, connect: Connect
) -> None:
    trial = Trial(connect())
    trial.select("slow", [1], [SGD], ["batch_size=1,epochs=20"])
    trial.call("madlib_fit_multiple_model", "packed", "slow_models", "slow", 12, options={"background": True})
    number = trial.value("SELECT cerebro.last_run()")
    seen = "SELECT status, visits_done FROM cerebro.runs WHERE run_id = %s"
    wait_until(lambda: sql(seen, number)[0][1] > 1)
    sql(END_DRIVER)
    wait_until(lambda: sql(seen, number)[0][0] == "interrupted")
    with dashboard(database) as page:
        said = content(act(page, number, "resume", preview=True))
        assert "from its committed visits" in said["says"]
        assert act(page, number, "resume")[0] == 200
        wait_until(lambda: sql(seen, number)[0][0] == "running")
    assert trial.value("SELECT cerebro.wait(%s, '200 s')", number) == "finished"
    assert trial.value("SELECT count(*) FROM slow_models") == 1


def wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline, "it never came to be"
        time.sleep(0.05)


# Who may talk to it


@pytest.mark.parametrize("path", ["/api/overview", "/static/app.js", "/nowhere"])
@pytest.mark.parametrize(
    "headers",
    [
        {"Authorization": ""},
        {"Authorization": "Bearer wrong"},
        {"Authorization": "", "Cookie": "cerebro_1=x"},
    ],
)
def test_nothing_is_told_without_the_token(page: Page, path: str, headers: dict[str, str]) -> None:
    status, _, text = page.ask(path, headers=headers)
    assert status == 401
    assert page.token not in text


def test_the_token_becomes_a_cookie_and_leaves_the_address(page: Page) -> None:
    status, headers, _ = page.ask(f"/?token={page.token}", headers={"Authorization": ""})
    assert (status, headers["location"]) == (303, "/")
    cookie = headers["set-cookie"]
    assert page.token not in cookie, "every other port of this machine gets it too"
    assert "HttpOnly" in cookie and "SameSite=strict" in cookie
    status, _, text = page.ask("/", headers={"Authorization": "", "Cookie": cookie.split(";")[0]})
    assert status == 200 and "<title>Cerebro DB</title>" in text


def test_a_wrong_token_gets_the_door_that_asks_for_it(page: Page) -> None:
    status, headers, text = page.ask("/?token=wrong", headers={"Authorization": ""})
    assert status == 401 and "set-cookie" not in headers and 'name="token"' in text


def test_the_token_can_be_typed(page: Page) -> None:
    def enter(token: str) -> tuple[int, dict[str, str], str]:
        return page.ask("/enter", method="POST", body=f"token={token}", headers={"Authorization": ""})

    assert enter("wrong")[0] == 401
    assert enter(page.token)[0] == 303


def poured(page: Page, path: str, length: int | None, token: str = "") -> tuple[bytes, int]:
    """Send an endless body; return the first line of the answer, and how much was sent before it came."""
    head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nAuthorization: {token}\r\n"
    head += "Transfer-Encoding: chunked\r\n\r\n" if length is None else f"Content-Length: {length}\r\n\r\n"
    sent, piece = 0, b"10000\r\n" + bytes(65_536) + b"\r\n"
    with closing(socket.create_connection((page.host, page.port), timeout=30)) as connection:
        connection.sendall(head.encode())
        while not select.select([connection], [], [], 0.05)[0]:
            connection.sendall(piece)
            sent += len(piece)
            assert sent < 50_000_000, "it reads and reads"
        return connection.makefile("rb").readline(), sent


@pytest.mark.parametrize("path", ["/enter", "/api/runs/1/stop"])
@pytest.mark.parametrize("length", [400_000_000, None])
def test_who_has_no_token_is_not_listened_to_for_long(page: Page, path: str, length: int | None) -> None:
    line, sent = poured(page, path, length)
    assert int(line.split()[1]) == (401 if length is None and path != "/enter" else 413)
    assert sent < 5_000_000
    assert page.ask("/api/overview")[0] == 200


@pytest.mark.parametrize("length", [400_000_000, None])
def test_a_body_has_a_limit_for_everybody(page: Page, run: int, length: int | None) -> None:
    line, sent = poured(page, f"/api/runs/{run}/stop", length, f"Bearer {page.token}")
    assert b" 413 " in line and sent < 5_000_000


@pytest.mark.parametrize(
    "host",
    ["evil.example", "evil.example:8787", "127.0.0.1.evil.example", "", "[::1]evil.com", "[::1]:80evil.com",
     "[::1", "::1]", "localhost:80:evil.com", "localhost]", "localhost/static/style.css?"],
)  # fmt: skip
def test_another_name_for_this_machine_is_refused(page: Page, host: str) -> None:
    assert page.ask("/api/overview", headers={"Host": host})[0] == 421


@pytest.fixture(scope="module")
def open_page(database: str) -> Iterator[Page]:
    """A live page whose server listens on all addresses, so that other machines may reach it."""
    with dashboard(database, host="0.0.0.0") as served:
        served.host = "127.0.0.1"
        yield served


@pytest.mark.parametrize("host", ["x/static/style.css?", "x/", "x?", "a b", "", "x:y"])
def test_what_is_no_name_is_refused_wherever_the_page_is_open(open_page: Page, host: str) -> None:
    for token in ("", f"Bearer {open_page.token}"):
        headers = {"Host": host, "Authorization": token}
        assert open_page.ask("/api/overview", headers=headers)[0] in (400, 421)
    assert open_page.ask("/api/overview", headers={"Host": "db_1.example.org:8787"})[0] == 200


@pytest.mark.parametrize("host", ["localhost", "localhost:1", "[::1]", "[::1]:8787", "127.0.0.1:8787"])
def test_the_names_of_this_machine_are_answered(page: Page, host: str) -> None:
    assert page.ask("/api/overview", headers={"Host": host})[0] == 200


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Origin": "http://evil.example"}, 403),
        ({"Origin": "null"}, 403),
        ({"Cookie": "cerebro=1"}, 403),  # a browser that says no origin
        ({}, 200),
    ],
)
def test_another_site_cannot_ask_for_anything(
    page: Page, run: int, headers: dict[str, str], status: int
) -> None:
    answer = page.ask(
        f"/api/runs/{run}/forget", method="POST", body={"preview": True, "with": {}}, headers=headers
    )
    assert answer[0] == status


def test_nothing_can_come_from_elsewhere(page: Page) -> None:
    _, headers, text = page.ask("/")
    assert "default-src 'self'" in headers["content-security-policy"]
    assert "frame-ancestors 'none'" in headers["content-security-policy"]
    assert "//" not in text.replace("<!doctype html>", "")


def test_a_port_that_is_taken_is_said(database: str, page: Page) -> None:
    done = cerebro("dashboard", "--no-browser", "--port", str(page.port), database=database)
    assert done.code == 1
    assert "Choose another --port" in done.err


def test_it_ends_with_ctrl_c_at_once(database: str) -> None:
    process = subprocess.Popen(
        [sys.executable, CLIENT / "bin" / "cerebro", "dashboard", "--no-browser", "--port", "0"],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        env={**environment(database), "PYTHONUNBUFFERED": "1"},
    )  # fmt: skip
    assert process.stdout is not None
    process.stdout.readline()
    time.sleep(0.5)
    process.send_signal(2)
    _, said = process.communicate(timeout=20)
    assert "Traceback" not in said


def test_no_command_line_shows_a_way_in(database: str, tmp_path: Path) -> None:
    way_in, asked = tmp_path / "way-in.html", tmp_path / "asked"
    with dashboard(database, browser=fake_browser(tmp_path)) as page:
        wait_until(way_in.exists)
        opened = Path(urllib.parse.unquote(asked.read_text()).removeprefix("file://"))
        assert way_in.stat().st_mode & 0o777 == 0o600
        address = way_in.read_text().split("url=")[1].split('"')[0]
        assert page.token not in address
        path = address.split(f":{page.port}")[1]
        status, headers, text = page.ask(path, headers={"Authorization": ""})
        assert status == 200 and 'content="0; url=/"' in text
        cookie = headers["set-cookie"].split(";")[0]
        assert page.ask("/", headers={"Authorization": "", "Cookie": cookie})[0] == 200
        status, headers, _ = page.ask(path, headers={"Authorization": ""})
        assert status == 401 and "set-cookie" not in headers, "it is good for one entry"
    assert not opened.exists()


def test_a_cookie_has_an_end(monkeypatch: pytest.MonkeyPatch) -> None:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await PlainTextResponse("in")(scope, receive, send)

    def status(path: str, cookie: str = "") -> tuple[int, str]:
        said: list[Any] = []

        async def send(message: Any) -> None:
            said.append(message)

        async def receive() -> Any:
            return {"type": "http.request"}

        path, _, query = path.partition("?")
        headers = [(b"host", b"localhost"), (b"cookie", cookie.encode())]
        scope = {
            "type": "http", "method": "GET", "path": path, "query_string": query.encode(), "headers": headers
        }  # fmt: skip
        asyncio.run(door(scope, receive, send))
        got = {name: value.decode() for name, value in said[0]["headers"]}
        return said[0]["status"], got.get(b"set-cookie", "").split(";")[0]

    door = guard.Guard(app, "sesame", "127.0.0.1", 80)
    _, first = status("/?token=sesame")
    assert status("/api", first)[0] == 200
    assert status("/api", first.replace("=", "=1"))[0] == 401, "nobody can set another end"
    monkeypatch.setattr(guard, "COOKIE_SECONDS", 0)
    _, second = status("/?token=sesame")
    assert second and status("/api", second)[0] == 401


def silent(page: Page, sent: bytes) -> socket.socket:
    connection = socket.create_connection((page.host, page.port), timeout=60)
    connection.sendall(sent)
    return connection


def ended(connection: socket.socket) -> bytes:
    """Read until the other side ends the connection, and return everything that it sent."""
    found = b""
    with connection, suppress(ConnectionError):
        while part := connection.recv(10_000):
            found += part
    return found


@pytest.mark.slow
def test_who_says_nothing_is_not_waited_for(database: str) -> None:
    form = b"POST /enter HTTP/1.1\r\nHost: localhost\r\nContent-Length: 3000\r\n\r\ntoken="
    with dashboard(database) as page:
        many = [silent(page, b"") for _ in range(MOST_CONNECTIONS + 20)]
        wait_until(lambda: answers(page))
        assert [ended(one) for one in many] == [b""] * len(many)
        slow = [silent(page, form) for _ in range(3)] + [silent(page, b"GET / HTTP/1.1\r\nHost: loc")]
        assert [ended(one)[9:12] for one in slow] == [b"408", b"408", b"408", b""]
        for _ in range(3):
            silent(page, form).close()
        assert page.ask("/api/overview")[0] == 200
    assert page.said == ""


def answers(page: Page) -> bool:
    try:
        return page.ask("/api/overview")[0] == 200
    except (ConnectionError, http.client.HTTPException):
        return False


def test_a_page_has_no_connection_that_it_does_not_use(database: str, sql: Sql) -> None:
    with dashboard(database) as page:
        assert page.ask("/api/overview")[0] == 200
        names = sql("SELECT application_name FROM pg_stat_activity WHERE datname = current_database()")
    assert ("cerebro dashboard",) in names and ("cerebro",) not in names
