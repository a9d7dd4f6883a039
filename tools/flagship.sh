#!/usr/bin/env bash
# The models baseline-cifar10, jt+ent-cifar10 and cifar10 from the trunk, as they were made: two decays of cross-entropy, on colored and on plain crops
# beside PRIME views, and the mean of their weights (the Baseline); the joint loss from there (JT+ENT); and the mean of those two.
# Crops are as mild as the test's: a network that is trained on crops of half the image and more expects objects larger than they are in a
# whole image (as in FixRes, Touvron et al., 2019).
# About 1.7 hours of two shared cores with bfloat16 instructions (AMD EPYC). Killed at any moment, the same command resumes.
#   bash tools/flagship.sh [FOLDER]
set -eu
out=${1:-runs/flagship}
mean() { [ -d "$4" ] || python tools/soup.py "$1" "$2" "$3" "$4"; }  # the share of the second

for view in color crop; do  # side by side, one core each
  ttaps train --config cpu/baseline-cifar10 --augmentation.ce-only-view $view --threads 1 --out "$out/$view" &
done
wait
mean "$out/color" "$out/crop" 0.5 "$out/baseline-cifar10"
ttaps train --config cpu/jt+ent-cifar10 --init-from "$out/baseline-cifar10" --threads 1 --out "$out/jt+ent-cifar10"
mean "$out/jt+ent-cifar10" "$out/baseline-cifar10" 0.5 "$out/cifar10"
