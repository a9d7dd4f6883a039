"""The style of all figures: one color per method, one matplotlib style file. matplotlib is imported only to draw."""

import importlib.util
import re
from collections.abc import Iterator, Sequence
from colorsys import hsv_to_rgb
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from ttaps.errors import MissingExtra, UsageError
from ttaps.files import atomic_write, make_room
from ttaps.rng import derive_seed

# Okabe and Ito's palette: distinguishable for color-blind readers, and in gray.
METHOD_COLORS = {
    "source": "#7a7a7a", "augment": "#b2182b", "ttaps": "#0072b2", "ttt": "#d55e00", "mt3": "#cc79a7", "memo": "#e69f00",
    "tent": "#009e73", "bn": "#56b4e9", "t3a": "#1b7837", "lame": "#c51b7d", "sar": "#542788", "eata": "#878700",
    "cotta": "#01665e",
    "baseline": "#7a7a7a", "jt": "#a6761d", "jt tta": "#8c6bb1", "jt+ent": "#4d4d4d",
}  # fmt: skip
SPARE_COLORS = ("#35978f", "#5ab4ac", "#8c510a", "#3b528b")
SHADES = (0.0, -0.4, 0.35, -0.65, 0.6)  # towards black, or towards white
MARKERS, DASHES = ("o", "s", "^", "D", "v", "P", "X"), ("-", "--", ":", "-.")
CLASS_COLORS = (
    "#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#8c6bb1", "#a6761d", "#666666", "#000000",
)  # fmt: skip
RIGHT, WRONG = "#1a7f37", "#c62828"
INK, FAINT = "#222222", "#8a8a8a"


class SeriesStyle(NamedTuple):
    """The style of a table column in all figures."""

    color: str
    marker: str
    dashes: str


def series_style(method: str, variant: int) -> SeriesStyle:
    """Return a method's style: its color, and for each further variant (other settings, another K) a shade, a marker and dashes."""
    base = METHOD_COLORS.get(method) or SPARE_COLORS[derive_seed(method) % len(SPARE_COLORS)]
    color = shade(base, SHADES[variant % len(SHADES)])
    return SeriesStyle(color, MARKERS[variant % len(MARKERS)], DASHES[variant % len(DASHES)])


def shade(color: str, amount: float) -> str:
    """Return a color mixed with white (amount up to 1) or black (down to -1)."""
    end = 255 if amount > 0 else 0
    parts = (int(color[place : place + 2], 16) for place in (1, 3, 5))
    return "#" + "".join(f"{round(part + (end - part) * abs(amount)):02x}" for part in parts)


def class_colors(count: int) -> list[Any]:
    """Return a color for each class: those of the palette while they last, else hues around the circle, light and dark in turn."""
    if count <= len(CLASS_COLORS):
        return list(CLASS_COLORS[:count])
    return [hsv_to_rgb(label / count, 0.9, (0.95, 0.55)[label % 2]) for label in range(count)]


def check_figure(path: Path) -> None:
    """Refuse a figure that could not be written, before any work is done."""
    if path.suffix.lower() not in (".png", ".pdf", ".svg"):
        raise UsageError(f"A figure must end in .png, .pdf, .svg, not '{path.name}'.")
    if importlib.util.find_spec("matplotlib") is None:
        raise MissingExtra("Drawing a figure", "figures")
    make_room(path)


@contextmanager
def styled() -> Iterator[None]:
    """Apply the style file, in a block or to a function, without changing global matplotlib settings."""
    import matplotlib as mpl

    with mpl.rc_context(fname=Path(__file__).parents[1] / "ttaps.mplstyle"):
        yield


def new_figure(height: float, width: float = 3.4) -> Any:
    """Return an empty figure of this size in inches, in no window or global list; 3.4 is one column of a two-column paper."""
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height))


def two_panels(labels: Sequence[str], above_label: str, below_label: str, x_label: str) -> tuple[Any, Any, Any]:
    """Return a figure with two plots over the same x, one above the other, and room for a legend on top."""
    figure = new_figure(3.0 + 0.12 * sum(legend_label(label).count("\n") + 1 for label in labels))
    above, below = figure.subplots(2, sharex=True)
    for axes, label in ((above, above_label), (below, below_label)):
        axes.set_ylabel(label)
        axes.grid(axis="y")
    below.set_xlabel(x_label)
    figure.align_ylabels()
    return figure, above, below


def legend_above(figure: Any, axes: Any) -> None:
    """Draw the legend above the plots, one entry per line."""
    handles, labels = axes.get_legend_handles_labels()
    figure.legend(handles, list(map(legend_label, labels)), loc="outside upper left", labelspacing=0.25)


def legend_label(label: str, width: int = 62) -> str:
    """Return a label on lines that fit a column's width, broken where it is, and after commas and spaces."""
    lines: list[str] = []
    for line in label.split("\n"):
        lines.append("")
        for part in re.findall(r"[^ ,]*[ ,]*", line):
            if lines[-1] and len(lines[-1] + part.rstrip()) > width:
                lines.append("")
            lines[-1] += part
    return "\n".join(lines)


def save_figure(figure: Any, path: Path) -> None:
    """Write a figure atomically, in the format of its file extension."""
    with atomic_write(path) as scratch, styled():
        figure.savefig(scratch, format=path.suffix[1:].lower())
