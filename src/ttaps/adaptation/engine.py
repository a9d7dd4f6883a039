"""Gradient steps on one image's weights, update rules (momentum, Adam), and the threads that images run on."""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from threading import Lock

import torch
from torch import Tensor

from ttaps.losses import at_least_float32

Weights = dict[str, Tensor]
UpdateRule = Callable[[Weights, Weights], Weights]  # (weights, gradients) to the update, before the step size
Loss = Callable[[Weights, int], Tensor | None]  # of (weights, step); unused weights stay, and None takes no step
AdaptOne = Callable[[Tensor, int, "CarriedState"], Tensor]


class Momentum:
    """v ← m v + g, with the L2 penalty inside g; the first v is g, as in torch. The default is the plain gradient."""

    def __init__(self, momentum: float = 0.0, weight_decay: float = 0.0) -> None:
        self.momentum, self.weight_decay = momentum, weight_decay
        self.velocity: Weights = {}

    def __call__(self, weights: Weights, gradients: Weights) -> Weights:
        """Return v, or g without momentum."""
        if self.weight_decay:
            gradients = {name: g.add(weights[name], alpha=self.weight_decay) for name, g in gradients.items()}
        if self.momentum and self.velocity:
            gradients = {name: g.add(self.velocity[name], alpha=self.momentum) for name, g in gradients.items()}
        self.velocity = gradients if self.momentum else {}
        return gradients


class Adam:
    """Adam (Kingma and Ba): m / (√v + ε) of bias-corrected running means, with their constants."""

    beta1, beta2, epsilon = 0.9, 0.999, 1e-8

    def __init__(self) -> None:
        self.moments: dict[str, tuple[Tensor, Tensor]] = {}
        self.steps = 0

    def __call__(self, weights: Weights, gradients: Weights) -> Weights:
        """Return the next update."""
        self.steps += 1
        updates = {}
        for name, gradient in gradients.items():
            exact = at_least_float32(gradient)  # squares and ε are zero in half precision
            mean, square = self.moments.get(name, (exact.new_zeros(()),) * 2)
            mean = self.beta1 * mean + (1 - self.beta1) * exact
            square = self.beta2 * square + (1 - self.beta2) * exact.square()
            self.moments[name] = mean, square
            deviation = (square / (1 - self.beta2**self.steps)).sqrt().add(self.epsilon)
            updates[name] = (mean / (1 - self.beta1**self.steps) / deviation).to(gradient.dtype)
        return updates


@dataclass
class CarriedState:
    """What a method keeps from image to image, if anything; empty before the first image."""

    weights: Weights | None = None
    rule: UpdateRule | None = None
    memory: Weights = field(default_factory=dict)  # what else a method remembers, by name
    observer: Callable[[float | None, Tensor], object] | None = None
    """Called with the loss of each step (None before the first) and the class probabilities after it; raising stops the adaptation."""
    loss: float | None = None

    def tell(self, probabilities: Tensor) -> Tensor:
        """Pass a prediction to the observer, if there is one, and return it."""
        if self.observer:
            self.observer(self.loss, probabilities)
        return probabilities


def gradient_steps(
    loss: Loss, source: Weights, steps: int, lr: float, state: CarriedState | None = None
) -> Iterator[Weights]:
    """Yield the weights after every step of θ ← θ - α∇θ L. ``source`` is not changed.
    Steps start from the weights in ``state``, if any, else from ``source``, use its update rule, and store the new weights in it."""
    state = state or CarriedState()
    weights, rule = state.weights or source, state.rule or Momentum()
    for step in range(steps):
        leaves = {name: weight.detach().requires_grad_() for name, weight in weights.items()}
        with torch.enable_grad():
            value = loss(leaves, step)
            gradients = () if value is None else torch.autograd.grad(value, [*leaves.values()], materialize_grads=True)
        if value is not None:
            with torch.no_grad():
                updates = rule(weights, dict(zip(leaves, gradients, strict=True)))
            weights = {name: weight.detach().sub(updates[name], alpha=lr) for name, weight in weights.items()}
            state.weights = weights
        state.loss = value.item() if state.observer and value is not None else None
        yield weights


def map_images(
    adapt_one: AdaptOne, images: Tensor, keys: Sequence[int], batch_size: int = 1, state: CarriedState | None = None
) -> Tensor:
    """Concatenate ``adapt_one(image, key, state)`` over images (1, 3, H, W), or over batches of them with their first key.
    They run in parallel, one thread each: no thread waits for another, and an image's result does not depend on the number of
    threads. (Two threads on one image wait for each other, which is many times slower on a busy machine.)
    Given a ``state``, they run sequentially and share it; otherwise each has an empty one."""
    batches = images.split(batch_size)
    first_keys = [keys[index] for index in range(0, len(images), batch_size)]
    states = [state or CarriedState() for _ in batches]
    with _one_thread_each() as threads:
        workers = 1 if state else min(len(batches), threads)
        with ThreadPoolExecutor(workers, initializer=torch.set_num_threads, initargs=(1,)) as pool:
            return torch.cat(list(pool.map(adapt_one, batches, first_keys, states)))


_threads: list[int] = []  # torch's number of threads before the first of the active calls, once per call
_guard = Lock()


@contextmanager
def _one_thread_each() -> Iterator[int]:
    """Yield the number of threads torch had before any call was active; the last call to end restores it.
    A worker's setting also holds for later threads, and MKL has one number for all threads: it must not be raised while others run."""
    with _guard:
        _threads.append(_threads[0] if _threads else torch.get_num_threads())
    try:
        yield _threads[0]
    finally:
        with _guard:
            threads = _threads.pop()
            if not _threads:
                torch.set_num_threads(threads)
