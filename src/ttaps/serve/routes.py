"""The routes of the service. Everything that computes runs on the pool; without a place there a request is refused before it is read."""

import asyncio
import base64
from collections.abc import AsyncIterator, Callable, Sequence
from functools import cache
from typing import Annotated, Any, TypeVar

from fastapi import APIRouter, Depends, Path, Query, Request
from pydantic import BaseModel
from starlette.exceptions import HTTPException
from starlette.responses import PlainTextResponse, Response, StreamingResponse

from ttaps import __version__
from ttaps.data import EXTRA_CORRUPTIONS
from ttaps.data.sample import SAMPLE_CORRUPTIONS, read_sample
from ttaps.errors import TtapsError, UsageError
from ttaps.serve import guard
from ttaps.serve.images import png
from ttaps.serve.pool import Busy, Job, Stopped
from ttaps.serve.schema import Adapted, AdaptRequest, Batch, BatchRequest, MethodSpec, ResultImage, RowFilter, Subject
from ttaps.serve.service import Events, Service, explain, read, reply, run_while_connected

R = TypeVar("R", bound=BaseModel)
router = APIRouter()
embedded = cache(read_sample)  # the images need no model
GALLERIES, KEPT = 4, 8  # open at once, and methods whose tiles are kept
TILE = {"true_label": "label", "label_before": "label_before", "label": "label_after", "outcome": "outcome"}
TILE |= {"image": "image", "probability_before": "probability_before", "probability": "probability_after"}
# as Hendrycks and Dietterich have them
GROUPS = {
    "noise": ("gaussian_noise", "shot_noise", "impulse_noise"),
    "blur": ("defocus_blur", "glass_blur", "motion_blur", "zoom_blur"),
    "weather": ("snow", "frost", "fog", "brightness"),
    "digital": ("contrast", "elastic_transform", "pixelate", "jpeg_compression"),
    "extra": EXTRA_CORRUPTIONS,
}


def shared(request: Request) -> Service:
    """Return what the routes share."""
    service: Service = request.app.state.service
    return service


async def loaded(request: Request) -> Any:
    """Return the session, once the model is loaded."""
    return await shared(request).session()


Shared = Annotated[Service, Depends(shared)]
Loaded = Annotated[Any, Depends(loaded)]


@router.get("/health", tags=["service"])
async def health(service: Shared) -> Response:
    """Whether the model is loaded, and how many requests are under way."""
    status = "ok" if service.loading and service.loading.done() else "loading"
    pool = {name: getattr(service.pool, name) for name in ("taken", "workers", "queue", "time_limit")}
    return reply({"status": status, "version": __version__, **pool})


@router.get("/metrics", tags=["service"], response_class=PlainTextResponse)
async def metrics(service: Shared) -> Response:
    """Prometheus text."""
    gauges = {name: getattr(service.pool, name) for name in ("taken", "stopped", "workers", "queue")}
    return Response(guard.metrics(service.counts, gauges), media_type="text/plain; version=0.0.4")


@router.get("/api/model", tags=["model"])
async def model(service: Shared, session: Loaded) -> Response:
    """The model that is served, and whether there are results to show."""
    return reply({**session.facts(), "results": bool(session.results or service.report)})


@router.get("/api/map", tags=["model"])
async def prototype_map(session: Loaded) -> Response:
    """The prototypes in two dimensions, in the order of their numbers; null for a model without them."""
    return reply({"prototypes": await asyncio.to_thread(session.map)})


@router.get("/api/methods", tags=["model"])
async def methods(session: Loaded) -> Response:
    """All methods, whether the model supports them, and their settings as JSON schema."""
    return reply(session.methods)


@router.get("/api/start", tags=["model"])
async def start(session: Loaded) -> Response:
    """An embedded image and its corruption that the default method changes visibly, for a page to start with."""
    return reply(await asyncio.to_thread(lambda: session.start))


@router.get("/api/corruptions", tags=["model"])
async def corruptions() -> Response:
    """All corruptions, by the group they belong to."""
    return reply([{"name": name, "group": group} for group, names in GROUPS.items() for name in names])


