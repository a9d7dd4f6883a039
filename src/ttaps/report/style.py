"""How every figure looks: one color per method everywhere, few lines, plain words. matplotlib is imported only when one is drawn."""

from __future__ import annotations

import importlib.util
import io
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ttaps.errors import MissingExtra, UsageError
from ttaps.files import atomic_write
from ttaps.rng import derive_seed

FORMATS = ("png", "pdf", "svg")
DPI = 160
PAGE_DPI = 220  # in a web page: sharp on screens with two pixels for one
COLUMN = 3.4  # inches, the width of a column of a paper with two

# Okabe and Ito's palette: told apart by eyes of every kind, and in gray.
METHOD_COLOURS = {
    "source": "#7a7a7a",
    "augment": "#b2182b",
    "ttaps": "#0072b2",
    "ttt": "#d55e00",
    "mt3": "#cc79a7",
    "memo": "#e69f00",
    "tent": "#009e73",
    "bn": "#56b4e9",
    "baseline": "#7a7a7a",
    "jt": "#a6761d",
    "jt+tta": "#8c6bb1",
    "jt+ent": "#4d4d4d",
}
SPARE_COLOURS = ("#1b7837", "#5ab4ac", "#c51b7d", "#542788")
SHADES = (0.0, -0.4, 0.35, -0.65, 0.6)  # towards black, or towards white
MARKERS, DASHES = ("o", "s", "^", "D", "v", "P", "X"), ("-", "--", ":", "-.")
CLASS_COLOURS = (
    *("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00"),
    *("#56b4e9", "#8c6bb1", "#a6761d", "#666666", "#000000"),
)
RIGHT, WRONG = "#1a7f37", "#c62828"
INK, FAINT = "#222222", "#8a8a8a"


@dataclass(frozen=True)
class Look:
    """How a column of a table is drawn, in every figure."""

    color: str = "#000000"
    marker: str = MARKERS[0]
    dashes: str = DASHES[0]


PLAIN = Look()


def look(method: str, variant: int) -> Look:
    """Return the look of a method: its color, and for each further variant (other settings, another K) a shade, a marker and dashes."""
    base = METHOD_COLOURS.get(method) or SPARE_COLOURS[derive_seed(method) % len(SPARE_COLOURS)]
    color = shade(base, SHADES[variant % len(SHADES)])
    return Look(color, MARKERS[variant % len(MARKERS)], DASHES[variant % len(DASHES)])


def shade(color: str, amount: float) -> str:
    """Return a color mixed with white (amount up to 1) or black (down to -1)."""
    end = 255 if amount > 0 else 0
    parts = (int(color[place : place + 2], 16) for place in (1, 3, 5))
    return "#" + "".join(f"{round(part + (end - part) * abs(amount)):02x}" for part in parts)


def check_figure(path: Path) -> None:
    """Refuse a figure that could not be written in the end, before any work is done for it."""
    if path.suffix[1:].lower() not in FORMATS:
        raise UsageError(f"A figure must end in {', '.join('.' + name for name in FORMATS)}, not '{path.name}'.")
    if importlib.util.find_spec("matplotlib") is None:
        raise MissingExtra("Drawing a figure", "figures")


def new_figure(width: float, height: float) -> Any:
    """Return an empty figure of so many inches; it belongs to no window and no global list of figures."""
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise MissingExtra("Drawing a figure", "figures") from error
    return Figure(figsize=(width, height), dpi=DPI, facecolor="white")


def two_panels(labels: Sequence[str], above_says: str, below_says: str, along: str) -> tuple[Any, Any, Any]:
    """Return a figure of one column with two plots over the same x, one above the other, and room for labels on top."""
    height = 3.25 + 0.145 * -(-len(labels) // in_a_row(labels)) + 0.05  # inches
    figure = new_figure(COLUMN, height)
    above = figure.add_axes((0.15, 1.85 / height, 0.82, 1.35 / height))
    below = figure.add_axes((0.15, 0.42 / height, 0.82, 1.2 / height), sharex=above)
    for axes, words in ((above, above_says), (below, below_says)):
        axes.set_ylabel(words, fontsize=7, color=INK)
        axes.grid(axis="y", color="#e8e8e8", linewidth=0.6)
        axes.set_axisbelow(True)
        strip(axes)
    below.set_xlabel(along, fontsize=7, color=INK)
    above.tick_params(labelbottom=False)
    return figure, above, below


def label_above(axes: Any) -> None:
    """Put the labels of what was drawn on top of it; a dollar sign in a name starts no formula."""
    _, labels = axes.get_legend_handles_labels()
    place = {"loc": "lower left", "bbox_to_anchor": (-0.1, 1), "borderaxespad": 0.2}
    legend = axes.legend(fontsize=6.2, frameon=False, ncols=in_a_row(labels), **place)
    for text in legend.get_texts():
        text.set_parse_math(False)


def in_a_row(labels: Sequence[str]) -> int:
    """Return how many labels fit beside each other in one column of a paper."""
    return 2 if max(map(len, labels), default=0) <= 28 else 1


def save_figure(figure: Any, path: Path) -> None:
    """Write a figure whole or not at all, in the format its name ends in."""
    check_figure(path)
    import matplotlib

    # Type 42: letters stay letters in a PDF; publishers refuse matplotlib's usual ones.
    with atomic_write(path) as scratch, matplotlib.rc_context({"pdf.fonttype": 42}):
        figure.savefig(scratch, format=path.suffix[1:].lower())


def png_bytes(figure: Any) -> bytes:
    """Return a figure as PNG, for a web page."""
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=PAGE_DPI)
    return buffer.getvalue()


def write(axes: Any, x: float, y: float, words: str, **style: Any) -> None:
    """Write words into a figure as they are: a dollar sign in a file's name starts no formula."""
    axes.text(x, y, words, parse_math=False, **({"color": INK, "fontsize": 8, "va": "center"} | style))


def strip(axes: Any, keep: tuple[str, ...] = ("left", "bottom")) -> None:
    """Take off the lines of a frame that say nothing."""
    for side, spine in axes.spines.items():
        spine.set_visible(side in keep)
        spine.set_color(FAINT)
    axes.tick_params(colors=INK, labelsize=7, color=FAINT, length=2.5)
