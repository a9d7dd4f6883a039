#!/usr/bin/env bash
# The figures of docs/results.md and the README, from the stored evaluations that tools/results.sh makes and the records of trainings.
#   bash tools/figures.sh [FOLDER]
set -eu
page=${1:-results/page}
drawn=$(mktemp -d)
trap 'rm -r "$drawn"' EXIT

draw() { # NAME FIGURE FOLDER...: one of the figures that ttaps report draws, under the name it has in the documents
  ttaps report "${@:3}" --figures "$drawn" > /dev/null
  cp "$drawn/$2.png" "docs/figures/$1.png"
}

draw bars cifar10-c-5-bars-ttaps-tuned "$page/adapted"
python tools/frontier.py docs/figures/frontier.png docs/results/frontier.csv "$page/adapted" reproduced/small/results > /dev/null
ttaps info jt+ent-cifar10 baseline-cifar10 --figure docs/figures/learning.png > /dev/null
ttaps demo --out docs/demo.png > /dev/null
