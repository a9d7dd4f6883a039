"""Operations on a batch of views: resized crop and flip, color jitter, grayscale, blur.
Colors change on planes (n, 3, pixels): red, green and blue of n views, in [0, 1]."""

import math

import torch
from torch import Tensor
from torch.nn import functional as F

TRIES = 10  # torchvision's RandomResizedCrop gives up after ten boxes that do not fit
BRIGHTNESS, CONTRAST, SATURATION, HUE = range(4)
LUMA = torch.tensor([0.299, 0.587, 0.114])  # of red, green and blue: ITU-R 601, Pillow's "L"
RUN = 128  # views whose hue is shifted at a time: 0.7 of the time that 500 take, which need seven times 2 MB


def sample_boxes(draws: Tensor, size: int, scale: tuple[float, float], ratio: tuple[float, float]) -> Tensor:
    """Turn uniform draws (n, 2 * TRIES + 2) into boxes (top, left, height, width) inside a square of ``size`` pixels.
    The area is uniform in ``scale``, the aspect ratio log-uniform in ``ratio``; the first of ten tries that fits is taken, else the
    largest centered box whose ratio is allowed."""
    areas, ratios, corner = draws.split_with_sizes([TRIES, TRIES, 2], dim=1)
    low, high = torch.tensor([scale, [math.log(end) for end in ratio]], dtype=draws.dtype).T
    areas, ratios = size**2 * torch.lerp(low[0], high[0], areas), torch.lerp(low[1], high[1], ratios).exp()
    sides = torch.stack([(areas / ratios).sqrt().round(), (areas * ratios).sqrt().round()], dim=2)  # (n, TRIES, 2)
    fits = ((sides > 0) & (sides <= size)).all(2)
    first, found = fits.to(torch.uint8).argmax(1), fits.any(1, keepdim=True)
    largest = torch.tensor([max(1, round(size / max(1.0, ratio[0]))), max(1, round(size * min(1.0, ratio[1])))])
    sides = torch.where(found, sides[torch.arange(len(sides)), first], largest)
    room = size - sides
    start = torch.minimum((corner * (room + 1)).floor(), room)  # the minimum: a draw of 1 - 2^-53 rounds up
    return torch.cat([torch.where(found, start, (room / 2).floor()), sides], dim=1).long()


def crop(images: Tensor, index: Tensor | None, box: Tensor, flip: Tensor, size: int) -> Tensor:
    """Crop, resize and mirror ``images[index]``, or the only image, to (n, 3, size, size): columns first, then rows.
    Views of the same columns of an image share their strip: 640 views of one image of 32 pixels have about 300."""
    source, (top, left, height, width) = images.shape[-1], box.T
    columns = (((0 if index is None else index) * source + left) * (source + 1) + width) * 2 + flip
    distinct, strip = columns.unique(return_inverse=True)
    view = torch.empty_like(distinct).scatter_(0, strip, torch.arange(len(strip), device=strip.device))  # one of each
    sources = images if index is None else images.index_select(0, index[view])
    pixels, weights = resize_taps(left[view], width[view], flip[view], source, size)
    matrices = images.new_zeros(len(view), source, size).scatter_add_(1, pixels, weights.to(images.dtype))
    strips = torch.matmul(sources.flatten(1, 2), matrices)  # (strips, 3 * source, size)
    # Rows are sums of rows of a table: a fifth of the time of matrix products, whose weights would be zeros but for two in a row.
    pixels, weights = resize_taps(top, height, torch.zeros_like(flip), source, size)
    planes = strip[:, None] * 3 + torch.arange(3, device=strip.device)
    rows = planes[:, :, None, None] * source + pixels.mT.contiguous()[:, None]  # (n, 3, size, taps)
    weights = weights.mT.to(images.dtype).contiguous()[:, None].expand(rows.shape).flatten(0, 2)
    made = F.embedding_bag(rows.flatten(0, 2), strips.flatten(0, 1), mode="sum", per_sample_weights=weights)
    return made.view(len(strip), 3, size, size)


def resize_taps(start: Tensor, length: Tensor, mirror: Tensor, source: int, size: int) -> tuple[Tensor, Tensor]:
    """Return which of ``source`` pixels make ``size`` pixels of the ``length`` from ``start`` on, and their weights, (n, taps, size) each.
    Bilinear; when reducing, the triangle is widened by the scale, which is the antialiasing of Pillow. Pixels outside the box have no
    weight: the crop comes first, as in torchvision."""
    start, length, mirror = (tensor[:, None, None].float() for tensor in (start, length, mirror))
    outputs = (torch.arange(size, device=start.device) + 0.5) / size
    center = (mirror - outputs).abs_().mul_(length).add_(start - 0.5)
    reach = (length / size).clamp_min_(1)
    taps = torch.arange(math.ceil(2 * max(1, source / size)), device=start.device)[:, None]
    pixels = (center - reach).floor_().add_(1) + taps
    weights = (pixels - center).abs_().div_(reach).neg_().add_(1).clamp_min_(0)
    weights *= (pixels >= start) & (pixels < start + length)
    weights /= weights.sum(1, keepdim=True)
    return pixels.clamp_(0, source - 1).long(), weights


