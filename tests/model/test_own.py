"""Networks of the user's own: made by a factory in a file, with weights from a file, and asked for nothing but logits."""

import importlib
import io
import sys
from collections import namedtuple
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import save_file
from torch import Tensor, nn

import ttaps
from helpers.other_nets import made, some_images
from ttaps.errors import TtapsError, UsageError
from ttaps.model.own import make_module

NET = """
import torch
from torch import nn

def make_net():
    return nn.Sequential(nn.Conv2d(3, 4, 3), nn.GroupNorm(2, 4), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 3))

def broken():
    raise RuntimeError("no such file on this machine")

def text():
    return "a network"
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    (tmp_path / "my_nets.py").write_text(NET)
    return tmp_path / "my_nets.py"


class Wrapped(nn.Module):
    """A classifier that returns its logits inside something else."""

    def __init__(self, wrap: Any) -> None:
        super().__init__()
        self.net, self.wrap = made("preact"), wrap

    def forward(self, x: Tensor) -> Any:
        return self.wrap(self.net(x))


Output = namedtuple("Output", ["loss", "logits"])
WRAPS = {
    "tuple": lambda logits: (logits, "features"),
    "dict": lambda logits: {"loss": None, "logits": logits},
    "object": lambda logits: Output(None, logits),
}


def test_weights_of_a_factory_come_from_either_kind_of_file(file: Path) -> None:
    torch.manual_seed(0)
    net = ttaps.load(f"{file}:make_net", size=16).network
    weights = {name.removeprefix("module."): weight for name, weight in net.state_dict().items() if "module." in name}
    save_file(weights, file.parent / "net.safetensors")
    torch.save({"state_dict": weights, "epoch": 3}, file.parent / "net.pt")
    torch.save({f"module.{name}": weight for name, weight in weights.items()}, file.parent / "parallel.pt")
    images = some_images(2, 16)
    for name in ("net.safetensors", "net.pt", "parallel.pt"):
        model = ttaps.load(f"{file}:make_net", size=16, weights=file.parent / name, classes=("cat", "dog", "fox"))
        torch.testing.assert_close(model(images), net(images), rtol=0, atol=0)
        assert model.classes == ("cat", "dog", "fox")
        assert model.name == "make_net"


def test_a_pickle_that_runs_code_is_refused_unless_trusted(file: Path) -> None:
    path = file.parent / "whole.pt"
    with path.open("wb") as out:
        torch.save(nn.Sequential(nn.Linear(2, 2)), out)
    with pytest.raises(TtapsError, match="would run code") as refused:
        ttaps.load(f"{file}:make_net", size=16, weights=path)
    assert "--trust" in str(refused.value)
    with pytest.raises(TtapsError, match="does not fit the network"):
        ttaps.load(f"{file}:make_net", size=16, weights=path, trust=True)


def test_a_trusted_module_needs_the_file_of_its_class(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (file.parent / "trusted_nets.py").write_text("from torch import nn\n\nclass Net(nn.Sequential):\n    pass\n")
    path = file.parent / "whole.pt"
    monkeypatch.syspath_prepend(str(file.parent))
    net = make_module(f"{file}:make_net")
    torch.save(importlib.import_module("trusted_nets").Net(*net.children()), path)
    monkeypatch.undo()
    monkeypatch.delitem(sys.modules, "trusted_nets")
    with pytest.raises(TtapsError, match=r"needs code that is not available .*trusted_nets"):
        ttaps.load(f"{file}:make_net", size=16, weights=path, trust=True)
    monkeypatch.chdir(file.parent)
    found = ttaps.load(f"{file}:make_net", size=16, weights=path, trust=True)
    assert torch.equal(found.network.state_dict()["module.0.weight"], net.state_dict()["0.weight"])
    monkeypatch.delitem(sys.modules, "trusted_nets")


@pytest.mark.parametrize(
    ("reference", "words"),
    [
        ("my_nets.py:make_nett", "did you mean 'make_net'"),
        ("my_nets.py:broken", "no such file on this machine"),
        ("my_nets.py:text", "must return a torch.nn.Module, not str"),
        ("nowhere.py:make_net", "There is no file"),
        ("no_such_module_at_all:make_net", "cannot be imported"),
    ],
)
def test_a_factory_that_makes_no_network(
    file: Path, monkeypatch: pytest.MonkeyPatch, reference: str, words: str
) -> None:
    monkeypatch.chdir(file.parent)
    with pytest.raises(UsageError, match=words):
        ttaps.load(reference, size=16)


def test_what_is_no_file_of_weights_is_told_so(file: Path) -> None:
    path = file.parent / "net.pt"
    for content in (b"hello", b"", b"\x80\x02}q\x00.", b"PK\x03\x04 torn"):  # torch raises another error for each
        path.write_bytes(content)
        with pytest.raises(
            TtapsError, match=r"net\.pt (is damaged or holds no weights|holds no state_dict)|does not fit"
        ):
            ttaps.load(f"{file}:make_net", size=16, weights=path)


@pytest.mark.parametrize(
    "normalize", [(0.5, 0.5), ((0, 0), (1, 1)), ((0, 0, 0), (1, 0, 1)), ((np.nan, 0, 0), (1, 1, 1))]
)
def test_a_normalization_that_is_none(normalize: Any) -> None:
    with pytest.raises(UsageError, match="three means and three positive standard deviations"):
        ttaps.load(made("preact"), size=8, normalize=normalize)


def test_sizes_and_classes_that_do_not_fit(file: Path) -> None:
    with pytest.raises(UsageError, match="size=64"):
        ttaps.load(f"{file}:make_net")
    with pytest.raises(UsageError, match=r"cannot take images of 3 x 1 x 1"):
        ttaps.load(f"{file}:make_net", size=1)
    with pytest.raises(UsageError, match="gives 3 logits, but 2 classes are named"):
        ttaps.load(f"{file}:make_net", size=16, classes=("a", "b"))
    with pytest.raises(UsageError, match="Two classes are named 'a'"):
        ttaps.load(f"{file}:make_net", size=16, classes=("a", "b", "a"))
    with pytest.raises(UsageError, match=r"a list of names, not the text 'names\.txt'"):
        ttaps.load(f"{file}:make_net", size=16, classes="names.txt")
    with pytest.raises(UsageError, match="has its own"):
        ttaps.load("cifar10", size=16)


@pytest.mark.parametrize("wrap", WRAPS)
def test_logits_are_found_in_what_networks_return(wrap: str) -> None:
    images = some_images(2)
    plain = ttaps.adapt(made("preact"), images, "memo", num_views=4)
    found = ttaps.adapt(Wrapped(WRAPS[wrap]), images, "memo", num_views=4)
    torch.testing.assert_close(found.trace, plain.trace, rtol=0, atol=0)


@pytest.mark.parametrize(
    "output",
    [
        lambda logits: logits[:, :, None],
        lambda logits: logits[:1],
        lambda logits: logits.long(),
        lambda logits: None,
        lambda logits: {"loss": logits},
    ],
)
def test_what_is_no_classifier_is_refused(output: Any) -> None:
    with pytest.raises(UsageError, match=r"a classifier returns logits \(N, classes\)"):
        ttaps.adapt(Wrapped(output), some_images(1), "memo")


def test_every_way_to_give_an_image_is_the_same_image(tmp_path: Path) -> None:
    pixels = some_images(2, 12).numpy()
    files = [tmp_path / "photos" / f"{index}.png" for index in range(2)]
    files[0].parent.mkdir()
    for file, image in zip(files, pixels, strict=True):
        Image.fromarray(image.transpose(1, 2, 0)).save(file)
    module = made("preact")

    def trace(images: Any) -> Tensor:
        return ttaps.adapt(module, images, "memo", size=8, num_views=4).trace

    first, both = trace(files[0]), trace(files)
    assert first.ndim == 2
    for way in (
        str(files[0]),
        files[0].read_bytes(),
        io.BytesIO(files[0].read_bytes()),
        Image.open(files[0]),
        pixels[0],
    ):
        torch.testing.assert_close(trace(way), first, rtol=0, atol=0)
    torch.testing.assert_close(both[0], first, rtol=0, atol=0)
    ways = (files[0].parent, (file for file in files), [np.asarray(image) for image in pixels], pixels)
    for way in ways:
        torch.testing.assert_close(trace(way), both, rtol=0, atol=0)


def test_damaged_bytes_are_refused() -> None:
    with pytest.raises(TtapsError, match="not an image that Pillow can read"):
        ttaps.adapt(made("preact"), b"no image", "memo", size=8)
    with pytest.raises(UsageError, match="not int"):
        ttaps.adapt(made("preact"), 3, "memo", size=8)  # type: ignore[arg-type]


def test_a_model_is_called_and_moved_like_a_classifier(file: Path) -> None:
    model = ttaps.load("cifar10")
    images = some_images(2, 32)
    torch.testing.assert_close(model.to("cpu")(images), model.network(images), rtol=0, atol=0)
    assert model.image_size == 32
