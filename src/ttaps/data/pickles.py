"""Reading the pickles CIFAR comes in, and running nothing that is hidden in one."""

from __future__ import annotations

import io
import pickle
from pathlib import Path
from typing import Any

import numpy as np

from ttaps.errors import DataError

_reconstruct: Any = np.empty(0).__reduce__()[0]  # numpy moved its module between versions 1 and 2


def _encode(text: str, codec: str) -> bytes:
    """Stand in for ``_codecs.encode``, which protocol 2 uses to store bytes; any codec but latin1 has no business here."""
    if codec != "latin1":
        raise DataError(f"its bytes are encoded as {codec!r}, not as latin1")
    return text.encode("latin1")


ALLOWED: dict[tuple[str, str], Any] = {
    ("numpy.core.multiarray", "_reconstruct"): _reconstruct,
    ("numpy._core.multiarray", "_reconstruct"): _reconstruct,
    ("numpy", "ndarray"): np.ndarray,
    ("numpy", "dtype"): np.dtype,
    ("_codecs", "encode"): _encode,
}


class _Unpickler(pickle.Unpickler):
    """An unpickler that knows arrays, bytes and plain containers, and refuses every other global."""

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in ALLOWED:
            raise DataError(f"it wants to load {module}.{name}, which a data file has no need of")
        return ALLOWED[module, name]


def read_pickle(path: Path, remedy: str) -> dict[bytes, Any]:
    """Return the dictionary in a CIFAR file; ``remedy`` ends the message if the file is missing, damaged or unsafe."""
    try:
        content = _Unpickler(io.BytesIO(path.read_bytes()), encoding="bytes").load()
    except FileNotFoundError as error:
        raise DataError(f"{path} is missing.\n{remedy}") from error
    except OSError as error:
        raise DataError(f"Cannot read {path}: {error.strerror or error}.\n{remedy}") from error
    except DataError as error:
        raise DataError(f"{path} was refused: {error}.\n{remedy}") from error
    except Exception as error:  # damaged bytes can make an unpickler raise almost anything
        raise DataError(f"{path} is damaged or truncated ({error or type(error).__name__}).\n{remedy}") from error
    if not isinstance(content, dict):
        raise DataError(f"{path} holds a {type(content).__name__}, not a batch of images.\n{remedy}")
    return content
