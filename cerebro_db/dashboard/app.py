"""The web application of the dashboard: JSON responses, the report of a run, and static files."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

import psycopg2
from sqlalchemy import Engine
from sqlalchemy.exc import DBAPIError, SQLAlchemyError
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.middleware import Middleware
from starlette.middleware.gzip import GZipMiddleware
from starlette.requests import Request
from starlette.responses import FileResponse, JSONResponse, Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

from cerebro_db.dashboard import forecasts, groups, models, predicting, views
from cerebro_db.dashboard.actions import Desk, UnknownAction
from cerebro_db.dashboard.guard import MOST_BYTES, Guard, read_body
from cerebro_db.errors import CerebroError, from_server

T = TypeVar("T")

STATIC = Path(__file__).parent / "static"
# The connection is lost or refused, which may pass.
LOSSES = (psycopg2.OperationalError, psycopg2.InterfaceError)
LOST_STATES = ("08", "53", "57P")
# A missing relation can only be one of the extension's views: nothing else is read here.
HINTS = {"42P01": "The extension cerebro is not in this database: `cerebro init` says what to do."}
# What a bigint and an integer can hold; a timestamp holds a little more seconds.
MOST_RUN, MOST_CONFIG, MOST_SECONDS = 2**63 - 1, 2**31 - 1, 9e12
MOST_SHOWN = 50
_NO_SERIES = 'series must be a JSON object, such as {"shop": "shop 1"}'


def make_app(
    reading: Engine, acting: Engine, token: str, host: str, port: int, code: str | None = None
) -> Starlette:
    """Return the application; it reads data with the engine `reading`, and acts for viewers with `acting`."""
    desk = Desk(acting)

    async def index(_request: Request) -> Response:
        return FileResponse(STATIC / "index.html")

    async def overview(_request: Request) -> Response:
        return await _answer(lambda: views.overview(reading))

    async def compare(request: Request) -> Response:
        listed = request.query_params.get("runs", "").split(",")
        if len(listed) > views.MOST_COMPARED or not all(_is_number(one) for one in listed):
            return _problem(400, f"runs is a list of {views.MOST_COMPARED} numbers at most, with commas")
        return await _answer(lambda: views.compare(reading, [int(one) for one in listed]))

    async def action(request: Request) -> Response:
        try:
            given: Any = json.loads(await read_body(request, MOST_BYTES))
        # JSON that is nested too deeply raises RecursionError.
        except (ValueError, RecursionError):
            given = None
        if not isinstance(given, dict) or not isinstance(given.get("with"), dict):
            return _problem(400, 'what is sent has the form {"preview": true, "with": {}}')
        do = desk.preview if given.get("preview") else desk.act
        name: str = request.path_params["action"]
        run_id: int = request.path_params["run_id"]
        if run_id > MOST_RUN:
            return _no_such_run()
        return await _answer(lambda: do(name, run_id, given["with"]))

    return Starlette(
        routes=[
            Route("/", index),
            Route("/api/overview", overview),
            Route("/api/compare", compare),
            *_run_routes(reading),
            *_model_routes(acting),
            *_registered_routes(reading, acting),
            Route("/api/runs/{run_id:int}/{action}", action, methods=["POST"]),
            Mount("/static", StaticFiles(directory=STATIC)),
        ],
        middleware=[
            Middleware(Guard, token=token, host=host, port=port, code=code),
            Middleware(GZipMiddleware, minimum_size=10_000),
        ],
    )


def _run_routes(reading: Engine) -> list[Route]:
    """Return the routes that show a run, its groups, its plan and its report."""

    async def run(request: Request) -> Response:
        run_id: int = request.path_params["run_id"]
        given = dict(request.query_params)
        group = given.pop("group", None)
        try:
            since = {name: _seconds(name, value) for name, value in given.items()}
        except ValueError as error:
            return _problem(400, str(error))
        return await _answer_about([group or ""], lambda: views.run(reading, run_id, since, group))

    async def of_groups(request: Request) -> Response:
        run_id: int = request.path_params["run_id"]
        given = request.query_params
        if not all(_is_number(given.get(name, "0")) for name in ("limit", "offset")):
            return _problem(400, "limit and offset are numbers")
        return await _answer(lambda: groups.groups(reading, run_id, groups.asked(given)))

    async def plan(request: Request) -> Response:
        run_id: int = request.path_params["run_id"]
        return await _answer(lambda: views.plan(reading, run_id))

    async def report(request: Request) -> Response:
        run_id: int = request.path_params["run_id"]
        return await _answer(lambda: views.report(reading, run_id), lambda found: _file(found, run_id))

    return [
        Route("/api/runs/{run_id:int}", run),
        Route("/api/runs/{run_id:int}/groups", of_groups),
        Route("/api/runs/{run_id:int}/plan", plan),
        Route("/api/runs/{run_id:int}/report", report),
    ]


def _model_routes(acting: Engine) -> list[Route]:
    """Return the routes that show the predictions of a config's model."""

    async def suggestion(request: Request) -> Response:
        run_id: int = request.path_params["run_id"]
        return await _answer(lambda: predicting.suggestion(acting, run_id))

    async def confusion(request: Request) -> Response:
        run_id, key = _config(request)
        if key > MOST_CONFIG:
            return _no_such_config(run_id, key)
        return await _answer(lambda: predicting.confusion(acting, run_id, key))

    async def predictions(request: Request) -> Response:
        run_id, key = _config(request)
        if key > MOST_CONFIG:
            return _no_such_config(run_id, key)
        given = request.query_params
        rows = given.get("rows", "10")
        asked = predicting.Rows(
            given.get("table", ""), given.get("columns", ""), int(rows) if _is_number(rows) else 0
        )
        if not asked.rows or "\0" in asked.table + asked.columns:
            return _problem(400, "rows is a number, table and columns are text")
        return await _answer(lambda: predicting.predict(acting, run_id, key, asked))

    return [
        Route("/api/runs/{run_id:int}/suggestion", suggestion),
        Route("/api/runs/{run_id:int}/configs/{config:int}/confusion", confusion),
        Route("/api/runs/{run_id:int}/configs/{config:int}/predictions", predictions),
    ]


