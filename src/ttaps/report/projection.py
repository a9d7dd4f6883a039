"""The map of projections: z of many images coloured by class, prototypes as squares. Drawn from a stored file, without a model."""

from __future__ import annotations

import importlib.util
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ttaps.errors import DataError
from ttaps.evaluate.projections import FILE
from ttaps.report.style import CLASS_COLOURS, COLUMN, INK, new_figure

NAMES = ("z", "labels", "prototypes", "prototype_labels", "classes", "model", "data")
Points = NDArray[np.float64]


def stored_projections(folders: Sequence[Path]) -> Iterator[tuple[str, Any, str]]:
    """Yield name, figure and caption of the map of each folder that holds projections."""
    for folder in folders:
        path = folder / FILE
        if path.exists():
            arrays = read_projections(path)
            flat, way = flatten(np.concatenate([arrays["z"], arrays["prototypes"]]))
            caption = (
                f"{arrays['data']}: projections z of {len(arrays['z'])} images before adaptation, coloured by class ({way}), "
                f"model {arrays['model']}; squares are prototypes, coloured by the class the classifier gives them."
            )
            yield folder.name, projection_figure(flat, arrays), caption


def read_projections(path: Path) -> dict[str, NDArray[Any]]:
    """Read stored projections, or say what is wrong with the file."""
    try:
        with np.load(path, allow_pickle=False) as archive:
            return {name: archive[name] for name in NAMES}
    except (OSError, ValueError, KeyError) as error:
        raise DataError(
            f"{path} does not hold projections ({error}).\nRemove it, or write it again with ttaps evaluate --projections."
        ) from error


def flatten(z: NDArray[Any]) -> tuple[Points, str]:
    """Return points of the plane for vectors (N, Z), and the way they were found: UMAP where it is installed, else PCA."""
    if not umap_is_there():
        return principal(z), "PCA"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # umap warns of its own choices
        import umap

        points: Points = umap.UMAP(n_neighbors=min(15, len(z) - 1), metric="cosine", random_state=0).fit_transform(z)
    return points, "UMAP"


def umap_is_there() -> bool:
    """Say whether umap-learn is installed."""
    return importlib.util.find_spec("umap") is not None


def principal(z: NDArray[Any]) -> Points:
    """Return the first two principal components of vectors (N, Z)."""
    centred = z.astype(np.float64) - z.mean(0, dtype=np.float64)
    _, _, axes = np.linalg.svd(centred, full_matrices=False)
    points: Points = centred @ axes[:2].T
    return points


def projection_figure(points: Points, arrays: dict[str, NDArray[Any]]) -> Any:
    """Draw images as dots and prototypes as squares; ``points`` holds first those, then these."""
    labels, classes = arrays["labels"], arrays["classes"]
    images, squares = points[: len(labels)], points[len(labels) :]
    figure = new_figure(COLUMN, 2.9)
    axes = figure.add_axes((0.02, 0.02, 0.72, 0.96))
    for label, name in enumerate(classes):
        colour = CLASS_COLOURS[label % len(CLASS_COLOURS)] if label < len(CLASS_COLOURS) else "#000000"
        axes.scatter(
            *images[labels == label].T, s=2, color=colour, alpha=0.55, linewidths=0, label=str(name), rasterized=True
        )
        own = squares[arrays["prototype_labels"] == label]
        axes.scatter(*own.T, s=9, marker="s", color=colour, edgecolors=INK, linewidths=0.4)
    axes.set_axis_off()
    if len(classes) <= 20:
        figure.legend(
            fontsize=6, frameon=False, loc="center right", markerscale=2.5, borderaxespad=0.1, handletextpad=0.1
        )
    return figure
