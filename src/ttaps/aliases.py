"""Old names of settings, options, methods, presets and commands: each is refused with its new name in the message.

To rename something, add a line: old name -> new name, or names where it depends on the place. Groups need not be given: a setting
is found in whichever group it is now, also if only its group has changed.
"""

from __future__ import annotations

from collections.abc import Collection
from itertools import product

RENAMED: dict[str, tuple[str, ...]] = {
    # methods and their settings
    "average": ("augment", "ema_decay"),
    "batch": ("batch_size",),
    "copies": ("num_pairs", "num_views"),
    "directions": ("swap_reduction",),
    "leak": ("keep_momentum",),
    "objective": ("test_loss",),
    "optimiser": ("optimizer",),
    "pool": ("view_pool",),
    "prior": ("source_weight",),
    "scope": ("adapt_params",),
    "settled": ("patience",),
    "sure": ("confidence_threshold",),
    # views
    "blur": ("blur_p",),
    "flip": ("flip_p",),
    "grayscale": ("gray_p",),
    "jitter": ("jitter_strength",),
    "jitter_probability": ("jitter_p",),
    # training
    "alone": ("ce_only_view",),
    "branch": ("fork_from",),
    "clip": ("clip_grad_per_param",),
    "coloured": ("color",),
    "decay": ("lr_schedule",),
    "freeze_prototypes": ("freeze_prototypes_epochs",),
    "hold": ("lr_hold_epochs",),
    "joint_from": ("joint_start_epoch",),
    "joint_ramp": ("joint_ramp_epochs",),
    "keep": ("wise_ft",),
    "muon_leaves": ("muon_exclude",),
    "prototypes_from_images": ("init_prototypes_from_data",),
    "size_until": ("resolution_milestones",),
    "sizes": ("resolutions",),
    "smoothed": ("kernel_smoothing_layers",),
    "smoothing": ("kernel_smoothing",),
    "start": ("init_from",),
    "stop_on_trouble": ("stop_on_collapse",),
    "supervised": ("ce_view",),
    "view": ("views",),
    "warmup": ("warmup_epochs",),
    # networks
    "classes": ("num_classes",),
    "groups": ("num_groups",),
    "hidden": ("hidden_dim",),
    "projection": ("projection_dim",),
    "prototypes": ("num_prototypes",),
    "zero_init": ("zero_init_residual",),
    # evaluation
    "limit": ("images_per_corruption",),
    # commands
    "get": ("download",),
    "check": ("verify",),
    # presets
    "batchnorm/baseline-cifar10": ("compare/baseline-batchnorm",),
    "compared/mt3-cifar10": ("compare/mt3",),
    "compared/mt3-cifar100": ("compare/mt3",),
    "compared/ttt-cifar10": ("compare/ttt",),
    "first/baseline-cifar10": ("cpu/baseline-cifar10",),
    "first/jt+ent-cifar10": ("cpu/jt+ent-cifar10",),
    "hours/baseline-cifar10": ("cpu/baseline-cifar10",),
    "hours/jt+ent-cifar10": ("cpu/jt+ent-cifar10",),
    "hours/jt+ent-cifar100": ("cpu/jt+ent-cifar100",),
    "hours/jt-cifar10": ("cpu/jt-cifar10",),
    "paper/baseline-cifar10": ("paper/baseline",),
    "paper/baseline-cifar100": ("paper/baseline",),
    "paper/jt+ent-cifar10": ("paper/jt+ent",),
    "paper/jt+ent-cifar100": ("paper/jt+ent",),
    "paper/jt-cifar10": ("paper/jt",),
    "paper/jt-cifar100": ("paper/jt",),
    "quick/jt+ent-cifar10": ("cpu/small",),
    "reference/jt+ent-cifar10": ("reference/jt+ent",),
    "reference/jt-cifar10": ("reference/jt",),
    "reference/jt-cifar100": ("reference/jt",),
    "short/baseline-cifar10": ("cpu/baseline-cifar10",),
    "short/jt+ent-cifar10": ("cpu/jt+ent-cifar10",),
    "short/jt+ent-cifar100": ("cpu/jt+ent-cifar100",),
    "short/jt-cifar10": ("cpu/jt-cifar10",),
    "short/ttt-cifar10": ("compare/ttt",),
}


def new_name(old: str, known: Collection[str]) -> str | None:
    """Return what an old name, such as ``optimiser.warmup``, is called among the ``known`` names; None if it is not there."""
    if old in known:
        return None
    *groups, leaf = old.split(".")
    parts = [RENAMED.get(part, (part,)) for part in (*groups, leaf)]
    candidates = [*RENAMED.get(old, ()), *map(".".join, product(*parts))]
    for name in parts[-1] if groups or leaf in RENAMED else ():  # the group may have changed too
        moved = [new for new in known if new.rpartition(".")[2] == name]
        candidates += moved if len(moved) == 1 else []
    return next((name for name in candidates if name in known), None)
