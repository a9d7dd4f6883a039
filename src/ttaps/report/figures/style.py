"""How every figure looks: one color per method everywhere, one matplotlib style file. matplotlib is imported only to draw."""

from __future__ import annotations

import importlib.util
import io
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from typing import Any, ParamSpec

from ttaps.errors import MissingExtra, UsageError
from ttaps.files import atomic_write
from ttaps.rng import derive_seed

P = ParamSpec("P")
STYLE = Path(__file__).parents[1] / "ttaps.mplstyle"
FORMATS = ("png", "pdf", "svg")
PAGE_DPI = 220  # in a web page: sharp on screens with two pixels for one
WIDTH = 3.4  # inches: one column of a paper with two

# Okabe and Ito's palette: distinguishable for color-blind readers, and in gray.
METHOD_COLORS = {
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
    "jt tta": "#8c6bb1",
    "jt+ent": "#4d4d4d",
}
SPARE_COLORS = ("#1b7837", "#5ab4ac", "#c51b7d", "#542788")
SHADES = (0.0, -0.4, 0.35, -0.65, 0.6)  # towards black, or towards white
MARKERS, DASHES = ("o", "s", "^", "D", "v", "P", "X"), ("-", "--", ":", "-.")
CLASS_COLORS = (
    *("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00"),
    *("#56b4e9", "#8c6bb1", "#a6761d", "#666666", "#000000"),
)
RIGHT, WRONG = "#1a7f37", "#c62828"
INK, FAINT = "#222222", "#8a8a8a"


@dataclass(frozen=True)
class SeriesStyle:
    """How a column of a table is drawn, in every figure."""

    color: str = "#000000"
    marker: str = MARKERS[0]
    dashes: str = DASHES[0]


PLAIN = SeriesStyle()


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


def check_figure(path: Path) -> None:
    """Refuse a figure that could not be written in the end, before any work is done for it."""
    if path.suffix[1:].lower() not in FORMATS:
        raise UsageError(f"A figure must end in {', '.join('.' + name for name in FORMATS)}, not '{path.name}'.")
    if importlib.util.find_spec("matplotlib") is None:
        raise MissingExtra("Drawing a figure", "figures")


@contextmanager
def figure_style() -> Iterator[None]:
    """Apply the style file; the settings of whoever else uses matplotlib are left alone."""
    try:
        import matplotlib as mpl
    except ImportError as error:
        raise MissingExtra("Drawing a figure", "figures") from error
    with mpl.rc_context(fname=STYLE):
        yield


def styled(draw: Callable[P, Any]) -> Callable[P, Any]:
    """Draw a figure in the package's style."""

    @wraps(draw)
    def in_style(*args: P.args, **kwargs: P.kwargs) -> Any:
        with figure_style():
            return draw(*args, **kwargs)

    return in_style


def new_figure(width: float, height: float) -> Any:
    """Return an empty figure of so many inches; it belongs to no window and no global list of figures."""
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height))


def two_panels(labels: Sequence[str], above_label: str, below_label: str, x_label: str) -> tuple[Any, Any, Any]:
    """Return a figure with two plots over the same x, one above the other, and room for a legend on top."""
    lines = sum(legend_label(label).count("\n") + 1 for label in labels)
    figure = new_figure(WIDTH, 3.0 + 0.12 * lines)
    above, below = figure.subplots(2, sharex=True)
    for axes, label in ((above, above_label), (below, below_label)):
        axes.set_ylabel(label)
        axes.grid(axis="y")
    below.set_xlabel(x_label)
    figure.align_ylabels()
    return figure, above, below


def legend_above(figure: Any, axes: Any) -> None:
    """Write the legend of what was drawn above the plots, one entry per line."""
    handles, labels = axes.get_legend_handles_labels()
    figure.legend(handles, list(map(legend_label, labels)), loc="outside upper left", labelspacing=0.25)


def legend_label(label: str, width: int = 62) -> str:
    """Return a label on lines that fit a column's width, broken after commas and spaces."""
    lines = [""]
    for part in re.findall(r"[^ ,]*[ ,]*", label):
        if lines[-1] and len(lines[-1] + part.rstrip()) > width:
            lines.append("")
        lines[-1] += part
    return "\n".join(lines)


def despine(axes: Any, keep: Sequence[str] = ()) -> None:
    """Hide the lines of a frame that carry no information."""
    for side, spine in axes.spines.items():
        spine.set_visible(side in keep)


def save_figure(figure: Any, path: Path) -> None:
    """Write a figure whole or not at all, in the format its name ends in."""
    check_figure(path)
    with atomic_write(path) as scratch, figure_style():
        figure.savefig(scratch, format=path.suffix[1:].lower())


def png_bytes(figure: Any) -> bytes:
    """Return a figure as PNG, for a web page."""
    buffer = io.BytesIO()
    with figure_style():
        figure.savefig(buffer, format="png", dpi=PAGE_DPI)
    return buffer.getvalue()
