"""Every command and its options, with defaults and help. Nothing here needs torch, which takes seconds to import."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

import tyro
from tyro.conf import Positional, arg

from ttaps.training.config import TrainConfig

NO_PREFIX = arg(name="")
ModelName = Annotated[str, Positional, arg(metavar="MODEL")]
Folders = Annotated[tuple[Path, ...], Positional, arg(metavar="FOLDER...", help_behavior_hint="(required)")]
DataSets = tuple[Literal["cifar10", "cifar100", "cifar10-c", "cifar100-c"], ...]


@dataclass(frozen=True, kw_only=True)
class JsonOption:
    """A command that can output JSON."""

    json: bool = False
    """Output JSON."""


@dataclass(frozen=True, kw_only=True)
class DataRootOption:
    """A command that reads data sets."""

    data_root: Path | None = None
    """Folder of the data sets; else $TTAPS_DATA, else ./data."""


@dataclass(frozen=True, kw_only=True)
class DeviceOptions:
    """A command that computes, on a GPU if there is one."""

    threads: int | None = None
    """CPU threads; torch's own choice if not given."""
    device: str = "auto"
    """cpu, cuda, mps, or auto."""


@dataclass(frozen=True, kw_only=True)
class OwnNetworkOptions:
    """A command whose MODEL may be a network of the user's own, such as my_nets.py:make_net."""

    weights: Path | None = None
    """For your own network (MODEL is my_nets.py:make_net): its state_dict, as .safetensors or written by torch.save."""
    size: int | None = None
    """For your own network: height and width of its images."""
    classes: str = ""
    """For your own network: class names, comma-separated, or a file with one name per line; numbers if empty."""
    mean: tuple[float, float, float] = (0.0, 0.0, 0.0)
    """For your own network: channel means to subtract from pixels in [0, 1]."""
    std: tuple[float, float, float] = (1.0, 1.0, 1.0)
    """For your own network: channel standard deviations to divide by."""
    trust: bool = False
    """For your own network: load weights from a pickle that holds more than tensors, which runs code from that file."""
    backbone: str = ""
    """For a run trained with your own backbone, if its file has moved or changed since: like my_nets.py:make_net."""


SHARED = (JsonOption, DataRootOption, DeviceOptions, OwnNetworkOptions)


@dataclass(frozen=True)
class Demo(DeviceOptions, JsonOption):
    """Adapt the bundled model to the bundled corrupted images; print accuracy before and after, and draw a figure.

    Example: ttaps demo"""

    images: int = 200  # for each of nine corruptions: 80 s of CPU time, under a minute on two idle cores
    """Images per corruption, at most 200."""
    out: Path = Path("ttaps-demo.png")
    """The figure: PNG, PDF or SVG."""
    model: str = "cifar10"
    """A CIFAR-10 model: by name, or a run folder."""


@dataclass(frozen=True)
class Adapt(OwnNetworkOptions, DeviceOptions, JsonOption):
    """Adapt a model to each image separately and print its label before and after. The model is not changed.

    Example: ttaps adapt cifar10 cat.png --method ttaps:tuned --steps 4"""

    model: ModelName
    """A model by name (cifar10; ttaps info lists them), a run folder, or your own network, like my_nets.py:make_net."""
    images: Annotated[tuple[Path, ...], Positional, arg(metavar="IMAGE...", help_behavior_hint="(required)")]
    """Image files of any size, or folders of them."""
    method: str = "ttaps:tuned"
    """Method, preset and settings, like ttaps:tuned[steps=6] (ttaps methods lists them). Its settings are also options:
    ttaps adapt --method memo --help shows those of memo."""
    figure: Path | None = None
    """Draw the views and predictions into this PNG, PDF or SVG file."""
    seed: int = 0
    """Seed of the views."""