@router.get("/api/samples", tags=["model"])
async def samples() -> Response:
    """The embedded images."""
    found = embedded()
    return reply([{"id": number, "label": found.classes[label]} for number, label in enumerate(found.labels.tolist())])


@router.get("/api/samples/{number}.png", tags=["model"], response_class=Response)
async def sample(number: Annotated[int, Path(ge=0, lt=2**31)]) -> Response:
    """An embedded image, clean, as PNG."""
    images = embedded().images
    if number >= len(images):
        raise HTTPException(404, f"There is no embedded image {number}: they are 0 to {len(images) - 1}.")
    headers = {"cache-control": "max-age=86400"}
    return Response(base64.b64decode(png(images[number])), media_type="image/png", headers=headers)


def body_of(kind: type[BaseModel]) -> dict[str, Any]:
    """Return what the OpenAPI document says of a body that is JSON, or a form with a file."""
    content: dict[str, Any] = {"application/json": {"schema": {"$ref": f"#/components/schemas/{kind.__name__}"}}}
    if kind is not BatchRequest:
        properties = {**kind.model_json_schema()["properties"], "image": {"type": "string", "format": "binary"}}
        del properties["result"]
        content["multipart/form-data"] = {"schema": {"type": "object", "properties": properties, "required": ["image"]}}
    return {"requestBody": {"required": True, "content": content}}


async def work_for(request: Request, kind: type[R], work: Callable[[Any, R, Job], Any]) -> Response:
    """Answer a request with ``work(session, what it wants, job)``, done on the pool."""
    service = shared(request)
    job = service.pool.admit()
    try:
        wanted, session = await read(request, kind, job), await service.session()
        session.choose(getattr(wanted, "method", None))  # a wrong one need not wait for a worker
        return reply(await run_while_connected(request, job, work, session, wanted, job))
    finally:
        job.release()


@router.post("/api/corrupt", tags=["adapt"], openapi_extra=body_of(Subject))
async def corrupt(request: Request) -> Response:
    """What the network sees of an image, damaged: a PNG in base64, its width and height, and its true label where that is known."""
    return await work_for(request, Subject, lambda session, wanted, job: session.damaged(wanted))


@router.post("/api/adapt", tags=["adapt"], openapi_extra=body_of(AdaptRequest), response_model=Adapted)
async def adapt(request: Request) -> Response:
    """Adapt to one image: the numbers of ttaps.adapt, bit for bit."""
    return await work_for(
        request, AdaptRequest, lambda session, wanted, job: session.adapt(wanted, wanted.method, wanted.seed or 0, job)
    )


@router.post("/api/batch", tags=["adapt"], openapi_extra=body_of(BatchRequest), response_model=Batch)
async def batch(request: Request) -> Response:
    """Adapt to several images, each by itself; one that fails has its problem in its place."""
    return await work_for(
        request,
        BatchRequest,
        lambda session, wanted, job: {
            "results": [one_of_batch(session, wanted, each, job) for each in wanted.subjects]
        },
    )


def one_of_batch(session: Any, wanted: BatchRequest, subject: Subject, job: Job) -> dict[str, Any]:
    """Return the answer for one image without its views, or what is wrong with it."""
    seed = wanted.seed if subject.seed is None else subject.seed
    try:
        job.check()
        answer = session.adapt(subject, wanted.method, seed, job)
    except TtapsError as error:
        return {"problem": guard.problem_json(*explain(error)[:2])}
    return {**answer, "views": []}


@router.post("/api/adapt/stream", tags=["adapt"], openapi_extra=body_of(AdaptRequest), response_class=StreamingResponse)
async def stream(request: Request) -> Response:
    """The same, as server-sent events: start, step (0 is before the first), views, done; or problem."""
    service = shared(request)
    job = service.pool.admit()
    try:
        wanted, session = await read(request, AdaptRequest, job), await service.session()
        return Events(adapt_events(session, wanted, job), job.release)
    except BaseException:
        job.release()
        raise


