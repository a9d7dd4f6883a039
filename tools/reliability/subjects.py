"""The commands that are disturbed, made small, and what they must leave behind."""

from __future__ import annotations

import gc
import hashlib
import importlib
import json
import shutil
import sqlite3
import tomllib
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from PIL import Image
from safetensors import safe_open

from helpers.small_cifar import SMALL10, batches, tar_gz, write_files
from helpers.small_model import write_image, write_model
from helpers.small_training import SHORT
from reliability import forks
from reliability.case import Failed, Place
from reliability.site import official_site
from ttaps.config import to_toml
from ttaps.data import download
from ttaps.data.cifar import LAYOUTS
from ttaps.model.folder import PRESETS
from ttaps.tuning import candidates, space, tune

EVALUATE = "evaluate {inputs}/model --data {inputs}/images.npz --methods source,ttaps[steps=1,num_pairs=2] --threads 1"
TRAIN = "train --config {inputs}/short.toml --out run --threads 1"
LEFT = (".lock", "-wal", "-shm", "-journal")  # ends of files that say nothing
CHANGING = {"hours", "hardware", "seconds"}  # what no two runs have in common


@dataclass(frozen=True)
class Subject:
    """Commands one after the other, each in some processes, in a folder that ``prepare`` has filled."""

    name: str
    commands: tuple[str, ...]
    processes: int = 1
    prepare: Callable[[Place, Path], object] = lambda place, folder: None
    job: bool = True  # its processes are those of one job; else each was started by itself

    def start(self, place: Place, folder: Path, stage: int) -> list[forks.Child]:
        """Start one of the commands."""
        words = self.commands[stage].format(inputs=place.inputs).split()
        met = forks.meeting(self.processes) if self.job else [{}] * self.processes
        return [forks.command(words, folder, place.log(), env) for env in met]

    def run(self, place: Place, folder: Path, stage: int) -> None:
        """Run one of the commands undisturbed; it must succeed."""
        children = self.start(place, folder, stage)
        codes = [child.wait() for child in children]
        if any(codes):
            said = "\n".join(child.said[-2000:] for child in children)
            raise Failed(f"{self.commands[stage]}: exit codes {codes} where nothing disturbed it:\n{said}")

    def finish(self, place: Place, folder: Path) -> None:
        """Run all of them."""
        for stage in range(len(self.commands)):
            self.run(place, folder, stage)


MODULES = (
    *("ttaps.cli.data", "ttaps.cli.evaluate", "ttaps.cli.report", "ttaps.cli.train", "ttaps.data.corruptions"),
    *(
        "torch._dynamo",
        "pyarrow.parquet",
        "pyarrow.pandas_compat",
        "pandas.io.formats.csvs",
        "pandas.core.methods.to_dict",
    ),
    *("scipy.linalg", "scipy.special", "cv2", "jpeglib", "skimage.color", "skimage.exposure", "skimage.util"),
    *("typeguard", "rich._emoji_codes", "tyro._backends._argparse_formatter"),
    "ttaps.reproduce",
)
"""What commands import when they first need it: up to nine tenths of the time of a small one."""


@contextmanager
def ready(place: Place, brief: bool = False) -> Iterator[None]:
    """Write what the commands read, import what they import, and open the site that they download from."""
    torch.set_num_threads(1)
    for name in MODULES:
        with suppress(ImportError):  # what an older version of a library has not
            importlib.import_module(name)
    Image.init()
    write_inputs(place, brief)
    gc.collect()
    gc.freeze()  # else the collector of every forked process copies all pages: half of its time
    with official_site(place.inputs / SMALL10.archive):
        yield


