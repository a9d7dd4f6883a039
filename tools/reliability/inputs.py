"""Mutated inputs of every kind: no traceback, no hang over 10 s, no memory over 2 GB, nothing run, fetched or written where it should not.

A mutated input that reaches lines no other has reached is kept and mutated further."""

from __future__ import annotations

import ctypes
import io
import json
import mmap
import os
import random
import resource
import signal
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import FrameType
from typing import Any
from unittest.mock import patch

import numpy as np

import ttaps
from reliability import forks, mutations
from reliability.case import Case, Failed, Place
from reliability.faults import Faults
from reliability.mutations import changed_bytes, changed_json, changed_text, fresh_copy, write
from reliability.subjects import ready, stored
from ttaps import cli
from ttaps.adaptation.spec import method_spec, parse_methods
from ttaps.cli.commands import COMMANDS
from ttaps.data import build, verify
from ttaps.data.cifar import LAYOUTS, read_cifar
from ttaps.data.images import read_arrays, read_image
from ttaps.errors import TtapsError
from ttaps.evaluation import frame, store
from ttaps.model.checkpoint import load_model
from ttaps.report import columns
from ttaps.report.columns import load_results
from ttaps.report.figures.learning import read_curve
from ttaps.report.tables import make_tables
from ttaps.training import run_dir
from ttaps.training.config import load_preset

PACKAGE = str(Path(ttaps.__file__).parent)
BATCH = 40  # inputs of one process
LEAST = 320  # inputs of every kind; then each kind gets as much time as the others, for some are ten times as slow
SECONDS, MEMORY = 10.0, 2 << 30
ONLY_PARSED = (
    "train",
    "tune",
    "reproduce",
    "bench",
    "demo",
    "serve",
    "adapt",
    "evaluate",
)  # they may rightly take long
Mutate = Callable[[bytes, random.Random], bytes]


@dataclass(frozen=True)
class Kind:
    """A kind of input: good ones, how they are changed, and what reads them; ``read`` may raise only what a user is told in a line."""

    name: str
    seeds: tuple[bytes, ...]
    mutate: Mutate
    read: Callable[[bytes], object]


@cache
def good(make: Callable[[], Iterator[bytes]]) -> tuple[bytes, ...]:
    """Return the good inputs of a kind, made once."""
    return tuple(make())


def kinds(place: Place, inside: Path) -> list[Kind]:
    """Return all kinds; readers find their input in the folder ``inside``."""
    model, results, run = place.inputs / "model", place.inputs / "stored" / "1", place.inputs / "run"

    def of_folder(source: Path, name: str, read: Callable[[Path], object]) -> Callable[[bytes], object]:
        def reader(data: bytes) -> object:
            folder = fresh_copy(source, inside / source.name)
            write(folder / name, data)
            return read(folder)

        return reader

    def file(name: str, read: Callable[[Path], object]) -> Callable[[bytes], object]:
        return lambda data: read(write(inside / name, data))

    def contents(*paths: Path) -> tuple[bytes, ...]:
        return tuple(path.read_bytes() for path in paths)

    weights, config, state = contents(model / "model.safetensors", model / "config.json", run / "resume.safetensors")
    toml = contents(place.inputs / "short.toml", run / "train.toml")
    specs = (
        b"ttaps:tuned[steps=6,views.scale=[0.5,1]]",
        b"source,tent[lr=0.1],memo",
        b"augment:tuned[confidence_threshold=0.5]",
    )
    manifest = b'{"seed": 0, "images": 4, "source_md5": "", "files": {"fog.npy": {"md5": "", "versions": {}}}}'
    return [
        Kind("images", good(mutations.images), changed_bytes, file("image", lambda path: read_image(path)[0].shape)),
        Kind(".npz", good(mutations.arrays), changed_bytes, file("a.npz", read_arrays)),
        Kind(".npy", good(mutations.array), changed_bytes, file("arrays/images.npy", mapped)),
        Kind(
            "CIFAR pickles",
            good(mutations.pickles),
            changed_bytes,
            file("data/cifar-10-batches-py/test_batch", batch),
        ),
        Kind("safetensors", (weights,), changed_bytes, of_folder(model, "model.safetensors", load_model)),
        Kind("saved state", (state,), changed_bytes, of_folder(run, "resume.safetensors", run_dir.load_state)),
        Kind("config.json", (config,), changed_json, of_folder(model, "config.json", load_model)),
        Kind("metrics.jsonl", contents(run / "metrics.jsonl"), changed_text, of_folder(run, "metrics.jsonl", curve)),
        Kind("build.json", (manifest,), changed_json, file("data/CIFAR-10-C/build.json", built)),
        Kind("train.toml", toml, changed_text, file("train.toml", lambda path: load_preset(str(path)))),
        Kind("published numbers", contents(columns.PUBLISHED), changed_text, file("published.csv", paper)),
        Kind("method specs", specs, changed_text, spec),
        Kind("sqlite files", contents(results / "results.sqlite"), changed_bytes, file("results.sqlite", report)),
        Kind("command lines", tuple(command_lines(place)), changed_text, command_line),
    ]


