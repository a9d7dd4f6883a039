"""Work is bounded: places, time, sizes, settings; who goes away stops; wrong requests are answered with what is wrong."""

from __future__ import annotations

import base64
import io
import json
import platform
import re
import signal
import socket
import struct
import subprocess
import sys
import time
import zlib
from collections.abc import Iterator
from pathlib import Path
from threading import Event
from typing import Any

import httpx
import numpy as np
import pytest
from PIL import Image

from serve.conftest import Served, wait_until
from ttaps.serve import pool
from ttaps.serve.guard import resident_memory
from ttaps.serve.images import MAX_BODY
from ttaps.serve.session import Session

SLOW = "ttaps[steps=100,num_pairs=1]"  # with 10 ms a step, see below: a second


@pytest.fixture
def small(model_folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Served]:
    """A service with one worker, no queue and slow steps."""
    locate = Session.locate

    def slowly(session: Session, z: Any) -> Any:
        time.sleep(0.01)
        return locate(session, z)

    monkeypatch.setattr(Session, "locate", slowly)
    with Served(model_folder, workers=1, queue=0, time_limit=30.0) as made:
        made.client.get("/api/map")
        yield made


def problem_of(answer: httpx.Response, status: int) -> str:
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    found = answer.json()
    assert set(found) == {"type", "title", "status", "detail"}
    assert found["status"] == status
    return str(found["detail"])


def read_until(client: socket.socket, words: bytes) -> bytes:
    """What arrives, up to the piece that completes `words`: head and body of an answer may come apart."""
    arrived = b""
    while words not in arrived:
        piece = client.recv(4096)
        assert piece, f"closed after {arrived!r}"
        arrived += piece
    return arrived


def request_bytes(served: Served, route: str, wanted: dict[str, Any]) -> bytes:
    body = json.dumps(wanted).encode()
    head = f"POST {route} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n"
    return head.encode() + body


def connect(served: Served) -> socket.socket:
    return socket.create_connection(served.socket.getsockname())


def test_without_a_place_a_request_is_refused_and_told_when_to_come_back(small: Served) -> None:
    job = small.pool.admit()
    answer = small.client.post("/api/adapt", json={"sample": 0})
    assert problem_of(answer, 429).startswith("All 1 workers are busy and 0 requests wait already.")
    assert answer.headers["retry-after"] == "1"
    job.release()
    small.adapt(sample=0, method="source")


@pytest.mark.parametrize("route", ["/api/adapt", "/api/adapt/stream", "/api/batch"])
def test_who_goes_away_stops_the_work_at_the_next_step(small: Served, route: str) -> None:
    wanted: dict[str, Any] = {"sample": 0, "method": SLOW}
    if route == "/api/batch":
        wanted = {"subjects": [{"sample": 0}] * 64, "method": SLOW}
    with connect(small) as client:
        client.sendall(request_bytes(small, route, wanted))
        wait_until(lambda: small.pool.taken == 1)
        if route == "/api/adapt/stream":
            read_until(client, b"event: step")
    began = time.monotonic()
    wait_until(lambda: small.pool.taken == 0)
    assert small.pool.stopped == 1  # the work itself ended by this, not by reaching its end
    assert time.monotonic() - began < 30
    small.adapt(sample=0, method="source")


def test_who_goes_away_while_waiting_gives_up_the_place(model_folder: Path) -> None:
    with Served(model_folder, workers=1, queue=1) as served:
        served.client.get("/api/model")
        over = Event()
        served.pool.threads.submit(over.wait)
        with connect(served) as client:
            client.sendall(request_bytes(served, "/api/adapt", {"sample": 0}))
            wait_until(lambda: served.pool.taken == 1)
        wait_until(lambda: served.pool.taken == 0)
        over.set()


def test_a_request_has_limited_time(small: Served) -> None:
    small.pool.time_limit = 0.3
    words = "This took longer than the 0.3 s that a request may take."
    answer = small.client.post("/api/adapt", json={"sample": 0, "method": SLOW})
    assert problem_of(answer, 503).startswith(words)
    assert answer.headers["retry-after"] == "60"
    events = small.events("/api/adapt/stream", "POST", json={"sample": 0, "method": SLOW})
    assert (events[-1][0], events[-1][1]["status"]) == ("problem", 503)
    batch = {"subjects": [{"sample": 0, "label": "cat"}] * 3, "method": SLOW}
    results = small.client.post("/api/batch", json=batch).json()["results"]
    assert [result["problem"]["status"] for result in results] == [503] * 3


def test_a_body_that_does_not_come_is_not_waited_for(small: Served) -> None:
    small.pool.time_limit = 0.3
    with connect(small) as client:
        client.sendall(request_bytes(small, "/api/adapt", {"sample": 0})[:-5])
        read_until(client, b"The request did not arrive within 0.3 s.")
    wait_until(lambda: small.pool.taken == 0)


