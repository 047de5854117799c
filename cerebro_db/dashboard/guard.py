"""Admits only requests with the dashboard's token, and changes only from the dashboard's own page.

The page acts in the database with the rights of its role, and a port on loopback is open to every user of the
machine and to every site that a browser on it visits. So each request needs the token. The name in its header
Host must be one that the page was started for, as strangers can let other names point to loopback. A request
that changes something must come from the page's own origin. Without a token, a request body is limited in
size and time, and only the form that holds the token is read. A browser that has sent the token gets a
cookie, which is valid for seven days.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import re
import secrets
import time
from http.cookies import CookieError, SimpleCookie
from ipaddress import ip_address
from urllib.parse import parse_qs

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import ClientDisconnect, Request
from starlette.responses import HTMLResponse, JSONResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

SAFE_METHODS = ("GET", "HEAD")
# The first limit is ample for a grid of configs, the second for a token.
MOST_BYTES, MOST_FORM_BYTES, MOST_PATH = 1_000_000, 4_000, 500
BODY_SECONDS = 10.0
COOKIE_SECONDS = 7 * 86_400
_HOST = re.compile(r"(\[[0-9a-fA-F:.]+\]|[A-Za-z0-9._-]+)(?::[0-9]*)?")
LOOPBACK_NAMES = ("localhost",)
# Paths that need no token: the page that asks for it, and its files.
OPEN_PATHS = ("/enter", "/static/style.css", "/static/icon.svg")
POLICY = {
    "Content-Security-Policy": "default-src 'self'; img-src 'self' data:; base-uri 'none';"
    " form-action 'self'; frame-ancestors 'none'",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}
ENTRANCE = """<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width">
<title>Cerebro DB</title>
<link rel="icon" href="/static/icon.svg">
<link rel="stylesheet" href="/static/style.css">
<main class="entrance">
<h1>Cerebro DB</h1>
<p>Open the address that <code>cerebro dashboard</code> has printed, or give its token.</p>
<form method="post" action="/enter">
<label>Token <input name="token" type="password" autocomplete="off" autofocus required></label>
<button class="primary">Enter</button>
</form>
{message}
</main>
</html>
"""
# A browser that comes from elsewhere, such as a file, sends the new cookie only with requests from this page.
WELCOME = """<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta http-equiv="refresh" content="0; url=/">
<title>Cerebro DB</title>
<a href="/">Cerebro DB</a>
</html>
"""


def is_loopback(host: str) -> bool:
    try:
        return ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host in LOOPBACK_NAMES


class NotRead(Exception):
    """Raised, with the response to send, if a request body is too large or comes too slowly."""

    def __init__(self, answer: Response) -> None:
        super().__init__()
        # The rest of the body is not read: the connection ends with the response.
        answer.headers["Connection"] = "close"
        self.answer = answer


async def read_body(request: Request, most: int) -> bytes:
    """Return the body of a request; raise NotRead if it has more than `most` bytes or comes too slowly."""
    try:
        return await asyncio.wait_for(_read(request, most), BODY_SECONDS)
    except asyncio.TimeoutError:
        raise NotRead(_problem(408, "what is sent comes too slowly")) from None


async def _read(request: Request, most: int) -> bytes:
    body = bytearray()
    async for part in request.stream():
        body += part
        if len(body) > most:
            raise _too_large()
    return bytes(body)


def _too_large() -> NotRead:
    return NotRead(_problem(413, "what is sent is too large", f"The page reads {MOST_BYTES} bytes at most."))


class Guard:
    """ASGI middleware that answers every request without the token itself, before the application sees it."""

    def __init__(self, app: ASGIApp, token: str, host: str, port: int, code: str | None = None) -> None:
        self._app = app
        self._token = token
        # Replaces the token for one entry, where others than the owner might see it.
        self._code = code
        # Every other port of this host gets the cookie too, so it is not the token, tells nothing of it, and
        # has an end. It is good for the next page with the same token.
        self._seal = hashlib.scrypt(token.encode(), salt=b"cerebro dashboard", n=2**14, r=8, p=1)
        self._loopback = is_loopback(host)
        # Cookies are kept by host, whatever the port: two pages on one machine must not share one.
        self._cookie = f"cerebro_{port}"

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        request = Request(scope, receive)
        try:
            answer = self._refuse(request) or await self._enter(request) or self._ask_for_token(request)
            await (answer or self._app)(scope, receive, _with_policy(send))
        except NotRead as refused:
            await refused.answer(scope, receive, _with_policy(send))
        except ClientDisconnect:
            pass  # nobody is left to be answered

    def _refuse(self, request: Request) -> Response | None:
        if _promised(request.headers) > MOST_BYTES:
            raise _too_large()
        if len(_path(request)) > MOST_PATH:
            return _problem(414, "the address is too long")
        host = request.headers.get("host", "")
        name = _without_port(host)
        if not name or (self._loopback and not is_loopback(name)):
            return _problem(421, f"this page does not answer to the name {host!r}")
        if request.method not in SAFE_METHODS and not _same_origin(request.headers, host):
            return _problem(403, "the request comes from another page")
        return None

    async def _enter(self, request: Request) -> Response | None:
        """Return the response to a request that brings a token or a code; None for any other request.

        If the token or the code is right, the response sets a cookie, which no script can read and no other
        site can send.
        """
        path = _path(request)
        if path == "/enter" and request.method == "POST":
            form = parse_qs((await read_body(request, MOST_FORM_BYTES)).decode("ascii", "replace"))
            if self._fits(form.get("token", [""])[0]):
                return self._welcome(RedirectResponse("/", status_code=303))
            return _entrance('<p class="problem" role="alert">That is not this page\'s token.</p>')
        if path == "/" and self._fits(request.query_params.get("token", "")):
            return self._welcome(RedirectResponse("/", status_code=303))
        if path == "/enter" and "code" in request.query_params:
            if _same(request.query_params["code"], self._code or ""):
                self._code = None
                return self._welcome(HTMLResponse(WELCOME))
            return _entrance('<p class="problem" role="alert">This way in was used already.</p>')
        return None

    def _welcome(self, answer: Response) -> Response:
        value = self._sealed(int(time.time()) + COOKIE_SECONDS)
        answer.set_cookie(self._cookie, value, httponly=True, samesite="strict", path="/")
        return answer

    def _ask_for_token(self, request: Request) -> Response | None:
        if _path(request) in OPEN_PATHS or self._may_enter(request):
            return None
        if _path(request) == "/":
            return _entrance("")
        return _problem(
            401, "the token is missing or old", "Open the address that cerebro dashboard has printed."
        )

    def _may_enter(self, request: Request) -> bool:
        kind, _, given = request.headers.get("authorization", "").partition(" ")
        if kind.lower() == "bearer":
            return self._fits(given)
        try:
            cookies = SimpleCookie(request.headers.get("cookie", ""))
        except CookieError:
            return False
        cookie = cookies[self._cookie].value if self._cookie in cookies else ""
        end = cookie.partition(".")[0]
        known = end.isdecimal() and len(end) < 20 and _same(cookie, self._sealed(int(end)))
        return known and int(end) > time.time()

    def _sealed(self, end: int) -> str:
        return f"{end}.{hmac.new(self._seal, str(end).encode(), 'sha256').hexdigest()}"

    def _fits(self, given: str) -> bool:
        return _same(given, self._token)


def _same(given: str, secret: str) -> bool:
    return bool(secret) and secrets.compare_digest(given.encode(), secret.encode())


def _path(request: Request) -> str:
    """Return the path that chooses the route; Starlette's `request.url` may have parts of the header Host."""
    return request.scope["path"]


def _without_port(host: str) -> str:
    found = _HOST.fullmatch(host)
    return found[1] if found else ""


def _promised(headers: Headers) -> int:
    """Return the length in the header Content-Length, or 0 if it is no number, which uvicorn refuses."""
    given = headers.get("content-length", "0")
    return int(given) if given.isdecimal() and len(given) < 20 else 0


def _same_origin(headers: Headers, host: str) -> bool:
    """Return whether a request that changes something comes from the dashboard's own page.

    Browsers send the header Origin with such requests. A program without the header may send no cookie.
    """
    origin = headers.get("origin")
    if origin is None:
        return "cookie" not in headers
    return origin in (f"http://{host}", f"https://{host}")


def _problem(status: int, error: str, hint: str | None = None) -> Response:
    return JSONResponse({"error": error, "detail": None, "hint": hint}, status)


def _entrance(message: str) -> Response:
    return HTMLResponse(ENTRANCE.format(message=message), 401)


def _with_policy(send: Send) -> Send:
    async def sending(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = MutableHeaders(scope=message)
            headers.update(POLICY)
            headers.setdefault("Cache-Control", "no-store")
        await send(message)

    return sending
