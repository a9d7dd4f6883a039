"""All settings of a training run. The defaults are the paper's for JT+ENT; presets are TOML files that hold what differs."""

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

from ttaps.config import (
    check_below_one,
    check_min,
    check_positive,
    check_probability,
    check_range,
    did_you_mean,
    flat,
    from_dict,
    read_toml,
)
from ttaps.errors import UsageError
from ttaps.model.config import ModelConfig

View = Literal["crop", "color", "views"]
FOLDER = Path(__file__).parents[1] / "presets"  # TOML files with what differs from the defaults, or from their `base`
GRIDS = "reproduce"  # folder of the grids of `ttaps reproduce`; all others are presets of `ttaps train`
NUM_CLASSES = {"cifar10": 10, "cifar100": 100, "sample": 10}


@dataclass(frozen=True)
class OptimizerConfig:
    """SGD as in the paper; ``muon`` orthogonalizes the updates of the convolutions."""

    name: Literal["sgd", "muon"] = "sgd"  # ``sgd``, or ``muon`` for the convolutions with SGD for the rest.
    lr: float = 0.5  # Base learning rate (of everything SGD updates); 0.1 for the paper's baseline.
    muon_lr: float = 0.05
    """Base learning rate of the convolutions under ``muon``; with ``muon_fixed_norm``, step size relative to the norm of the weights."""
    muon_fixed_norm: bool = False
    """Keep the norm of every weight tensor that ``muon`` updates, without an L2 penalty, which shrinks blocks with small gradients."""
    muon_exclude: tuple[str, ...] = ()
    """Parts (``stem``, ``stage1``, ...) whose convolutions SGD updates, not ``muon``: orthogonal updates make a stem pass on noise."""
    momentum: float = 0.9  # Momentum.
    nesterov: bool = False  # Nesterov momentum.
    weight_decay: float = 1e-5  # L2 penalty.
    decay_vectors: bool = True  # Apply the L2 penalty also to biases, and to scale and shift of normalization layers.
    kernel_smoothing: float = 0.0
    """Share of the roughness of 3x3 kernels removed per step at the full learning rate, against pixel noise."""
    kernel_smoothing_layers: tuple[str, ...] = ("stem",)
    """Parts (``stem``, ``stage1``, ...) whose kernels are smoothed."""
    clip_grad_per_param: float = 0.0  # Maximum gradient norm of each weight tensor; 0 does not clip.

    def __post_init__(self) -> None:
        check_positive(self, "lr", "muon_lr", table="optimizer.")
        check_min(self, "optimizer.", weight_decay=0, clip_grad_per_param=0)
        check_below_one(self, "momentum", "kernel_smoothing", table="optimizer.")

    def rates(self, factor: float) -> dict[str, float]:
        """Return the learning rates at a factor of the schedule, by the names of their settings."""
        names = ("lr", "muon_lr") if self.name == "muon" else ("lr",)
        return {name: factor * getattr(self, name) for name in names}


@dataclass(frozen=True)
class ScheduleConfig:
    """What changes during a run, in epochs: learning rate, joint loss, resolution."""

    warmup_epochs: float = 10  # Epochs of linear warm-up.
    lr_schedule: Literal["cosine", "linear", "step", "constant"] = "cosine"
    """The decay: cosine or linear to zero, in steps (divided by ten after 1/2 and 5/6 of it, as in TTT), or none (MT3)."""
    lr_hold_epochs: float = 0.0  # Epoch at which the decay begins, or after the warm-up if that is later.
    lr_decay_epochs: float = 0.0
    """Warmup-stable-decay: keep the full rate, then decay over this many last epochs; 0: see ``lr_hold_epochs``."""
    joint_start_epoch: float = 0.0
    """Epoch at which the loss of ``jt``, ``jt+ent``, ``ttt`` or ``mt3`` begins; before it, cross-entropy alone, on one view."""
    joint_ramp_epochs: float = 0.0
    """Epochs over which cross-entropy alone turns into the joint loss, or TTT's; MT3's begins at once."""
    freeze_prototypes_epochs: float = 0.0  # Epochs of joint training in which the prototypes are frozen.
    resolutions: tuple[int, ...] = ()
    """Training resolutions in pixels, in order; the network's own if empty."""
    resolution_milestones: tuple[float, ...] = (1.0,)
    """Fraction of the run at which each resolution ends; the last is 1."""

    def __post_init__(self) -> None:
        check_min(self, "schedule.", warmup_epochs=0, lr_hold_epochs=0, lr_decay_epochs=0)
        check_min(self, "schedule.", joint_start_epoch=0, joint_ramp_epochs=0, freeze_prototypes_epochs=0)
        if min(self.resolutions, default=1) < 1:
            raise UsageError(f"schedule.resolutions must be positive, not {self.resolutions}.")
        ends = self.resolution_milestones
        if len(self.resolutions or (1,)) != len(ends) or list(ends) != sorted(ends) or ends[-1:] != (1.0,):
            raise UsageError(
                "schedule.resolutions and schedule.resolution_milestones must have the same length, "
                "and schedule.resolution_milestones must rise to 1."
            )
        if self.lr_decay_epochs and (self.lr_hold_epochs or self.lr_schedule == "constant"):
            raise UsageError(
                "schedule.lr_decay_epochs sets where the decay begins: leave out schedule.lr_hold_epochs, and choose "
                "schedule.lr_schedule cosine, linear or step."
            )