@dataclass(frozen=True)
class Evaluate(OwnNetworkOptions, DeviceOptions, DataRootOption, JsonOption):
    """Measure accuracy before and after adaptation. It can be killed at any time; the same command resumes.

    Example: ttaps evaluate cifar10 --methods "source,ttaps:tuned[lr=1]" --limit 20

    torchrun --nproc-per-node N -m ttaps evaluate ... splits the images over N processes, with the same rows as one."""

    model: ModelName
    """A model by name (cifar10; ttaps info lists them), a run folder, or your own network, like my_nets.py:make_net."""
    data: str = "sample"
    """sample (bundled), cifar10, cifar100, these with -c (corrupted) or -val-c; a folder of class folders, one with such folders in train
    and test (or val), one in ImageNet-C's layout, or an .npz file."""
    methods: str = "source,ttaps"
    """Comma-separated methods (see ttaps methods); ttaps:fast uses the preset fast, ttaps[lr=1,steps=5] sets these settings."""
    severity: str = ""
    """Comma-separated severities 1 to 5 of the corruptions, or all; 5 if empty."""
    corruptions: str = ""
    """Comma-separated corruptions, or all (the paper's 15). If empty, all in a corrupted set, none for your own clean images; those are
    corrupted at the network's input size."""
    images_per_corruption: Annotated[int | None, arg(aliases=["--limit"])] = None
    """Images per corruption: a stratified sample, the same one each time; all if not given."""
    seeds: str = "0"
    """Comma-separated seeds of the views."""
    set: Annotated[tuple[str, ...], tyro.conf.UseAppendAction] = ()
    """A setting of a method, like ttaps.lr=0.3 or ttaps.views.flip_p=0; may be given several times."""
    protocol: Literal["episodic", "online", "continual"] | None = None
    """Reset after each image or batch, after each corruption, or never, for methods with this setting; by default as each method's
    settings say."""
    batch_size: int | None = None
    """Images adapted together, for methods with this setting (TENT's authors: 200); by default as each method's settings say."""
    out: Path | None = None
    """Folder for the results; results/MODEL-DATA if not given."""
    shard: str | None = None
    """Only part i/n of the work, like 1/4; all parts may write to the same folder."""
    projections: int = 0
    """Also store the projections of this many images, for the map in ttaps report; 0 for none."""


@dataclass(frozen=True)
class Tune(DeviceOptions, DataRootOption, JsonOption):
    """Choose test-time settings for a model with prototypes on its own validation images, and write them as its presets.

    Example: ttaps tune cifar10 --minutes 60

    It can be killed at any time; the same command resumes. For this model, ttaps:tuned and augment:tuned then mean these settings."""

    model: ModelName
    """A model by name (cifar10; ttaps info lists them), or a run folder."""
    data: str = ""
    """Clean images to choose on; by default the fifth of the model's training set held out from training."""
    images: int | None = None
    """Images to choose on, clean and corrupted; 5,000 if not given. The choice is confirmed on 0.6 times as many others."""
    minutes: float | None = None
    """Use as many images as fit into this time, by a short measurement, but at least 360."""
    seed: int = 0
    """Seed of the candidates and of the views."""
    out: Path | None = None
    """Folder for presets.toml; the model's own if not given."""
    results: Path | None = None
    """Folder for the rows; results/tune-MODEL if not given."""
    figure: Path | None = None
    """Draw the effect of each setting into this PNG, PDF or SVG file."""
    backbone: str = ""
    """For a run trained with your own backbone, if its file has moved or changed since: like my_nets.py:make_net."""


@dataclass(frozen=True)
class Report(JsonOption, DataRootOption):
    """Make the paper's tables and figures from stored results, with intervals and paired tests. No model is needed.

    Example: ttaps report results/first --html report.html --figures figures"""

    folders: Folders
    """Folders of results; an experiment found in several of them is merged."""
    table: Literal["auto", "text", "md", "tex", "csv"] = "auto"
    """Format of the tables: text for a terminal, Markdown, LaTeX, or one tidy CSV of all numbers; auto is text on a terminal, else md."""
    metric: Literal["accuracy", "error"] = "accuracy"
    """What the tables show; figures always show accuracy."""
    published: bool = True
    """Show the paper's numbers next to ours."""
    figures: Path | None = None
    """Folder for all figures, as PDF and PNG."""
    html: Path | None = None
    """Write one HTML page with everything; it needs no other file."""


@dataclass(frozen=True)
class Merge:
    """Merge the results of several folders, from shards or other machines. Merging twice changes nothing.

    Example: ttaps results merge results/all results/machine-1 results/machine-2"""

    out: Annotated[Path, Positional, arg(metavar="OUT")]
    """Folder for all results; created if missing."""
    folders: Folders
    """Folders of results; they are not changed."""


