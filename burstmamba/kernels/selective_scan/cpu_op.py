"""The C++ scan as an operator PyTorch knows: autograd, fake tensors, FLOP counting."""

from __future__ import annotations

import ctypes
from typing import Sequence

import torch
from torch import Tensor
from torch.utils.flop_counter import register_flop_formula

from burstmamba.kernels.cpu.library import ScanProblem, call
from burstmamba.kernels.selective_scan.flops import scan_backward_flops, scan_cpu_flops
from burstmamba.kernels.selective_scan.layout import CODES, empty_in_order, flat, strides


def selective_scan_cpu(
    x: Tensor,
    delta: Tensor,
    A: Tensor,
    B: Tensor,
    C: Tensor,
    D: Tensor,
    delta_bias: Tensor,
    paths: tuple[str, ...],
    weight: Tensor | None = None,
    delta_weight: Tensor | None = None,
) -> Tensor:
    """See `burstmamba.kernels.selective_scan.selective_scan`; half-precision inputs are scanned as float32."""
    codes = [CODES[path] for path in paths]
    floats = (tensor.float() for tensor in (x, delta, A, B, C, D, delta_bias))
    weight = None if weight is None else weight.detach().float()
    delta_weight = None if delta_weight is None else delta_weight.float()
    return torch.ops.burstmamba.scan_cpu(*floats, weight, codes, delta_weight).to(x.dtype)


def scan_cpu(
    x: Tensor,
    delta: Tensor,
    A: Tensor,
    B: Tensor,
    C: Tensor,
    D: Tensor,
    delta_bias: Tensor,
    weight: Tensor | None,
    codes: Sequence[int],
    delta_weight: Tensor | None = None,
) -> Tensor:
    """The scan itself, for float32 tensors on the CPU; with `delta_weight` Δ's projection never lies in memory."""
    arguments, alive = prepare(x, delta, A, B, C, D, delta_bias, weight, codes)
    if delta_weight is not None:
        by_rank = delta_weight.transpose(1, 2).contiguous()
        arguments.rank = by_rank.shape[1]
        arguments.point("delta_weight", by_rank)
        alive.append(by_rank)
    out = empty_in_order(x)
    arguments.point("out", out, strides(out, 2))
    if out.numel():
        call("scan_forward", arguments)
    del alive
    return out


# Not by `custom_op`, whose first call imports the compiler: two seconds that somebody restoring a picture would wait.
OPERATORS = torch.library.Library("burstmamba", "FRAGMENT")
OPERATORS.define("scan_cpu" + torch.library.infer_schema(scan_cpu, mutates_args=()))
OPERATORS.impl("scan_cpu", scan_cpu, "CPU")


@torch.library.register_fake("burstmamba::scan_cpu")
def _(x, *_):
    return empty_in_order(x)


@torch.library.custom_op("burstmamba::scan_cpu_backward", mutates_args=(), device_types="cpu")
def scan_cpu_backward(
    x: Tensor,
    delta: Tensor,
    A: Tensor,
    B: Tensor,
    C: Tensor,
    D: Tensor,
    delta_bias: Tensor,
    weight: Tensor | None,
    codes: Sequence[int],
    dy: Tensor,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:
    arguments, alive = prepare(x, delta, A, B, C, D, delta_bias, weight, codes)
    dy = flat(dy, 2)
    arguments.point("dy", dy, strides(dy, 2))
    dx, ddelta = empty_in_order(x), empty_in_order(delta)
    arguments.point("dx", dx, strides(dx, 2))
    arguments.point("ddelta", ddelta, strides(ddelta, 3))
    others = {"dA": A, "dB": B, "dC": C, "dD": D[0], "dbias": delta_bias}
    others = {name: like.new_empty(like.shape) for name, like in others.items()}
    for name, tensor in others.items():
        arguments.point(name, tensor)
    call("scan_backward", arguments)
    del alive
    dA, dB, dC, dD, dbias = others.values()
    return dx, ddelta, dA, dB, dC, dD, dbias


@scan_cpu_backward.register_fake
def _(x, delta, A, B, C, D, delta_bias, weight, codes, dy):
    return empty_in_order(x), empty_in_order(delta), *(t.new_empty(t.shape) for t in (A, B, C, D[0], delta_bias))


def prepare(x, delta, A, B, C, D, delta_bias, weight, codes) -> tuple[ScanProblem, list[Tensor]]:
    """The C structure, and the tensors that must live as long as it is used."""
    b, p, rows, columns, d = x.shape
    arguments = ScanProblem(b, p, len(codes), rows, columns, d, A.shape[-1], codes=(ctypes.c_int64 * 8)(*codes))
    tensors = {"x": flat(x, 2), "delta": flat(delta, 3), "B": flat(B, 3), "C": flat(C, 3)}
    if weight is not None:
        tensors["weight"] = flat(weight, 2)
    for name, tensor in tensors.items():
        arguments.point(name, tensor, strides(tensor, 2 if name in ("x", "weight") else 3))
    parameters = {"A": A.contiguous(), "D": D.contiguous(), "bias": delta_bias.contiguous()}
    for name, tensor in parameters.items():
        arguments.point(name, tensor)
    return arguments, [*tensors.values(), *parameters.values()]


def remember(ctx, inputs, output) -> None:
    *tensors, ctx.codes, delta_weight = inputs
    assert delta_weight is None, "Δ's projection inside the scan has no gradients"
    ctx.save_for_backward(*tensors)


def gradients(ctx, dy: Tensor) -> tuple[Tensor | None, ...]:
    tensors = ctx.saved_tensors
    dx, ddelta, dA, dB, dC, dD, dbias = torch.ops.burstmamba.scan_cpu_backward(*tensors, ctx.codes, dy)
    dD = dD.expand(tensors[5].shape)  # y holds D·x once a path, so every path's D has the same gradient
    return dx, ddelta, dA, dB, dC, dD, dbias, None, None, None


torch.library.register_autograd("burstmamba::scan_cpu", gradients, setup_context=remember)
register_flop_formula(torch.ops.burstmamba.scan_cpu)(scan_cpu_flops)
register_flop_formula(torch.ops.burstmamba.scan_cpu_backward)(scan_backward_flops)
