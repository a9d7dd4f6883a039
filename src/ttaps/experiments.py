"""The Python interface to long jobs: ``ttaps.evaluate`` and ``ttaps.train``, which the commands of these names call."""

import weakref
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import cached_property
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal

import numpy as np
import pandas as pd
from torch import Tensor, nn

from ttaps.adaptation import Method, ensure_supported
from ttaps.adaptation.result import collapse
from ttaps.adaptation.spec import in_protocol, parse_method, parse_methods, set_nested
from ttaps.api import ImageLike, as_model, load, prepare
from ttaps.config import flat, from_dict
from ttaps.data import NAMES, ImageSet
from ttaps.data import data_root as root_of
from ttaps.data.images import split_folder
from ttaps.distributed import find_device, init_distributed
from ttaps.errors import UsageError
from ttaps.evaluation import frame, run
from ttaps.evaluation.benchmark import Benchmark, clean_benchmark, corrupted_benchmark, open_benchmark
from ttaps.evaluation.plan import EVERYTHING, Plan, Shard
from ttaps.evaluation.statistics import measure, significant
from ttaps.evaluation.store import Store
from ttaps.model.checkpoint import Model
from ttaps.model.own import Backbone, Factory, MeanStd, backbone_factory, backbone_reference
from ttaps.progress import log_info
from ttaps.report import columns, page, render, tables
from ttaps.report.figures import learning, style
from ttaps.training import fork
from ttaps.training.config import TrainConfig, load_preset
from ttaps.training.data import training_images
from ttaps.training.run import Run

Labels = Sequence[int] | Sequence[str] | np.ndarray[Any, Any] | Tensor
Data = str | Path | ImageSet | tuple[Sequence[ImageLike] | np.ndarray[Any, Any] | Tensor, Labels]
"""A data set by name, a folder of class folders, an ``.npz`` file, or images and their labels: class numbers or names."""
IMAGES = "images"  # name of a pair of images and labels


@dataclass(frozen=True, eq=False, repr=False)
class Evaluation:
    """The result of :func:`evaluate`. ``print`` it for tables of accuracy before and after adaptation, with 95 % intervals."""

    folder: Path
    """Where every image's result is stored; a temporary folder, which goes with this object, unless ``out`` was given."""
    model: str
    data: str
    experiments: tuple[int, ...]  # The ids of the experiments in the folder, one per method and seed.
    plan: Plan  # The images of each.
    seconds: dict[str, float]  # The time spent, by activity.
    data_root: Path | None = None

    @cached_property
    def rows(self) -> pd.DataFrame:
        """The requested stored rows, as :func:`ttaps.evaluation.frame.read_rows` returns them."""
        with Store(self.folder, write=False) as stored:
            found = frame.read_rows(stored, self.experiments)
        places = {number: place for place, number in enumerate(self.experiments)}
        asked = found[self.plan.covers(found)]
        return asked.sort_values("experiment", key=lambda numbers: numbers.map(places), kind="stable")

    @property
    def table(self) -> pd.DataFrame:
        """Accuracy in % before and after, with intervals, of each method and seed under each corruption and on average ("Avg.")."""
        return frame.accuracies(self.rows)

    def to_pandas(self) -> pd.DataFrame:
        """Return a row for every image and method: true class, predictions before and after, and their confidence."""
        return frame.with_names(self.rows[frame.COLUMNS].reset_index(drop=True), self.folder)

    def to_dict(self) -> dict[str, Any]:
        """Return the tables as plain values, as ``ttaps evaluate --json`` prints them."""
        found = [{**one, **render.accuracy_records(table)} for one, table in render.experiment_tables(self.rows)]
        facts = {"asked": self._asked, "stored": len(self.rows), "seconds": self.seconds, "warnings": self.warnings}
        return {**facts, "tables": found}

    def report(self, html: str | Path | None = None, figures: str | Path | None = None) -> None:
        """Write one HTML page with everything, and all figures into a folder, of all results in the folder, as ``ttaps report`` does."""
        places = Path(html) if html else None, Path(figures) if figures else None
        page.check_places(*places)
        stored = columns.load_results([self.folder])
        page.write_report(stored, tables.make_tables(stored), *places, self.data_root)

    @property
    def warnings(self) -> list[str]:
        """A line for each method and seed that did great harm."""
        return list(filter(None, (warning(part) for _, part in self.rows.groupby("experiment", sort=False))))

    @property
    def _asked(self) -> int:
        return len(self.plan) * len(self.experiments)

    def __str__(self) -> str:
        texts = [render.tables_text(render.experiment_tables(self.rows))] if len(self.rows) else []
        if len(self.rows) < self._asked:
            rest = "the others come from the other shards, in this folder or added to it with ttaps results merge"
            texts.append(f"{len(self.rows):,} of {self._asked:,} results are here; {rest}.")
        return "\n\n".join([*texts, *self.warnings])

    def __repr__(self) -> str:
        methods = ", ".join(self.rows["spec"].unique())
        return f"Evaluation({self.model} on {self.data}: {methods}; {len(self.rows):,} results in {self.folder})"


