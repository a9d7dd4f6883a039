"""Good inputs of every kind, and what is done to them."""

from __future__ import annotations

import io
import json
import pickle
import random
import shutil
import struct
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping
from itertools import cycle, product
from pathlib import Path
from typing import Any, cast

import numpy as np
from PIL import Image

from helpers.small_cifar import SMALL10, batches

MODES = ("1", "L", "LA", "P", "RGB", "RGBA", "CMYK", "YCbCr", "I", "I;16", "F", "LAB", "HSV", "PA")
VALUES: tuple[Any, ...] = (
    None, True, 0, -1, 1, 2**31, 2**63, 10**30, -(2**63), 0.5, 1e308, -1e-320, float("nan"), float("inf"), "", " ", "nan", "\0", "é☃",
    "cat\ncat", "../..", "a" * 5000, [], {}, [[]], [1, 2], {"a": 1}, [None] * 3, {"": {"": {}}},
)  # fmt: skip
BITS = (
    b"",
    b"\0" * 8,
    b"\xff" * 8,
    b"\x7f\xff\xff\xff",
    b"\x80\0\0\0",
    b"%s%n",
    b"[" * 20000,
    b'{"a":' * 5000,
    b"-1",
    b"1e999",
    b"nan",
    b"=",
)
TOKENS = ("[", "]", "=", ",", ":", ".", '"', "'", "-", "--", "\\", "1e999", "nan", "inf", "-1", "0", "9" * 400, "true", "ttaps", "lr",
          "views", "[" * 5000, "\0", "é", "\n", " ")  # fmt: skip


def images() -> Iterator[bytes]:
    """Yield an image in every format and mode that Pillow writes, the beginnings of others that it reads, and bombs."""
    made: dict[str, bytes] = {}
    sizes = cycle(((9, 7), (1, 1), (40, 3), (32, 32)))
    for mode, form in product(MODES, sorted(Image.SAVE)):
        pixels = np.random.default_rng(0).integers(0, 256, (*next(sizes), 3), dtype=np.uint8)
        try:
            image = Image.fromarray(pixels).convert("L" if mode.startswith(("I", "F")) else "RGB").convert(mode)
            buffer = io.BytesIO()
            image.save(buffer, form)
            yield made.setdefault(form, buffer.getvalue())
        except (OSError, ValueError, KeyError, SystemError):
            continue
    yield from only_read(made)
    for width, height in ((30_000, 30_000), (2**31 - 1, 1), (0, 0), (1, 90_000_000), (9_999, 9_999)):
        yield png(width, height)


def only_read(made: Mapping[str, bytes]) -> Iterator[bytes]:
    """Yield 4x4 images in formats that Pillow reads but does not write."""
    data = bytes(range(48))
    yield made["ICO"][:2] + b"\2" + made["ICO"][3:]  # CUR
    yield struct.pack("<3I", 987654321, 12, 0) + made["PCX"]  # DCX
    yield struct.pack(">8I", 0x59A66A95, 4, 4, 24, len(data), 1, 0, 0) + data  # SUN
    yield b"8BPS" + struct.pack(">H6xHIIHH3IH", 1, 3, 4, 4, 8, 3, 0, 0, 0, 0) + data  # PSD
    yield struct.pack("<IHHHHHHI", 144, 0xAF12, 1, 4, 4, 8, 3, 0).ljust(128, b"\0") + struct.pack(
        "<IHH8x", 16, 0xF1FA, 0
    )  # FLI
    yield struct.pack(">7I", 28, 2, 4, 4, 3, 0x47494D50, 0) + data  # GBR
    yield b"FTEX" + struct.pack("<9I", 0, 4, 4, 1, 1, 1, 36, 48, 0) + data  # FTEX
    yield b"\x80\xe8\0\0".ljust(416, b"\0") + struct.pack("<HH4xHH", 4, 4, 14, 2).ljust(608, b"\0") + data  # PIXAR
    yield b'/* XPM */\nstatic char *a[] = {\n"2 2 2 1",\n"a c #000000",\n"b c #ffffff",\n"ab",\n"ba"};\n'
    cards = ("SIMPLE  =                    T", "BITPIX  =                    8", "NAXIS   =                    2",
             "NAXIS1  =                    4", "NAXIS2  =                    4", "END")  # fmt: skip
    yield "".join(card.ljust(80) for card in cards).ljust(2880).encode() + data
    for start in (
        b"P7 332",
        b"\0" * 2048 + b"PCD_",
        b"\0\0\0\0\0\0\0\4",
        b"*\x10\1\0\1",
        b"\x1c\2\x78\0\4",
        b"\0\0\1\xb3",
    ):
        yield start + data  # XVTHUMB, PCD, MCIDAS, IMT, IPTC, MPEG


def png(width: int, height: int) -> bytes:
    """Return a PNG that claims a size, with hardly any data."""
    parts = [
        b"IHDR" + struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0),
        b"IDAT" + zlib.compress(b"\0" * 100_000),
        b"IEND",
    ]
    chunks = [struct.pack(">I", len(part) - 4) + part + struct.pack(">I", zlib.crc32(part)) for part in parts]
    return b"\x89PNG\r\n\x1a\n" + b"".join(chunks)


