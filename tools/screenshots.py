"""Take the screenshots of the README and docs/serving.md: start the service, open its page in the system's Chromium, adapt.

python tools/screenshots.py [FOLDER]

They look best where the font Inter is installed (Debian: fonts-inter).
"""

from __future__ import annotations

import io
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from PIL import Image
from playwright.sync_api import expect, sync_playwright

FOLDER = Path(__file__).parent.parent / "docs"
ARGUMENTS = ("--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking")
PATIENCE = 120_000  # milliseconds
SHOTS: dict[str, dict[str, Any]] = {
    "serve": {"viewport": {"width": 1440, "height": 860}},
    "serve-dark": {"viewport": {"width": 1440, "height": 860}, "color_scheme": "dark"},
    "serve-compare": {"viewport": {"width": 1440, "height": 900}},
    "serve-phone": {"viewport": {"width": 390, "height": 844}, "device_scale_factor": 2},
}


def main(folder: Path) -> None:
    chromium = shutil.which("chromium")
    if chromium is None:
        sys.exit("Screenshots need Chromium: apt-get install -y chromium")
    expect.set_options(timeout=PATIENCE)
    folder.mkdir(parents=True, exist_ok=True)
    with service() as address, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=list(ARGUMENTS))
        for name, options in SHOTS.items():
            page = browser.new_page(reduced_motion="reduce", **options)
            page.goto(address)
            adapted(page)
            if name == "serve-compare":
                page.get_by_role("button", name="Compare").click()
                expect(page.locator(".lane")).to_have_count(2)
                expect(page.locator("#announce")).to_contain_text("augmentation")
                page.mouse.move(0, 0)  # off the button that is where the one for comparing was
            if name == "serve-phone":
                page.locator(".map-stage").evaluate(
                    "(stage) => scrollBy({ top: stage.getBoundingClientRect().top - 60 })"
                )
            write(folder / f"{name}.png", page.screenshot())
            page.close()
        browser.close()


@contextmanager
def service() -> Iterator[str]:
    """Start ttaps serve on a free port and yield its address."""
    command = [sys.executable, "-m", "ttaps", "serve", "cifar10", "--port", "0", "--threads", "1"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    assert process.stdout is not None
    try:
        lines = (re.search(r"http://\S+", line) for line in process.stdout)
        found = next((each for each in lines if each), None)
        if found is None:
            sys.exit("ttaps serve did not start.")
        yield found.group()
    finally:
        process.terminate()
        process.wait()


def adapted(page: Any) -> None:
    """Wait until the image that the page starts with has been adapted to."""
    expect(page.locator("#announce")).not_to_be_empty()


def write(path: Path, png: bytes) -> None:
    """Store a screenshot as small as PNG can be: a palette would lose the colors of small things."""
    with Image.open(io.BytesIO(png)) as image:
        image.convert("RGB").save(path, optimize=True)
    print(f"{path}: {path.stat().st_size / 1000:.0f} kB")


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else FOLDER)
