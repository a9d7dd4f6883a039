"""Shared by several commands: threads, devices, files, output."""

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from ttaps.cli import commands
from ttaps.errors import UsageError

if TYPE_CHECKING:
    from ttaps.model.checkpoint import Model


def use(device: str, threads: int | None) -> str:
    """Set torch's number of threads, and return the device to use; ``auto`` is a GPU, each process's own under torchrun, or else cpu."""
    import torch

    from ttaps.distributed import find_device

    cores = os.cpu_count() or 1
    if threads is not None and threads < 1:
        raise UsageError(f"--threads must be at least 1, not {threads}.")
    if threads is not None and threads > 4 * cores:
        raise UsageError(f"--threads {threads} is too many for {cores} cores: choose at most {4 * cores}.")
    if threads is not None:
        torch.set_num_threads(threads)
    return find_device(device)


def load_model(name: str, options: commands.OwnNetworkOptions) -> "Model":
    """Load a model by name or folder, or the user's own network that the options describe."""
    from ttaps.api import load

    names = listed(options.classes)
    if options.classes and Path(options.classes).is_file():
        names = [line.strip() for line in Path(options.classes).read_text("utf-8").splitlines() if line.strip()]
    as_is = commands.OwnNetworkOptions()
    normalize = (options.mean, options.std) if (options.mean, options.std) != (as_is.mean, as_is.std) else None
    own: dict[str, Any] = {"weights": options.weights, "size": options.size, "trust": options.trust}
    return load(name, classes=names, normalize=normalize, backbone=options.backbone or None, **own)


def print_json(value: Any) -> None:
    """Print JSON; NaN and infinity, which JSON does not have, become null."""
    print(json.dumps(json.loads(json.dumps(value), parse_constant=lambda name: None), indent=1))


def listed(text: str) -> list[str]:
    """Return the parts of ``a,b,c``."""
    return [part.strip() for part in text.split(",") if part.strip()]


def numbers(text: str, option: str) -> list[int]:
    """Return comma-separated whole numbers, each once."""
    try:
        found = [int(part) for part in listed(text)]
    except ValueError:
        raise UsageError(f"{option} must be comma-separated whole numbers, not '{text}'.") from None
    if not found:
        raise UsageError(f"{option} needs at least one number.")
    if max(map(abs, found)) >= 2**63:
        raise UsageError(f"{option}: numbers must fit into 64 bits, not {max(found, key=abs)}.")
    return list(dict.fromkeys(found))


def severities(text: str) -> list[int] | Literal["all"]:
    """Return the value of ``--severity``: numbers, all, or nothing, which leaves it to the data set."""
    if text == "all":
        return "all"
    return numbers(text, "--severity") if text else []
