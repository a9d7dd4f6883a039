"""A bounded pool: one image per worker, a queue of bounded length, work that stops when nobody waits for it or its time is over."""

import asyncio
import ctypes
import gc
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from threading import Event, Lock
from time import monotonic
from typing import Any, TypeVar

from ttaps.errors import TtapsError

T = TypeVar("T")
M_ARENA_MAX = -8  # of glibc


class Busy(TtapsError):
    """All workers work and the queue is full."""


class OutOfTime(TtapsError):
    """A request took longer than it may."""


class Stopped(Exception):
    """The client has gone away: nobody waits for an answer."""


class Pool:
    """As many threads as workers; a request holds one of ``workers + queue`` places from its first byte to its last step."""

    def __init__(self, workers: int, queue: int, time_limit: float) -> None:
        self.workers, self.queue, self.time_limit = workers, queue, time_limit
        self.threads = ThreadPoolExecutor(workers, thread_name_prefix="ttaps")
        self.taken, self.ended, self.stopped, self.lock = 0, 0, 0, Lock()

    def admit(self) -> "Job":
        """Return a new job, which must be released in the end, or refuse it."""
        with self.lock:
            if self.taken >= self.workers + self.queue:
                waiting = f"{self.queue} requests wait already"
                raise Busy(f"All {self.workers} workers are busy and {waiting}.\nTry again in a second.")
            self.taken += 1
        return Job(self)

    async def tidy(self) -> None:
        """Give memory back whenever nothing has run for a second."""
        tidied = self.ended
        while True:
            await asyncio.sleep(1)
            if not self.taken and tidied != self.ended:
                tidied = self.ended
                await asyncio.to_thread(give_back)


class Job:
    """One request: its place in the pool, its time limit, and whether its client is still there."""

    def __init__(self, pool: Pool) -> None:
        self.pool, self.deadline, self.released = pool, monotonic() + pool.time_limit, False
        self.gone, self.work = Event(), Future[Any]()
        self.work.set_result(None)

    def check(self) -> None:
        """Raise if the work is to stop; called before it begins and at every step."""
        if self.gone.is_set():
            raise Stopped
        if monotonic() > self.deadline:
            raise OutOfTime(
                f"This took longer than the {self.pool.time_limit:g} s that a request may take.\n"
                "Take fewer steps or images, or start ttaps serve with a longer --time-limit."
            )

    async def run(self, work: Callable[..., T], *arguments: Any) -> T:
        """Run ``work(*arguments)`` on a thread of the pool and wait for it."""

        def checked() -> T:
            self.check()
            return work(*arguments)

        self.work = self.pool.threads.submit(checked)
        try:
            return await asyncio.wrap_future(self.work)
        except asyncio.CancelledError:
            if self.gone.is_set():  # while it waited for a worker
                raise Stopped from None
            raise

    def cancel(self) -> None:
        """Stop the work at its next step, or before it has begun."""
        self.gone.set()
        self.work.cancel()

    def release(self) -> None:
        """Give the place back, as soon as the work has really ended."""
        self.cancel()
        if not self.released:
            self.released = True
            self.work.add_done_callback(self._leave)

    def _leave(self, work: Future[Any]) -> None:
        with self.pool.lock:
            self.pool.taken -= 1
            self.pool.ended += 1
            self.pool.stopped += work.cancelled() or isinstance(work.exception(), Stopped)


def share_arena() -> None:
    """Let all threads allocate from one arena: glibc does not trim the end of those that it makes for single threads."""
    _glibc("mallopt", M_ARENA_MAX, 1)


def give_back() -> None:
    """Free what is no longer used. Of the C libraries only glibc keeps most of it, and must be asked to return it to the system."""
    gc.collect()
    _glibc("malloc_trim", 0)


def _glibc(name: str, *arguments: int) -> None:
    """Call a function of glibc, where that is the C library."""
    if function := getattr(ctypes.CDLL(None), name, None):
        function(*arguments)
