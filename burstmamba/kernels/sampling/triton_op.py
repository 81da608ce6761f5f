"""The Triton sampling as an operator PyTorch knows: autograd and fake tensors."""

from __future__ import annotations

import torch
import triton
from torch import Tensor

from burstmamba.kernels.sampling.triton_kernels import gather_bilinear, scatter_bilinear


def sample_bilinear_triton(features: Tensor, displacement: Tensor) -> Tensor:
    """See `burstmamba.kernels.sampling.sample_bilinear`."""
    return torch.ops.burstmamba.sample_triton(features, displacement.detach())


def channels_next(tensor: Tensor) -> Tensor:
    """The tensor itself where its channels lie next to each other, else a copy in channels-last order."""
    adjacent = tensor.stride(1) == 1 or tensor.shape[1] == 1
    return tensor if adjacent else tensor.contiguous(memory_format=torch.channels_last)


def image_strides(tensor: Tensor) -> tuple[int, int, int]:
    """Of image, row and column."""
    return tensor.stride(0), tensor.stride(2), tensor.stride(3)


def new_channels_last(like: Tensor, height: int, width: int) -> Tensor:
    n, c = like.shape[:2]
    return like.new_empty((n, height, width, c)).permute(0, 3, 1, 2)


def launch(kernel, source: Tensor, displacement: Tensor, target: Tensor, height: int, width: int) -> None:
    """Run gather or scatter over all output pixels; height and width are those of the features."""
    n, _, out_height, out_width = displacement.shape
    channels = source.shape[1]
    block = min(128, triton.next_power_of_2(channels))
    pixels = max(1, 2048 // block)
    total = n * out_height * out_width
    if total == 0 or channels == 0:
        return
    kernel[(triton.cdiv(total, pixels), triton.cdiv(channels, block))](
        source, displacement, target, image_strides(source), displacement.stride(), image_strides(target),
        total, channels, height, width, out_width, out_height * out_width,
        PIXELS=pixels, BLOCK=block, num_warps=4,
    )  # fmt: skip


@torch.library.custom_op("burstmamba::sample_triton", mutates_args=())
def sample_triton(features: Tensor, displacement: Tensor) -> Tensor:
    features = channels_next(features)
    out = new_channels_last(features, *displacement.shape[2:])
    launch(gather_bilinear, features, displacement, out, *features.shape[2:])
    return out


@sample_triton.register_fake
def _(features, displacement):
    return new_channels_last(features, *displacement.shape[2:])


@torch.library.custom_op("burstmamba::sample_triton_backward", mutates_args=())
def sample_triton_backward(gradient: Tensor, displacement: Tensor, height: int, width: int) -> Tensor:
    gradient = channels_next(gradient)
    n, c = gradient.shape[:2]
    out = torch.zeros(n, height, width, c, dtype=torch.float32, device=gradient.device).permute(0, 3, 1, 2)
    launch(scatter_bilinear, gradient, displacement, out, height, width)
    return out if gradient.dtype == torch.float32 else out.to(gradient.dtype)


@sample_triton_backward.register_fake
def _(gradient, displacement, height, width):
    return new_channels_last(gradient, height, width)


def remember(ctx, inputs, output) -> None:
    features, displacement = inputs
    ctx.save_for_backward(displacement)
    ctx.size = features.shape[2:]


def gradients(ctx, gradient: Tensor) -> tuple[Tensor, None]:
    (displacement,) = ctx.saved_tensors
    return torch.ops.burstmamba.sample_triton_backward(gradient, displacement, *ctx.size), None


sample_triton.register_autograd(gradients, setup_context=remember)