async def adapt_events(session: Any, wanted: AdaptRequest, job: Job) -> AsyncIterator[tuple[str, Any]]:
    """Yield the events of one image as they happen."""
    events: asyncio.Queue[tuple[str, Any]] = asyncio.Queue()
    loop = asyncio.get_running_loop()

    def watch(name: str, data: Any) -> None:
        loop.call_soon_threadsafe(events.put_nowait, (name, data))

    async def work() -> None:
        try:
            await job.run(session.adapt, wanted, wanted.method, wanted.seed or 0, job, watch)
        except Exception as error:  # Stopped too: then nobody reads it
            watch("problem", found := guard.problem_json(*explain(error)[:2]))
            if found["status"] == 500 and not isinstance(error, Stopped):
                raise

    task = asyncio.create_task(work())
    name = "start"
    while name not in ("done", "problem"):
        name, data = await events.get()
        yield name, data
    await task


@router.get("/api/gallery", tags=["adapt"], response_class=StreamingResponse)
async def gallery(
    service: Shared,
    session: Loaded,
    method: MethodSpec | None = None,
    corruption: Annotated[str | None, Query(max_length=100)] = None,
) -> Response:
    """Embedded images under corruptions of severity 5, as server-sent events: start, tile, done.

    Ten images under every corruption, or all of them under one; computed only while the service is otherwise idle.
    """
    spec = session.choose(method)[1]
    if corruption is not None and corruption not in SAMPLE_CORRUPTIONS:
        raise UsageError(f"The gallery has no corruption '{corruption}'; it has {', '.join(SAMPLE_CORRUPTIONS)}.")
    if service.galleries >= GALLERIES:
        raise Busy(f"{GALLERIES} galleries are open already.\nTry again later.")
    service.galleries += 1

    def leave() -> None:
        service.galleries -= 1

    names, columns = ((corruption,), len(session.indices)) if corruption else (SAMPLE_CORRUPTIONS, 10)
    return Events(gallery_events(service, session, spec, names, columns), leave)


async def gallery_events(
    service: Service, session: Any, spec: str, names: Sequence[str], columns: int
) -> AsyncIterator[tuple[str, Any]]:
    """Yield a tile for each image and corruption; what was computed once is kept."""
    known = service.tiles.setdefault(spec, {})
    service.tiles.move_to_end(spec)
    while len(service.tiles) > KEPT:
        service.tiles.popitem(last=False)
    yield "start", {"total": columns * len(names), "corruptions": names, "columns": columns}
    for tile in ((number, name) for number in range(columns) for name in names):
        if tile not in known:
            while service.pool.taken >= service.pool.workers:
                await asyncio.sleep(0.05)
            if service.closing:
                return
            job = service.pool.admit()
            try:
                subject = Subject(sample=tile[0], corruption=tile[1], severity=5)
                found = await job.run(session.adapt, subject, spec, 0, job)
            except TtapsError as error:
                yield "problem", guard.problem_json(*explain(error)[:2])
                return
            finally:
                job.release()
            facts = {"id": tile[0], "corruption": tile[1], "severity": 5}
            known[tile] = facts | {new: found[old] for old, new in TILE.items()}
        yield "tile", known[tile]
    yield "done", {}


@router.get("/api/results", tags=["results"])
async def results(service: Shared, session: Loaded) -> Response:
    """All experiments of the folder, and their accuracy under every corruption; or where the HTML report is."""
    if service.report is not None:
        return reply({"folder": None, "report": "/report", "experiments": [], "table": []})
    found = folder_of(session)
    return reply(await asyncio.to_thread(lambda: found.summary))


@router.get("/api/results/rows", tags=["results"])
async def rows(session: Loaded, wanted: Annotated[RowFilter, Query()]) -> Response:
    """Some of the images, by what adaptation did to them."""
    return reply(await asyncio.to_thread(folder_of(session).select, wanted))


@router.get("/api/results/image", tags=["results"])
async def image(session: Loaded, wanted: Annotated[ResultImage, Query()]) -> Response:
    """An image of the folder's data set as PNG in base64, where the data lies on this machine."""
    images, label, _ = await asyncio.to_thread(folder_of(session).image, wanted)
    return reply({"image": png(images[0]), "label": label})


def folder_of(session: Any) -> Any:
    """Return the results folder that was given."""
    if session.results is None:
        raise HTTPException(404, "There are no results here: start ttaps serve with --results FOLDER.")
    return session.results