@dataclass(frozen=True)
class Export:
    """Write the accuracy of every experiment and corruption as a tidy CSV or Parquet file, or one row per image.

    Example: ttaps results export results/cifar10-sample images.csv --images"""

    folder: Annotated[Path, Positional, arg(metavar="FOLDER")]
    """Folder of results."""
    file: Annotated[Path, Positional, arg(metavar="FILE")]
    """The file to write, .csv or .parquet."""
    images: bool = False
    """One row per image: file, label, predictions before and after and their confidence."""
    steps: bool = False
    """One row per step (0: before adaptation), instead of the last step only."""


@dataclass(frozen=True)
class Train(DeviceOptions, DataRootOption):
    """Train a model. It can be killed at any time; the same command resumes the run.

    Example: ttaps train --config smoke --out runs/smoke

    torchrun --nproc-per-node N -m ttaps train ... splits every batch over N processes, with the same result as one.

    Every setting can be overridden here; a run folder keeps all of them in train.toml."""

    out: Path
    """Run folder: the model, its card, its settings and its metrics."""
    config: str | None = None
    """A preset by name (smoke, paper/jt+ent, cpu/jt+ent-cifar10, ...) or a TOML file; its settings are the defaults below."""
    resume: bool = False
    """Resume the run in --out with its own settings; --config is not needed, and one with other settings is refused."""
    fork_from: Path | None = None
    """Start from the state of the run in this folder; refused unless both take the same steps up to that point."""
    settings: Annotated[TrainConfig, NO_PREFIX] = field(default_factory=TrainConfig)
    any_classes: Annotated[bool, tyro.conf.Fixed, tyro.conf.Suppress] = True  # no --model.num-classes was given


@dataclass(frozen=True)
class Reproduce(DeviceOptions, DataRootOption):
    """Train and evaluate what is missing, then report. It can be killed at any time; the same command resumes.

    Example: ttaps reproduce small --dry-run

    Started N times, or by torchrun --nproc-per-node N -m ttaps reproduce ..., N processes work on different models at once."""

    grid: Annotated[str, Positional, arg(metavar="GRID")]
    """paper-cifar10 or paper-cifar100 (for a GPU), small (hours on two cores), smoke (a minute or two), or a TOML file."""
    out: Path | None = None
    """Folder for the models, results and report; reproduced/GRID if not given."""
    dry_run: bool = False
    """Only print what would be done and how long it would take, by a short measurement."""


@dataclass(frozen=True)
class Download(DataRootOption):
    """Download CIFAR-10 or CIFAR-100 in the official layout. If interrupted, the same command resumes it.

    Example: ttaps data download cifar10"""

    name: Positional[Literal["cifar10", "cifar100"]]
    """Name of the data set."""


@dataclass(frozen=True)
class Build(DataRootOption):
    """Build CIFAR-10-C or CIFAR-100-C from the clean test images. If interrupted, the same command resumes it.

    Example: ttaps data build cifar10-c --corruptions fog,frost"""

    name: Positional[Literal["cifar10-c", "cifar100-c"]]
    """Name of the data set."""
    seed: int = 0
    """Seed of the random corruptions."""
    corruptions: str = ""
    """Only these, comma-separated; all 19 if empty."""
    workers: int | None = None
    """Processes; all cores if not given."""


@dataclass(frozen=True)
class Corrupt:
    """Write corrupted copies of your own images, in ImageNet-C's layout. If interrupted, the same command resumes it.

    Example: ttaps data corrupt photos --out photos-c --size 32 --corruptions fog,frost --severity 1,3,5"""

    folder: Annotated[Path, Positional, arg(metavar="FOLDER")]
    """Folder of class folders; test (or val) is used if they are in train and test (or val)."""
    out: Path
    """Folder to write corruption/severity/class/image to."""
    corruptions: str = "all"
    """Comma-separated corruptions; all are the paper's 15."""
    severity: str = "all"
    """Comma-separated severities 1 to 5, or all."""
    size: int = 224
    """Height and width: images are cropped to a square and resized before corruption. Best: your network's input size."""
    seed: int = 0
    """Seed of the random corruptions."""
    workers: int | None = None
    """Processes; all cores if not given."""


@dataclass(frozen=True)
class Verify(DataRootOption, JsonOption):
    """Check whether each data set is present, complete and correct by its checksums, and say what to do if not.

    Exit code 1 if a named data set is not correct; without names, if any is damaged or none is correct.

    Example: ttaps data verify cifar10 cifar10-c"""

    names: Annotated[DataSets, Positional, arg(metavar="[NAME...]", help_behavior_hint="(default: all)")] = ()
    """Names of data sets: cifar10, cifar100, cifar10-c, cifar100-c."""


