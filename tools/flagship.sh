#!/usr/bin/env bash
# The model `cifar10` from the trunk, as it was made (but the runs of two epochs had one process each): two decays and the mean of their weights; then two epochs on milder crops, colored and
# plain, and the mean of those; then an epoch of the joint loss on such crops, of which a quarter goes into the result.
# Milder crops: a network that is trained on crops of half the image and more expects objects larger than they are in a whole image (as in FixRes,
# Touvron et al., 2019).
# About 2.2 hours of two shared cores with bfloat16 instructions (AMD EPYC), after the trunk. Killed at any moment, the same command resumes.
#   bash tools/flagship.sh [FOLDER]
set -eu
out=${1:-runs/flagship}
train() { torchrun --nproc-per-node 2 -m ttaps train --threads 1 "$@"; }
mean() { [ -d "$4" ] || python tools/soup.py "$1" "$2" "$3" "$4"; }  # the share of the second
mild="--optimizer.lr 0.015 --optimizer.muon-lr 0.003 --augmentation.crop-scale 0.85 1.0"

train --config cpu/jt+ent-cifar10 --out "$out/jt+ent"
train --config cpu/baseline-cifar10 --epochs 6 --out "$out/baseline"
mean "$out/jt+ent" "$out/baseline" 0.5 "$out/first"
for view in color crop; do
  # shellcheck disable=SC2086
  train --config cpu/baseline-cifar10 --init-from "$out/first" --epochs 2 $mild --augmentation.ce-only-view $view --out "$out/$view"
done
mean "$out/color" "$out/crop" 0.5 "$out/second"
# shellcheck disable=SC2086
train --config cpu/jt+ent-cifar10 --init-from "$out/second" --no-init-prototypes-from-data --epochs 1 --schedule.joint-ramp-epochs 0.2 $mild --out "$out/joint"
mean "$out/joint" "$out/second" 0.75 "$out/cifar10"
