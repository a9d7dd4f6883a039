"""T3A (Iwasawa and Matsuo, 2021): the classifier's weights become the centroids of test features, class by class. No gradient."""

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ttaps.adaptation.engine import CarriedState
from ttaps.adaptation.method import Method
from ttaps.losses import prediction_entropies
from ttaps.model.functional import last_linear, missing_linear


@dataclass(frozen=True)
class T3a(Method):
    """Supports of a class are its row of the classifier and the features of images predicted as this class; they accumulate from
    image to image, as in the authors' code."""

    name = "t3a"
    paper = "Iwasawa & Matsuo 2021"
    adapts = "the classifier"

    num_supports: int = 100
    """M: supports kept per class, those with the lowest entropy. (The authors choose from 1, 5, 20, 50, 100 and all.)"""
    batch_size: int = 1
    """Images whose features are added before they are predicted."""
    online: bool = True
    """Keep the supports from image to image: results depend on the order. A single image only makes its label more confident."""
    continual: bool = False
    """Keep them also across corruptions: ``online`` over the whole stream, never reset."""

    def missing_requirement(self, network: nn.Module) -> str | None:
        """Return what a network lacks: features and a linear layer that classifies them."""
        return missing_linear(network)

    @torch.no_grad()
    def adapt_one(self, network: nn.Module, image: Tensor, key: int, state: CarriedState) -> Tensor:
        """Add the features to the supports, then classify them by the centroids."""
        logits, features, classifier = last_linear(network, image)
        before = state.tell(logits.softmax(-1))
        rows = torch.arange(len(classifier.weight), device=image.device)
        memory = state.memory or _supports(classifier.weight, classifier(classifier.weight), rows)
        new = _supports(features, logits, logits.argmax(-1))
        state.memory = self.select({name: torch.cat([memory[name], new[name]]) for name in new})
        return torch.stack([before, state.tell(self.predict(features, classifier, state.memory))], dim=1)

    def select(self, supports: dict[str, Tensor]) -> dict[str, Tensor]:
        """Return the supports of each class with the lowest entropies."""
        order = supports["entropy"].argsort(stable=True)
        labels = supports["label"][order]
        kept = torch.cat([order[labels == label][: self.num_supports] for label in labels.unique()])
        return {name: values[kept] for name, values in supports.items()}

    def predict(self, features: Tensor, classifier: nn.Linear, supports: dict[str, Tensor]) -> Tensor:
        """Return class probabilities from unit centroids, scaled to the mean length of the rows that they replace: this keeps the
        authors' labels, and probabilities comparable before and after."""
        unit = F.normalize(supports["feature"], dim=-1)
        centroids = torch.zeros_like(classifier.weight).index_add(0, supports["label"], unit)
        length = classifier.weight.norm(dim=-1).mean()
        return (length * features @ F.normalize(centroids, dim=-1).T).softmax(-1)


def _supports(features: Tensor, logits: Tensor, labels: Tensor) -> dict[str, Tensor]:
    return {"feature": features, "label": labels, "entropy": prediction_entropies(logits)}
