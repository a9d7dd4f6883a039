"""CoTTA (Wang et al., 2022): follow a teacher, an EMA of the weights, which averages over views when unsure; reset some weights."""

from dataclasses import dataclass, field

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ttaps.adaptation.engine import CarriedState, Weights, gradient_steps
from ttaps.adaptation.tent import Tent
from ttaps.model.functional import Functional, source_images, use_batch_statistics
from ttaps.rng import generator
from ttaps.views import SwavViews

COTTA_VIEWS = SwavViews(
    scale=(0.8, 1.0),
    ratio=(0.9, 1.1),
    jitter_strength=0.4,
    jitter_p=1,
    gray_p=0,
    blur_p=1,
    blur_sigma=(0.01, 0.5),
    blur_kernel=5,
)


@dataclass(frozen=True)
class Cotta(Tent):
    """The authors' settings on CIFAR-10-C except the views; weights, teacher and optimizer are kept from image to image."""

    name = "cotta"
    paper = "Wang et al. 2022"
    adapts = "all weights"

    online: bool = True
    """Keep weights, teacher and optimizer from image to image: results depend on the order.
    A single image only gets the mean over its views."""
    ema_decay: float = 0.999
    """α of the teacher's weights: teacher ← α teacher + (1 - α) student after every step."""
    restore_p: float = 0.01
    """Probability with which each single weight is reset to its trained value after a step."""
    augment_threshold: float = 0.92
    """The teacher averages over views if the trained model's mean confidence in a batch is below this. 0: never."""
    num_views: int = 32
    """Views of each image, fresh ones for each step."""
    views: SwavViews = field(default_factory=lambda: COTTA_VIEWS)
    """How a view is made."""

    def missing_requirement(self, network: nn.Module) -> str | None:
        """Return None, unless there is nothing to adapt."""
        return None if any(True for _ in network.parameters()) else "weights"

    @torch.no_grad()
    def adapt_one(self, network: nn.Module, image: Tensor, key: int, state: CarriedState) -> Tensor:
        """Predict with the teacher, take a step of the weights towards it, then move the teacher and restore some weights."""
        classifier = Functional(network)
        trace = [state.tell(classifier(image, {}).softmax(-1))]
        use_batch_statistics(classifier.copy, source_images(self.source_weight, len(image)))
        source, state.rule = classifier.weights(), state.rule or self.make_rule()
        confidence = classifier(image, {}).softmax(-1).amax(-1).mean()
        for step in range(self.steps):
            draws = generator(key, "cotta", step)
            teacher = state.memory or source
            batches = [image]
            if confidence < self.augment_threshold:
                batches = [self.draw_copy(image, draws) for _ in range(self.num_views)]
            target = torch.stack([classifier(batch, teacher) for batch in batches]).mean(0).softmax(-1)

            def loss(weights: Weights, _: int, target: Tensor = target) -> Tensor:
                return F.cross_entropy(classifier(image, weights), target)

            [student] = gradient_steps(loss, source, 1, self.lr, state)
            state.memory = {name: weight.lerp(student[name], 1 - self.ema_decay) for name, weight in teacher.items()}
            state.weights = {name: self.restore(weight, source[name], draws) for name, weight in student.items()}
            trace.append(state.tell(target))
        return torch.stack(trace, dim=1)

    def draw_copy(self, images: Tensor, draws: torch.Generator) -> Tensor:
        """Return one view of each image."""
        return self.views.apply(images, self.views.sample(len(images), images.shape[-1], draws))

    def restore(self, weight: Tensor, source: Tensor, draws: torch.Generator) -> Tensor:
        """Return a weight some of whose entries are the trained ones."""
        chosen = torch.rand(weight.shape, generator=draws) < self.restore_p
        return torch.where(chosen.to(weight.device), source, weight)
