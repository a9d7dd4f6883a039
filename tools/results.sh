#!/usr/bin/env bash
# Every stored evaluation behind docs/results.md and the model cards. Killed at any moment, the same command resumes.
# Then: python tools/fill_tables.py results/page docs/results.md README.md
#   ttaps data download cifar10 && ttaps data build cifar10-c     (the same for cifar100)
#   bash tools/results.sh [FOLDER] [PART]...
set -eu
out=${1:-results/page}
shift || true

evaluate() { ttaps evaluate "$@" > /dev/null; }

# Which test-time settings: validation images under the four extra corruptions only, all severities, with what the views alone do. Steps and
# thresholds between are in the stored traces.
choice() {
  local t='ttaps:tuned'
  evaluate cifar10 --data cifar10-val-c --severity all --methods "source,augment:tuned,$t,$t[steps=6],$t[steps=6,confidence_threshold=1.0]" --limit 100 --out "$out/choice"
}

# Is it better than no adaptation where it is needed? Then it is the default of `ttaps adapt` and of the demo.
better() { evaluate cifar10 --data cifar10-val-c --methods source,ttaps:tuned --limit 1000 --out "$out/better"; }

# What each setting does around `tuned`, at severity 5: the same kind of images.
settings() {
  local t='ttaps:tuned' methods='source,ttaps:fast,ttaps:tuned'
  for lr in 0.5 2 8; do
    for pair in tau=0.1,epsilon=0.05 tau=0.1,epsilon=0.02 tau=0.25,epsilon=0.1; do methods+=",$t[lr=$lr,$pair]"; done
  done
  methods+=",$t[views.scale=[0.14,1.0],views.jitter_strength=1.0,views.gray_p=0.2,views.blur_p=0.5]" # the paper's views
  methods+=",$t[views.scale=[0.3,1.0]],$t[views.blur_p=0.0],$t[views.blur_p=1.0],$t[view_pool=32,num_pairs=16],$t[steps=1],$t[steps=6]"
  methods+=",$t[confidence_threshold=1.0],$t[confidence_threshold=0.8],$t[adapt_params=stage3],$t[adapt_params=norm],$t[lr=0.5,momentum=0.9],$t[codes=hard],$t[codes=sinkhorn]"
  evaluate cifar10 --data cifar10-val-c --methods "$methods" --limit 50 --out "$out/settings"
}

# What each way of saving time does to accuracy and cost, with the loss that moves labels: validation images again.
options() {
  local t='ttaps:tuned'
  evaluate cifar10 --data cifar10-val-c --limit 20 --out "$out/options" --methods \
    "source,$t,$t[num_pairs=4,view_pool=8],$t[num_pairs=32,view_pool=64],$t[view_pool=0],$t[confidence_threshold=1.0],$t[steps=6],$t[steps=6,patience=2],$t[adapt_params=stage3],$t[num_pairs=32,view_pool=0,adapt_params=stage3,confidence_threshold=1.0]"
}

# The main table: CIFAR-10-C, severity 5, and the clean test set, with three trainings that differ in their loss only.
main() {
  for model in cifar10 jt-cifar10 baseline-cifar10; do evaluate $model --data cifar10 --methods source --out "$out/clean"; done
  evaluate cifar10 --data cifar10-c --methods 'source,ttaps:tuned,augment:tuned,augment:tuned[confidence_threshold=0.5],tent' --limit 300 --projections 1000 --out "$out/main"
  evaluate jt-cifar10 --data cifar10-c --methods source,ttaps:tuned --limit 300 --out "$out/main"
  evaluate baseline-cifar10 --data cifar10-c --methods 'source,augment:tuned[confidence_threshold=0.5]' --limit 300 --out "$out/main"
}

# The models trained with PRIME views: before adaptation, and what the present test-time settings do to JT+ENT (validation images).
prime() {
  for model in prime-baseline-cifar10 prime-jt+ent-cifar10; do
    evaluate $model --data cifar10 --methods source --out "$out/prime-clean"
    evaluate $model --data cifar10-c --methods source --limit 1000 --out "$out/prime"
    evaluate $model --data cifar10-val-c --methods source --limit 1000 --out "$out/prime-val"
  done
  evaluate prime-jt+ent-cifar10 --data cifar10-val-c --methods augment:tuned,ttaps:tuned --limit 1000 --out "$out/prime-val"
}