@dataclass(frozen=True)
class Bench(JsonOption):
    """Time adaptation, views and training in turn on this machine, and print ratios: medians over rounds, with quartiles.

    Example: ttaps bench --threads 2 --rounds 3"""

    threads: int | None = None
    """CPU threads; torch's own choice if not given."""
    model: str = "cifar10"
    """A model by name or a run folder."""
    rounds: int = 5
    """Number of times each is timed."""


@dataclass(frozen=True)
class Info(OwnNetworkOptions, JsonOption):
    """Describe a model: its card, its numbers and the methods it supports. Without a model, list the names of all models.

    Example: ttaps info cifar10"""

    models: Annotated[tuple[str, ...], Positional, arg(metavar="[MODEL...]")] = ()
    """Models by name (cifar10; ttaps info lists them) or run folders; a run counts as a model from its first checkpoint on."""
    figure: Path | None = None
    """Draw the learning curves of these models into this .png, .pdf or .svg file."""


@dataclass(frozen=True)
class Methods(JsonOption):
    """List the methods: what each needs, adapts and costs per image, as a multiple of one prediction by the same network.

    Example: ttaps methods --measure --rounds 3"""

    measure: bool = False
    """Measure the cost on this machine, with one image and one thread, instead of printing the stored cost of cifar10 on a CPU."""
    model: str = "cifar10"
    """A model by name or a run folder, whose architecture is used for measuring."""
    rounds: int = 2
    """Number of times each method is timed."""


@dataclass(frozen=True)
class Serve(DeviceOptions, DataRootOption):
    """Open a page on this machine that shows an image being damaged, adapted and classified, and the HTTP service behind it.

    Example: ttaps serve cifar10 --results results/first"""

    model: ModelName = "cifar10"
    """A model by name (cifar10; ttaps info lists them), a run folder, or your own network, like my_nets.py:make_net."""
    host: str = "127.0.0.1"
    """Address to listen on; any but this machine's own needs --token."""
    port: int = 8000
    """Port to listen on; 0 takes a free one."""
    token: str | None = None
    """Token that every request must send; $TTAPS_TOKEN if not given; auto generates one."""
    cors: str = ""
    """Comma-separated origins, like https://example.org, whose pages may use the service too."""
    results: Path | None = None
    """A folder of results, or an HTML report, to show on the page."""
    workers: int | None = None
    """Images adapted at the same time; one per core if not given."""
    queue: int = 16
    """Requests that may wait for a worker; further ones are refused (429)."""
    time_limit: float = 60.0
    """Seconds that a request may take."""


class Command(NamedTuple):
    """What ``ttaps --help`` says of a command, its options, and where the function of its name is that runs it."""

    summary: str
    options: Any  # or those of its sub-commands, by name
    file: str = ""  # in this folder; that of the command's name if empty


COMMANDS = {
    "demo": Command("adapt the bundled model to bundled images: accuracy before and after, a figure", Demo, "evaluate"),
    "adapt": Command("adapt a model to each of your images separately, and predict", Adapt),
    "evaluate": Command("measure accuracy before and after adaptation on a data set, stored per image", Evaluate),
    "tune": Command("choose test-time settings for a model on its own validation images", Tune, "evaluate"),
    "report": Command("make tables and figures from stored results, as text, images or one HTML page", Report),
    "results": Command("merge or export stored results", {"merge": Merge, "export": Export}, "report"),
    "train": Command("train a model that can adapt (baseline, jt, jt+ent, ttt, mt3)", Train),
    "reproduce": Command("train, evaluate and report a whole table from scratch", Reproduce, "train"),
    "data": Command(
        "download, build, corrupt and verify data sets",
        {"download": Download, "build": Build, "corrupt": Corrupt, "verify": Verify},
    ),
    "bench": Command("time adaptation, views and training on this machine, as ratios", Bench),
    "serve": Command("a page in the browser that shows an image being adapted, and the HTTP service behind it", Serve),
    "info": Command("describe a model and the methods it supports", Info),
    "methods": Command("list the methods: what each needs, adapts and costs", Methods, "bench"),
}
