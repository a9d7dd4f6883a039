"""The application: the page with its assets, the routes, the OpenAPI document, and one form for all errors."""

import hashlib
import mimetypes
from importlib.resources import files
from typing import Any

from fastapi import APIRouter, FastAPI, Request
from fastapi.exceptions import RequestValidationError
from pydantic import ValidationError
from starlette.exceptions import HTTPException
from starlette.middleware.cors import CORSMiddleware
from starlette.responses import Response

from ttaps import __version__
from ttaps.errors import TtapsError
from ttaps.serve import guard
from ttaps.serve.pool import Stopped
from ttaps.serve.routes import router
from ttaps.serve.schema import AdaptRequest, BatchRequest, Problem, Subject
from ttaps.serve.service import Service, explain

pages = APIRouter(include_in_schema=False)
STATUSES = {
    401: "The token is missing or wrong",
    403: "A page of another site, or another host's name",
    404: "There is no such thing",
    413: "The request is too large",
    415: "The body is neither JSON nor a form",
    422: "Something in the request is wrong; detail says what",
    429: "All workers are busy and the queue is full",
    503: "The time limit is over",
}


def create_app(service: Service, token: str | None = None, origins: tuple[str, ...] = ()) -> FastAPI:
    """Return the application. Pages of ``origins`` may use it too."""
    content = {"application/problem+json": {"schema": {"$ref": "#/components/schemas/Problem"}}}
    responses: Any = {status: {"description": text, "content": content} for status, text in STATUSES.items()}
    app = FastAPI(
        title="ttaps serve",
        version=__version__,
        summary="Test-time adaptation of an image classifier to one image at a time.",
        docs_url=None,
        redoc_url=None,
        lifespan=service.lifespan,
        responses=responses,
    )
    app.state.service, app.state.assets = service, read_assets()
    app.include_router(pages)
    app.include_router(router)
    for kind in (TtapsError, Stopped, ValidationError, RequestValidationError, HTTPException, Exception):
        app.add_exception_handler(kind, answer_error)
    document = app.openapi()  # the bodies, which the routes read themselves
    for model in (Subject, AdaptRequest, BatchRequest, Problem):
        own = model.model_json_schema(ref_template="#/components/schemas/{model}")
        document["components"]["schemas"] |= own.pop("$defs", {}) | {model.__name__: own}
    app.add_middleware(guard.Guard, token=token, origins=origins, counts=service.counts)
    if origins:
        asked = ["authorization", "content-type"]
        app.add_middleware(CORSMiddleware, allow_origins=origins, allow_methods=["GET", "POST"], allow_headers=asked)
    return app


async def answer_error(request: Request, error: Exception) -> Response:
    """Answer every failure in the same form; who has gone away reads nothing."""
    return Response(status_code=499) if isinstance(error, Stopped) else guard.problem(*explain(error))


def read_assets() -> dict[str, bytes]:
    """Return the files of the page by their names, read once: no path of a request touches the file system."""
    found, folders = {}, [("", files("ttaps.serve") / "static")]
    for prefix, folder in folders:  # grows on the way
        for entry in folder.iterdir():
            if entry.is_dir():
                folders.append((f"{prefix}{entry.name}/", entry))
            else:
                found[prefix + entry.name] = entry.read_bytes()
    return found


@pages.get("/")
@pages.get("/docs")
@pages.get("/static/{name:path}")
async def asset(request: Request, name: str = "") -> Response:
    """A file of the page; browsers ask again each time, and are answered in a line if it is the same."""
    name = {"/": "index.html", "/docs": "docs.html"}.get(request.url.path, name)
    content = request.app.state.assets.get(name)
    if content is None:
        raise HTTPException(404, f"There is no file {name} here.")
    headers = {"etag": f'"{hashlib.sha256(content).hexdigest()[:16]}"', "cache-control": "no-cache"}
    if request.headers.get("if-none-match") == headers["etag"]:
        return Response(status_code=304, headers=headers)
    return Response(content, headers=headers, media_type=mimetypes.guess_type(name)[0])


@pages.get("/report")
async def report(request: Request) -> Response:
    """The HTML report that was given; it has its styles and images inside."""
    content = request.app.state.service.report
    if content is None:
        raise HTTPException(404, "There is no report here: start ttaps serve with --results REPORT.html.")
    policy = "default-src 'none'; style-src 'unsafe-inline'; img-src data:; frame-ancestors 'self'"
    return Response(content, media_type="text/html", headers={"content-security-policy": policy})
