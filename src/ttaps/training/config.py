"""Everything a training run is told, with the paper's values as defaults. Presets in ``configs/`` hold differences only."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Literal

from ttaps.config import check_probability, check_range
from ttaps.errors import UsageError
from ttaps.model.config import ModelConfig


@dataclass(frozen=True)
class OptimizerConfig:
    """SGD as the paper has it; ``muon`` orthogonalizes the updates of the convolutions."""

    name: Literal["sgd", "muon"] = "sgd"
    """``sgd``, or ``muon`` for the convolutions with SGD for the rest."""
    lr: float = 0.5
    """Base learning rate (of everything SGD moves); the paper's baseline has 0.1 (``paper/baseline-cifar10``)."""
    muon_lr: float = 0.05
    """Base learning rate of the convolutions under ``muon``."""
    muon_exclude: tuple[str, ...] = ()
    """Parts (``stem``, ``stage1``, ...) whose convolutions ``muon`` leaves to SGD: orthogonal updates make the stem pass noise on."""
    momentum: float = 0.9
    """Momentum."""
    nesterov: bool = False
    """Nesterov momentum."""
    weight_decay: float = 1e-5
    """L2 penalty."""
    kernel_smoothing: float = 0.0
    """How much of the roughness of 3x3 kernels every full step takes away, in the parts that ``smoothed`` names: smooth kernels do not
    hear pixel noise."""
    kernel_smoothing_layers: tuple[str, ...] = ("stem",)
    """Parts (``stem``, ``stage1``, ...) whose kernels are smoothed."""
    warmup_epochs: float = 10
    """Epochs of linear warm-up."""
    lr_hold_epochs: float = 0.0
    """Epoch until which the full learning rate is kept; the decay begins there, or after the warm-up if that is later."""
    lr_schedule: Literal["cosine", "linear", "step", "constant"] = "cosine"
    """After that: down to zero by a cosine or a line, a tenth after 1/2 and again after 5/6 of what is left (TTT), or none (MT3)."""
    clip_grad_per_param: float = 0.0
    """Largest norm of any one weight's gradient; 0 does not clip."""


@dataclass(frozen=True)
class LossConfig:
    """Weights and temperatures of eq. (8), and what ``ttt`` and ``mt3`` need."""

    gamma_ce: float = 0.3
    """γ1, weight of the cross-entropy beside SwAV."""
    gamma_ent: float = 0.1
    """γ2, weight of the prototypes' entropy term (``jt+ent`` only)."""
    epsilon: float = 0.05
    """Smoothness of the Sinkhorn codes."""
    tau: float = 0.1
    """Temperature of the swapped prediction."""
    sinkhorn_iterations: int = 3
    """Sinkhorn-Knopp iterations."""
    swap_reduction: Literal["sum", "mean"] = "sum"
    """The two directions of the swapped prediction are summed (paper) or averaged (the authors' code)."""
    label_smoothing: float = 0.0
    """Label smoothing of the cross-entropy."""
    ce_view: Literal["crop", "color", "views"] = "crop"
    """What the cross-entropy sees beside SwAV: a third, uncolored crop (the authors' code; the paper's text is
    silent), that crop colored and blurred as SwAV's views are, or the two SwAV views (as the paper's Fig. 1 draws it).
    ``ttt`` sees its authors' shifted and mirrored pictures where this says ``crop``, and turns what the cross-entropy sees; ``mt3``
    always sees its authors'."""
    crop_scale: tuple[float, float] = (0.08, 1.0)
    """Area of the supervised crop."""
    prime_share: float = 0.0
    """Share of the images that the cross-entropy sees as PRIME views (Modas et al., 2022) of such a crop; the rest are as above.
    ``baseline``, ``jt`` and ``jt+ent`` only."""
    prime_swav_share: float = 0.0
    """Share of the images whose second SwAV view is a PRIME view; the rest are the paper's."""
    ce_only_view: Literal["crop", "color", "views"] = "crop"
    """What the cross-entropy sees where it is alone (``baseline``, and before the joint loss begins): the crop, the colored crop,
    or one SwAV view."""
    joint_start_epoch: float = 0.0
    """Epoch at which the joint loss (or TTT's, or MT3's) begins; before it, the cross-entropy alone, one view instead of several."""
    joint_ramp_epochs: float = 0.0
    """Epochs over which the cross-entropy alone turns into the joint loss, or TTT's; MT3's begins at once."""
    init_prototypes_from_data: bool = False
    """Start the prototypes at the projections of training images when the joint loss begins, instead of at random."""
    freeze_prototypes_epochs: float = 0.0
    """Epochs of joint training in which the prototypes do not move."""
    rotations: Literal["all", "random"] = "all"
    """``ttt``: every picture in all four rotations (the authors' script), or in a random one: 2 pictures to compute instead of 5."""
    task_images: int = 8
    """``mt3``: images of one task; a batch holds batch / task_images tasks."""
    inner_lr: float = 0.1
    """``mt3``: step size of the inner step."""
    inner_clip: float = 10.0
    """``mt3``: largest norm of any one weight's gradient in the inner step."""
    gamma_byol: float = 0.1
    """``mt3``: weight of the BYOL loss after the inner step."""