def arrays() -> Iterator[bytes]:
    """Yield .npz files, plain, compressed, and one whose header claims terabytes."""
    values = {
        "images": np.zeros((3, 4, 4, 3), dtype=np.uint8),
        "labels": np.arange(3),
        "classes": np.array(["a", "b", "c"]),
    }
    for save in (np.savez, np.savez_compressed):
        buffer, write_arrays = io.BytesIO(), cast(Callable[..., None], save)
        write_arrays(buffer, **values)
        yield buffer.getvalue()
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        header = str({"descr": "|u1", "fortran_order": False, "shape": (10**7, 10**3, 10**2, 3)}).encode() + b"\n"
        archive.writestr("images.npy", b"\x93NUMPY\x01\0" + struct.pack("<H", len(header)) + header)
        archive.writestr("labels.npy", b"\0" * (1 << 20))
    yield buffer.getvalue()


def array() -> Iterator[bytes]:
    """Yield .npy files."""
    for values in (np.zeros((3, 4, 4, 3), dtype=np.uint8), np.zeros((3, 3, 4, 4), dtype=np.uint8), np.zeros(3)):
        buffer = io.BytesIO()
        np.save(buffer, values)
        yield buffer.getvalue()
    buffer = io.BytesIO()
    np.save(buffer, np.array([{}], dtype=object), allow_pickle=True)
    yield buffer.getvalue()


EVIL = (  # each opcode that can call, import or ask for something outside
    b"cos\nsystem\n(S'touch ran'\ntR.",
    b"\x80\x04\x8c\x02os\x8c\x06system\x93\x8c\x09touch ran\x85R.",
    b"(S'touch ran'\nios\nsystem\n.",
    b"(cos\nsystem\nS'touch ran'\no.",
    b"\x80\x02cos\nsystem\n)\x81.",
    b"\x80\x04\x8c\x02os\x8c\x06system\x93)}\x92.",
    b"cnumpy\nndarray\n)\x81}X\x01\0\0\0aK\x01sb.",
    b"\x80\x02\x82\x01.",
    b"\x80\x02\x83\x01\0.",
    b"\x80\x02\x84\x01\0\0\0.",
    b"Pid\n.",
    b"K\x01Q.",
    b"c_codecs\nencode\n(X\x02\0\0\0hiX\x05\0\0\0rot13tR.",
    b"cnumpy\ndtype\n(X\x02\0\0\0O8tR.",
    b'cbuiltins\neval\n(S\'open("ran","w")\'\ntR.',
    b"\x80\x04\x8e\xff\xff\xff\xff\xff\xff\xff\x7f.",
    b"]" * 100_000 + b".",
)


def pickles() -> Iterator[bytes]:
    """Yield a batch of CIFAR, and pickles that want to run something."""
    yield batches(SMALL10)["test_batch"]
    yield pickle.dumps({b"data": np.zeros((4, 3072), dtype=np.uint8), b"labels": [1, 2, 3, 4]}, protocol=4)
    yield from EVIL


def changed_value(value: Any, rng: random.Random) -> Any:
    """Replace, remove or add something anywhere inside a JSON value."""
    if isinstance(value, dict) and value and rng.random() < 0.85:
        key = rng.choice(list(value))
        if rng.random() < 0.15:
            return {name: inner for name, inner in value.items() if name != key}
        return value | {key if rng.random() < 0.95 else str(rng.choice(VALUES)): changed_value(value[key], rng)}
    if isinstance(value, list) and value and rng.random() < 0.6:
        place = rng.randrange(len(value))
        return [*value[:place], changed_value(value[place], rng), *value[place + rng.randint(0, 1) :]]
    return rng.choice(VALUES)


def changed_json(data: bytes, rng: random.Random) -> bytes:
    """Change a value of a JSON file, or its bytes."""
    try:
        if rng.random() < 0.75:
            return json.dumps(changed_value(json.loads(data), rng)).encode()
    except (ValueError, RecursionError):
        pass
    return changed_bytes(data, rng)


def changed_text(data: bytes, rng: random.Random) -> bytes:
    """Put tokens into a text, take some out, or exchange them."""
    text = data.decode("utf-8", "replace")
    for _ in range(rng.randint(1, 4)):
        place = rng.randint(0, len(text))
        text = text[:place] + rng.choice(TOKENS) * rng.randint(0, 2) + text[place + rng.choice((0, 0, 1, 5)) :]
    return text.encode("utf-8", "replace")


def changed_bytes(data: bytes, rng: random.Random) -> bytes:
    """Flip, cut, double, exchange or insert bytes."""
    changed = bytearray(data)
    for _ in range(rng.choice((1, 1, 2, 5, 20))):
        place, size = rng.randint(0, max(0, len(changed) - 1)), rng.choice((1, 2, 4, 8, 100))
        what = rng.randrange(6)
        if what == 0 and changed:
            changed[place] ^= 1 << rng.randrange(8)
        elif what == 1:
            changed[place : place + size] = rng.choice(BITS)
        elif what == 2:
            changed[place:place] = rng.randbytes(size)
        elif what == 3:
            del changed[place : place + size]
        elif what == 4:
            changed[place:place] = changed[place : place + size]
        elif rng.random() < 0.3:
            del changed[place:]
    return bytes(changed)


def write(path: Path, data: bytes) -> Path:
    """Write an input where a reader expects it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return path


def fresh_copy(source: Path, target: Path) -> Path:
    """Replace a folder by a copy of another."""
    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(source, target)
    return target
