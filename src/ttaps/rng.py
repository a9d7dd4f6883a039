"""Randomness by name: a generator depends on its purpose, never on what ran before."""

import hashlib
from operator import index
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch


def derive_seed(*parts: str | int) -> int:
    """Return a 63-bit key for names and numbers, such as (0, "cifar10-c", "fog", 5, 17): the same on every machine and process."""
    # index: numpy's integers are numbers like any other
    text = "\x1f".join(f"str:{part}" if isinstance(part, str) else f"int:{index(part)}" for part in parts)
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "big") >> 1


def generator(*parts: str | int) -> "torch.Generator":
    """Return a CPU generator seeded by :func:`derive_seed`; draw on the CPU and move, so that every device sees the same numbers."""
    import torch  # here: the workers that build CIFAR-C need keys but no torch, which takes seconds to import

    return torch.Generator().manual_seed(derive_seed(*parts))