@dataclass(frozen=True)
class TrainConfig:
    """One training run."""

    objective: Literal["baseline", "jt", "jt+ent", "ttt", "mt3"] = "jt+ent"
    """``baseline`` (cross-entropy), ``jt`` (with SwAV), ``jt+ent`` (with SwAV and the prototypes' entropy), ``ttt`` or ``mt3``."""
    data: str = "cifar10"
    """``cifar10``, ``cifar100``, ``sample`` (inside the package), a folder of class folders, or an .npz file."""
    epochs: float = 300
    """Passes over the training images."""
    batch_size: int = 256
    """Images per step, over all processes."""
    init_from: str = ""
    """Model, by name or folder, whose weights the run starts from; at random if empty. A classifier, prototypes or heads that do not
    fit start at random all the same."""
    wise_ft: float = 0.0
    """With ``start``: share of the starting weights in the result, which is their mean with what was learnt (WiSE-FT, Wortsman et al.,
    2022). Prototypes and heads are those learnt."""
    seed: int = 0
    """Seed of the initial weights, the order of images and the views."""
    resolutions: tuple[int, ...] = ()
    """Resolutions trained at, one after the other, in pixels; the network's own if empty."""
    resolution_milestones: tuple[float, ...] = (1.0,)
    """Fraction of the run at which each resolution ends; the last is 1."""
    ema_decay: float = 0.0
    """Decay per step of a running average of the weights, which is then the result; 0 takes the last weights."""
    precision: Literal["float32", "bfloat16", "auto"] = "float32"
    """Arithmetic of the forward pass; bfloat16 is mixed precision, ``auto`` that where it is measured to be faster."""
    memory_format: Literal["contiguous", "channels_last", "auto"] = "contiguous"
    """Layout of images in memory; ``auto`` takes what is measured to be faster, and a resumed run keeps it."""
    compile: bool = False
    """Compile the network with torch.compile."""
    checkpoint_minutes: float = 5.0
    """Minutes between checkpoints."""
    validate_every: float = 1.0
    """Epochs between looks at the validation images (at most 2,000 of them until the end)."""
    stop_on_collapse: bool = True
    """End the run when it has collapsed, lost its prototypes, or diverged."""
    model: ModelConfig = field(default_factory=ModelConfig)
    """The network."""
    optimizer: OptimizerConfig = field(default_factory=OptimizerConfig)
    """The optimizer."""
    loss: LossConfig = field(default_factory=LossConfig)
    """The loss."""

    def __post_init__(self) -> None:
        for name, value in (
            ("epochs", self.epochs),
            ("batch_size", self.batch_size),
            ("validate_every", self.validate_every),
            ("resolutions", min(self.resolutions, default=1)),
            ("optimizer.lr", self.optimizer.lr),
            ("optimizer.muon_lr", self.optimizer.muon_lr),
            ("loss.epsilon", self.loss.epsilon),
            ("loss.tau", self.loss.tau),
            ("loss.inner_clip", self.loss.inner_clip),
        ):
            if not 0 < value < math.inf:
                raise UsageError(f"{name} must be positive, not {value}.")
        below_one = (
            ("wise_ft", self.wise_ft),
            ("ema_decay", self.ema_decay),
            ("optimizer.momentum", self.optimizer.momentum),
            ("optimizer.kernel_smoothing", self.optimizer.kernel_smoothing),
            ("loss.label_smoothing", self.loss.label_smoothing),
        )
        for name, value in below_one:
            if not 0 <= value < 1:
                raise UsageError(f"{name} must be at least 0 and less than 1, not {value}.")
        if (
            len(self.resolutions or (1,)) != len(self.resolution_milestones)
            or list(self.resolution_milestones) != sorted(self.resolution_milestones)
            or self.resolution_milestones[-1:] != (1.0,)
        ):
            raise UsageError(
                "resolutions and resolution_milestones must be equally long, and resolution_milestones must rise to 1."
            )
        check_range(self.loss, "crop_scale", most=1)
        check_probability(self.loss, "prime_share", "prime_swav_share")
        if self.wise_ft and not self.init_from:
            raise UsageError("wise_ft is a share of the weights that a run starts from: set --init-from MODEL too.")
        head = HEADS.get(self.objective)
        if head and head not in self.model.heads:
            raise UsageError(f"Objective {self.objective} trains a {head} head: set --model.heads {head}.")
        if self.objective == "ttt" and self.loss.ce_view == "views":
            raise UsageError("Objective ttt has no SwAV views: set --loss.ce-view crop or colored.")
        if self.objective == "mt3":
            _check_mt3(self)


HEADS = {"ttt": "rotation", "mt3": "predictor"}
"""The extra head that an objective trains."""


def _check_mt3(config: TrainConfig) -> None:
    if config.model.norm != "group":
        raise UsageError("Objective mt3 steps on weights that no running statistics belong to: set --model.norm group.")
    if config.loss.task_images < 1 or config.batch_size % config.loss.task_images:
        raise UsageError(
            f"batch_size ({config.batch_size}) must be a multiple of loss.task_images ({config.loss.task_images})."
        )
