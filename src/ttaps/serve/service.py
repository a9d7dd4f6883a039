"""What the routes share, how a request is read, bounded in size and time, and how its work, its events and its errors are sent."""

import asyncio
import base64
from collections import OrderedDict, defaultdict
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, TypeVar

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, ValidationError
from pydantic_core import to_json
from starlette.datastructures import UploadFile
from starlette.exceptions import HTTPException
from starlette.formparsers import MultiPartException, MultiPartParser
from starlette.responses import Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from ttaps.errors import MissingExtra, TtapsError
from ttaps.serve.images import MAX_BODY
from ttaps.serve.pool import Busy, Job, OutOfTime, Pool

R = TypeVar("R", bound=BaseModel)


class Service:
    """What the routes share: the pool, the session once it is loaded, the report, the gallery's tiles, and what was counted."""

    def __init__(self, load: Callable[[], Any], pool: Pool, report: bytes | None = None) -> None:
        self.load, self.pool, self.report = load, pool, report
        self.closing, self.galleries = False, 0
        self.tiles: OrderedDict[str, dict[tuple[int, str], dict[str, Any]]] = OrderedDict()
        self.counts: defaultdict[str, float] = defaultdict(float)
        self.loading: asyncio.Task[Any] | None = None

    @asynccontextmanager
    async def lifespan(self, app: FastAPI) -> AsyncIterator[None]:
        """Load the model while the page is already served; at the end wait for what still runs."""
        self.loading = asyncio.create_task(asyncio.to_thread(self.load))
        self.loading.add_done_callback(lambda done: done.cancelled() or done.exception())
        tidying = asyncio.create_task(self.pool.tidy())
        yield
        tidying.cancel()
        self.closing = True
        await asyncio.to_thread(self.pool.threads.shutdown)

    async def session(self) -> Any:
        """Return the session, once the model is loaded."""
        assert self.loading is not None
        return await asyncio.shield(self.loading)


async def read(request: Request, kind: type[R], job: Job) -> R:
    """Return what a request says, as JSON or as a form with a file, if it arrives in time."""
    try:
        async with asyncio.timeout_at(job.deadline):
            body = await read_body(request)
    except TimeoutError:
        raise OutOfTime(f"The request did not arrive within {job.pool.time_limit:g} s.") from None
    sent = request.headers.get("content-type", "application/json").split(";")[0].strip().lower()
    if sent == "multipart/form-data":
        return kind.model_validate(await read_form(request, body))
    if sent != "application/json":
        raise HTTPException(415, f"Send application/json or multipart/form-data, not {sent}.")
    return kind.model_validate_json(body)


async def read_body(request: Request) -> bytes:
    """Return the body of a request; one that is too large is refused before it is read, where it says so."""
    too_large = HTTPException(413, f"A request may have at most {MAX_BODY // 2**20} MB.\nMake the image smaller first.")
    said = request.headers.get("content-length", "0")
    if not said.isdecimal() or len(said) > 12 or int(said) > MAX_BODY:
        raise too_large
    body = bytearray()
    async for part in request.stream():
        body += part
        if len(body) > MAX_BODY:
            raise too_large
    return bytes(body)


async def read_form(request: Request, body: bytes) -> dict[str, Any]:
    """Return the fields of a form; nothing is ever written to a file."""

    async def stream() -> Any:
        yield body

    try:
        parser = MultiPartParser(request.headers, stream(), max_files=1, max_fields=16, max_part_size=MAX_BODY)
        parser.spool_max_size = 2 * MAX_BODY
        form = await parser.parse()
    except (MultiPartException, KeyError, ValueError, AttributeError) as error:
        raise HTTPException(422, f"The form cannot be read: {getattr(error, 'message', error)}") from error
    fields: dict[str, Any] = {}
    for name, value in form.items():
        fields[name] = base64.b64encode(await value.read()).decode() if isinstance(value, UploadFile) else value
    await form.close()
    return fields


async def run_while_connected(request: Request, job: Job, work: Callable[..., Any], *arguments: Any) -> Any:
    """Run work on the pool; stop it when the client goes away."""

    async def watch() -> None:
        while (await request.receive())["type"] != "http.disconnect":
            pass
        job.cancel()

    watcher = asyncio.create_task(watch())
    try:
        return await job.run(work, *arguments)
    finally:
        watcher.cancel()


class Events(StreamingResponse):
    """Server-sent events; ``leave`` is called when they end, or when the client goes away, even before the first."""

    def __init__(self, events: AsyncIterator[tuple[str, Any]], leave: Callable[[], None]) -> None:
        async def text() -> AsyncIterator[bytes]:
            async for name, data in events:
                yield b"event: %s\ndata: %s\n\n" % (name.encode(), encode(data))

        super().__init__(text(), media_type="text/event-stream", headers={"x-accel-buffering": "no"})
        self.leave = leave

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send all events."""
        try:
            await super().__call__(scope, receive, send)
        finally:
            self.leave()


def encode(value: Any) -> bytes:
    """Return JSON, in which NaN and infinity, which JSON does not have, are null; other numbers keep all their bits."""
    return to_json(value, inf_nan_mode="null")


def reply(value: Any) -> Response:
    """Return JSON."""
    return Response(encode(value), media_type="application/json")


def explain(error: Exception) -> tuple[int, str, dict[str, str]]:
    """Return the status, the words and the headers for a failure."""
    if isinstance(error, Busy):
        return 429, str(error), {"retry-after": "1"}
    if isinstance(error, OutOfTime):
        return 503, str(error), {"retry-after": "60"}
    if isinstance(error, ValidationError | RequestValidationError):
        wrong = [f"{'.'.join(map(str, each['loc']))}: {each['msg']}".removeprefix(": ") for each in error.errors()[:5]]
        return 422, "; ".join(wrong), {}
    if isinstance(error, HTTPException):
        return error.status_code, str(error.detail), dict(error.headers or {})
    if isinstance(error, TtapsError):
        return (501 if isinstance(error, MissingExtra) else 422), str(error), {}
    if isinstance(error, MemoryError) or "can't allocate memory" in str(error):
        return 503, "Out of memory.\nTake fewer views, or a smaller image.", {"retry-after": "60"}
    return 500, "This is a bug in ttaps serve; its log has the details.", {}
