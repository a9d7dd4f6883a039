"""The Python interface: ``ttaps.load`` and ``ttaps.adapt``."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from PIL import Image
from torch import Tensor, nn

from ttaps.adaptation import Method, Result, ensure_supported
from ttaps.adaptation.spec import parse_method
from ttaps.data.images import fit, read_image
from ttaps.errors import UsageError
from ttaps.model import Network, to_float
from ttaps.model.checkpoint import Model, load_model
from ttaps.model.network import Normalize
from ttaps.model.registry import folder_of
from ttaps.rng import derive_seed

ImageLike = str | Path | Image.Image | np.ndarray[Any, Any] | Tensor
MeanStd = tuple[Sequence[float], Sequence[float]]


def load(model: str | Path, backbone: nn.Module | None = None, features: int | None = None) -> Model:
    """Load a model by name (``cifar10`` is in the package) or from a run folder.

    ``backbone`` and its ``features`` are those given to :class:`Network`, where it is not our own ResNet. The network is on the CPU:
    ``model.network.to("cuda")`` moves it, and :func:`adapt` works where it is.
    """
    return load_model(folder_of(model), backbone, features)


def adapt(
    model: Model | nn.Module,
    images: ImageLike | Sequence[ImageLike],
    method: str | Method = "ttaps:tuned",
    *,
    seed: int = 0,
    keys: Sequence[int] | None = None,
    normalize: MeanStd | None = None,
    classes: Sequence[str] | None = None,
    **settings: Any,
) -> Result:
    """Adapt a copy of the model's weights to each image by itself, and return its class probabilities before and after every step.

    ``images`` is a file, a PIL image or an array, or several of them. An array is (3, H, W) or (H, W, 3), several of them (N, 3, H, W) or
    (N, H, W, 3); uint8, of any size, or float in [0, 1] of the model's size.
    An image's randomness comes from ``seed`` and its own pixels, so the answer does not depend on what else is adapted, or when;
    ``keys`` (one number per image) replace the pixels. ``settings`` are the method's own: ``adapt(model, image, steps=5, lr=0.3)``.

    ``model`` may be any classifier, a module that maps images to logits, where the method needs no special training. Images are then
    arrays of the size it wants; ``normalize`` is (mean, deviation) of the channels that it expects to be taken off and divided by, for
    pixels in [0, 1], and ``classes`` are names for its logits. The module is left as it is, in every bit.
    """
    subject = _subject(model, images, normalize, classes)
    batch, single = prepare(images, subject.size)
    if not isinstance(method, str | Method):
        raise UsageError(f"A method is a name like 'ttaps:tuned', or a method object, not {type(method).__name__}.")
    if settings and not isinstance(method, str):
        raise UsageError(f"Give settings ({', '.join(settings)}) to the method object itself, not beside it.")
    chosen = parse_method(method, settings) if isinstance(method, str) else method
    ensure_supported(chosen, subject.network, subject.objective)
    names = [content_key(image) for image in batch] if keys is None else list(keys)
    if len(names) != len(batch):
        raise UsageError(f"{len(batch)} images but {len(names)} keys: give one key per image.")
    own_keys = [derive_seed(seed, name) for name in names]
    result = adapt_prepared(subject.network, batch, chosen, own_keys, subject.classes)
    return result[0] if single else result


def adapt_prepared(
    network: nn.Module, batch: Tensor, method: Method, keys: Sequence[int], classes: Sequence[str] = ()
) -> Result:
    """Adapt to images as :func:`prepare` returns them, by a method that the network is known to support."""
    device = next((weight.device for weight in network.parameters()), batch.device)
    trace = method.adapt(network, batch.to(device), keys).cpu()
    labels = tuple(classes) or tuple(map(str, range(trace.shape[-1])))
    if len(labels) != trace.shape[-1]:
        raise UsageError(f"The model gives {trace.shape[-1]} logits, but {len(labels)} classes are named.")
    return Result(trace, labels)


class _Subject(NamedTuple):
    """What is adapted, and what must be known of it."""

    network: nn.Module
    size: int
    objective: str = ""
    classes: tuple[str, ...] = ()


def _subject(
    model: Model | nn.Module, images: Any, normalize: MeanStd | None, classes: Sequence[str] | None
) -> _Subject:
    """Return what is known of a model of ours; wrap a module that is not."""
    if not isinstance(model, Model | nn.Module):
        raise UsageError(f"Give a model that ttaps.load returns, or a module of your own, not {type(model).__name__}.")
    if isinstance(model, Model | Network) and normalize:
        raise UsageError("normalize is for modules of your own: this model normalizes images by itself.")
    if isinstance(model, Model):
        size, known = model.network.config.image_size, tuple(classes or model.classes)
        return _Subject(model.network, size, model.objective, known)
    if isinstance(model, Network):
        return _Subject(model, model.config.image_size, classes=tuple(classes or ()))
    return _wrapped(model, images, normalize or ((0.0, 0.0, 0.0), (1.0, 1.0, 1.0)), tuple(classes or ()))


def _wrapped(module: nn.Module, images: Any, normalize: MeanStd, classes: tuple[str, ...]) -> _Subject:
    """Put normalization in front of another classifier; its images have the size of the arrays that are given."""
    shape: tuple[int, ...] = getattr(images[0] if isinstance(images, list | tuple) and images else images, "shape", ())
    height, width = (shape[-2:] if shape[-3] == 3 else shape[-3:-1]) if len(shape) >= 3 else (0, 1)
    if height != width:
        raise UsageError(
            "Give images for a module of your own as arrays (3, H, H): it does not say which size it wants."
        )
    mean, std = map(tuple, normalize)
    if (len(mean), len(std)) != (3, 3) or min(std) <= 0:
        raise UsageError(f"normalize must be three means and three positive deviations, not {normalize}.")
    front = Normalize(mean, std)
    weights = [weight for weight in module.parameters() if weight.is_floating_point()]
    front = front.to(weights[0]) if weights else front
    return _Subject(nn.Sequential(front, module), int(width), classes=classes)


def content_key(image: Tensor) -> int:
    """Return a key made of an image's pixels; the same for an image as uint8 and as float in [0, 1]."""
    pixels = image if image.dtype == torch.uint8 else (255 * image).round().to(torch.uint8)
    return int.from_bytes(hashlib.blake2b(pixels.numpy().tobytes(), digest_size=8).digest(), "big") >> 1


