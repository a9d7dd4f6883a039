"""EATA (Niu et al., 2022): TENT on reliable, non-redundant images, with a penalty against forgetting the training data."""

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ttaps.adaptation.engine import CarriedState, Weights
from ttaps.adaptation.tent import Logits, Tent, entropy_limit
from ttaps.data import load_set
from ttaps.errors import UsageError
from ttaps.losses import prediction_entropies
from ttaps.model import to_float
from ttaps.model.functional import Functional, use_batch_statistics

MEAN = "mean prediction"
FISHER, SOURCE = "fisher: ", "source: "  # before the names of weights
FISHER_BATCH, FISHER_SIZE = 64, 32  # the authors' images per gradient; pixels of the known data sets


@dataclass(frozen=True)
class Eata(Tent):
    """The authors' settings on CIFAR-10; model and optimizer are reset for every image, or every batch, unless ``online``."""

    name = "eata"
    paper = "Niu et al. 2022"

    lr: float = 0.005
    """Step size."""
    optimizer: Literal["adam", "sgd"] = "sgd"
    """SGD, as the authors use, or Adam."""
    momentum: float = 0.9
    """Momentum of SGD."""
    entropy_margin: float = 0.4
    """E₀ as a share of ln(classes): skip images with a larger entropy H, and weight the others by exp(E₀ - H). 0: all, equally."""
    redundancy_margin: float = 0.4
    """Skip images whose prediction has at least this cosine similarity with the running mean of predictions. 0: none."""
    fisher_data: Literal["none", "sample", "cifar10", "cifar100"] = "none"
    """Training images for the Fisher information, the importance of each weight for the source data; ``online`` only. Without
    them, this is what the authors call ETA."""
    fisher_weight: float = 1.0
    """β, weight of the penalty β Σ ω (θ - θ_source)², with the Fisher information ω; the authors use 2,000 on ImageNet."""
    fisher_images: int = 2000
    """Images for the Fisher information."""

    def check_settings(self, network: nn.Module) -> None:
        """Refuse Fisher images that do not have the network's input size."""
        size = getattr(network, "image_size", FISHER_SIZE)
        if self.fisher_data != "none" and size != FISHER_SIZE:
            raise UsageError(
                f"fisher_data={self.fisher_data} has images of {FISHER_SIZE} pixels, the model takes {size}."
            )

    def adapt_one(self, network: nn.Module, image: Tensor, key: int, state: CarriedState) -> Tensor:
        """Adapt as TENT does; the Fisher information is computed before the first batch."""
        if self.online and self.fisher_data != "none" and not any(name.startswith(FISHER) for name in state.memory):
            images = torch.from_numpy(load_set(self.fisher_data, split="train").images[: self.fisher_images])
            classifier = Functional(network, self.adapted_weights(network))
            use_batch_statistics(classifier.copy)
            state.memory |= {f"{SOURCE}{name}": weight for name, weight in classifier.weights().items()}
            fisher = fisher_information(classifier, to_float(images).to(image.device))
            state.memory |= {f"{FISHER}{name}": value for name, value in fisher.items()}
        return super().adapt_one(network, image, key, state)

    def loss(self, logits: Logits, weights: Weights, state: CarriedState) -> Tensor | None:
        """Return the weighted mean entropy of the selected images plus the penalty; None if none is selected."""
        found = logits(weights)
        entropies, limit = prediction_entropies(found), entropy_limit(self.entropy_margin, found)
        probabilities, counting = found.detach().softmax(-1), entropies < limit
        if self.redundancy_margin and MEAN in state.memory:
            cosine = F.cosine_similarity(probabilities, state.memory[MEAN][None])
            counting = counting & (cosine < self.redundancy_margin)
        if not counting.any():
            return None
        mean = probabilities[counting].mean(0)
        state.memory[MEAN] = 0.9 * state.memory.get(MEAN, mean) + 0.1 * mean
        entropies = entropies[counting]
        factors = (limit - entropies.detach()).exp() if self.entropy_margin else 1.0
        return (factors * entropies).mean() + self.penalty(weights, state.memory)

    def penalty(self, weights: Weights, memory: Weights) -> Tensor | float:
        """Return β Σ ω (θ - θ_source)², or nothing where there is no Fisher information."""
        moved = ((memory[f"{FISHER}{name}"], weight - memory[f"{SOURCE}{name}"]) for name, weight in weights.items())
        known = any(name.startswith(FISHER) for name in memory)
        return self.fisher_weight * sum((w * move.square()).sum() for w, move in moved) if known else 0.0


def fisher_information(classifier: Functional, images: Tensor) -> Weights:
    """Return the mean square of the gradients of -ln p(predicted class), each over a batch of images, by name of weight."""
    weights = {name: weight.clone().requires_grad_() for name, weight in classifier.weights().items()}
    squares = {name: torch.zeros_like(weight) for name, weight in weights.items()}
    batches = images.split(FISHER_BATCH)
    for batch in batches:
        with torch.enable_grad():
            logits = classifier(batch, weights)
            loss = F.cross_entropy(logits, logits.argmax(-1))
            gradients = torch.autograd.grad(loss, list(weights.values()), materialize_grads=True)
        for name, gradient in zip(squares, gradients, strict=True):
            squares[name] += gradient.square() / len(batches)
    return squares
