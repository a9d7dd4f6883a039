"""Ctrl-C, or a scheduler's SIGTERM, between two steps instead of in the middle of one."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

SIGNALS = (signal.SIGINT, signal.SIGTERM)


@contextmanager
def graceful_interrupt(listen: bool = True) -> Iterator[Callable[[], bool]]:
    """Yield a function that says whether somebody has asked to stop since; who asks twice is not kept waiting.

    One of several processes does not ``listen``: they would not stop after the same step.
    """
    asked: list[int] = []
    if not listen or threading.current_thread() is not threading.main_thread():  # other threads hear no signals
        yield lambda: False
        return

    def ask(number: int, frame: FrameType | None) -> None:
        if asked:
            raise KeyboardInterrupt
        asked.append(number)

    ours = [
        number for number in SIGNALS if signal.getsignal(number) not in (signal.SIG_IGN, None)
    ]  # a job in the background ignores
    before = {number: signal.signal(number, ask) for number in ours}
    try:
        yield lambda: bool(asked)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
