"""From a folder of images to a report: python examples/own_data.py [TRAIN TEST] [--epochs N]
Both contain a sub-folder per class. Without them, bundled images of three classes are written to files."""

import argparse
import tempfile
from pathlib import Path

from PIL import Image

import ttaps
from ttaps.data import ImageSet
from ttaps.data.sample import read_sample, read_sample_train


def write_folder(folder: Path, images: ImageSet) -> Path:
    """Write the cars, frogs and ships of a data set to files."""
    for number, (image, label) in enumerate(zip(images.images, images.labels, strict=True)):
        if images.classes[label] in ("automobile", "frog", "ship"):
            file = folder / f"my {images.classes[label]}" / f"{number}.png"
            file.parent.mkdir(parents=True, exist_ok=True)
            Image.fromarray(image.transpose(1, 2, 0)).save(file)
    return folder


parser = argparse.ArgumentParser()
parser.add_argument("folders", nargs="*", type=Path)
parser.add_argument("--epochs", type=float)
parser.add_argument("--out", type=Path, default=Path("runs/mine"))
options = parser.parse_args()

made = Path(tempfile.mkdtemp())
train, test = options.folders or (
    write_folder(made / "train", read_sample_train()),
    write_folder(made / "test", read_sample()),
)
settings = {"epochs": options.epochs} if options.epochs else {}
run = ttaps.train("own-data", train, out=options.out, **settings)
run.report(options.out / "learning.png")
found = ttaps.evaluate(run.model, test, ["source", "ttaps:tuned"], out=options.out / "results")
found.report(html=options.out / "report.html")
print(found)
