"""The prototype map: t-SNE (van der Maaten and Hinton, 2008) of cosine distances, without a random draw: it starts from PCA."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
PERPLEXITY, ITERATIONS, EXAGGERATED = 15.0, 400, 100
TEMPERATURE = 0.05  # of the weights by which an image lies between prototypes
NEAREST = 8


def layout(vectors: NDArray[Any]) -> Floats:
    """Return points in [0, 1]² for unit vectors (K, Z); near vectors are near each other."""
    vectors = np.asarray(vectors, dtype=np.float64)
    if len(vectors) < 4:
        angle = 2 * np.pi * np.arange(len(vectors)) / max(len(vectors), 1)
        return 0.5 + 0.4 * np.stack([np.cos(angle), np.sin(angle)], axis=1)
    joint = affinities(np.maximum(1 - vectors @ vectors.T, 0))
    left, scale, axes = np.linalg.svd(vectors - vectors.mean(0), full_matrices=False)
    # of either sign an axis is as good: always take the same
    signs = np.sign(axes[np.arange(2), np.abs(axes[:2]).argmax(1)])
    points = 1e-4 * left[:, :2] * scale[:2] * signs / scale[0]
    velocity, gains = np.zeros_like(points), np.ones_like(points)
    for iteration in range(ITERATIONS):
        squares = (points**2).sum(1)
        near = 1 / (1 + np.maximum(squares[:, None] + squares - 2 * points @ points.T, 0))
        np.fill_diagonal(near, 0)
        pull = ((4 * joint if iteration < EXAGGERATED else joint) - near / near.sum()) * near
        gradient = 4 * (pull.sum(1)[:, None] * points - pull @ points)
        gains = np.where(np.sign(gradient) != np.sign(velocity), gains + 0.2, np.maximum(gains * 0.8, 0.01))
        velocity = (0.5 if iteration < EXAGGERATED else 0.8) * velocity - len(vectors) / 12 * gains * gradient
        points = points + velocity
    points -= points.min(0)
    return points / points.max()


def affinities(distances: Floats) -> Floats:
    """Return P of t-SNE: symmetric, sums to 1; each row has the perplexity, found by bisection of its temperature."""
    count = len(distances)
    wanted, low, high = np.log(min(PERPLEXITY, (count - 1) / 3)), np.full(count, 1e-6), np.full(count, 1e6)
    away = distances - (distances + np.diag(np.full(count, np.inf))).min(1, keepdims=True)
    for _ in range(60):
        beta = np.sqrt(low * high)
        rows = np.exp(-away * beta[:, None])
        np.fill_diagonal(rows, 0)
        rows /= rows.sum(1, keepdims=True)
        entropy = -(rows * np.log(np.maximum(rows, 1e-300))).sum(1)
        low, high = np.where(entropy > wanted, beta, low), np.where(entropy > wanted, high, beta)
    return (rows + rows.T) / (2 * count)


def place(scores: NDArray[Any], points: Floats) -> tuple[dict[str, float], list[int]]:
    """Return where vectors with these cosines (N, K) lie on the map, as a weighted mean of prototypes, and the nearest prototypes."""
    weights = np.exp((scores - scores.max(1, keepdims=True)).astype(np.float64) / TEMPERATURE)
    x, y = (weights / weights.sum(1, keepdims=True)).mean(0) @ points
    nearest = np.argsort(-scores.mean(0), kind="stable")[:NEAREST]
    return {"x": float(x), "y": float(y)}, nearest.tolist()
