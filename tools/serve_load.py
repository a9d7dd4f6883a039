"""Load on loopback: 500 requests from 32 clients, good, bad, huge and aborted ones, against ``ttaps serve``.

Every good answer must be that of ttaps.adapt, bit for bit; every other one a clear refusal; the memory must come back.
Before it, one client alone: how long an answer takes relative to ttaps.adapt in this process, in turns.
Run it as: nice -n 5 python tools/serve_load.py cifar10
"""

from __future__ import annotations

import base64
import json
import os
import random
import re
import signal
import socket
import subprocess
import sys
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import numpy as np
import torch

import ttaps
from ttaps.data.corruptions import corrupt_set
from ttaps.data.sample import FOLDER, read_sample

REQUESTS, CLIENTS, TRIES, WARM, PAIRS = 500, 32, 5, 40, 20
SPECS = ("source", "augment:tuned", "tent", "ttaps:tuned", "ttaps:tuned[confidence_threshold=1]")
CORRUPTIONS = ("fog", "snow", "gaussian_noise", "contrast")
BAD: tuple[tuple[dict[str, Any], int], ...] = (
    ({"sample": 1000}, 422),
    ({"sample": 1, "method": "ttapz"}, 422),
    ({"sample": 1, "method": "ttaps[steps=100000]"}, 422),
    ({"image": base64.b64encode(b"no image").decode()}, 422),
    ({"sample": 1, "path": "/etc/passwd"}, 422),
)
CASES = ["good"] * 5 + ["stream", "bad", "huge", "abort", "abort stream"]


class Outcome(NamedTuple):
    """What became of one request."""

    case: str
    status: str
    seconds: float
    wrong: str = ""


