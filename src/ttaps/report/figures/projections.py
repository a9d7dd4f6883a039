"""The map of projections: z of many images colored by class, prototypes as squares. Drawn from a stored file, without a model."""

from __future__ import annotations

import importlib.util
import warnings
import zlib
from collections.abc import Sequence
from colorsys import hsv_to_rgb
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np
from numpy.typing import NDArray

from ttaps.errors import DataError
from ttaps.report.figures.style import CLASS_COLORS, INK, WIDTH, new_figure, styled

FOLDER = "projections"  # of a folder of results, as ttaps evaluate --projections writes it
NAMES = ("z", "labels", "prototypes", "prototype_labels", "classes", "model", "fingerprint", "data")
LEAST = 3  # points, images and prototypes together, that a map can be made of
Points = NDArray[np.float64]


def projection_files(folders: Sequence[Path]) -> list[Path]:
    """Return the stored projections of some folders; the same model and data set in several of them counts once."""
    found = {path.name: path for folder in folders for path in sorted((folder / FOLDER).glob("*.npz"))}
    return list(found.values())


def projection_map(path: Path) -> tuple[str, str, Any]:
    """Return name, caption and figure of the map of stored projections."""
    arrays = read_projections(path)
    points, way = to_plane(np.concatenate([arrays["z"], arrays["prototypes"]]))
    caption = (
        f"{arrays['data']}: projections z of {len(arrays['z'])} images before adaptation, colored by class ({way}), "
        f"model {arrays['model']} ({arrays['fingerprint']}); squares are prototypes, colored by the class the classifier gives them."
    )
    return f"{arrays['data']}-{arrays['model']}-{arrays['fingerprint']}", caption, projection_figure(points, arrays)


def read_projections(path: Path) -> dict[str, NDArray[Any]]:
    """Read stored projections; a file that holds none, or not all of them, is refused."""
    damaged = DataError(
        f"{path} is damaged or holds no projections.\nRemove it, or write it again with ttaps evaluate --projections."
    )
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as archive:
            arrays = {name: archive[name] for name in NAMES}
    except (OSError, EOFError, ValueError, KeyError, TypeError, BadZipFile, zlib.error) as error:
        raise damaged from error
    z, prototypes = arrays["z"], arrays["prototypes"]
    labeled = (len(z), len(prototypes)) == (len(arrays["labels"]), len(arrays["prototype_labels"]))
    if not labeled or z.ndim != 2 or z.shape[1:] != prototypes.shape[1:] or len(z) + len(prototypes) < LEAST:
        raise damaged
    return arrays


def to_plane(z: NDArray[Any]) -> tuple[Points, str]:
    """Return points of the plane for vectors (N, Z), and how they were found: by UMAP where it is installed, else by PCA."""
    if not umap_installed():
        centered = z.astype(np.float64) - z.mean(0, dtype=np.float64)
        return centered @ np.linalg.svd(centered, full_matrices=False)[2][:2].T, "PCA"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # umap warns of its own choices
        import umap

        neighbors = min(15, len(z) - 1)
        return umap.UMAP(n_neighbors=neighbors, metric="cosine", random_state=0).fit_transform(z), "UMAP"


def umap_installed() -> bool:
    """Say whether umap-learn is installed."""
    return importlib.util.find_spec("umap") is not None


def class_colors(count: int) -> list[Any]:
    """Return a color for each class: those of the palette while they last, else hues around the circle, light and dark in turn."""
    if count <= len(CLASS_COLORS):
        return list(CLASS_COLORS[:count])
    return [hsv_to_rgb(label / count, 0.9, (0.95, 0.55)[label % 2]) for label in range(count)]


@styled
def projection_figure(points: Points, arrays: dict[str, NDArray[Any]]) -> Any:
    """Draw images as dots and prototypes as squares; ``points`` holds first those, then these."""
    labels, classes = arrays["labels"], arrays["classes"]
    images, squares = points[: len(labels)], points[len(labels) :]
    figure = new_figure(WIDTH, 2.6)
    axes = figure.subplots()
    for label, (name, color) in enumerate(zip(classes, class_colors(len(classes)), strict=True)):
        dots = {"alpha": 0.55, "linewidths": 0, "label": str(name), "rasterized": True}
        axes.scatter(*images[labels == label].T, s=2, color=color, **dots)
        own = squares[arrays["prototype_labels"] == label]
        axes.scatter(*own.T, s=9, marker="s", color=color, edgecolors=INK, linewidths=0.4)
    axes.set_axis_off()
    if len(classes) <= 20:
        figure.legend(loc="outside right center", markerscale=2.5, handletextpad=0.1)
    return figure