def warning(rows: pd.DataFrame) -> str:
    """Return a line if adaptation did great harm in an experiment: accuracy halved, or nearly all images given one label."""
    line, spec = measure(rows), rows["spec"].iat[0]
    found = [collapse(rows["before"].tolist(), rows["after"].tolist())]
    if significant(line) and line["after"] < line["before"] / 2:
        found.insert(0, f"accuracy fell from {line['before']:.1f} to {line['after']:.1f} %")
    return f"Warning: {spec}: {'; '.join(filter(None, found))}." if any(found) else ""


def evaluate(
    model: Model | nn.Module | str | Path,
    data: Data = "sample",
    methods: str | Method | Sequence[str | Method] = ("source", "ttaps"),
    *,
    corruptions: str | Sequence[str] = (),
    severities: int | Sequence[int] | Literal["all"] = (),
    images_per_corruption: int | None = None,
    seeds: int | Sequence[int] = 0,
    protocol: Literal["episodic", "online", "continual"] | None = None,
    batch_size: int | None = None,
    out: str | Path | None = None,
    size: int | None = None,
    normalize: MeanStd | None = None,
    classes: Sequence[str] = (),
    data_root: str | Path | None = None,
    device: str | None = None,
    shard: str | None = None,
    projections: int = 0,
) -> Evaluation:
    """Measure accuracy before and after adaptation and store every image's result.

    ``model`` is what :func:`ttaps.load` returns or takes, or your own classifier (``size``, ``normalize`` and ``classes`` as in
    :func:`ttaps.adapt`). ``data`` is a name (``sample`` is bundled), a folder of class folders, an ``.npz`` file, or a pair
    of images and labels, class numbers or names. ``methods`` are written as everywhere: ``["source", "ttaps:tuned[steps=6]"]``.
    ``corruptions``, ``severities`` and ``images_per_corruption`` (a stratified sample, the same one each time) choose among the images.
    ``protocol`` and ``batch_size`` apply to methods with these settings (docs/methods.md); by default images are adapted one at a time.

    With ``out``, results are kept in that folder, and the same call resumes after an interruption; without it they are in a temporary
    folder that is removed with the returned object. A model stays where it is (``device`` moves it); one given by name goes to a GPU
    if there is one. Under ``torchrun`` the processes share the images; ``shard="1/4"`` does one part of four.
    """
    if projections < 0:
        raise UsageError(f"projections must be at least 0, not {projections}.")
    part = Shard.parse(shard) if shard else Shard.of_rank()
    if shard and Shard.of_rank().count > 1:
        raise UsageError("torchrun's processes already share the images: leave out --shard.")
    own: dict[str, Any] = {"size": size, "normalize": normalize, "classes": classes}
    if isinstance(model, str | Path):
        subject, device = load(model, **own), device or "auto"
    else:  # the image size of a module is that of the arrays, if there are any
        given = data if isinstance(data, tuple | list) and data else (getattr(data, "images", None),)
        subject = as_model(model, given[0], **own)
    if device:
        subject.to(find_device(device))
    chosen = [in_protocol(method, protocol, batch_size) for method in _methods(methods, subject.presets)]
    for method in chosen:  # before a folder of images is read through
        ensure_supported(method, subject.network, subject.objective)
    root = Path(data_root) if data_root else None
    images = open_data(data, subject, corruptions, severities, root)
    plan, timing = images.plan(images_per_corruption, part), run.Timing()
    numbers = [seeds] if isinstance(seeds, int) else list(dict.fromkeys(seeds))
    with ExitStack() as temporary:
        folder = Path(out or temporary.enter_context(TemporaryDirectory(prefix="ttaps-", ignore_cleanup_errors=True)))
        with init_distributed(patience=timedelta(days=1)) as ranks:
            several = ranks.size > 1
            found = run.evaluate(
                subject, images, chosen, numbers, folder=folder, plan=plan, distributed=several, timing=timing
            )
            ranks.wait()  # so that the table is of all images
        if projections and ranks.first:
            run.write_projections(subject, images, folder, projections)
        whole = replace(plan, shard=EVERYTHING)
        evaluation = Evaluation(folder, subject.name, images.name, tuple(found), whole, timing.parts(), root)
        weakref.finalize(evaluation, temporary.pop_all().close)  # a temporary folder is removed with its owner
    return evaluation