def _registered_routes(reading: Engine, acting: Engine) -> list[Route]:
    """Return the routes that show registered models and forecasts."""

    async def model(request: Request) -> Response:
        name: str = request.path_params["name"]
        return await _answer_about([name], lambda: models.model(reading, name), missing=_no_such_model)

    async def importance(request: Request) -> Response:
        model, table = asked = _texts(request, "model", "table")
        return await _answer_about(asked, lambda: models.importance(acting, model, table))

    async def explanation(request: Request) -> Response:
        model, table, column, row = asked = _texts(request, "model", "table", "column", "row")
        return await _answer_about(asked, lambda: models.explain(acting, model, table, column, row))

    async def forecast(request: Request) -> Response:
        name, series = asked = _texts(request, "name", "series")
        if series and not _is_object(series):
            return _problem(400, _NO_SERIES)
        return await _answer_about(asked, lambda: forecasts.forecast(acting, name, series or None))

    async def reasons(request: Request) -> Response:
        name, series = asked = _texts(request, "name", "series")
        if not _is_object(series):
            return _problem(400, _NO_SERIES)
        return await _answer_about(asked, lambda: forecasts.explain(acting, name, series))

    return [
        Route("/api/forecast", forecast),
        Route("/api/forecast/reasons", reasons),
        Route("/api/models/{name}", model),
        Route("/api/importance", importance),
        Route("/api/explanation", explanation),
    ]


def _is_object(text: str) -> bool:
    """Return whether a text is a JSON object."""
    try:
        return isinstance(json.loads(text), dict)
    # A number with too many digits also raises ValueError.
    except (ValueError, RecursionError):
        return False


def _texts(request: Request, *names: str) -> list[str]:
    return [request.query_params.get(name, "") for name in names]


def _config(request: Request) -> tuple[int, int]:
    return request.path_params["run_id"], request.path_params["config"]


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdecimal() and len(text) < 19


def _seconds(name: str, text: str) -> float:
    with suppress(ValueError):
        # The comparison is false for NaN.
        if abs(value := float(text)) <= MOST_SECONDS:
            return value
    raise ValueError(
        f"{name[:MOST_SHOWN]!r} is {text[:MOST_SHOWN]!r}, and must be a number from {-MOST_SECONDS:g} to"
        f" {MOST_SECONDS:g}"
    )


def _file(page: bytes, run_id: int) -> Response:
    kept = {"Content-Disposition": f'attachment; filename="run-{run_id}.html"'}
    return Response(page, media_type="text/html", headers=kept)


async def _answer_about(
    texts: Sequence[str], work: Callable[[], T | None], missing: Callable[[], Response] | None = None
) -> Response:
    """Respond with the result of `work`, or with status 400 if a text of the request contains NUL."""
    if "\0" in "".join(texts):
        return _problem(400, "the database can hold no such text")
    return await _answer(work, missing=missing)


async def _answer(
    work: Callable[[], T | None],
    form: Callable[[T], Response] = JSONResponse,
    missing: Callable[[], Response] | None = None,
) -> Response:
    """Respond with the result of `work`, or with its error; run it in a thread, since it blocks."""
    try:
        found = await run_in_threadpool(work)
    except UnknownAction as error:
        return _problem(400, str(error))
    except DBAPIError as error:
        return _database_problem(error)
    except CerebroError as error:
        return _problem(409, error.message, error.detail, error.hint)
    except SQLAlchemyError as error:
        return _problem(503, "the database does not answer", str(error).splitlines()[0])
    if found is None:
        return missing() if missing else _no_such_run()
    return form(found)


def _database_problem(error: DBAPIError) -> Response:
    said = str(error.orig).strip()
    if error.connection_invalidated or not isinstance(error.orig, psycopg2.Error):
        return _problem(503, "the database does not answer", said)
    state = error.orig.pgcode
    if isinstance(error.orig, LOSSES) and (state is None or state.startswith(LOST_STATES)):
        return _problem(503, "the database does not answer", said)
    told = from_server(error.orig)
    return _problem(409, told.message, told.detail, told.hint or HINTS.get(state or ""))


def _no_such_run() -> Response:
    return _problem(404, "there is no such run", hint="It was forgotten, or it is not yours to see.")


def _no_such_model() -> Response:
    return _problem(404, "there is no such model", hint="It was removed, or it is not yours to see.")


def _no_such_config(run_id: int, key: int) -> Response:
    return _problem(404, f"run {str(run_id)[:MOST_SHOWN]} has no config {str(key)[:MOST_SHOWN]}")


def _problem(status: int, error: str, detail: str | None = None, hint: str | None = None) -> Response:
    return JSONResponse({"error": error, "detail": detail, "hint": hint}, status)
