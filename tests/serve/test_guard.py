"""Who may ask, what every answer carries, and what is counted."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from pathlib import Path

import httpx
import pytest

from serve.conftest import Served, wait_until
from ttaps.cli import main

REPORT = b"<!doctype html><title>A report</title>"


def test_every_answer_has_a_strict_policy(served: Served) -> None:
    for route in ("/", "/docs", "/static/docs.js", "/api/model", "/nothing", "/openapi.json"):
        headers = served.client.get(route).headers
        policy = headers["content-security-policy"]
        assert policy.startswith("default-src 'self'; img-src 'self' data: blob:; object-src 'none'")
        assert "unsafe" not in policy
        assert headers["x-content-type-options"] == "nosniff"
        assert "access-control-allow-origin" not in headers
        assert "server" not in headers


def test_pages_have_nothing_inline_and_nothing_from_elsewhere(served: Served) -> None:
    for route in ("/", "/docs"):
        page = served.client.get(route).text
        assert not re.search(r"<script(?![^>]*\bsrc=)|<style|\sstyle=|\son\w+=", page)
        assert not re.search(r"(?:src|href)=[\"']?(?:https?:)?//", page)
        for asset in re.findall(r"(?:src|href)=\"(/static/[^\"]+)\"", page):
            assert served.client.get(asset).status_code == 200


def test_assets_are_asked_for_again_and_answered_in_a_line(served: Served) -> None:
    first = served.client.get("/static/docs.js")
    again = served.client.get("/static/docs.js", headers={"if-none-match": first.headers["etag"]})
    assert first.headers["content-type"].startswith("text/javascript")
    assert (again.status_code, again.content) == (304, b"")


@pytest.mark.parametrize("name", ["../app.py", "%2e%2e/app.py", "..%2fapp.py", "/etc/passwd", "%00", "", "docs.js/"])
def test_no_path_leads_to_another_file(served: Served, name: str) -> None:
    url = httpx.URL(str(served.client.base_url), raw_path=f"/static/{name}".encode())
    assert served.client.get(url).status_code == 404


def test_only_own_pages_and_names_are_answered(served: Served) -> None:
    get = served.client.get
    own = f"http://{served.client.base_url.netloc.decode()}"
    assert get("/api/corruptions", headers={"origin": own}).status_code == 200
    assert get("/api/corruptions", headers={"origin": "https://example.org"}).status_code == 403
    assert get("/api/corruptions", headers={"origin": "null"}).status_code == 403
    assert get("/api/corruptions", headers={"host": "localhost:1"}).status_code == 200
    assert get("/api/corruptions", headers={"host": "[::1]:1"}).status_code == 200
    assert get("/api/corruptions", headers={"host": "example.org"}).status_code == 403  # DNS rebinding


def test_with_a_token_only_who_knows_it_is_answered(model_folder: Path) -> None:
    with Served(model_folder, token="s3cret", origins=("https://friend.example",), report=REPORT) as served:
        get = served.client.get
        refused = get("/api/corruptions")
        assert (refused.status_code, refused.headers["www-authenticate"]) == (401, "Bearer")
        assert refused.headers["content-type"] == "application/problem+json"
        assert get("/health").status_code == 200
        assert get("/api/corruptions", headers={"authorization": "Bearer wrong"}).status_code == 401
        assert get("/api/corruptions", headers={"authorization": "Bearer s3cret"}).status_code == 200
        assert (
            get("/api/corruptions", headers={"authorization": "bearer s3cret", "host": "a.example"}).status_code == 200
        )
        page = get("/")
        assert (page.status_code, page.headers["content-type"]) == (401, "text/html; charset=utf-8")
        assert get("/?token=wrong").status_code == 401
        entered = get("/?token=s3cret")
        assert (entered.status_code, entered.headers["location"]) == (303, "/")
        assert "HttpOnly" in entered.headers["set-cookie"]
        assert "SameSite=strict" in entered.headers["set-cookie"]
        assert get("/api/corruptions").status_code == 200  # by the cookie
        # an HTML report beside it, and a page that was allowed
        report = get("/report")
        assert report.content == REPORT
        assert report.headers["content-security-policy"].startswith("default-src 'none'; style-src 'unsafe-inline'")
        assert get("/api/results").json()["report"] == "/report"
        friend = get("/api/corruptions", headers={"origin": "https://friend.example"})
        assert friend.headers["access-control-allow-origin"] == "https://friend.example"
        stranger = get("/api/corruptions", headers={"origin": "https://example.org"})
        assert stranger.status_code == 403
        assert "access-control-allow-origin" not in stranger.headers


def test_metrics_count_answers(served: Served) -> None:
    def counted() -> dict[str, float]:
        lines = [line for line in served.client.get("/metrics").text.splitlines() if not line.startswith("#")]
        return {name: float(value) for name, value in (line.rsplit(" ", 1) for line in lines)}

    name = 'ttaps_requests_total{route="/api/corruptions",status="200"}'
    before = counted().get(name, 0)
    for _ in range(3):
        served.client.get("/api/corruptions")
    after = counted()
    assert after[name] == before + 3
    assert after["ttaps_taken"] == 0
    assert after["ttaps_resident_memory_bytes"] > 10**7
    assert served.client.get("/metrics").headers["content-type"].startswith("text/plain; version=0.0.4")


@pytest.mark.parametrize(
    ("options", "code", "words"),
    [
        (["--host", "0.0.0.0"], 2, "--host 0.0.0.0 lets other machines in: give --token too"),
        (["--port", "70000"], 2, "--port must be from 0 to 65,535, not 70000."),
        (["--queue", "-1"], 2, "--queue must be from 0 to 10,000, not -1."),
        (["--results", "nowhere"], 2, "There are no results in nowhere."),
        (["--host", "256.1.1.1", "--token", "x"], 1, "Cannot listen on 256.1.1.1 port 8000"),
        (["no-such-model", "--port", "0"], 1, "There is no model 'no-such-model'"),
    ],
)
def test_wrong_commands_take_one_or_two_lines(
    options: list[str], code: int, words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["serve", *options]) == code
    told = capsys.readouterr().err.splitlines()  # and no address at which nobody answers
    assert told[0].startswith(f"ttaps serve: {words}")
    assert len(told) <= 2


def test_without_the_extra_it_says_how_to_get_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert main(["serve"]) == 1
    assert "pip install 'ttaps[serve]'" in capsys.readouterr().err


HEARD = """
import sys
def hear(event, given):
    if event in ("socket.bind", "socket.connect", "socket.getaddrinfo", "socket.sendto"):
        print(event, given[1], file=sys.stderr, flush=True)
sys.addaudithook(hear)
from ttaps.cli import main
sys.exit(main(sys.argv[1:]))
"""


def test_it_listens_where_it_says_and_connects_nowhere(model_folder: Path) -> None:
    command = [sys.executable, "-c", HEARD, "serve", str(model_folder), "--port", "0"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        assert process.stderr.readline() == "socket.bind ('127.0.0.1', 0)\n"
        address = process.stderr.readline().partition(" shows model")[0]
        wait_until(lambda: httpx.get(f"{address}health").json()["status"] == "ok")
        process.send_signal(signal.SIGINT)
        assert process.stderr.read().strip() == "ttaps serve: stopped."
