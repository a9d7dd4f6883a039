"""Old names of settings, options, methods, presets and commands: each is refused with its new name in the message.

To rename something, add a line: old name -> new name, or names where it depends on the place. A new name may say its group
(``"loss.crop_scale": ("augmentation.crop_scale",)``); without one, a setting is found in whichever group it is now.
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
}


def new_name(old: str, known: Collection[str]) -> str | None:
    """Return what an old name, such as ``optimiser.warmup``, is called among the ``known`` names; None if it is not there."""
    if old in known:
        return None
    parts = [RENAMED.get(part, (part,)) for part in old.split(".")]
    candidates = [*RENAMED.get(old, ()), *map(".".join, product(*parts))]
    candidates += [
        name for leaf in RENAMED.get(old.rpartition(".")[2], ()) for name in known if name.endswith(f".{leaf}")
    ]
    return next((name for name in candidates if name in known), None)
