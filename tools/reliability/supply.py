"""What the package does not do unasked: open network sockets, unpickle, run code from files; and what it is installed from."""

from __future__ import annotations

import ast
import base64
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from importlib.metadata import PackageNotFoundError, distribution, version
from pathlib import Path
from typing import Any
from zipfile import ZipFile

from packaging.version import Version

import ttaps
from reliability import forks
from reliability.case import Case, Failed, Place, Skipped
from reliability.faults import Faults
from reliability.subjects import clean_set, photos, ready, stored

PACKAGE = Path(ttaps.__file__).parent
PINS = Path(__file__).parents[2] / "requirements-ci.txt"
COMMANDS = (
    "--help",
    "--version",
    "info {inputs}/model",
    "methods",
    "adapt {inputs}/model {inputs}/a.png --method ttaps --steps 1 --num-pairs 2 --figure a.png",
    "demo --model {inputs}/model --images 1 --threads 1",
    "train --config {inputs}/short.toml --out run --threads 1",
    "evaluate {inputs}/model --data {inputs}/images.npz --methods source --threads 1 --out results",
    "report results --html a.html",
    "results merge all results 1 2",
    "results export results a.csv",
    "data verify cifar10 --data-root data",
    "data build cifar10-c --corruptions contrast --workers 1 --data-root data",
    "data download cifar10 --data-root new",
    "data corrupt photos --out photos-c --size 16 --corruptions contrast --severity 1 --workers 1",
    "tune {inputs}/model --data {inputs}/tuning.npz --images 12 --threads 1",
    "reproduce smoke --dry-run --data-root data",
    "bench --model {inputs}/model --rounds 1 --threads 1",
)
"""Every command that ends by itself soon; ``serve`` opens a socket because that is what it is for."""
ALONE: dict[str, tuple[str, ...]] = {
    "urllib.request": ("data/download.py",),
    "pickle": ("data/cifar.py", "data/download.py", "model/own.py"),  # a restricted reader, a writer, the error's name
    "socket": ("cli/serve.py", "serve/"),
} | dict.fromkeys(("http.client", "requests", "httpx", "dill", "joblib"), ())
"""Modules that fetch or unpickle, and the beginnings of the only files that may import them."""


def sockets(place: Place, faults: Faults, folder: Path, line: str) -> int:
    """Run a command and count the sockets it opens."""
    faults.sockets = 0
    words = line.format(inputs=place.inputs).split()
    child = forks.command(words, folder, place.log())
    code = child.wait()
    asked = words[:2] == ["data", "download"]
    if code or bool(faults.sockets) != asked:
        raise Failed(f"ttaps {line}: exit code {code}, {faults.sockets} network sockets\n{child.said[-1000:]}")
    return 1


