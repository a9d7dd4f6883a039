"""Memory goes back to the system when nothing runs. Of the C libraries only glibc, which would keep most of it, is told to."""

import ctypes
import gc
from typing import Any

M_ARENA_MAX = -8


def share_arena() -> None:
    """Let all threads allocate from one arena: glibc does not trim the end of those that it makes for single threads."""
    _glibc("mallopt", M_ARENA_MAX, 1)


def give_back() -> None:
    """Free what is no longer used."""
    gc.collect()
    _glibc("malloc_trim", 0)


def _glibc(name: str, *arguments: int) -> Any:
    function = getattr(ctypes.CDLL(None), name, None)
    return function and function(*arguments)