def prepare(images: ImageLike | Sequence[ImageLike], size: int) -> tuple[Tensor, bool]:
    """Return images on the CPU as (N, 3, size, size), uint8 or all float in [0, 1], and whether a single one was given."""
    many = isinstance(images, list | tuple) or (isinstance(images, np.ndarray | Tensor) and images.ndim == 4)
    group: Any = images if many else [images]
    each = [_one(image, size) for image in group]
    if not each:
        raise UsageError("Give at least one image.")
    if any(image.is_floating_point() for image in each):
        each = [to_float(image) for image in each]
    return torch.stack(each), not many


def _one(image: ImageLike, size: int) -> Tensor:
    if isinstance(image, str | Path):
        return torch.from_numpy(read_image(Path(image), size)[0])
    if isinstance(image, Image.Image):
        return torch.from_numpy(fit(image, size)[0])
    return _array(image, size)


def _array(image: Any, size: int) -> Tensor:
    """Return an array (3, H, W), or as images are read, (H, W), (H, W, 1), (H, W, 3) or (H, W, 4), as (3, size, size); uint8 is resized."""
    if hasattr(image, "__array__") and not isinstance(image, Tensor):
        image = np.asarray(image)
    if not isinstance(image, np.ndarray | Tensor):
        raise UsageError(f"An image is a file, a PIL image or an array, not {type(image).__name__}.")
    if isinstance(image, Tensor):  # numpy has no bfloat16
        image = (image.float() if image.is_floating_point() else image).detach().cpu().numpy()
    pixels = image
    if pixels.ndim == 3 and pixels.shape[0] == 3:
        pixels = pixels.transpose(1, 2, 0)
    if pixels.shape[2:] == (1,):
        pixels = pixels[..., 0]
    readable = pixels.ndim == 2 or (pixels.ndim == 3 and pixels.shape[-1] in (3, 4))
    if readable and pixels.size and pixels.dtype == np.uint8:
        return torch.from_numpy(fit(Image.fromarray(np.ascontiguousarray(pixels)), size)[0])
    if pixels.shape != (size, size, 3):
        raise UsageError(
            f"An image array must be uint8 of shape (3, H, W), (H, W, 3), (H, W, 4) or (H, W), or for this model float of shape "
            f"(3, {size}, {size}) or ({size}, {size}, 3), not {pixels.dtype} of shape {tuple(image.shape)}."
        )
    if not np.issubdtype(pixels.dtype, np.floating) or not ((pixels >= 0) & (pixels <= 1)).all():
        raise UsageError(
            f"An image array must be uint8, or float in [0, 1]; this one is {pixels.dtype} from {pixels.min():.3g} to {pixels.max():.3g}."
        )
    return torch.from_numpy(pixels.transpose(2, 0, 1).astype(np.float32))
