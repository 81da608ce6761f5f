"""The Triton scan as an operator PyTorch knows: autograd, fake tensors, FLOP counting."""

from __future__ import annotations

from typing import Sequence

import torch
from torch import Tensor
from torch.utils.flop_counter import register_flop_formula

from burstmamba.kernels.selective_scan.flops import scan_backward_flops, scan_flops
from burstmamba.kernels.selective_scan.layout import CODES, empty_in_order
from burstmamba.kernels.selective_scan.triton_launch import (
    MOST_STATES,
    Problem,
    saved_dtype,
    saved_shape,
    scan_backward,
    scan_forward,
)


def selective_scan_triton(
    x: Tensor,
    delta: Tensor,
    A: Tensor,
    B: Tensor,
    C: Tensor,
    D: Tensor,
    delta_bias: Tensor,
    paths: tuple[str, ...],
    weight: Tensor | None = None,
) -> Tensor:
    """See `burstmamba.kernels.selective_scan.selective_scan`."""
    save = torch.is_grad_enabled() and any(t.requires_grad for t in (x, delta, A, B, C, D, delta_bias))
    codes = [CODES[path] for path in paths]
    weight = None if weight is None else weight.detach()
    output = None
    for states in (slice(n, n + MOST_STATES) for n in range(0, A.shape[-1], MOST_STATES)):
        inputs = A[..., states], B[..., states], C[..., states], D if output is None else torch.zeros_like(D)
        part = torch.ops.burstmamba.scan_triton(x, delta, *inputs, delta_bias, weight, codes, save)[0]
        output = part if output is None else output + part
    assert output is not None
    return output


@torch.library.custom_op("burstmamba::scan_triton", mutates_args=())
def scan_triton(
    x: Tensor,
    delta: Tensor,
    A: Tensor,
    B: Tensor,
    C: Tensor,
    D: Tensor,
    delta_bias: Tensor,
    weight: Tensor | None,
    codes: Sequence[int],
    save: bool,
) -> tuple[Tensor, Tensor]:
    return scan_forward(Problem.of(x, delta, A, B, C, D, delta_bias, weight, codes), save)


@scan_triton.register_fake
def _(x, delta, A, B, C, D, delta_bias, weight, codes, save):
    walks, tokens = x.shape[0] * x.shape[1] * len(codes), x.shape[2] * x.shape[3]
    shape = saved_shape(walks, tokens, x.shape[-1], A.shape[-1])
    return empty_in_order(x), x.new_empty(shape if save else (walks, 0, *shape[2:]), dtype=saved_dtype(x))


@torch.library.custom_op("burstmamba::scan_triton_backward", mutates_args=())
def scan_triton_backward(
    x: Tensor,
    delta: Tensor,
    A: Tensor,
    B: Tensor,
    C: Tensor,
    D: Tensor,
    delta_bias: Tensor,
    weight: Tensor | None,
    codes: Sequence[int],
    saved: Tensor,
    dy: Tensor,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:
    return scan_backward(Problem.of(x, delta, A, B, C, D, delta_bias, weight, codes), saved, dy)


@scan_triton_backward.register_fake
def _(x, delta, A, B, C, D, delta_bias, weight, codes, saved, dy):
    dB, dC = (t.new_empty(t.shape) for t in (B, C))
    dA, dD, dbias = (t.new_empty(t.shape, dtype=torch.float32) for t in (A, D, delta_bias))
    return empty_in_order(x), empty_in_order(delta), dA, dB, dC, dD, dbias


def remember(ctx, inputs, output) -> None:
    *tensors, ctx.codes, _ = inputs
    ctx.save_for_backward(*tensors, output[1])
    ctx.set_materialize_grads(False)


def gradients(ctx, dy: Tensor, _) -> tuple[Tensor | None, ...]:
    x, delta, A, B, C, D, delta_bias, weight, saved = ctx.saved_tensors
    dx, ddelta, dA, dB, dC, dD, dbias = torch.ops.burstmamba.scan_triton_backward(
        x, delta, A, B, C, D, delta_bias, weight, ctx.codes, saved, dy
    )
    return dx, ddelta, dA.to(A.dtype), dB, dC, dD.to(D.dtype), dbias.to(delta_bias.dtype), None, None, None


scan_triton.register_autograd(gradients, setup_context=remember)
register_flop_formula(torch.ops.burstmamba.scan_triton)(scan_flops)
register_flop_formula(torch.ops.burstmamba.scan_triton_backward)(scan_backward_flops)