def write_inputs(place: Place, brief: bool) -> None:
    """Write what the commands read, and let CIFAR-10 be 24 images; if brief, commands change files as rarely as they can."""
    inputs, rng = place.inputs, np.random.default_rng(0)
    write_model(inputs / "model")
    count = 2 if brief else 6
    pixels = rng.integers(0, 256, (count, 3, 32, 32), dtype=np.uint8)
    classes = np.array(SMALL10.classes)
    np.savez(inputs / "images.npz", images=pixels, labels=np.arange(count), classes=classes)
    textures = rng.integers(0, 256, (60, 3, 8, 8), dtype=np.uint8)
    np.savez(inputs / "textures.npz", images=textures, labels=np.arange(60) % 4)
    schedule = replace(SHORT.schedule, joint_start_epoch=0.5)
    epochs, size = (1, 24) if brief else (2, 12)
    short = replace(SHORT, epochs=epochs, batch_size=size, checkpoint_minutes=0.0, schedule=schedule,
                    data=str(inputs / "textures.npz"))  # fmt: skip
    (inputs / "short.toml").write_text(to_toml(short))
    grouped = replace(short, model=replace(short.model, norm="group"))  # batch norm needs the whole batch
    (inputs / "grouped.toml").write_text(to_toml(grouped))
    padding = {} if brief else {"padding": rng.bytes(3_000_000)}  # read in several pieces
    archive = tar_gz(SMALL10.folder, batches(SMALL10) | padding)
    (inputs / SMALL10.archive).write_bytes(archive)
    digest = hashlib.md5(archive, usedforsecurity=False).hexdigest()
    LAYOUTS["cifar10"] = replace(SMALL10, archive_md5=digest)
    download.PACKAGE = "no-such-package"
    small_tuning(inputs)
    joint = (inputs / "short.toml").read_text()
    (inputs / "fork.toml").write_text(joint.replace("jt+ent", "jt"))
    grid = f'data = "{inputs}/textures.npz"\nimages_per_corruption = {count}\n[[columns]]\nconfig = "{inputs}/grouped.toml"\n'
    (inputs / "grid.toml").write_text(grid if brief else f"seeds = [0, 1]\n{grid}")


def small_tuning(inputs: Path) -> None:
    """Write images to tune on, and let tuning have few candidates of few views."""
    pixels = np.random.default_rng(1).integers(0, 256, (20, 3, 32, 32), dtype=np.uint8)
    np.savez(inputs / "tuning.npz", images=pixels, labels=np.arange(20) % 10, classes=np.array(SMALL10.classes))
    vars(tune).update(RUNGS=((2, 0.5), (2, 1.0)), KINDS=1, LEAST=1)
    vars(space).update(VIEWS=2, STEPS=1)
    vars(candidates).update(COUNTS=(2,))


def clean_set(place: Place, folder: Path) -> None:
    """Put the small CIFAR-10 there."""
    write_files(SMALL10, folder / "data")


def archive(place: Place, folder: Path) -> None:
    """Put the official archive there."""
    (folder / "data").mkdir()
    shutil.copy(place.inputs / SMALL10.archive, folder / "data")


def photos(place: Place, folder: Path) -> None:
    """Put a folder of class folders there."""
    for name in ("cat", "dog"):
        (folder / "photos" / name).mkdir(parents=True)
        for number in range(2):
            write_image(folder / "photos" / name / f"{number}.png", 20, 16)


def trained(place: Place, folder: Path) -> None:
    """Put a finished run there."""
    if not (place.inputs / "run").exists():
        Subject("train", (TRAIN.replace("run", str(place.inputs / "run")),)).finish(place, place.inputs)
    shutil.copytree(place.inputs / "run", folder / "run")


def own_inputs(place: Place, folder: Path) -> None:
    """Put a model and images there."""
    shutil.copytree(place.inputs / "model", folder / "model")
    shutil.copy(place.inputs / "images.npz", folder)


def stored(place: Place, folder: Path) -> None:
    """Put two folders of results there."""
    ready = place.inputs / "stored"
    if not ready.exists():
        ready.mkdir()
        shards = tuple(f"{EVALUATE} --seeds 0,1 --shard {part}/2 --out {part}" for part in (1, 2))
        Subject("shards", shards).finish(place, ready)
    shutil.copytree(ready, folder, dirs_exist_ok=True)


SHARDS = tuple(f"{EVALUATE} --shard {part}/2 --out {part}" for part in (1, 2))
SUBJECTS = (
    Subject("train", (TRAIN,)),
    Subject("train, 2 processes", (TRAIN.replace("short", "grouped"),), processes=2),
    Subject("evaluate", (f"{EVALUATE} --projections 4 --out results",)),
    Subject("evaluate, 2 processes", (f"{EVALUATE} --out results",), processes=2),
    Subject("2 shards, merge", (*SHARDS, "results merge all 1 2")),
    Subject("results merge", ("results merge all 1 2",), prepare=stored),
    Subject("results export", ("results export 1 all.csv --images", "results export 1 all.parquet"), prepare=stored),
    Subject(
        "data build",
        ("data build cifar10-c --corruptions brightness,contrast,pixelate --workers 1 --data-root data",),
        prepare=clean_set,
    ),
    Subject("data download", ("data download cifar10 --data-root data",)),
    Subject("data download, archive", ("data download cifar10 --data-root data",), prepare=archive),
    Subject(
        "data corrupt",
        ("data corrupt photos --out photos-c --size 16 --corruptions contrast,fog --severity 1,5 --workers 1",),
        prepare=photos,
    ),
)
ONLY_FAILING = (
    Subject("evaluate, own inputs", (f"{EVALUATE} --out results".replace("{inputs}/", ""),), prepare=own_inputs),
)
ONLY_KILLED = (  # they write the same kinds of files
    Subject("evaluate, started twice", (f"{EVALUATE} --out results",), processes=2, job=False),
    Subject(
        "train --fork-from",
        ("train --config {inputs}/fork.toml --out fork --fork-from run --threads 1",),
        prepare=trained,
    ),
    Subject("tune", ("tune {inputs}/model --data {inputs}/tuning.npz --images 12 --out tuned --threads 1",)),
    Subject(
        "reproduce, started twice", ("reproduce {inputs}/grid.toml --out all --threads 1",), processes=2, job=False
    ),
)