# 2,000 images under every corruption, before adaptation: for the goal, which 300 of them leave open.
more() { evaluate cifar10 --data cifar10-c --methods source --limit 2000 --out "$out/more"; }

# After the first run: the Baseline that the three of the main table start from, and JT+ENT.
first() {
  for model in baseline jt+ent; do
    evaluate first-$model-cifar10 --data cifar10 --methods source --out "$out/firstclean"
    evaluate first-$model-cifar10 --data cifar10-c --methods source --limit 300 --out "$out/first"
  done
  evaluate first-baseline-cifar10 --data cifar10-c --methods augment:tuned --limit 150 --out "$out/first"
  evaluate first-jt+ent-cifar10 --data cifar10-c --methods 'ttaps:tuned[steps=6]' --limit 300 --out "$out/first"
}

# Beside it: the six steps that `tuned` had before, and MEMO on fewer images.
others() {
  evaluate cifar10 --data cifar10-c --methods 'ttaps:tuned[steps=6]' --limit 300 --out "$out/others"
  evaluate cifar10 --data cifar10-c --methods memo --limit 20 --out "$out/others"
}

# Four trainings of 15.6 epochs from the same steps before the joint loss: Baseline, JT, JT+ENT, TTT.
short() {
  for model in baseline jt jt+ent ttt; do
    evaluate short-$model-cifar10 --data cifar10 --methods source --out "$out/shortclean"
    evaluate short-$model-cifar10 --data cifar10-c --methods source --limit 300 --out "$out/short"
  done
  for model in jt jt+ent; do evaluate short-$model-cifar10 --data cifar10-c --methods "ttaps:tuned[steps=6,confidence_threshold=1.0]" --limit 300 --out "$out/short"; done
  evaluate short-jt+ent-cifar10 --data cifar10-c --methods augment:tuned --limit 300 --out "$out/short"
  evaluate short-baseline-cifar10 --data cifar10-c --methods augment:tuned --limit 100 --out "$out/short"
  evaluate short-ttt-cifar10 --data cifar10-c --methods ttt --limit 20 --out "$out/short"
}

# The paper's settings as printed, at full cost (half an hour of one core), against the cheap ones; then those of the authors' code, in order.
exact() {
  evaluate cifar10 --data cifar10-c --methods ttaps,ttaps:fast --limit 16 --out "$out/exact"
  evaluate cifar10 --data cifar10-c --methods ttaps:reference --limit 4 --out "$out/reference"
}
# The same on more images with `first-jt+ent-cifar10`: three hours of one core.
firstexact() { evaluate first-jt+ent-cifar10 --data cifar10-c --methods ttaps,ttaps:fast --limit 134 --out "$out/firstexact"; }

# The authors' momentum that lives on from image to image (in order), against momentum that is reset.
leak() {
  evaluate cifar10 --data cifar10-c --methods 'ttaps:tuned[steps=6,confidence_threshold=1.0,lr=0.5,momentum=0.9],ttaps:tuned[steps=6,confidence_threshold=1.0,lr=0.5,momentum=0.9,keep_momentum=true]' \
    --limit 20 --out "$out/leak"
}

# Steps 0 to 10, as in the paper's figure: `tuned` stops earlier. Those of the paper's settings are in exact.
steps() { evaluate cifar10 --data cifar10-c --methods 'ttaps:tuned[steps=10]' --limit 20 --out "$out/steps"; }

severities() { evaluate cifar10 --data cifar10-c --severity all --methods source,ttaps:tuned --limit 20 --out "$out/severities"; }

hundred() {
  evaluate cifar100 --data cifar100 --methods source --out "$out/hundredclean"
  evaluate cifar100 --data cifar100-c --methods source --limit 200 --out "$out/hundred"
  evaluate cifar100 --data cifar100-c --methods ttaps:tuned --limit 60 --out "$out/hundred"
}

for part in "${@:-choice better settings options main others more first short severities steps leak hundred exact firstexact}"; do
  for one in $part; do "$one"; done
done
