#!/usr/bin/env bash
# Every stored evaluation behind docs/results.md and the model cards. Killed at any moment, the same command resumes.
# Then: python tools/fill_tables.py results/page docs/results.md README.md
#   ttaps data download cifar10 && ttaps data build cifar10-c     (the same for cifar100)
#   bash tools/results.sh [FOLDER] [PART]...
set -eu
out=${1:-results/page}
shift || true

evaluate() { ttaps evaluate "$@" > /dev/null; }

# The clean test set.
clean() { for model in cifar10 baseline-cifar10 jt+ent-cifar10; do evaluate $model --data cifar10 --methods source --out "$out/clean"; done
  evaluate cifar10 --data cifar10 --methods source,ttaps:tuned,augment:tuned --limit 5000 --out "$out/clean-adapted"; }

# CIFAR-10-C, severity 5, before adaptation.
main() {
  for model in cifar10 baseline-cifar10; do evaluate $model --data cifar10-c --methods source --limit 2000 --out "$out/main"; done
  evaluate jt+ent-cifar10 --data cifar10-c --methods source --limit 1000 --out "$out/main"
}

# What adaptation changes, on the first images of those.
adapted() {
  evaluate cifar10 --data cifar10-c --methods source,ttaps:tuned,augment:tuned --limit 1000 --out "$out/adapted"
  evaluate cifar10 --data cifar10-c --methods ttaps:fast --limit 50 --out "$out/adapted"
  evaluate cifar10 --data cifar10-c --methods tent --limit 100 --out "$out/adapted"
}

# Severities 1 to 5.
severities() { evaluate cifar10 --data cifar10-c --severity all --methods source,ttaps:tuned,augment:tuned --limit 20 --out "$out/severities"; }

# The paper's settings as printed, at full cost, against the cheap ones; then those of the authors' code, in order.
exact() {
  evaluate cifar10 --data cifar10-c --methods ttaps,ttaps:fast --limit 16 --out "$out/exact"
  evaluate cifar10 --data cifar10-c --methods ttaps:reference --limit 200 --out "$out/reference"
}

# CIFAR-100 and CIFAR-100-C, severity 5.
hundred() {
  evaluate cifar100 --data cifar100 --methods source --out "$out/hundredclean"
  evaluate cifar100 --data cifar100-c --methods source --limit 1000 --out "$out/hundred"
  local mild='views.scale=[0.5,1.0],views.jitter_strength=0.0,views.gray_p=0.0,views.blur_p=0.0'
  evaluate cifar100 --data cifar100-c --methods "augment[$mild],ttaps:tuned" --limit 60 --out "$out/hundred"
}

for part in "${@:-clean main adapted severities exact hundred}"; do
  for one in $part; do "$one"; done
done
