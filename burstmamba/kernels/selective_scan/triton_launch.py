"""Launches of the Triton scan: which regime, which blocks, which buffers. Nothing here waits for the GPU."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import torch
import triton
from torch import Tensor

from burstmamba.kernels.selective_scan.layout import empty_in_order, flat, strides
from burstmamba.kernels.selective_scan.triton_combine import combine_paths
from burstmamba.kernels.selective_scan.triton_lanes import (
    lanes_backward,
    lanes_carry,
    lanes_forward,
    lanes_gather,
)
from burstmamba.kernels.selective_scan.triton_walk import carry, gather_backward, walk_backward, walk_forward

SHORT = 16
"""Paths of at most so many tokens save no states: the backward walk starts again at their beginning."""


@dataclass(frozen=True)
class Tuning:
    """Form and sizes, which decide speed, never the result."""

    form: str = "tile"
    """How a warp holds a state: "tile", spread over lanes by Triton; or "lanes", a channel a lane, for N up to 16."""
    elements: int = 256
    """State elements (channels x states) of a program's forward walk."""
    backward_elements: int = 256
    unroll: int = 4
    """Tokens between two saved states, and tokens whose states live in registers in the backward walk."""
    short_elements: int = 512
    short_backward_elements: int = 512
    short_unroll: int = 7
    """The same three for short paths, which save nothing."""
    warps: int = 1
    programs: int = 32
    """Programs a multiprocessor should get before a path is cut into chunks."""
    workers: int = 32
    """Programs a multiprocessor gets at most; beyond that a program walks several sequences."""


TUNING = Tuning()


def in_lanes(n: int, tuning: Tuning) -> bool:
    """Whether the kernels of `triton_lanes` walk; more states than 16 do not fit in a lane."""
    return tuning.form == "lanes" and n <= 16