def test_a_body_that_is_too_large_is_refused(served: Served) -> None:
    words = "A request may have at most 12 MB.\nMake the image smaller first."
    with connect(served) as client:  # by what it says, before it is sent
        head = f"POST /api/adapt HTTP/1.1\r\nhost: localhost\r\ncontent-length: {MAX_BODY + 1}\r\n\r\n"
        client.sendall(head.encode())
        assert b" 413 " in read_until(client, b"\n").split(b"\n")[0]

    def parts() -> Iterator[bytes]:  # by what is sent
        for _ in range(MAX_BODY // 2**20 + 1):
            yield b" " * 2**20

    answer = served.client.post("/api/adapt", content=parts(), headers={"content-type": "application/json"})
    assert problem_of(answer, 413) == words


def bomb(width: int, height: int, kind: int = 2, bits: int = 8) -> bytes:
    """A PNG that says it is large, and holds nothing."""
    head = struct.pack(">IIBBBBB", width, height, bits, kind, 0, 0, 0)
    chunks = [(b"IHDR", head), (b"IDAT", zlib.compress(b"")), (b"IEND", b"")]
    packed = [
        struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data)) for name, data in chunks
    ]
    return b"\x89PNG\r\n\x1a\n" + b"".join(packed)


def webp(width: int, height: int) -> bytes:
    buffer = io.BytesIO()
    Image.new("RGB", (width, height)).save(buffer, "WEBP", quality=1)
    return buffer.getvalue()