def open_data(
    data: Data,
    model: Model,
    corruptions: str | Sequence[str] = (),
    severities: int | Sequence[int] | Literal["all"] = (),
    root: Path | None = None,
) -> Benchmark:
    """Open the data to evaluate on, by name or as given."""
    names = corruptions.split(",") if isinstance(corruptions, str) else corruptions
    chosen = [name.strip() for name in names if name.strip()]
    levels = [severities] if isinstance(severities, int) else severities
    if isinstance(data, str | Path):
        trained_on = split_folder(Path(str(model.info.get("data", ""))), "train")
        if str(data) not in NAMES and split_folder(Path(data), "test").resolve() == trained_on.resolve():
            log_info(f"{model.name} was trained on four fifths of these images: this says little about others.")
        return open_benchmark(str(data), root, corruptions=chosen, severities=levels, size=model.image_size)
    images = image_set(data, model.image_size, model.classes)
    return corrupted_benchmark(clean_benchmark(images, model.image_size), chosen, levels)


def image_set(data: Any, size: int, classes: Sequence[str] = ()) -> ImageSet:
    """Return images and labels as a set; class indices are those of ``classes``, if known."""
    if isinstance(data, ImageSet):
        return data
    if not isinstance(data, tuple | list) or len(data) != 2:
        raise UsageError(f"Data is a name, a path, or a pair (images, labels), not {type(data).__name__}.")
    images, labels = data
    pixels, _ = prepare(images, size)
    if pixels.is_floating_point():
        pixels = (255 * pixels).round().byte()
    numbers = labels.detach().cpu().numpy() if isinstance(labels, Tensor) else np.asarray(labels)
    if numbers.dtype.kind == "U":
        names, numbers = np.unique(numbers, return_inverse=True)
        classes = names.tolist()
    elif numbers.dtype.kind not in "iu" or not numbers.size:
        raise UsageError(f"Labels are class numbers or names, one for each image, not {numbers.dtype}.")
    known = tuple(classes) or tuple(map(str, range(int(numbers.max()) + 1)))
    return ImageSet(IMAGES, pixels.numpy(), numbers.astype(np.int64), known)


def _methods(methods: str | Method | Sequence[str | Method], presets: dict[str, Any]) -> list[Method]:
    if isinstance(methods, str):
        return parse_methods(methods, presets=presets)
    each = [methods] if isinstance(methods, Method) else methods
    found = [parse_method(one, presets=presets) if isinstance(one, str) else one for one in each]
    return list(dict.fromkeys(found)) or parse_methods("")


