"""The Python interface: ``ttaps.load`` and ``ttaps.adapt``."""

import hashlib
import io
import warnings
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from typing import IO, Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor, nn

from ttaps.adaptation import Method, Result, ensure_supported
from ttaps.adaptation.result import checked, collapse
from ttaps.adaptation.spec import method_spec, parse_method
from ttaps.adaptation.ttaps import shift_of
from ttaps.data.images import fit, image_files, read_image
from ttaps.errors import UsageError
from ttaps.model import Network, to_float
from ttaps.model.checkpoint import Model, load_model, own_model
from ttaps.model.own import AS_IS, Backbone, Classifier, MeanStd, load_state, make_module
from ttaps.model.registry import folder_of, is_reference
from ttaps.rng import derive_seed

ImageLike = str | Path | bytes | IO[bytes] | Image.Image | np.ndarray[Any, Any] | Tensor
"""A file by its path, its bytes or an open file, a PIL image, or an array."""


def load(
    model: str | Path | nn.Module,
    *,
    weights: str | Path | None = None,
    size: int | None = None,
    classes: Sequence[str] = (),
    normalize: MeanStd | None = None,
    trust: bool = False,
    backbone: Backbone | None = None,
    features: int | None = None,
) -> Model:
    """Load a model by name (``cifar10`` is bundled) or from a run folder, or wrap your own classifier.

    Your own is a module, or the factory that makes it: ``load("my_nets.py:make_net", weights="net.safetensors", size=64)``. It maps
    images of ``size`` pixels to logits; ``normalize`` is (mean, standard deviation) per channel, for pixels in [0, 1], and
    ``classes`` names its logits. ``weights`` is a ``state_dict``, saved as safetensors or by torch.save; a pickle that
    holds more is refused unless you ``trust`` it, because loading it runs code from it.
    ``backbone`` is for a run folder that can no longer make its own: a module, a function that makes one, or ``my_nets.py:make_net``.
    """
    if not isinstance(model, nn.Module) and not (isinstance(model, str) and is_reference(model)):
        if weights or size or classes or normalize:
            own = "weights, size, classes and normalize are for your own network"
            raise UsageError(f"{own}; '{model}' has its own.")
        return load_model(folder_of(model), backbone, features)
    module = model if isinstance(model, nn.Module) else make_module(str(model))
    if size is None or size < 1:
        raise UsageError("Give your network's input size, such as size=64 (--size 64).")
    if weights is not None:
        load_state(module, Path(weights), trust)
    name = type(model).__name__ if isinstance(model, nn.Module) else str(model).rpartition(":")[2]
    return own_model(Classifier(module, size, normalize or AS_IS), name, classes)


def adapt(
    model: Model | nn.Module,
    images: ImageLike | Iterable[ImageLike],
    method: str | Method = "ttaps:tuned",
    *,
    seed: int = 0,
    keys: Sequence[int] | None = None,
    size: int | None = None,
    normalize: MeanStd | None = None,
    classes: Sequence[str] = (),
    **settings: Any,
) -> Result:
    """Adapt a copy of the model's weights to each image separately, and return class probabilities before and after every step.

    ``images`` is a file (by path, bytes or open file), a folder of files, a PIL image or an array, or several of them in any iterable.
    An array is (3, H, W) or (H, W, 3), several of them (N, 3, H, W) or (N, H, W, 3); uint8, of any size, or float in [0, 1] of the
    model's size.
    An image's randomness comes from ``seed`` and its own pixels, so the result does not depend on other images or their order;
    ``keys`` (one number per image) replace the pixels. ``settings`` are the method's own: ``adapt(model, image, steps=5, lr=0.3)``.

    ``model`` may be any classifier, a module that maps images to logits, if the method needs no special training; ``size``,
    ``normalize`` and ``classes`` as in :func:`load` (the size is that of the arrays, if not given). It is not changed by a single bit.
    """
    subject = as_model(model, images, size, normalize, classes)
    batch, single = prepare(images, subject.image_size)
    if not isinstance(method, str | Method):
        raise UsageError(f"A method is a name like 'ttaps:tuned', or a method object, not {type(method).__name__}.")
    if settings and not isinstance(method, str):
        raise UsageError(f"Give settings ({', '.join(settings)}) to the method object itself.")
    chosen = parse_method(method, settings, subject.presets) if isinstance(method, str) else method
    ensure_supported(chosen, subject.network, subject.objective)
    names = [content_key(image) for image in batch] if keys is None else list(keys)
    if len(names) != len(batch):
        raise UsageError(f"{len(batch)} images but {len(names)} keys: give one key per image.")
    result = adapt_prepared(subject, batch, chosen, [derive_seed(seed, name) for name in names])
    labels = (probabilities.argmax(-1).tolist() for probabilities in (result.before, result.probabilities))
    if collapsed := collapse(*labels):
        warnings.warn(f"{method_spec(chosen, subject.presets)}: {collapsed}.", stacklevel=2)
    return result[0] if single else result