def mapped(path: Path) -> object:
    """Read a folder of arrays, and its first pixels."""
    np.save(path.with_name("labels.npy"), np.arange(3))
    return read_arrays(path.parent).images[:1].sum()


def batch(path: Path) -> object:
    """Read the test images."""
    return read_cifar(LAYOUTS["cifar10"], path.parents[1], "test")


def curve(folder: Path) -> None:
    """Read a learning curve, then resume."""
    read_curve("run", folder)
    run_dir.rewind_metrics(folder, 4)


def built(path: Path) -> object:
    """Verify a built set."""
    np.save(path.with_name("fog.npy"), np.zeros((20, 32, 32, 3), dtype=np.uint8))
    return build.origin(path.parent), verify.verify(path.parents[1], ["cifar10-c"])


def paper(path: Path) -> object:
    """Read the numbers that a paper published."""
    with patch.object(columns, "PUBLISHED", path):
        return columns.load_published("cifar10-c", 5).unstack()


def spec(data: bytes) -> object:
    """Parse methods, print them, and parse what was printed."""
    methods = parse_methods(data.decode("utf-8", "replace"))
    again = [parse_methods(method_spec(method))[0] for method in methods]
    if str(again) != str(methods):  # a NaN is not equal to itself
        raise AssertionError(f"{methods} became {again}")
    return again


def report(path: Path) -> None:
    """Make tables and an export of stored results, merge them, and store another model among them."""
    for left in (*path.parent.glob(f"{path.name}-*"), *path.parent.glob("merged/*")):
        left.unlink()
    make_tables(load_results([path.parent]))
    frame.load_traces([path.parent])
    store.merge([path.parent], path.parent / "merged")
    with store.Store(path.parent) as opened:
        opened.describe_model("another", {})


def command_lines(place: Place) -> Iterator[bytes]:
    """Yield good command lines, one word per line; relative paths are in the output folder."""
    model, results = place.inputs / "model", place.inputs / "stored" / "1"
    for line in (
        f"info {model} --json", f"report {results} --table csv", f"results export {results} a.csv --images", "data verify cifar10",
        f"results merge out {results}", "methods --json", f"evaluate {model} --data a.npz --methods source,ttaps --seeds 0,1 --shard 1/2",
        f"adapt {model} a.png --method ttaps:tuned --steps 3", "train --config smoke --out run --optimizer.lr 0.1", "demo --images 3",
        "data build cifar10-c --corruptions fog --workers 2", "serve --port 0", "bench --rounds 1", "reproduce smoke --dry-run", "--help",
    ):  # fmt: skip
        yield line.replace(" ", "\n").encode()


def command_line(data: bytes) -> object:
    """Run a command line, or only parse it."""
    words = [word.replace("\0", "") for word in data.decode("utf-8", "replace").split("\n")]
    if words[0] in ONLY_PARSED and words[0] in COMMANDS:
        try:
            return cli.parse(words[0], words[1:])
        except SystemExit as stop:
            return check_code(int(stop.code or 0))
    if words[:2] == ["data", "download"] or "--measure" in words:
        return None
    return check_code(cli.main(words))


