"""Write requirements-ci.txt: what this environment holds and what builds the package, each with its version and the hash of pip's file.

Run it as: .venv/bin/python tools/pin_requirements.py > requirements-ci.txt
The Makefile installs from it where CI is set and the platform and Python are those of its first line, for which alone the hashes are right.

torch is not in it: the Makefile pins its version, but its file is another one for every platform and accelerator, and may be a build of the
machine's own.
"""

from __future__ import annotations

import json
import platform
import subprocess
import sys
import tomllib
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from typing import Any

from packaging.markers import default_environment
from packaging.requirements import Requirement

ROOT = Path(__file__).parents[1]
LEFT_OUT = {"torch", "ttaps"}


def wanted() -> list[str]:
    """Return what the Makefile asks for."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    return [*project["dependencies"], *(one for extra in project["optional-dependencies"].values() for one in extra)]


def closure() -> dict[str, str]:
    """Return the installed version of all that is wanted, and of all that needs, by name."""
    found: dict[str, str] = {}
    waiting = [Requirement(text) for text in wanted()]
    while waiting:
        requirement = waiting.pop()
        for extra in ("", *requirement.extras):
            try:
                installed = distribution(requirement.name)
            except PackageNotFoundError:
                continue
            name = installed.metadata["Name"].lower().replace("_", "-").replace(".", "-")
            if extra == "" and name in found:
                continue
            found[name] = installed.version
            environment: dict[str, Any] = {**default_environment(), "extra": extra}
            needs = map(Requirement, installed.requires or [])
            waiting += [need for need in needs if not need.marker or need.marker.evaluate(environment)]
    return {name: version for name, version in sorted(found.items()) if name not in LEFT_OUT}


def resolved(*asked: str) -> dict[str, tuple[str, str]]:
    """Ask pip what it would install, and return the version and the sha256 of each by name."""
    options = ["--quiet", "--dry-run", "--ignore-installed", "--report", "-"]
    command = [sys.executable, "-m", "pip", "install", *options, *asked]
    report = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    return {
        one["metadata"]["name"].lower().replace("_", "-").replace(".", "-"): (
            one["metadata"]["version"],
            one["download_info"]["archive_info"]["hashes"]["sha256"],
        )
        for one in report["install"]
    }


def main() -> None:
    """Print the file."""
    used = [f"{name}=={version}" for name, version in closure().items()]
    build = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["build-system"]["requires"]
    building = resolved(*build, "editables")  # by which hatchling makes editable installs
    pinned = building | resolved("--no-deps", *used)
    place = f"{platform.system()} {platform.machine()}, Python {'.'.join(platform.python_version_tuple()[:2])}"
    print(f"# Made by tools/pin_requirements.py on {place}, which says why torch is not here.")
    for name, (version, digest) in sorted(pinned.items()):
        print(f"{name}=={version} --hash=sha256:{digest}")


if __name__ == "__main__":
    main()
