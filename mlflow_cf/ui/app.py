"""The server of the what-if page: its files, and what its page asks, for this computer alone."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from importlib.resources import files
from typing import Any, Final

import pandas as pd
from fastapi import FastAPI, Request
from fastapi.responses import Response
from starlette.concurrency import run_in_threadpool

from mlflow_cf import cards
from mlflow_cf.errors import CounterfactualError, InputError, InputErrors, frames
from mlflow_cf.explained import ExplainedModel
from mlflow_cf.ui.asking import Asked, prepared
from mlflow_cf.ui.facts import facts_of
from mlflow_cf.ui.guard import Guard
from mlflow_cf.ui.rows import pasted, rows_of

MOST_BYTES: Final = 1 << 20  # of a body
KINDS: Final = {"html": "text/html", "css": "text/css", "js": "text/javascript", "svg": "image/svg+xml"}
PAGE: Final = (
    "index.html",
    "style.css",
    "main.js",
    "dom.js",
    "server.js",
    "row.js",
    "wishes.js",
    "answers.js",
    "curve.js",
    "icon.svg",
)
NOTHING: Final = InputError("address", "there is nothing here")
_logger = logging.getLogger(__name__)
Work = Callable[[Asked, Mapping[str, Any]], Mapping[str, Any]]
WORK: Final[Mapping[str, Work]] = {
    "answer": Asked.answer,
    "curve": Asked.curve,
    "survival": Asked.survival,
    "card": lambda asked, body: asked.kept(body, "card"),
    "notice": lambda asked, body: asked.kept(body, "notice"),
    "row": lambda asked, body: pasted(asked.explained.space, str(body.get("text", ""))),
}


def what_if(models: Sequence[tuple[str, ExplainedModel]], rows: pd.DataFrame | None = None) -> FastAPI:
    """Return the application of the page, ready to answer.

    Args:
        models: one or two, each with what the page calls it.
        rows: rows to choose from; None: the sample, where its privacy lets it be shown.

    Raises:
        InputError: another number of models, or rows that do not fit the first one.
    """
    if not 1 <= len(models) <= 2:
        raise InputError("models", f"{len(models)} models", "name one, or two to compare")
    asked = prepared(models)
    known = {
        "models": [facts_of(one.explained, one.name, one.pictures) for one in asked],
        "rows": rows_of(asked[0].explained, rows),
    }
    app = FastAPI(title="mlflow-cf", docs_url=None, redoc_url=None, openapi_url=None)
    app.add_middleware(Guard)

    @app.get("/")
    def index() -> Response:
        return _file("index.html")

    @app.get("/page/{name}")
    def page(name: str) -> Response:
        if name == "cards.css":
            text = str(cards.style()).removeprefix("<style>").removesuffix("</style>")
            return Response(text, media_type="text/css")
        return _file(name) if name in PAGE else _refused([NOTHING], 404)

    @app.get("/facts")
    def facts() -> Response:
        return Response(_json(known), media_type="application/json")

    @app.post("/models/{number}/{what}")
    async def ask(number: int, what: str, request: Request) -> Response:
        if not 0 <= number < len(asked) or what not in WORK:
            return _refused([NOTHING], 404)
        return await run_in_threadpool(_answered, WORK[what], asked[number], await _body(request))

    return app


def _answered(work: Work, asked: Asked, body: bytes | None) -> Response:
    """Do what is asked; whatever goes wrong is told without a value of any row, and logged without one."""
    try:
        return Response(_json(work(asked, _read(body))), media_type="application/json")
    except InputErrors as errors:
        return _refused(list(errors.errors), 400)
    except CounterfactualError as error:
        return _refused([error], 413 if body is None else 400)
    except Exception as error:  # noqa: BLE001  its message may quote values
        _logger.error("a request failed with %s", type(error).__name__)  # noqa: TRY400
        _logger.debug("%s", frames(error))
        fact = f"the model could not answer ({type(error).__name__})"
        return _refused([InputError("model", fact, "the log says where, at the level DEBUG")], 500)


def _read(body: bytes | None) -> Mapping[str, Any]:
    if body is None:
        raise InputError("body", f"more than {MOST_BYTES:,} bytes", "send less")
    try:
        told = json.loads(body)
    except (ValueError, RecursionError):
        told = None
    if not isinstance(told, Mapping):
        raise InputError("body", "is no JSON object", "send one")
    return told


def _refused(errors: Sequence[CounterfactualError], status: int) -> Response:
    lines = [{"path": one.path, "message": f"{one.fact}; {one.fix}" if one.fix else one.fact} for one in errors]
    return Response(_json({"errors": lines}), status, media_type="application/json")


def _json(value: Mapping[str, Any]) -> str:
    return json.dumps(value, allow_nan=False, ensure_ascii=True)


def _file(name: str) -> Response:
    return Response(_text(name), media_type=KINDS[name.rpartition(".")[2]])


@cache
def _text(name: str) -> str:
    return files("mlflow_cf.ui").joinpath("page", name).read_text(encoding="utf-8")


async def _body(request: Request) -> bytes | None:
    """Return the body; None where it is too large."""
    body = b""
    async for part in request.stream():
        body += part
        if len(body) > MOST_BYTES:
            return None
    return body