@dataclass(frozen=True)
class LossConfig:
    """Weights and temperatures of eq. (8)."""

    gamma_ce: float = 0.3  # γ1, weight of the cross-entropy.
    gamma_ent: float = 0.1  # γ2, weight of the prototypes' entropy term (``jt+ent`` only).
    epsilon: float = 0.05  # Smoothness of the Sinkhorn codes.
    tau: float = 0.1  # Temperature of the swapped prediction.
    sinkhorn_iterations: int = 3  # Sinkhorn-Knopp iterations.
    swap_reduction: Literal["sum", "mean"] = "sum"
    """Sum (paper) or average (the authors' code) the two directions of the swapped prediction."""
    label_smoothing: float = 0.0  # Label smoothing of the cross-entropy.

    def __post_init__(self) -> None:
        check_positive(self, "epsilon", "tau", table="loss.")
        check_min(self, "loss.", gamma_ce=0, gamma_ent=0, sinkhorn_iterations=0)
        check_below_one(self, "label_smoothing", table="loss.")


@dataclass(frozen=True)
class AugmentationConfig:
    """The views that the losses are computed on. ``mt3`` always uses its authors'."""

    ce_view: View = "crop"
    """Input of the cross-entropy in the joint loss: ``crop``, a third, uncolored crop (the authors' code; the paper does not say);
    ``color``, that crop jittered and blurred like SwAV's views; or ``views``, the two SwAV views (the paper's Fig. 1). For ``ttt``,
    ``crop`` is its authors' shifted and flipped image; it rotates the cross-entropy's images."""
    ce_only_view: View = "crop"
    """Input of the cross-entropy when it is the only loss (``baseline``, before the joint loss); ``views`` is one SwAV view."""
    crop_scale: tuple[float, float] = (0.08, 1.0)
    """Area range of the cross-entropy's crop, as a share of the image."""
    prime_share: float = 0.0
    """Share of the batch whose cross-entropy crop is replaced by a PRIME view; ``baseline``, ``jt`` and ``jt+ent`` only."""
    prime_swav_share: float = 0.0  # Share of the batch whose second SwAV view is replaced by a PRIME view.

    def __post_init__(self) -> None:
        check_range(self, "crop_scale", most=1)
        check_probability(self, "prime_share", "prime_swav_share")


@dataclass(frozen=True)
class TttConfig:
    """Settings of ``ttt`` only."""

    rotations: Literal["all", "random"] = "all"
    """Each image in all four rotations (the authors' script), or in a random one: 2 images to compute instead of 5."""


@dataclass(frozen=True)
class Mt3Config:
    """Settings of ``mt3`` only."""

    task_images: int = 8  # Images per task; a batch holds batch_size / task_images tasks.
    inner_lr: float = 0.1  # Step size of the inner step.
    inner_clip: float = 10.0  # Maximum gradient norm of each weight tensor in the inner step.
    gamma_byol: float = 0.1  # Weight of the BYOL loss after the inner step.

    def __post_init__(self) -> None:
        check_positive(self, "inner_clip", table="mt3.")
        check_min(self, "mt3.", inner_lr=0, gamma_byol=0)