@dataclass(frozen=True, eq=False, repr=False)
class Training:
    """A run finished by :func:`train`. ``print`` it for its card."""

    folder: Path  # The run folder: the model, its card, its settings and its metrics.
    config: TrainConfig  # All settings.
    backbone: Factory | None = None

    @cached_property
    def model(self) -> Model:
        """The trained model, as :func:`ttaps.load` returns it."""
        return load(self.folder, backbone=self.backbone)

    def to_pandas(self) -> pd.DataFrame:
        """Return the learning curve: a row per logged step (its losses) or validation (``validation_accuracy``), by epoch."""
        rows, _ = learning.read_metrics(self.folder.name, self.folder)
        return rows.astype({"step": int})

    @property
    def table(self) -> pd.DataFrame:
        """The validation accuracy in %, by epoch."""
        rows = self.to_pandas().reindex(columns=["step", "epoch", "validation_accuracy"]).dropna()
        return rows.assign(validation_accuracy=100 * rows["validation_accuracy"]).reset_index(drop=True)

    def report(self, figure: str | Path) -> None:
        """Draw the learning curve into a .png, .pdf or .svg file, as ``ttaps info --figure`` does."""
        style.check_figure(Path(figure))
        curve = learning.read_curve(self.folder.resolve().name, self.folder)
        style.save_figure(learning.learning_figure([curve]), Path(figure))

    def to_dict(self) -> dict[str, Any]:
        """Return what is known about the trained model as plain values."""
        return self.model.to_dict()

    def __str__(self) -> str:
        return (self.folder / "README.md").read_text("utf-8").rstrip()

    def __repr__(self) -> str:
        accuracy = self.model.info.get("validation_accuracy")
        found = "" if accuracy is None else f", {100 * accuracy:.1f} % of the validation images"
        return f"Training({self.folder}: {self.config.objective} on {self.model.info['data']}{found})"


def train(
    config: str | Path | TrainConfig,
    data: Data | None = None,
    *,
    out: str | Path,
    backbone: Backbone | None = None,
    fork_from: str | Path | None = None,
    data_root: str | Path | None = None,
    device: str = "auto",
    **settings: Any,
) -> Training:
    """Train a model in the folder ``out``; after an interruption the same call resumes the run.

    ``config`` is a preset by name (``smoke``, ``paper/jt+ent``, ...), a TOML file or settings; ``settings`` replace some of them:
    ``train("smoke", out="runs/a", epochs=5, optimizer={"lr": 0.2})``. ``data`` is a name, a folder of class folders, an ``.npz`` file or
    a pair of images and labels; a fifth of it is for validation. The network has as many classes, unless ``model.num_classes`` is set.

    ``backbone`` is any module from images to features (N, F) or feature maps (N, F, H, W), which are averaged: the module (a copy is
    trained, from its weights), a function or class that makes it, or ``"my_nets.py:make_net"``. The run folder records a function of
    a file or package, so that :func:`ttaps.load` and the commands can call it again; a module must be passed again.
    """
    chosen, any_classes = _train_settings(config, data, settings)
    place, root = find_device(device), root_of(Path(data_root) if data_root else None)
    given = chosen.backbone if backbone is None else backbone
    make = None if isinstance(given, str) else backbone_factory(given)
    chosen = replace(chosen, backbone=backbone_reference(given))
    images = chosen.data if data is None or isinstance(data, str | Path) else image_set(data, chosen.model.image_size)
    split = training_images(images, root, chosen.model, any_classes)
    if (count := len(split.train.classes)) != chosen.model.num_classes:
        log_info(f"{chosen.data} has {count} classes: model.num_classes is set to that.")
        chosen = replace(chosen, model=replace(chosen.model, num_classes=count))
    with init_distributed(place) as ranks:
        if fork_from and ranks.first:
            fork.fork(Path(fork_from), chosen, Path(out), split, make)
        Run(chosen, Path(out), split, ranks, make).train()
    return Training(Path(out), chosen, make)


def _train_settings(
    config: str | Path | TrainConfig, data: Any, settings: Mapping[str, Any]
) -> tuple[TrainConfig, bool]:
    """Return all settings, and whether the data may set the number of classes."""
    values: dict[str, Any] = {}
    for name, value in flat(settings).items():
        set_nested(values, name.split("."), value)
    if isinstance(data, str | Path):
        values["data"] = str(data)
    elif data is not None:
        values["data"] = data.name if isinstance(data, ImageSet) else IMAGES
    known = config if isinstance(config, TrainConfig) else load_preset(str(config))
    return from_dict(TrainConfig, values, where="train", base=known), "num_classes" not in values.get("model", {})
