"""Combine the predictions of an image and its views: which of them count, with what weight and temperature."""

from typing import Literal

from torch import Tensor

Predict = Literal["image", "views", "both"]
ViewWeights = Literal["equal", "agreement"]


def mean_over_views(probabilities: Tensor, weights: ViewWeights = "equal") -> Tensor:
    """Return the mean (1, classes) of the views' probabilities (V, classes); ``agreement`` weights a view by p_v · mean p."""
    mean = probabilities.mean(0, keepdim=True)
    if weights == "equal":
        return mean
    shares = probabilities @ mean[0]
    return (shares / shares.sum()) @ probabilities[None]


def combine(probabilities: Tensor, predict: Predict, weights: ViewWeights = "equal") -> Tensor:
    """Return the prediction (1, classes) of the image, of the views, or of both, where the image is row 0."""
    if predict == "image":
        return probabilities
    if predict == "views":
        return mean_over_views(probabilities, weights)
    return (probabilities[:1] + mean_over_views(probabilities[1:], weights)) / 2


def tempered(probabilities: Tensor, temperature: float) -> Tensor:
    """Return softmax(ln p / T): the order of classes does not change; T above 1 lowers confidence."""
    return probabilities if temperature == 1 else (probabilities.log() / temperature).softmax(-1)