@pytest.mark.parametrize(
    ("file", "words"),
    [
        (b"", "The upload is not an image that Pillow can read."),
        (b"hello", "The upload is not an image that Pillow can read."),
        (b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n", "The upload is not an image that Pillow can read."),
        (bomb(30_000, 30_000), "The upload is too large"),
        (
            bomb(20_000, 20),
            "The upload is too large (20000x20 pixels): at most 25 megapixels of RGB and 16,000 pixels a side",
        ),
        (bomb(5_000, 5_000, kind=6), "The upload is too large (5000x5000 pixels): at most 15 megapixels of RGBA"),
        (
            bomb(4_000, 4_000, kind=0, bits=16),
            "The upload is too large (4000x4000 pixels): at most 9 megapixels of I;16",
        ),
        (bomb(32, 32), "The upload is damaged or truncated"),
    ],
)
def test_an_image_is_bounded_before_it_is_decoded(served: Served, file: bytes, words: str) -> None:
    before = resident_memory()
    answer = served.client.post("/api/corrupt", json={"image": base64.b64encode(file).decode()})
    assert problem_of(answer, 422).startswith(words)
    assert resident_memory() - before < 50 * 2**20


def test_a_large_webp_is_refused_before_it_is_decoded(served: Served) -> None:
    file = bytearray(webp(64, 64))
    place = file.index(b"\x9d\x01\x2a") + 3  # its width and height, 14 bits each
    file[place : place + 4] = struct.pack("<HH", 16_383, 16_383)
    before = resident_memory()
    answer = served.client.post("/api/corrupt", json={"image": base64.b64encode(file).decode()})
    problem_of(answer, 422)
    assert resident_memory() - before < 50 * 2**20


@pytest.mark.parametrize(
    ("wanted", "words"),
    [
        ({}, "Value error, give one of sample, image and result"),
        ({"sample": 1, "image": "x"}, "Value error, give one of sample, image and result"),
        ({"sample": 200}, "There is no embedded image 200: they are 0 to 199."),
        ({"sample": 1, "severity": 6, "corruption": "fog"}, "severity: Input should be less than or equal to 5"),
        ({"sample": 1, "corruption": "fogg"}, "Unknown corruption 'fogg' (did you mean 'fog'?)."),
        ({"sample": 1, "corruption": "fogg", "severity": 0}, "Unknown corruption 'fogg' (did you mean 'fog'?)."),
        ({"sample": 1, "label": "tiger"}, "The model has no class 'tiger'"),
        ({"sample": 1, "path": "/etc/passwd"}, "path: Extra inputs are not permitted"),
        ({"image": "?"}, "The image is not valid base64."),
        ({"sample": 1, "method": "ttapz"}, "Unknown method 'ttapz' (did you mean 'ttaps'?)."),
        ({"sample": 1, "method": "bn"}, "Method 'bn' needs BatchNorm layers with training statistics"),
        ({"sample": 1, "method": "ttaps[steps=101]"}, "steps may be at most 100 in this service, not 101."),
        ({"sample": 1, "method": "ttaps[steps=41]"}, "steps x 2 x num_pairs may be at most 2560 in this service"),
        ({"sample": 1, "method": "tent[lr=1e308]"}, "lr must be a number up to 1e+30, not 1e+308."),
        ({"sample": 1, "method": "ttaps[steps=-1]"}, "steps must be at least 0, not -1."),
        ({"sample": 1, "method": "memo[views.width=999]"}, "views.width may be at most 16 in this service"),
        ({"sample": 1, "method": "ttaps[lr=1" + "0" * 400 + "]"}, "Method ttaps[lr="),
        ({"sample": 1, "method": "ttaps[views.scale=" + "[" * 450}, "Method ttaps[views"),
        ({"result": {"experiment": 1, "corruption": "fog", "severity": 5, "image": 0}}, "There are no results here"),
    ],
)
def test_wrong_requests_are_answered_with_what_is_wrong(served: Served, wanted: dict[str, Any], words: str) -> None:
    assert problem_of(served.client.post("/api/adapt", json=wanted), 422).startswith(words)


def test_errors_outside_of_the_routes_have_the_same_form(served: Served) -> None:
    client = served.client
    problem_of(client.get("/nothing"), 404)
    problem_of(client.get("/api/samples/200.png"), 404)
    problem_of(client.get("/api/samples/x.png"), 422)
    problem_of(client.get("/api/results"), 404)
    problem_of(client.get("/report"), 404)
    assert client.delete("/api/adapt").headers["allow"] == "POST"
    problem_of(client.delete("/api/adapt"), 405)
    problem_of(client.post("/api/adapt", content=b"{"), 422)
    problem_of(client.post("/api/adapt", content=b"x=1", headers={"content-type": "text/plain"}), 415)
    problem_of(client.post("/api/adapt", content=b"x", headers={"content-type": "multipart/form-data"}), 422)
    problem_of(client.post("/api/adapt", files=[("image", b"a"), ("image", b"b")]), 422)
    problem_of(client.get("/api/gallery?method=ttapz"), 422)
    problem_of(client.get("/api/gallery?corruption=zoom_blur"), 422)


def test_probabilities_that_are_not_numbers_are_null(served: Served) -> None:
    answer = served.adapt(sample=0, method="ttaps[steps=2,num_pairs=2,lr=1e30]")
    assert answer["label"] is None
    assert answer["trace"][-1] == [None] * 10
    assert answer["outcome"] in ("changed", "broken")


def test_memory_is_given_back_once_nothing_runs(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[int] = []
    monkeypatch.setattr(pool, "give_back", lambda: given.append(served.pool.taken))
    time.sleep(1.5)  # what an earlier test has left to give back
    given.clear()
    served.adapt(sample=0, method="source")
    wait_until(lambda: given == [0])
    time.sleep(1.5)
    assert given == [0]  # once, not every second


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only glibc is told to")
def test_what_is_given_back_is_no_longer_resident() -> None:
    # 100 MB that the C library keeps as long as the last of them is used
    blocks = [bytes(1000) for _ in range(100_000)]
    last = blocks[-1]
    blocks.clear()
    kept = resident_memory()
    pool.give_back()
    assert kept - resident_memory() > 80 * 2**20
    assert last == bytes(1000)


@pytest.fixture
def at_work(model_folder: Path) -> Iterator[tuple[subprocess.Popen[str], socket.socket]]:
    """A process of the service, and a client that waits for eight images."""
    command = [sys.executable, "-m", "ttaps", "serve", str(model_folder), "--port", "0", "--workers", "1"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        address = re.match(r"http://127.0.0.1:(\d+)/ shows model", process.stderr.readline())
        assert address is not None
        port = int(address[1])
        wait_until(lambda: httpx.get(f"http://localhost:{port}/health").json()["status"] == "ok")
        with socket.create_connection(("127.0.0.1", port)) as client:
            body = {"subjects": [{"sample": 0}] * 8, "method": "ttaps[steps=40,num_pairs=4]"}
            head = b"POST /api/batch HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n"
            data = json.dumps(body).encode()
            client.sendall(head + b"content-length: %d\r\n\r\n" % len(data) + data)
            wait_until(lambda: httpx.get(f"http://localhost:{port}/health").json()["taken"] == 1)
            yield process, client


def test_sigterm_finishes_what_runs(at_work: tuple[subprocess.Popen[str], socket.socket]) -> None:
    process, client = at_work
    process.send_signal(signal.SIGTERM)
    answer = b"".join(iter(lambda: client.recv(65536), b""))
    assert process.wait(60) == 0
    results = json.loads(answer.split(b"\r\n\r\n", 1)[1])["results"]
    assert answer.startswith(b"HTTP/1.1 200 ")
    assert len(results) == 8
    assert all(np.isfinite(result["trace"]).all() for result in results)


def test_a_second_ctrl_c_ends_it_at_once_and_quietly(at_work: tuple[subprocess.Popen[str], socket.socket]) -> None:
    process, client = at_work
    process.send_signal(signal.SIGINT)
    address = client.getpeername()

    def refused() -> bool:
        with socket.socket() as probe:
            return probe.connect_ex(address) != 0

    wait_until(refused)  # it stops: it listens no longer
    process.send_signal(signal.SIGINT)
    assert process.wait(60) == -signal.SIGINT
    assert process.stderr is not None
    assert process.stderr.read() == ""
