"""A service with a tiny untrained model, on a thread of this process, and a client that reaches it over loopback."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Callable, Iterator
from functools import cached_property
from pathlib import Path
from threading import Thread
from typing import Any, Self

import httpx
import pytest
import uvicorn

from helpers.small_model import write_model
from ttaps.serve.app import create_app
from ttaps.serve.pool import Pool
from ttaps.serve.service import Service
from ttaps.serve.session import Session


def wait_until(true: Callable[[], bool]) -> None:
    """Wait for what another thread does, at most a minute."""
    end = time.monotonic() + 60
    while not true():
        assert time.monotonic() < end
        time.sleep(0.01)


class Served:
    """A service and a client of it."""

    def __init__(self, model: Path, **given: Any) -> None:
        self.model, results, token = model, given.pop("results", None), given.pop("token", None)
        origins, report = given.pop("origins", ()), given.pop("report", None)
        self.pool = Pool(**{"workers": 2, "queue": 4, "time_limit": 60.0, **given})
        self.service = Service(lambda: Session(str(model), results=results), self.pool, report)
        config = uvicorn.Config(create_app(self.service, token, origins), log_level="warning", server_header=False)
        self.server, self.socket = uvicorn.Server(config), socket.create_server(("127.0.0.1", 0))
        self.thread = Thread(target=self.server.run, args=([self.socket],))
        self.client = httpx.Client(base_url=f"http://127.0.0.1:{self.socket.getsockname()[1]}", timeout=120)

    @cached_property
    def start(self) -> dict[str, Any]:
        """The image that the page starts with."""
        return dict(self.client.get("/api/start").json())

    def __enter__(self) -> Self:
        self.thread.start()
        assert self.client.get("/api/corruptions").status_code < 500
        return self

    def __exit__(self, *error: object) -> None:
        self.client.close()
        self.server.should_exit = True
        self.thread.join()
        self.socket.close()

    def adapt(self, **wanted: Any) -> dict[str, Any]:
        """Adapt to one image, which must succeed."""
        answer = self.client.post("/api/adapt", json=wanted)
        assert answer.status_code == 200, answer.text
        return dict(answer.json())

    def events(self, route: str, method: str = "GET", **wanted: Any) -> list[tuple[str, Any]]:
        """Return all events of a stream."""
        text = self.client.request(method, route, **wanted).text
        found = [part.split("\n", 1) for part in text.split("\n\n") if part]
        return [(name.removeprefix("event: "), json.loads(data.removeprefix("data: "))) for name, data in found]


@pytest.fixture(scope="session")
def model_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model folder."""
    return write_model(tmp_path_factory.mktemp("served") / "small")


@pytest.fixture(scope="session")
def served(model_folder: Path) -> Iterator[Served]:
    """A service with nothing special."""
    made = Served(model_folder)
    with made:
        yield made
