"""Compare settings of a method on images not used for reported results: python examples/sweep.py [FOLDER]; resumable"""

import sys
from itertools import product

import ttaps

methods = ["source", *(f"ttaps:tuned[steps={steps},lr={lr}]" for steps, lr in product((2, 4), (0.01, 0.03)))]
out = sys.argv[1] if len(sys.argv) > 1 else "results/sweep"
found = ttaps.evaluate("cifar10", "sample", methods, corruptions="snow,glass_blur", images_per_corruption=10, out=out)
rows = found.to_pandas()
print(rows.groupby("spec", sort=False)[["correct_before", "correct_after"]].mean())