def luminance(planes: Tensor) -> Tensor:
    """Return the gray images (n, 1, pixels) of color planes (n, 3, pixels)."""
    return torch.bmm(LUMA.to(planes).expand(len(planes), 1, 3), planes)


def jitter(planes: Tensor, factors: Tensor, order: Tensor, starts: list[int]) -> None:
    """Jitter the views in place, each in its own order.
    Views are sorted by kind, and kind k begins at ``starts[k]``: kinds 0 and 9 are left as they are, and kinds k and 9 - k shift their
    hue at place k - 1. So all hues are shifted together, and at every place those that blend before that, or after it, are runs of
    views: nothing is gathered or copied."""
    factor = factors.gather(1, order)
    others = torch.stack([order == SATURATION, order == CONTRAST]) * (1 - factor)
    # of a view, its gray image and its mean gray, (3, n, 4, 1, 1)
    shares = torch.cat([factor[None], others])[..., None, None]

    def blend(start: int, stop: int, place: int) -> None:
        """Blend with black (brightness), the mean gray, which is not rounded as Pillow's (contrast), or gray (saturation)."""
        if start < stop:
            run, (own, gray, mean) = planes[start:stop], shares[:, start:stop, place]
            grays = luminance(run)
            level = grays.mean(2, keepdim=True) * mean
            torch.addcmul(grays.mul_(gray).add_(level), run, own, out=run).clamp_(0, 1)

    for place in range(3):
        blend(starts[place + 2], starts[8 - place], place)
    for first in range(starts[1], starts[9], RUN):
        run = slice(first, min(first + RUN, starts[9]))
        shift_hue(planes[run], factors[run, HUE])
    for place in range(1, 4):
        blend(starts[1], starts[place + 1], place)
        blend(starts[9 - place], starts[9], place)


def shift_hue(planes: Tensor, turns: Tensor) -> None:
    """Shift the hue in place by ``turns`` (n,) of the color circle, at the same value and saturation (HSV).
    The distance of a hue from red, in sixths of a turn, is 1 + (green + blue - red - least) / chroma; it is on green's side where
    green > blue. A channel is a trapezoid in the hue: red is greatest around 0, green least around -1/6 and blue least around 1/6.
    No masks: torch.where takes four times as long as a subtraction."""
    red, green, blue = planes.unbind(1)
    least, most = planes.amin(1), planes.amax(1)
    chroma = most - least
    hue = (green + blue).sub_(red).sub_(least).add_(chroma).copysign_(green - blue)
    hue.div_((6 * chroma).add_(1e-30)).add_(turns[:, None])  # 0 / 1e-30: gray has no hue
    hue.sub_(hue.round())
    top, bottom = least.add_(chroma, alpha=2), most.sub_(chroma, alpha=2)
    torch.addcmul(top, chroma, hue.abs().clamp_(1 / 6, 1 / 3), value=-6, out=red)
    torch.addcmul(bottom, chroma, (hue + 1 / 6).abs_().clamp_(1 / 6, 1 / 3), value=6, out=green)
    torch.addcmul(bottom, chroma, hue.sub_(1 / 6).abs_().clamp_(1 / 6, 1 / 3), value=6, out=blue)


def blur(views: Tensor, sigma: Tensor, kernel: int) -> None:
    """Blur views (n, 3, size, size) in place, each by its own Gaussian, reflecting at the border without repeating the edge pixel.
    Down, then across. Pairs of pixels are mixed in from the nearest to the farthest, each with its share of the weight so far."""
    distances = torch.arange(1, kernel // 2 + 1, device=sigma.device)
    weights = 2 * torch.exp(-0.5 * (distances / sigma[:, None]) ** 2)  # of a pair; the pixel itself has 1
    shares = (weights / (1 + weights.cumsum(1))).to(views.dtype)[..., None, None, None]
    for axis in (2, 3):
        pairs = [mean_of_pair(views, distance, axis) for distance in range(1, kernel // 2 + 1)]
        for pair, share in zip(pairs, shares.unbind(1), strict=True):
            views.lerp_(pair, share)


def mean_of_pair(views: Tensor, distance: int, axis: int) -> Tensor:
    """Return for every pixel the mean of the two at ``distance`` on both sides along ``axis``.
    All pixels as one line first, then those again whose pair the border reflects: faster than a padded copy."""
    mean, last = torch.empty_like(views), views.shape[axis] - 1
    line, step = views.view(-1), distance * views.stride(axis)
    torch.lerp(line[: -2 * step], line[2 * step :], 0.5, out=mean.view(-1)[step:-step])
    for place in (*range(distance), *range(last - distance + 1, last + 1)):
        before, after = abs(place - distance), last - abs(last - place - distance)
        torch.lerp(views.select(axis, before), views.select(axis, after), 0.5, out=mean.select(axis, place))
    return mean
