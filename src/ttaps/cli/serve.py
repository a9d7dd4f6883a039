"""``ttaps serve``."""

import importlib.util
import os
import secrets
import signal
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Thread
from typing import Any

from ttaps.cli import common
from ttaps.cli.commands import Serve
from ttaps.errors import MissingExtra, TtapsError, UsageError
from ttaps.model.registry import folder_of, is_reference
from ttaps.progress import log_info
from ttaps.serve import LOOPBACK

TOKEN = "TTAPS_TOKEN"
BOUNDS = {"workers": (1, 256), "queue": (0, 10_000), "time_limit": (1, 86_400), "port": (0, 65_535)}


def serve(options: Serve) -> None:
    """Refuse what cannot work before anything is loaded; then serve until stopped."""
    if any(importlib.util.find_spec(name) is None for name in ("fastapi", "uvicorn", "python_multipart")):
        raise MissingExtra("The service", "serve")
    if options.host not in LOOPBACK and not (options.token or os.environ.get(TOKEN)):
        raise UsageError(
            f"--host {options.host} lets other machines in: give --token too (--token auto generates one)."
        )
    if options.results and not options.results.exists():
        raise UsageError(f"There are no results in {options.results}.\nMake some with: ttaps evaluate")
    for name, (least, most) in BOUNDS.items():
        value = getattr(options, name)
        if value is not None and not least <= value <= most:
            raise UsageError(f"--{name.replace('_', '-')} must be from {least} to {most:,}, not {value}.")
    if not is_reference(options.model):
        folder_of(options.model)  # refused now, not after the page is there
    answer(options)


def answer(options: Serve) -> None:
    """Listen at once, load the model meanwhile, answer until a signal comes, and finish what runs then."""
    import uvicorn

    from ttaps.serve.app import create_app
    from ttaps.serve.pool import Pool, share_arena
    from ttaps.serve.service import Service

    class Server(uvicorn.Server):
        @contextmanager
        def capture_signals(self) -> Iterator[None]:
            yield  # uvicorn would raise them once more inside of the event loop, with tracebacks

    def stop(sent: int, frame: Any) -> None:
        signal.signal(signal.SIGINT, signal.SIG_DFL)  # a second Ctrl-C ends it at once, wherever it is then
        stopped_by.append(sent)
        service.closing = server.should_exit = True  # a gallery ends now, not after its last tile

    def load() -> Any:
        try:
            session = open_session(options)
        except Exception as error:
            failures.append(error)
            server.should_exit = True
            raise
        if not service.closing:
            preparing.append(Thread(target=lambda: (session.map(), session.start)))  # nobody needs to wait for it
            preparing[0].start()
        return session

    share_arena()
    failures: list[Exception] = []
    preparing: list[Thread] = []
    stopped_by: list[int] = []
    report = options.results.read_bytes() if options.results and options.results.is_file() else None
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    service = Service(load, Pool(options.workers or cores, options.queue, options.time_limit), report)
    token = options.token or os.environ.get(TOKEN)
    token = secrets.token_urlsafe(16) if token == "auto" else token
    app = create_app(service, token, tuple(common.listed(options.cors)))
    server = Server(
        uvicorn.Config(app, log_level="warning", access_log=False, server_header=False, timeout_keep_alive=75)
    )
    with listen(options.host, options.port) as listening:
        host = f"[{options.host}]" if ":" in options.host else options.host
        address = f"http://{host}:{listening.getsockname()[1]}/{f'?token={token}' if token else ''}"
        log_info(f"{address} shows model {options.model}. Stop with Ctrl-C.")
        before = {each: signal.signal(each, stop) for each in (signal.SIGINT, signal.SIGTERM)}
        try:
            server.run(sockets=[listening])
        finally:
            for thread in preparing:
                thread.join()  # torch aborts if the interpreter ends during one of its calls
            for each, handler in before.items():
                signal.signal(each, handler)
    if failures:
        raise failures[0]
    if signal.SIGINT in stopped_by:
        raise KeyboardInterrupt


def open_session(options: Serve) -> Any:
    """Load the model and open the results; imports torch, which takes seconds."""
    from ttaps.serve.results import ResultsFolder
    from ttaps.serve.session import Session

    folder = options.results if options.results and options.results.is_dir() else None
    results = ResultsFolder(folder, options.data_root) if folder else None
    return Session(options.model, common.use(options.device, options.threads), results)


def listen(host: str, port: int) -> socket.socket:
    """Take the port, or say that it cannot be had."""
    try:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        return socket.create_server((host, port), family=family, backlog=256)
    except OSError as error:
        remedy = "Choose another --port (0 takes a free one) or --host."
        raise TtapsError(f"Cannot listen on {host} port {port}: {error.strerror or error}.\n{remedy}") from error