def contents(folder: Path) -> dict[str, Any]:
    """Return what is in the files of a folder, without what no two runs have in common; a damaged file raises."""
    files = [path for path in sorted(folder.rglob("*")) if path.is_file() and not path.name.endswith(LEFT)]
    return {str(path.relative_to(folder)): content(path) for path in files}


def content(path: Path) -> Any:
    """Return what is in a file, in a form that can be compared."""
    if path.suffix == ".sqlite":
        return rows(path)
    if path.suffix == ".safetensors":
        return tensors(path)
    if path.name == PRESETS:
        found = tomllib.loads(path.read_text())
        return found | {"found": {name: value for name, value in found["found"].items() if not isinstance(value, dict)}}
    if path.suffix == ".json":
        return {name: value for name, value in json.loads(path.read_text()).items() if name not in CHANGING}
    if path.suffix == ".npz":
        with np.load(path) as arrays:
            return {name: arrays[name].tobytes() for name in arrays}
    if path.name == "README.md":
        return [line for line in path.read_text().splitlines() if " hours on " not in line]
    if path.suffix == ".parquet":
        return pd.read_parquet(path).to_csv()
    return path.read_bytes()


def tensors(path: Path) -> dict[str, Any]:
    """Return the metadata and the bytes of every tensor."""
    with safe_open(path, framework="np") as file:
        noted = {name: value for name, value in file.metadata().items() if name not in CHANGING}
        return noted | {name: file.get_tensor(name).tobytes() for name in file.keys()}  # noqa: SIM118


def rows(path: Path) -> set[tuple[Any, ...]]:
    """Return all stored rows, after sqlite's own check of the file."""
    with sqlite3.connect(path) as connection:
        (verdict,) = connection.execute("PRAGMA integrity_check").fetchone()
        if verdict != "ok":
            raise Failed(f"{path.name} is damaged: {verdict}")
        if not connection.execute("PRAGMA user_version").fetchone()[0]:
            return set()  # no table yet
        query = "SELECT spec, seed, corruption, severity, image, label, trace FROM results JOIN experiments ON id = experiment"
        found = set(connection.execute(query))
    connection.close()
    return found


def check_whole(folder: Path, finished: dict[str, Any]) -> None:
    """Refuse a file under its final name that is not whole, and rows that are not those of an undisturbed run."""
    for path in (path for path in sorted(folder.rglob("*")) if path.is_file()):
        name = str(path.relative_to(folder))
        hidden = any(part.startswith(".") for part in Path(name).parts)
        if hidden or path.name.endswith(LEFT) or path.suffix == ".jsonl":  # its last line is dropped on resuming
            continue
        try:
            found = content(path)
        except Exception as error:
            raise Failed(f"{name} is not whole: {type(error).__name__}: {error}") from error
        expected = finished.get(name)
        if isinstance(found, set) and expected is not None and not found <= expected:
            raise Failed(f"{name} has {len(found - expected)} rows that an undisturbed run has not")
        if isinstance(found, bytes) and found != expected:
            raise Failed(f"{name} is not what an undisturbed run writes")


def difference(found: dict[str, Any], expected: dict[str, Any]) -> str:
    """Name the files that differ, or are missing or left over; nothing if there are none."""
    missing, over = sorted(expected.keys() - found.keys()), sorted(found.keys() - expected.keys())
    other = [name for name in sorted(found.keys() & expected.keys()) if found[name] != expected[name]]
    parts = {"missing": missing, "left over": over, "different": other}
    return "; ".join(f"{what}: {', '.join(names)}" for what, names in parts.items() if names)