def check_code(code: int) -> int:
    """Refuse other exit codes."""
    if code not in (0, 1, 2):
        raise AssertionError(f"exit code {code}")
    return code


class Watch:
    """What may not happen while an input is read: seen by Python's audit events."""

    def __init__(self, sandbox: Path) -> None:
        self.allowed, self.on = (str(sandbox), "/dev/null"), False
        self.seen: list[str] = []
        sys.addaudithook(self._hear)

    def _hear(self, event: str, arguments: tuple[Any, ...]) -> None:
        if not self.on:
            return
        if event == "open":
            path, mode, flags = arguments
            writes = isinstance(flags, int) and flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT)
            if isinstance(path, str | bytes | os.PathLike) and (writes or set(str(mode or "")) & set("wax+")):
                self._check(event, path)
        elif event == "sqlite3.connect":
            if "mode=rwc" in str(arguments[0]):  # readers open it for writing too, and may write no row
                self._check(event, arguments[0])
        elif event in ("os.mkdir", "os.remove", "os.rmdir", "os.truncate"):
            self._check(event, arguments[0])
        elif event in ("os.rename", "os.link", "os.symlink"):
            for name in arguments[:2]:
                self._check(event, name)
        elif event in (
            "os.system",
            "os.exec",
            "subprocess.Popen",
            "socket.connect",
            "socket.getaddrinfo",
            "pickle.find_class",
        ):
            self.seen.append(f"{event} {arguments!r:.200}")

    def _check(self, event: str, path: Any) -> None:
        name = os.fsdecode(path)
        place = os.path.abspath(name.removeprefix("file://").partition("?")[0])
        if not place.startswith(self.allowed):
            self.seen.append(f"{event} {place}")


class Coverage:
    """Lines of the package that were reached; ``new`` says whether there were any since it was asked last."""

    def __init__(self) -> None:
        self.lines: set[tuple[str, int]] = set()
        self.before = 0

    def trace(self, frame: FrameType, event: str, argument: Any) -> Any:
        """Be told of every call, and of every line of the package."""
        if event == "call" and not frame.f_code.co_filename.startswith(PACKAGE):
            return None
        self.lines.add((frame.f_code.co_filename, frame.f_lineno))
        return self.trace

    def new(self) -> bool:
        """Whether lines were reached for the first time."""
        before, self.before = self.before, len(self.lines)
        return self.before > before


