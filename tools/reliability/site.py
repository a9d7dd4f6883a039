"""The official site on this machine, in a process of its own: slow, with ranges, and now and then broken off."""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

from reliability.forks import end_with_parent
from ttaps.data import download


@contextmanager
def official_site(archive: Path) -> Iterator[None]:
    """Serve a file as the official site would, and let downloads come from there."""
    content, rng = archive.read_bytes(), random.Random(0)

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            wanted = self.headers["Range"]
            start = int(wanted.removeprefix("bytes=").removesuffix("-")) if wanted else 0
            if start >= len(content):
                self.send_error(416)
                return
            self.send_response(206 if start else 200)
            self.send_header("Content-Length", str(len(content) - start))
            self.end_headers()
            for place in range(start, len(content), 1 << 19):
                self.wfile.write(content[place : place + (1 << 19)])
                time.sleep(rng.uniform(0, 0.02))

        def log_message(self, *arguments: Any) -> None:
            pass

    server = HTTPServer(("127.0.0.1", 0), Handler)
    pid = os.fork()
    if not pid:
        end_with_parent()
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)  # a client that was killed is no news
        server.serve_forever()
    before, download.OFFICIAL = download.OFFICIAL, f"http://127.0.0.1:{server.server_port}/"
    os.environ["no_proxy"] = "*"
    server.socket.close()
    try:
        yield
    finally:
        download.OFFICIAL = before
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
