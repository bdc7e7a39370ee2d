"""What the page's server refuses before any of our code reads it, and the headers of all that it sends.

The server listens on loopback, which keeps other machines out, and not the other pages of the same browser. A name
that somebody points at 127.0.0.1 is refused by ``Host``, a page of another origin by ``Origin``, a form of one by its
content type.
"""

from __future__ import annotations

import re
from typing import Final

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

HOST: Final = re.compile(r"(127\.0\.0\.1|localhost)(:\d{1,5})?")
HEADERS: Final = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}


class Guard:
    """Refuses foreign hosts and origins, and posts that are no JSON; puts the headers on everything else."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, or hand it on."""
        if scope["type"] != "http":
            if scope["type"] == "lifespan":
                await self._app(scope, receive, send)
            return  # there are no sockets here

        async def with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers[name] = value
            await send(message)

        refused = refusal(scope["method"], Headers(scope=scope))
        if refused is None:
            await self._app(scope, receive, with_headers)
        else:
            status, why = refused
            await JSONResponse({"errors": [{"path": "", "message": why}]}, status)(scope, receive, with_headers)


def refusal(method: str, headers: Headers) -> tuple[int, str] | None:
    """Return status and reason for which a request is refused; None: it is not."""
    host, origin = headers.get("host", ""), headers.get("origin")
    if not HOST.fullmatch(host) or len(headers.getlist("host")) != 1:
        return 421, "this page answers to 127.0.0.1 and localhost alone"
    if origin is not None and origin != f"http://{host}":
        return 403, "another origin may not ask this page"
    if headers.get("sec-fetch-site", "same-origin") not in ("same-origin", "none"):
        return 403, "another site may not ask this page"
    if method not in ("GET", "HEAD", "POST"):
        return 405, "only GET and POST are answered"
    if method == "POST" and headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
        return 415, "send application/json"
    return None