class Fuzzer:
    """Feeds a kind's reader in processes of its own."""

    def __init__(self, place: Place, kind: int) -> None:
        self.place, self.number = place, kind
        self.sandbox = place.scratch / f"sandbox-{kind}"
        self.sandbox.mkdir()
        self.kind = kinds(place, self.sandbox)[kind]
        self.corpus, self.coverage = list(self.kind.seeds), Coverage()
        self.untouched = list(self.kind.seeds)
        self.count, self.seconds = 0, 0.0

    def run(self) -> int:
        """Read a batch of inputs and keep count."""
        began = time.monotonic()
        try:
            return self._batch()
        finally:
            self.count, self.seconds = self.count + BATCH, self.seconds + time.monotonic() - began

    def _batch(self) -> int:
        """Read inputs in a process, and watch it from outside."""
        shared, found = mmap.mmap(-1, 64), self.sandbox.with_name(f"found-{self.number}")
        seed, count = self.place.rng.randrange(2**32), BATCH // 5 if self.place.short else BATCH
        found.unlink(missing_ok=True)
        child = forks.start(lambda: self._child(seed, count, shared, found), self.place.log(), self.kind.name)
        before, since = -1, 0.0
        while child.poll() is None:
            if (now := int.from_bytes(shared[:8], "little")) != before:
                before, since = now, own_time(child.pid)
            elif own_time(child.pid) - since > SECONDS + 2:
                child.signal(signal.SIGKILL)
                raise Failed(f"a hang of more than {SECONDS:.0f} s: {self._kept(self._current())}")
            time.sleep(0.02)
        if child.code:
            raise Failed(f"the process ended with {child.code}: {child.said[-500:]}\n{self._kept(self._current())}")
        result = json.loads(found.read_text())
        self.untouched = self.untouched[count:]
        self.corpus += [bytes.fromhex(one) for one in result["corpus"]]
        self.coverage.lines |= {(name, line) for name, line in result["new"]}
        if result["failures"]:
            (data, why), more = result["failures"][0], len(result["failures"]) - 1
            raise Failed(f"{why}\n{self._kept(bytes.fromhex(data))}" + (f" (and {more} more)" if more else ""))
        return count

    def _current(self) -> bytes:
        path = self.sandbox.with_name(f"current-{self.number}")
        return path.read_bytes() if path.exists() else b""

    def _kept(self, data: bytes) -> str:
        return f"input: {data[:150]!r}" + (f"... {len(data)} bytes" if len(data) > 150 else "")

    def _child(self, seed: int, count: int, shared: mmap.mmap, found: Path) -> int:
        rng, watch, failures, kept = random.Random(seed), Watch(self.sandbox), [], []
        known = set(self.coverage.lines)
        out = self.sandbox / "out"
        out.mkdir(exist_ok=True)
        os.chdir(out)
        limit = memory("VmSize") + MEMORY + (1 << 30)
        resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
        self.coverage.new()
        for number in range(count):
            fresh = number < len(self.untouched)  # good inputs first
            data = self.untouched[number] if fresh else self.kind.mutate(rng.choice(self.corpus), rng)
            self.sandbox.with_name(f"current-{self.number}").write_bytes(data)
            shared[:8] = (number + 1).to_bytes(8, "little")
            if why := self._try(data, watch):
                failures.append((data.hex(), why))
            if self.coverage.new() and len(data) < 100_000:
                kept.append(data.hex())
        new = sorted(self.coverage.lines - known)
        found.write_text(json.dumps({"failures": failures, "corpus": kept, "new": new}))
        return 0

    def _try(self, data: bytes, watch: Watch) -> str:
        """Read one input and return what was wrong."""
        Path("/proc/self/clear_refs").write_text("5")  # the peak begins anew
        before, began, said = memory("VmRSS"), own_time(os.getpid()), io.StringIO()
        watch.on, watch.seen, why = True, [], ""
        try:
            with redirect_stdout(said), redirect_stderr(said):
                sys.settrace(self.coverage.trace)
                self.kind.read(data)
        except TtapsError as error:
            why = "" if str(error).strip() and len(str(error)) < 3000 else f"a message of {len(str(error))} characters"
        except BaseException as error:
            told = cli.explain(error) if isinstance(error, Exception) else None
            why = "" if told and "memory" not in told else traceback.format_exc(limit=-6)
        finally:
            sys.settrace(None)
            watch.on = False
        seconds, peak = own_time(os.getpid()) - began, memory("VmHWM") - before
        if watch.seen:
            why = f"not allowed: {watch.seen[0]}"
        if seconds > SECONDS:
            why = f"{seconds:.0f} seconds"
        return f"{peak >> 20} MB" if peak > MEMORY else why


def own_time(pid: int) -> float:
    """Return the time by the clock in seconds, without what a process spent waiting for a core that others kept busy."""
    try:
        waited = int(Path(f"/proc/{pid}/schedstat").read_text().split()[1])
    except (OSError, IndexError):  # this kernel does not count it
        waited = 0
    return time.monotonic() - waited / 1e9


def memory(what: str) -> int:
    """Return a size of this process, in bytes."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return 1024 * next(int(line.split()[1]) for line in lines if line.startswith(what))


def cases(place: Place, faults: Faults) -> Iterator[Case]:
    """Yield batches of every kind in turn."""
    with ready(place):
        with place.folder() as folder:
            stored(place, folder)
        forks.command(
            ["train", "--config", f"{place.inputs}/short.toml", "--out", "run"], place.inputs, place.log()
        ).wait()
        ctypes.CDLL(None).malloc_trim(0)
        fuzzers = [Fuzzer(place, number) for number in range(len(kinds(place, place.scratch)))]
        yield from (Case(fuzzer.kind.name, fuzzer.run) for fuzzer in fuzzers)
        while not place.short:
            fuzzer = min(fuzzers, key=lambda one: one.seconds if one.count >= LEAST else 0)
            yield Case(fuzzer.kind.name, fuzzer.run)