def state_shape(channels: int, n: int, tuning: Tuning) -> tuple[int, int]:
    """Room for the state of one walk, padded as the form's kernels store it."""
    if in_lanes(n, tuning):
        return -(-channels // 32) * 32, n
    return channels, 1 << (n - 1).bit_length()


@cache
def multiprocessors(device: torch.device) -> int:
    """Multiprocessors of a GPU; a few for Triton's interpreter."""
    return torch.cuda.get_device_properties(device).multi_processor_count if device.type == "cuda" else 2


@dataclass(frozen=True)
class Problem:
    """The arguments of a scan in the form kernels take, and its sizes."""

    x: Tensor
    delta: Tensor
    A: Tensor
    B: Tensor
    C: Tensor
    D: Tensor
    bias: Tensor
    weight: Tensor | None
    codes: tuple[int, ...]

    @classmethod
    def of(cls, x, delta, A, B, C, D, bias, weight, codes) -> Problem:
        """Check nothing, copy only what has no usable strides."""
        parameters = (tensor.float().contiguous() for tensor in (A, D, bias))
        A, D, bias = parameters
        weight = None if weight is None else flat(weight, 2)
        return cls(flat(x, 2), flat(delta, 3), A, flat(B, 3), flat(C, 3), D, bias, weight, tuple(codes))

    @property
    def sequences(self) -> int:
        return self.x.shape[0] * self.x.shape[1]

    @property
    def tokens(self) -> int:
        return self.x.shape[2] * self.x.shape[3]

    @property
    def walks(self) -> int:
        return self.sequences * len(self.codes)

    @property
    def weight_or_any(self) -> Tensor:
        """A pointer for kernels, which read no weight where there is none."""
        return self.x if self.weight is None else self.weight

    @property
    def packed_codes(self) -> int:
        return sum(code << (2 * k) for k, code in enumerate(self.codes))

    def input_strides(self) -> tuple[tuple[int, ...], ...]:
        """Of x, delta, B, C and weight."""
        weight = (0, 0, 0) if self.weight is None else strides(self.weight, 2)
        return strides(self.x, 2), strides(self.delta, 3), strides(self.B, 3), strides(self.C, 3), weight

    def in_lanes(self, tuning: Tuning) -> bool:
        """Whether the kernels of `triton_lanes` walk."""
        return in_lanes(self.A.shape[-1], tuning)

    def constants(self, elements: int, tuning: Tuning) -> dict[str, int]:
        """The sizes a kernel is compiled for."""
        n, channels = self.A.shape[-1], self.x.shape[-1]
        states = triton.next_power_of_2(n)
        if self.in_lanes(tuning):
            groups = triton.cdiv(channels, 32)
            block = 32 * max(g for g in range(1, groups + 1) if groups % g == 0 and (g == 1 or 32 * g * n <= elements))
        else:
            block = max(8, min(elements // states, triton.next_power_of_2(channels)))
        return {"N": n, "NP": states, "BLOCK": block, "WIDE": self.wide, "HAS_WEIGHT": self.weight is not None}

    @property
    def wide(self) -> bool:
        """Whether a token's offset within a sequence needs 64 bits."""
        furthest = max(strides[-1] for strides in self.input_strides())
        return self.tokens * max(furthest, self.x.shape[-1]) >= 2**31


def workers_for(problem: Problem, programs: int, tuning: Tuning) -> int:
    """How many programs share the sequences, when one sequence takes so many programs."""
    return min(problem.sequences, triton.cdiv(tuning.workers * multiprocessors(problem.x.device), programs))


def cut_into_chunks(problem: Problem, blocks: int, segments: int, tuning: Tuning) -> tuple[int, int]:
    """(chunks of a path, segments of a chunk): enough chunks that few long paths still fill the GPU."""
    wanted = tuning.programs * multiprocessors(problem.x.device) // (problem.walks * blocks)
    if problem.tokens <= SHORT:
        wanted = 1
    chunk_segments = triton.cdiv(segments, max(1, min(wanted, segments // 4)))
    return triton.cdiv(segments, chunk_segments), chunk_segments


def scan_forward(problem: Problem, save: bool, tuning: Tuning | None = None) -> tuple[Tensor, Tensor]:
    """(output, saved states); the saved states are empty where the backward needs none."""
    tuning = tuning or TUNING
    x, tokens, paths = problem.x, problem.tokens, len(problem.codes)
    channels, short = x.shape[-1], tokens <= SHORT
    unroll = tuning.short_unroll if short else tuning.unroll
    save = save and not short
    constants = problem.constants(tuning.short_elements if short else tuning.elements, tuning)
    blocks = triton.cdiv(channels, constants["BLOCK"])
    segments = triton.cdiv(tokens, unroll)
    chunks, chunk_segments = cut_into_chunks(problem, blocks, segments, tuning)
    fp32 = {"dtype": torch.float32, "device": x.device}
    y = torch.empty(problem.walks, tokens, channels, dtype=x.dtype, device=x.device)
    saved = torch.empty(problem.walks, segments if save else 0, *state_shape(channels, constants["N"], tuning), **fp32)
    starts = ends = durations = y
    if chunks > 1:
        ends = torch.empty(problem.walks, chunks, *state_shape(channels, constants["N"], tuning), **fp32)
        starts = torch.empty_like(ends)
        durations = torch.empty(problem.walks, chunks, ends.shape[2], **fp32)
    programs = blocks * chunks * paths

    kernel = lanes_forward if problem.in_lanes(tuning) else walk_forward

    def walk(summary: bool) -> None:
        kernel[(programs * workers_for(problem, programs, tuning),)](
            x, problem.delta, problem.A, problem.B, problem.C, problem.bias, problem.weight_or_any,
            y, saved, starts, ends, durations, *problem.input_strides(),
            problem.sequences, x.shape[1], paths, problem.packed_codes, chunks, chunk_segments * unroll,
            x.shape[2], x.shape[3], tokens, channels, segments,
            UNROLL=unroll, HAS_START=chunks > 1 and not summary, SAVE=save and not summary, SUMMARY=summary,
            **constants, num_warps=tuning.warps, enable_fp_fusion=True,
        )  # fmt: skip

    if chunks > 1:
        walk(summary=True)
        carry_on(problem, constants, ends, starts, durations, chunks, tuning, backward=False)
    walk(summary=False)
    out = empty_in_order(x)
    combine(problem, y, x, out, None)
    return out, saved


def scan_backward(problem: Problem, saved: Tensor, dy: Tensor, tuning: Tuning | None = None) -> tuple[Tensor, ...]:
    """Gradients of x, delta, A, B, C, of every D (d,), and of delta_bias."""
    tuning = tuning or TUNING
    x, dy, tokens, paths = problem.x, flat(dy, 2), problem.tokens, len(problem.codes)
    channels, short = x.shape[-1], tokens <= SHORT
    unroll = tuning.short_unroll if short else tuning.unroll
    constants = problem.constants(tuning.short_backward_elements if short else tuning.backward_elements, tuning)
    blocks = triton.cdiv(channels, constants["BLOCK"])
    segments = triton.cdiv(tokens, unroll)
    chunks, chunk_segments = cut_into_chunks(problem, blocks, segments, tuning)
    workers = workers_for(problem, blocks * paths * chunks, tuning)
    gather, walk = (lanes_gather, lanes_backward) if problem.in_lanes(tuning) else (gather_backward, walk_backward)
    fp32 = {"dtype": torch.float32, "device": x.device}
    dx_parts = torch.empty(problem.walks, tokens, channels, dtype=x.dtype, device=x.device)
    ddelta = empty_in_order(problem.delta)
    dA = torch.empty(workers * chunks, *problem.A.shape, **fp32)
    dbias = torch.empty(workers * chunks, *problem.bias.shape, **fp32)
    dB = torch.empty(blocks, *problem.B.shape, **fp32)
    dC = torch.empty_like(dB)
    starts = dy
    if chunks > 1:
        ends = torch.empty(problem.walks, chunks, *state_shape(channels, constants["N"], tuning), **fp32)
        starts = torch.empty_like(ends)
        durations = torch.empty(problem.walks, chunks, ends.shape[2], **fp32)
        _, delta_strides, _, C_strides, weight_strides = problem.input_strides()
        gather[(problem.walks * chunks * blocks,)](
            problem.delta, problem.A, problem.C, problem.bias, problem.weight_or_any, dy, ends, durations,
            delta_strides, C_strides, weight_strides, strides(dy, 2),
            x.shape[1], paths, problem.packed_codes, chunks, chunk_segments * unroll,
            x.shape[2], x.shape[3], tokens, channels,
            UNROLL=unroll, **constants, num_warps=tuning.warps, enable_fp_fusion=True,
        )  # fmt: skip
        carry_on(problem, constants, ends, starts, durations, chunks, tuning, backward=True)
    walk[(blocks * paths * chunks * workers,)](
        x, problem.delta, problem.A, problem.B, problem.C, problem.bias, problem.weight_or_any,
        dy, saved, starts, dx_parts, ddelta, dA, dB, dC, dbias,
        *problem.input_strides(), strides(dy, 2), strides(ddelta, 3),
        problem.sequences, x.shape[1], paths, problem.packed_codes, chunks, chunk_segments,
        x.shape[2], x.shape[3], tokens, channels, segments,
        UNROLL=unroll, SAVED=not short, HAS_START=chunks > 1,
        **constants, num_warps=tuning.warps, enable_fp_fusion=True,
    )  # fmt: skip
    dx = empty_in_order(x)
    dD = combine(problem, dx_parts, dy, dx, x)
    return dx, ddelta, dA.sum(0), reduce_blocks(dB, problem.B), reduce_blocks(dC, problem.C), dD, dbias.sum(0)


def carry_on(
    problem: Problem, constants: dict[str, int], ends: Tensor, starts: Tensor, durations: Tensor, chunks: int,
    tuning: Tuning, *, backward: bool,
) -> None:  # fmt: skip
    """Fill `starts` with what each chunk receives from the ones before it (`backward`: after it)."""
    arguments = problem.A, ends, starts, durations, len(problem.codes), chunks, problem.x.shape[-1]
    sizes = {"N": constants["N"], "NP": constants["NP"], "BACKWARD": backward, "num_warps": 1, "enable_fp_fusion": True}
    if problem.in_lanes(tuning):
        lanes_carry[(problem.walks * triton.cdiv(problem.x.shape[-1], 32),)](*arguments, **sizes)
    else:
        blocks = triton.cdiv(problem.x.shape[-1], constants["BLOCK"])
        carry[(problem.walks * blocks,)](*arguments, BLOCK=constants["BLOCK"], **sizes)


def combine(problem: Problem, parts: Tensor, x: Tensor, out: Tensor, other: Tensor | None) -> Tensor:
    """out = Σₖ parts + ΣₖD·x; returns Σ other·x (d,), empty without `other`."""
    channels, rows = x.shape[-1], 16
    token_blocks = triton.cdiv(problem.tokens, rows)
    products = torch.empty(
        problem.sequences * token_blocks if other is not None else 0, channels, dtype=torch.float32, device=x.device
    )
    block = min(128, triton.next_power_of_2(channels))
    combine_paths[(problem.sequences, token_blocks, triton.cdiv(channels, block))](
        parts, x, problem.D, out, x if other is None else other, products,
        strides(x, 2), strides(out, 2), strides(x if other is None else other, 2),
        x.shape[1], problem.tokens, channels,
        PATHS=len(problem.codes), TOKENS_BLOCK=rows, BLOCK=block, PRODUCT=other is not None, num_warps=4,
    )  # fmt: skip
    return products.sum(0)


def reduce_blocks(shares: Tensor, like: Tensor) -> Tensor:
    """Sum the shares of the blocks of channels."""
    return shares.sum(0).to(like.dtype) if shares.shape[0] > 1 else shares[0].to(like.dtype)