def main(model: str = "cifar10") -> int:
    """Start the service, load it, print the figures, and return 1 if anything was wrong."""
    torch.set_num_threads(1)
    command = [sys.executable, "-m", "ttaps", "serve", model, "--port", "0"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        found = re.match(r"http://127.0.0.1:(\d+)/", process.stderr.readline())
        assert found is not None
        load = Load(model, int(found[1]), process.pid)
        try:
            return load.run()
        finally:
            process.send_signal(signal.SIGTERM)


class Load:
    """A service under load."""

    def __init__(self, model: str, port: int, pid: int) -> None:
        self.port, self.pid, self.busy = port, pid, 0
        self.model, self.samples, self.indices = (
            ttaps.load(model),
            read_sample(),
            json.loads((FOLDER / "indices.json").read_text())["test"],
        )
        self.client = httpx.Client(
            base_url=f"http://127.0.0.1:{port}", timeout=300, limits=httpx.Limits(max_connections=CLIENTS)
        )

    def run(self) -> int:
        """Send a few requests one by one, so that everything is in use that is used at all; then load it twice."""
        self.client.get("/api/start")
        wrong = [outcome for outcome in map(self.request, range(WARM)) if outcome.wrong]
        self.compare()
        for _ in range(2):
            self.wait_until_idle()
            before, most, began, used = self.memory(), 0, time.monotonic(), self.cpu()
            with ThreadPoolExecutor(CLIENTS) as clients:
                running = [clients.submit(self.request, number) for number in range(REQUESTS)]
                while not all(one.done() for one in running):
                    most = max(most, self.memory())
                    time.sleep(0.05)
            outcomes, seconds = [one.result() for one in running], time.monotonic() - began
            self.wait_until_idle()
            wrong += [outcome for outcome in outcomes if outcome.wrong]
            self.report(outcomes, seconds, self.cpu() - used, before, most, self.memory())
        for outcome in wrong[:10]:
            print(f"WRONG {outcome.case}: {outcome.wrong}")
        return int(bool(wrong))

    def compare(self) -> None:
        """Print how long an answer takes, alone, relative to the same in this process: medians and quartiles of pairs, in turns."""
        for spec in SPECS:
            pairs = [self.pair(random.Random(number), spec, number % 2) for number in range(PAIRS)]
            ratios = np.quantile([service / library for service, library in pairs], (0.5, 0.25, 0.75))
            service, library = np.median(pairs, axis=0)
            figures = "{:.2f} ({:.2f} to {:.2f})".format(*ratios)
            print(f"| {spec} | {len(pairs)} | {service:.3f} | {library:.3f} | {figures} |")

    def pair(self, choose: random.Random, spec: str, library_first: int) -> tuple[float, float]:
        """Return the seconds of one request to the service, and of the same damage and adaptation in this process."""
        wanted, times = {**self.subject(choose), "method": spec}, [0.0, 0.0]
        work = (lambda: self.client.post("/api/adapt", json=wanted), lambda: self.expected(wanted))
        for which in (library_first, 1 - library_first):
            began = time.perf_counter()
            work[which]()
            times[which] = time.perf_counter() - began
        return times[0], times[1]

    def report(self, outcomes: list[Outcome], seconds: float, used: float, before: int, most: int, after: int) -> None:
        """Print the figures."""
        machine = f"{os.cpu_count()} cores, load average {os.getloadavg()[0]:.0f}"
        print(
            f"{len(outcomes)} requests from {CLIENTS} clients in {seconds:.1f} s ({used:.1f} s of the service's CPU time) on {machine}"
        )
        for (case, status), count in sorted(Counter((one.case, one.status) for one in outcomes).items()):
            times = sorted(one.seconds for one in outcomes if (one.case, one.status) == (case, status))
            middle, high = times[len(times) // 2], times[int(0.95 * (len(times) - 1))]
            print(f"| {case} | {status} | {count} | {middle:.3f} | {high:.3f} |")
        text = self.client.get("/metrics").text
        stopped = next(line for line in text.splitlines() if line.startswith("ttaps_stopped"))
        print(
            f"wrong answers: {sum(bool(one.wrong) for one in outcomes)}; answers 429 to good requests so far: {self.busy}; {stopped}"
        )
        print(
            f"resident memory: {before / 2**20:.0f} MB before, {most / 2**20:.0f} MB at most, {after / 2**20:.0f} MB after"
        )

    def memory(self) -> int:
        """Return the bytes of memory that the service has."""
        return int(Path(f"/proc/{self.pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")

    def cpu(self) -> float:
        """Return the seconds of CPU time that the service has used."""
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def wait_until_idle(self) -> None:
        """Wait until nothing is under way, and the memory has been given back, a second later."""
        while self.client.get("/health").json()["taken"]:
            time.sleep(0.05)
        time.sleep(3)

    def request(self, number: int) -> Outcome:
        """Send one request; a client that is told that the service is busy comes back a few times."""
        for attempt in range(TRIES):
            choose = random.Random(number)
            case, began = choose.choice(CASES), time.monotonic()
            send = {"good": self.good, "stream": self.stream, "bad": self.bad, "huge": self.huge}.get(case, self.abort)
            try:
                status, wrong = send(choose, case)
            except httpx.HTTPError as error:
                status, wrong = type(error).__name__, "" if case == "huge" else repr(error)
            outcome = Outcome(case, status, time.monotonic() - began, wrong)
            if status != "429" or case not in ("good", "stream"):
                break
            self.busy += 1
            time.sleep((attempt + 1) * choose.uniform(1, 2))
        return outcome

    def subject(self, choose: random.Random) -> dict[str, Any]:
        """Return a good request."""
        wanted = {
            "sample": choose.randrange(200),
            "corruption": choose.choice(CORRUPTIONS),
            "seed": choose.randrange(3),
        }
        return {**wanted, "severity": choose.randint(1, 5), "method": choose.choice(SPECS)}

    def expected(self, wanted: dict[str, Any]) -> list[list[float]]:
        """Return what the library says."""
        clean = self.samples.images[wanted["sample"]].transpose(1, 2, 0)[None]
        index = [self.indices[wanted["sample"]]]
        image = corrupt_set(clean, wanted["corruption"], wanted["severity"], wanted["seed"], index)[0]
        result = ttaps.adapt(self.model, np.ascontiguousarray(image), wanted["method"], seed=wanted["seed"])
        return list(result.trace.tolist())

    def good(self, choose: random.Random, case: str) -> tuple[str, str]:
        wanted = self.subject(choose)
        answer = self.client.post("/api/adapt", json=wanted)
        if answer.status_code != 200:
            return self.refused(answer, 429)
        return "200", "" if answer.json()["trace"] == self.expected(wanted) else f"other numbers for {wanted}"

    def stream(self, choose: random.Random, case: str) -> tuple[str, str]:
        wanted = self.subject(choose)
        answer = self.client.post("/api/adapt/stream", json=wanted)
        if answer.status_code != 200:
            return self.refused(answer, 429)
        data = [json.loads(line[6:]) for line in answer.text.splitlines() if line.startswith("data: ")]
        steps = [event["probabilities"] for event in data if "step" in event]
        return "200", "" if steps == data[-1]["trace"] == self.expected(wanted) else f"other numbers for {wanted}"

    def bad(self, choose: random.Random, case: str) -> tuple[str, str]:
        wanted, status = choose.choice(BAD)
        return self.refused(self.client.post("/api/adapt", json=wanted), status, 429)

    def huge(self, choose: random.Random, case: str) -> tuple[str, str]:
        """Too many bytes, or too many pixels in few bytes."""
        if choose.random() < 0.5:
            answer = self.client.post(
                "/api/adapt", content=b"x" * (13 << 20), headers={"content-type": "application/json"}
            )
            return self.refused(answer, 413, 429)
        bomb = b"P6 20000 20000 255\n" + bytes(1000)
        answer = self.client.post("/api/corrupt", files={"image": ("bomb.ppm", bomb)})
        return self.refused(answer, 422, 429)

    def refused(self, answer: httpx.Response, *statuses: int) -> tuple[str, str]:
        """Check that an answer is a refusal in the right form."""
        right = answer.status_code in statuses and answer.json().get("status") == answer.status_code
        if answer.status_code == 429:
            right = right and answer.headers.get("retry-after") == "1"
        return str(answer.status_code), "" if right else answer.text[:200]

    def abort(self, choose: random.Random, case: str) -> tuple[str, str]:
        """Go away before the answer is there."""
        body = json.dumps({**self.subject(choose), "method": "ttaps[num_pairs=16]"}).encode()
        route = "/api/adapt/stream" if case == "abort stream" else "/api/adapt"
        head = f"POST {route} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
        with socket.create_connection(("127.0.0.1", self.port)) as connection:
            connection.sendall(f"{head}content-length: {len(body)}\r\n\r\n".encode() + body)
            time.sleep(choose.uniform(0.05, 0.5))
        return "gone", ""


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