@dataclass(frozen=True)
class TrainConfig:
    """One training run."""

    objective: Literal["baseline", "jt", "jt+ent", "ttt", "mt3"] = "jt+ent"
    """``baseline`` (cross-entropy), ``jt`` (with SwAV), ``jt+ent`` (with SwAV and the prototypes' entropy), ``ttt`` or ``mt3``."""
    data: str = "cifar10"
    """``cifar10``, ``cifar100``, ``sample`` (bundled), a folder of class folders, or an .npz file."""
    epochs: float = 300  # Passes over the training images.
    batch_size: int = 256  # Images per step, over all processes.
    init_from: str = ""
    """Warm start from the weights of a model, by name or folder; parts that do not fit are random, as is everything if empty."""
    backbone: str = ""
    """Your own backbone, like my_nets.py:make_net: a function that makes a module from images to features (N, F) or feature maps
    (N, F, H, W), which are averaged; the ResNet of ``model`` if empty."""
    init_prototypes_from_data: bool = False
    """Initialize the prototypes to projections of training images when the joint loss begins, instead of at random."""
    init_classifier_from_data: bool = False
    """Initialize the classifier to the class means of training images, instead of at random, unless ``init_from`` has these classes."""
    wise_ft: float = 0.0
    """WiSE-FT: share of the ``init_from`` weights in the average with the trained ones. Prototypes, heads and a classifier for other
    classes are not averaged, unless that classifier is initialized from data."""
    select_wise_ft: bool = False
    """At the end, choose the share ``wise_ft`` by validation accuracy."""
    seed: int = 0  # Seed of the initial weights, the order of images and the views.
    ema_decay: float = 0.0
    """Decay per step of an exponential moving average (EMA) of the weights, which is saved as the model; 0 saves the last weights."""
    precision: Literal["float32", "bfloat16", "auto"] = "float32"
    """Precision of the forward pass; bfloat16 is mixed precision, ``auto`` uses it if measured to be faster."""
    memory_format: Literal["contiguous", "channels_last", "auto"] = "contiguous"
    """Memory layout of images; ``auto`` uses the one measured to be faster, and a resumed run keeps it."""
    compile: bool = False  # Compile the network with torch.compile.
    checkpoint_minutes: float = 5.0  # Minutes between checkpoints.
    validate_every: float = 1.0  # Epochs between validations (on at most 2,000 images until the end).
    stop_on_collapse: bool = True  # Stop a run that has collapsed, lost its prototypes, or diverged.
    model: ModelConfig = field(default_factory=ModelConfig)  # The network.
    optimizer: OptimizerConfig = field(default_factory=OptimizerConfig)  # The optimizer.
    schedule: ScheduleConfig = field(default_factory=ScheduleConfig)  # What changes during the run.
    loss: LossConfig = field(default_factory=LossConfig)  # The loss.
    augmentation: AugmentationConfig = field(default_factory=AugmentationConfig)  # The views.
    ttt: TttConfig = field(default_factory=TttConfig)  # Settings of ``ttt``.
    mt3: Mt3Config = field(default_factory=Mt3Config)  # Settings of ``mt3``.

    def __post_init__(self) -> None:
        check_positive(self, "epochs", "batch_size", "validate_every")
        check_min(self, checkpoint_minutes=0)
        check_below_one(self, "wise_ft", "ema_decay")
        for name, value in flat(asdict(self)).items():
            if value == math.inf:
                raise UsageError(f"{name} must be finite, not {value}.")
        if (self.wise_ft or self.select_wise_ft) and not self.init_from:
            raise UsageError("wise_ft is a share of the weights that a run starts from: set --init-from MODEL too.")
        head = {"ttt": "rotation", "mt3": "predictor"}.get(self.objective)
        if head and head not in self.model.heads:
            raise UsageError(f"Objective {self.objective} trains a {head} head: set --model.heads {head}.")
        if self.objective == "ttt" and self.augmentation.ce_view == "views":
            raise UsageError("Objective ttt has no SwAV views: set --augmentation.ce-view crop or color.")
        if self.objective == "mt3" and self.model.norm != "group":
            raise UsageError("Objective mt3 does not support running statistics: set --model.norm group.")
        size, task = self.batch_size, self.mt3.task_images
        if self.objective == "mt3" and (task < 1 or size % task):
            raise UsageError(f"batch_size ({size}) must be a multiple of mt3.task_images ({task}).")


def preset_names(grids: bool = False) -> dict[str, Path]:
    """Return the files of the training presets, or of the grids of ``ttaps reproduce``, by name."""
    files = {path.relative_to(FOLDER).with_suffix("").as_posix(): path for path in sorted(FOLDER.rglob("*.toml"))}
    found = {name: path for name, path in files.items() if name.startswith(f"{GRIDS}/") == grids}
    return {name.removeprefix(f"{GRIDS}/"): path for name, path in found.items()}


def find_preset(name: str, grids: bool = False) -> Path:
    """Return the file of a preset: a path, or a name such as ``smoke`` or ``paper/jt+ent``."""
    path, known = Path(name), preset_names(grids)
    if not path.is_file() and name not in known:
        raise UsageError(f"There is no {'grid' if grids else 'preset'} '{name}'{did_you_mean(name, known)}.")
    return path if path.is_file() else known[name]


def read_preset(path: Path, seen: tuple[Path, ...] = ()) -> dict[str, Any]:
    """Read a preset with what it inherits: ``base`` is a preset's name, or a file beside this one."""
    if path.resolve() in seen:
        raise UsageError(f"{path}: base = ... leads back to itself.")
    values = read_toml(path)
    base = values.pop("base", None)
    if base is None:
        return values
    if not isinstance(base, str):
        raise UsageError(f"{path}: base must be the name of a preset or a file, not {base!r}.")
    file = path.parent / base
    return merge(read_preset(file if file.is_file() else find_preset(base), (*seen, path.resolve())), values)


def merge(values: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """Return nested settings with some replaced."""
    merged = dict(values)
    for name, change in changes.items():
        nested = isinstance(change, Mapping) and isinstance(values.get(name), Mapping)
        merged[name] = merge(values[name], change) if nested else change
    return merged


def train_config(values: Mapping[str, Any], where: str) -> TrainConfig:
    """Return the settings of a preset; a network for a known data set has as many classes, unless the preset says otherwise."""
    config = from_dict(TrainConfig, values, where)
    num_classes = NUM_CLASSES.get(config.data, config.model.num_classes)
    return from_dict(TrainConfig, merge({"model": {"num_classes": num_classes}}, values), where)


def load_preset(name: str) -> TrainConfig:
    """Return the training settings of a preset, by name or file."""
    path = find_preset(name)
    return train_config(read_preset(path), where=str(path))
