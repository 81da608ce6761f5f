"""Products whose channels are filled up to multiples of 8, as a GPU's matrix units want them."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class PaddedConvolution(nn.Conv2d):
    """A 3×3 convolution whose channels are filled up to multiples of 8 on a GPU, where its result may have more, of 0.

    cuDNN wants such multiples, and in kernels of its own makes copies that have them; a compiler fills up for nothing,
    in whatever kernel writes the input.
    """

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__(inputs, outputs, 3, padding=1)

    def forward(self, image: Tensor) -> Tensor:
        """(b, c, h, w) → (b, outputs or more, h, w); so may be the input's channels."""
        weight, bias = self.weight, self.bias
        assert bias is not None
        if filled_up(image):
            weight, bias = fill_up(weight), fill_up(bias)
        image = widen(image.permute(0, 2, 3, 1), weight.shape[1]).permute(0, 3, 1, 2)
        return F.conv2d(image, weight, bias, padding=1)


def project(tokens: Tensor, weight: Tensor, outputs: int) -> Tensor:
    """tokens · weightᵀ, its first channels; filled up likewise, so that matrix units read whole vectors."""
    if filled_up(tokens):
        weight = fill_up(weight)
    return F.linear(widen(tokens, weight.shape[1]), weight)[..., :outputs]


def filled_up(tensor: Tensor) -> bool:
    """Whether products of this tensor have their channels filled up."""
    return tensor.is_cuda and torch.compiler.is_compiling()


def widen(tokens: Tensor, channels: int) -> Tensor:
    """With zeros after the last channel, where there are fewer."""
    missing = channels - tokens.shape[-1]
    return F.pad(tokens, (0, missing)) if missing > 0 else tokens


def fill_up(weight: Tensor) -> Tensor:
    """A bias (o,), matrix (o, i) or convolution (o, i, h, w), with zeros up to multiples of 8 in o and i."""
    outputs, inputs = -weight.shape[0] % 8, 0 if weight.ndim == 1 else -weight.shape[1] % 8
    if not outputs and not inputs:
        return weight
    if weight.ndim == 1:
        return F.pad(weight, (0, outputs))
    if weight.ndim == 2:
        return F.pad(weight, (0, inputs, 0, outputs))
    return F.pad(weight.permute(0, 2, 3, 1), (0, inputs, 0, 0, 0, 0, 0, outputs)).permute(0, 3, 1, 2)