def importing() -> int:
    """Import every module in a new Python that counts network sockets."""
    code = (
        "import socket, sys; seen = []\n"
        "sys.addaudithook(lambda event, given: seen.append(given) if event == 'socket.__new__' and given[1] != socket.AF_UNIX else None)\n"
        "import importlib, pkgutil, ttaps\n"
        "[importlib.import_module(one.name) for one in pkgutil.walk_packages(ttaps.__path__, 'ttaps.') if 'main' not in one.name]\n"
        "sys.exit(len(seen))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    if done.returncode:
        raise Failed(f"importing the package: {done.returncode} sockets, or {done.stderr[-1000:]}")
    return 1


def scan() -> int:
    """Read every file of the package for imports and calls that could fetch, unpickle or run something."""
    files = sorted(PACKAGE.rglob("*.py"))
    for file in files:
        name = file.relative_to(PACKAGE).as_posix()
        for node in ast.walk(ast.parse(file.read_text("utf-8"))):
            if wrong := dangerous(node, name):
                raise Failed(f"{name}, line {getattr(node, 'lineno', 0)}: {wrong}")
    return len(files)


def dangerous(node: ast.AST, file: str) -> str:
    """Return what a piece of code must not do in a file."""
    if isinstance(node, ast.Import | ast.ImportFrom):
        names = [alias.name for alias in node.names]
        names += (
            [f"{node.module}.{name}" for name in names] + [node.module or ""]
            if isinstance(node, ast.ImportFrom)
            else []
        )
        alone = {name: ALONE[name] for name in names if name in ALONE}
        return next((f"imports {name}" for name, place in alone.items() if not file.startswith(place)), "")
    if not isinstance(node, ast.Call):
        return ""
    called, given = ast.unparse(node.func), {one.arg: ast.unparse(one.value) for one in node.keywords}
    if called in ("eval", "exec", "os.system", "pickle.load", "pickle.loads") or called.endswith(
        (".read_pickle", "hub.load")
    ):
        return f"calls {called}"
    if called == "torch.load" and "weights_only" not in given:
        return "torch.load without weights_only"
    return next((f"{name}=True" for name in ("shell", "allow_pickle") if given.get(name) == "True"), "")


def pins() -> dict[str, str]:
    """Return the pinned versions by name."""
    return dict(re.findall(r"^([\w.-]+)==(\S+) --hash=sha256:[0-9a-f]{64}$", PINS.read_text("utf-8"), re.MULTILINE))


def installed_files() -> int:
    """Compare every installed file of the pinned packages with the hash that it was installed with."""
    count = 0
    for name in pins():
        try:
            files = distribution(name).files or []
        except PackageNotFoundError:
            continue
        for file in files:
            path = Path(str(file.locate()))
            if file.hash is None or not path.is_file():
                continue
            digest = hashlib.new(file.hash.mode, path.read_bytes()).digest()
            if base64.urlsafe_b64encode(digest).rstrip(b"=").decode() != file.hash.value:
                raise Failed(f"{name}: {file} is not what was installed")
            count += 1
    return count


def pinned_versions() -> int:
    """Compare what is installed with what CI installs."""
    installed = {}
    for name in pins():
        with suppress(PackageNotFoundError):  # what only builds the package
            installed[name] = version(name)
    if different := [name for name in installed if installed[name] != pins()[name]]:
        raise Skipped(f"other versions than in {PINS.name}: {', '.join(different)}")
    return len(installed)


def audit() -> int:
    """Look the pinned versions up with pip-audit, which finds nothing wrong with what it cannot look up: only what it could is counted."""
    if not (program := shutil.which("pip-audit")):
        raise Skipped("no pip-audit on the path: pip install pip-audit")
    options = [
        "--disable-pip",
        "--no-deps",
        "--progress-spinner",
        "off",
        "--format",
        "json",
        "--requirement",
        str(PINS),
    ]
    done = subprocess.run([program, *options], capture_output=True, text=True, check=False)
    try:
        looked_up = [one for one in json.loads(done.stdout)["dependencies"] if "skip_reason" not in one]
    except ValueError:
        looked_up = []
    if not looked_up:
        raise Skipped("pip-audit ran, but could not look up a single package: its database is not reached from here")
    if bad := {one["name"]: [why["id"] for why in one["vulns"]] for one in looked_up if one["vulns"]}:
        raise Failed(f"known vulnerabilities: {bad}")
    return len(looked_up)


def offline_audit() -> int:
    """Look the pinned versions up in a copy of OSV's database, which needs no network: ``--advisories all.zip``."""
    if not (archive := os.environ.get("TORTURE_ADVISORIES")):
        raise Skipped("no --advisories: get all.zip of PyPI from osv.dev")
    wanted, bad = pins(), set()
    with ZipFile(archive) as file:
        advisories = [json.loads(file.read(name)) for name in file.namelist() if name.endswith(".json")]
    for one in advisories:
        for affected in one.get("affected", []) if "withdrawn" not in one else []:
            name = re.sub(r"[-_.]+", "-", affected["package"]["name"]).lower()
            if name in wanted and is_affected(wanted[name], affected):
                bad.add(f"{name} {wanted[name]}: {one['id']}")
    if bad:
        raise Failed(f"known vulnerabilities: {', '.join(sorted(bad))}")
    if not advisories:
        raise Skipped(f"{archive} holds no advisories")
    return len(wanted)


def is_affected(version: str, affected: dict[str, Any]) -> bool:
    """Whether an OSV entry lists a version, or has it in one of its ranges."""
    mine, inside = Version(version), False
    for span in (span for span in affected.get("ranges", []) if span["type"] == "ECOSYSTEM"):
        for event in span["events"]:  # in order of versions
            ((kind, text),) = event.items()
            other = Version(text)
            if kind == "introduced" and mine >= other:
                inside = True
            elif (kind == "fixed" and mine >= other) or (kind == "last_affected" and mine > other):
                inside = False
        if inside:
            return True
    return version in affected.get("versions", [])


def cases(place: Place, faults: Faults) -> Iterator[Case]:
    """Yield everything once."""
    from helpers.small_model import write_image

    with ready(place), place.folder() as folder:
        write_image(place.inputs / "a.png")
        clean_set(place, folder)
        photos(place, folder)
        stored(place, folder)
        for line in COMMANDS:
            yield Case(
                f"network sockets: ttaps {line.split(' -')[0].split(' {')[0]}",
                partial(sockets, place, faults, folder, line),
            )
        yield Case("network sockets: importing every module", importing)
        yield Case("files without unpickling, fetching or running", scan)
        yield Case("installed versions are the pinned ones", pinned_versions)
        if not place.short:
            yield Case("installed files are what was installed", installed_files)
            yield Case("known vulnerabilities (pip-audit)", audit, of=len(pins()))
            yield Case("known vulnerabilities (a copy of OSV)", offline_audit, of=len(pins()))