def adapt_prepared(model: Model, batch: Tensor, method: Method, keys: Sequence[int]) -> Result:
    """Adapt to images as :func:`prepare` returns them, by a method that the network supports."""
    device = next((weight.device for weight in model.network.parameters()), batch.device)
    find = cache(partial(shift_of, model, batch.to(device))) if "shift" in model.presets else None
    traces = checked(method.adapt(model.network, batch.to(device), keys).cpu(), model.name)
    return Result(traces, model.classes, find)


def as_model(
    model: Model | nn.Module, images: Any, size: int | None, normalize: MeanStd | None, classes: Sequence[str]
) -> Model:
    """Return a ttaps model as it is; wrap any other module."""
    if not isinstance(model, Model | nn.Module):
        raise UsageError(f"Give a model that ttaps.load returns, or your own module, not {type(model).__name__}.")
    if isinstance(model, Model | Network | Classifier):
        if normalize or size:
            raise UsageError("size and normalize are for your own modules: this model already has them.")
        if isinstance(model, nn.Module):
            return own_model(model, "model", classes)
        if classes and len(classes) != len(model.classes):
            raise UsageError(f"The model gives {len(model.classes)} logits, but {len(classes)} classes are named.")
        return replace(model, classes=tuple(classes) or model.classes)
    if size is None:
        first = images[0] if isinstance(images, list | tuple) and images else images
        shape: tuple[int, ...] = getattr(first, "shape", ())
        height, width = (shape[-2:] if shape[-3] == 3 else shape[-3:-1]) if len(shape) >= 3 else (0, 1)
        if height != width:
            raise UsageError("Give your module's input size, such as size=64.")
        size = int(width)
    return load(model, size=size, normalize=normalize, classes=classes)


def content_key(image: Tensor) -> int:
    """Return a key derived from an image's pixels; the same for uint8 and for float in [0, 1]."""
    pixels = image if image.dtype == torch.uint8 else (255 * image).round().to(torch.uint8)
    return int.from_bytes(hashlib.blake2b(pixels.numpy().tobytes(), digest_size=8).digest(), "big") >> 1


def prepare(images: ImageLike | Iterable[ImageLike], size: int) -> tuple[Tensor, bool]:
    """Return images on the CPU as (N, 3, size, size), uint8 or all float in [0, 1], and whether it was a single one."""
    if isinstance(images, str | Path) and Path(images).is_dir():
        images = image_files(Path(images))
    single = isinstance(images, str | Path | bytes | Image.Image) or hasattr(images, "read")
    if isinstance(images, np.ndarray | Tensor):
        single = images.ndim != 4
    if not single and not isinstance(images, Iterable):
        raise UsageError(f"An image is a file, its bytes, a PIL image or an array, not {type(images).__name__}.")
    each = [_one(image, size) for image in ([images] if single else images)]  # type: ignore[union-attr]
    if not each:
        raise UsageError("Give at least one image.")
    if any(image.is_floating_point() for image in each):
        each = [to_float(image) for image in each]
    return torch.stack(each), single


def _one(image: Any, size: int) -> Tensor:
    if isinstance(image, str | Path):
        return torch.from_numpy(read_image(Path(image), size)[0])
    if isinstance(image, bytes | bytearray):
        image = io.BytesIO(image)
    if hasattr(image, "read") and not isinstance(image, Image.Image):
        return torch.from_numpy(read_image(image, size)[0])
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
            f"An image array must be uint8 of shape (3, H, W), (H, W, 3), (H, W, 4), (H, W, 1) or (H, W), or for this model float of shape "
            f"(3, {size}, {size}) or ({size}, {size}, 3), not {pixels.dtype} of shape {tuple(image.shape)}."
        )
    if not np.issubdtype(pixels.dtype, np.floating) or not ((pixels >= 0) & (pixels <= 1)).all():
        raise UsageError(
            f"An image array must be uint8, or float in [0, 1]; this one is {pixels.dtype} from {pixels.min():.3g} to {pixels.max():.3g}."
        )
    return torch.from_numpy(pixels.transpose(2, 0, 1).astype(np.float32))
