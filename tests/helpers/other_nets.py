"""Classifiers that are not ours: what a user of ``ttaps.adapt(my_module, ...)`` may bring."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F


class PreActBlock(nn.Module):
    """A pre-activation residual block with GroupNorm(8)."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.GroupNorm(8, inputs), nn.GroupNorm(8, outputs)
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
        self.shortcut = nn.Conv2d(inputs, outputs, 1, stride, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        active = F.relu(self.norm1(x))
        total: Tensor = self.conv2(F.relu(self.norm2(self.conv1(active)))) + self.shortcut(active)
        return total


class PreActResNet(nn.Module):
    """A small pre-activation ResNet, with a head that its forward pass never uses."""

    def __init__(self, classes: int = 4) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 3, 1, 1)
        self.blocks = nn.Sequential(PreActBlock(8, 8, 1), PreActBlock(8, 16, 2))
        self.norm = nn.GroupNorm(8, 16)
        self.head = nn.Linear(16, classes)
        self.unused = nn.Linear(16, 2)

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.head(F.relu(self.norm(self.blocks(self.stem(x)))).mean((2, 3)))
        return logits


def batch_norm_cnn(classes: int = 4) -> nn.Sequential:
    """Return a plain CNN with BatchNorm, one layer of which has no scale and shift, in front of dropout and a BatchNorm1d head."""
    return nn.Sequential(
        nn.Conv2d(3, 6, 3, padding=1),
        nn.BatchNorm2d(6),
        nn.ReLU(inplace=True),
        nn.Conv2d(6, 8, 3, stride=2, padding=1),
        nn.BatchNorm2d(8, affine=False),
        nn.ReLU(inplace=True),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.BatchNorm1d(8),
        nn.Dropout(0.5),
        nn.Linear(8, classes),
    )


def two_layers(classes: int = 4, size: int = 8) -> nn.Sequential:
    """Return two linear layers, for steps by hand."""
    return nn.Sequential(nn.Flatten(), nn.Linear(3 * size * size, 5), nn.Tanh(), nn.Linear(5, classes))


def made(kind: str) -> nn.Module:
    """Return one of these nets, always the same, with statistics and weights as after some training; not in evaluation mode."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(3)
        net = {"preact": PreActResNet, "batchnorm": batch_norm_cnn, "two layers": two_layers}[kind]()
        for layer in net.modules():
            if isinstance(layer, nn.BatchNorm1d | nn.BatchNorm2d | nn.GroupNorm) and layer.affine:
                nn.init.uniform_(layer.weight, 0.5, 2.0)
                nn.init.normal_(layer.bias)
            if isinstance(layer, nn.BatchNorm1d | nn.BatchNorm2d) and isinstance(layer.running_mean, Tensor):
                nn.init.normal_(layer.running_mean)
                nn.init.uniform_(layer.get_buffer("running_var"), 0.5, 2.0)
    return net.train()


def some_images(count: int = 5, size: int = 8) -> Tensor:
    """Return smooth uint8 images, always the same."""
    coarse = torch.rand(count, 3, 4, 4, generator=torch.Generator().manual_seed(4))
    return F.interpolate(coarse, (size, size), mode="bilinear").mul(255).to(torch.uint8)
