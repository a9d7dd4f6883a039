"""Adapt the bundled model to one image: python examples/adapt_one_image.py [IMAGE]"""

import sys

import ttaps
from ttaps.data.sample import read_sample

image = sys.argv[1] if len(sys.argv) > 1 else read_sample("fog").images[9]  # default: a truck in fog
model = ttaps.load("cifar10")
result = ttaps.adapt(model, image, confidence_threshold=1)  # 1: adapt however confident the model is

for step, probabilities in enumerate(result.trace):
    best = int(probabilities.argmax())
    print(f"step {step}: {model.classes[best]} {probabilities[best]:.1%}")
print("label:", result.label)
