"""Chromium, the system's own, on the page of a service with the model in the package. Nothing is downloaded."""

from __future__ import annotations

import base64
import io
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from PIL import Image
from playwright import sync_api

from serve.conftest import Served
from ttaps.adaptation.spec import parse_method
from ttaps.api import load
from ttaps.data.sample import read_sample
from ttaps.evaluation.benchmark import open_benchmark
from ttaps.evaluation.run import evaluate
from ttaps.serve.results import ResultsFolder

CHROMIUM = shutil.which("chromium")
ARGUMENTS = ("--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking")
WIDE = {"width": 1440, "height": 900}
PHONE = {"width": 390, "height": 844}
PATIENCE = 180_000  # milliseconds; the first page waits for the model, and the machine may be busy
OpenPage = Callable[..., Any]


@pytest.fixture(scope="session")
def stored(tmp_path_factory: pytest.TempPathFactory) -> ResultsFolder:
    """Results of two methods on a few embedded images."""
    folder = tmp_path_factory.mktemp("stored")
    methods = [parse_method("source"), parse_method("augment[num_views=2]")]
    data = open_benchmark("sample")
    evaluate(load("cifar10"), data, methods, folder=folder, plan=data.plan(4))
    return ResultsFolder(folder)


@pytest.fixture(scope="session")
def site(stored: ResultsFolder) -> Iterator[Served]:
    """The service behind the page."""
    with Served(Path("cifar10"), results=stored, workers=1, queue=16) as made:
        yield made


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """One browser for a module, not for longer: Playwright keeps an event loop running in this thread."""
    if CHROMIUM is None:
        pytest.skip("The tests in a browser need Chromium: apt-get install -y chromium")
    sync_api.expect.set_options(timeout=PATIENCE)
    with sync_api.sync_playwright() as playwright:
        launched = playwright.chromium.launch(executable_path=CHROMIUM, args=list(ARGUMENTS))
        yield launched
        launched.close()


@pytest.fixture
def open_page(browser: Any, site: Served) -> Iterator[OpenPage]:
    """Return a function that opens the page; in the end there must be no error in the console and no request to another host."""
    contexts: list[Any] = []
    complaints: list[str] = []
    address = str(site.client.base_url)

    def watch(page: Any) -> None:
        def said(message: Any) -> None:
            if message.type in ("error", "warning"):
                complaints.append(message.text)

        def asked(request: Any) -> None:
            if not request.url.startswith((address, "data:", "blob:")):
                complaints.append(request.url)

        page.set_default_timeout(PATIENCE)
        page.on("console", said)
        page.on("request", asked)
        page.on("pageerror", lambda error: complaints.append(str(error)))

    def opened(place: str = "", *, ready: bool = True, before: Callable[[Any], object] = id, **options: Any) -> Any:
        contexts.append(browser.new_context(**{"viewport": WIDE, "reduced_motion": "reduce", **options}))
        page = contexts[-1].new_page()
        watch(page)
        before(page)
        page.goto(f"{address}/{place}")
        if ready:
            sync_api.expect(page.locator("#announce")).not_to_be_empty()
        return page

    yield opened
    for context in contexts:
        context.close()
    assert not complaints


@pytest.fixture(scope="session")
def ship() -> bytes:
    """A PNG file of a ship, larger than the network's images."""
    pixels = read_sample().images[8].transpose(1, 2, 0)
    buffer = io.BytesIO()
    Image.fromarray(pixels).resize((100, 80)).save(buffer, "PNG")
    return buffer.getvalue()


def shown(page: Any, place: str) -> bytes:
    """Return the PNG that an image of the page shows."""
    source = page.locator(place).get_attribute("src")
    return base64.b64decode(source.partition("base64,")[2])


def bars(page: Any, lane: int = 0) -> list[str]:
    """Return the probabilities that a lane shows, in the order of the classes."""
    return list(page.locator(".lane").nth(lane).locator(".bars .value").all_text_contents())


def percents(probabilities: list[float]) -> list[str]:
    return [f"{int(100 * each + 0.5)}\N{NO-BREAK SPACE}%" for each in probabilities]
