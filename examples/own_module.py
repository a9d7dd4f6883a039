"""Adapt your own classifier, untrained in this example, without special training: python examples/own_module.py"""

import torch
from torch import nn

import ttaps
from ttaps.data.sample import read_sample

torch.manual_seed(0)
net = nn.Sequential(
    nn.Conv2d(3, 16, 3, 2, 1), nn.BatchNorm2d(16), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(16, 10)
)
images = read_sample("gaussian_noise")
model = ttaps.load(net, size=32, classes=images.classes, normalize=((0.5, 0.5, 0.5), (0.25, 0.25, 0.25)))

print(ttaps.adapt(model, images.images[0], method="memo"))
print(ttaps.evaluate(model, images, ["source", "bn", "tent"], images_per_corruption=20))
