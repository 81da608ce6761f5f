"""Launches of the Triton scan: which regime, which blocks, which buffers. Nothing here waits for the GPU."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from math import gcd

import torch
import triton
from torch import Tensor

from burstmamba.kernels.selective_scan.layout import empty_in_order, flat, strides
from burstmamba.kernels.selective_scan.triton_combine import combine_paths, sum_parameters, sum_shares
from burstmamba.kernels.selective_scan.triton_compile import launch
from burstmamba.kernels.selective_scan.triton_walk import carry, walk_forward
from burstmamba.kernels.selective_scan.triton_walk_back import gather_backward, walk_backward

SHORT = 16
"""Paths of at most so many tokens are never cut; a program walks those of many pixels."""
LONG = 16_384
"""Paths of at least so many tokens, of which nothing is saved, are walked by few warps with all the registers."""
MOST_STATES = 16
"""States of a channel that fit in a lane's registers."""


@dataclass(frozen=True)
class Tuning:
    """Sizes, which decide speed, never the result."""

    elements: int = 768
    """State elements (channels × states) of a warp's forward walk, as far as whole groups of 32 channels go."""
    backward_elements: int = 768
    registers: int = 64
    """States a lane of the backward walk recomputes and keeps: they decide how many tokens lie between saved states."""
    short_elements: int = 768
    short_backward_elements: int = 512
    short_registers: int = 80
    """The same three for short paths."""
    programs: int = 14
    """Programs a multiprocessor should get before a path is cut into chunks."""
    backward_programs: int = 8
    long_elements: int = 1024
    long_unroll: int = 6
    long_programs: int = 8
    """Of a forward walk over a long path that saves nothing: as many programs as are on a multiprocessor at once."""
    workers: int = 32
    """Programs a multiprocessor gets at most; beyond that a program walks several sequences."""


TUNING = Tuning()


def block_of(channels: int, n: int, elements: int) -> int:
    """Channels a warp walks: as many groups of 32 as `elements` allow, dividing all groups evenly."""
    groups = -(-channels // 32)
    return 32 * max(g for g in range(1, groups + 1) if groups % g == 0 and (g == 1 or 32 * g * n <= elements))


def unroll_of(tokens: int, channels: int, n: int, tuning: Tuning | None = None) -> int:
    """Tokens of a segment: between two saved states, and kept in registers by the backward walk."""
    tuning = tuning or TUNING
    short = tokens <= SHORT
    block = block_of(channels, n, tuning.short_backward_elements if short else tuning.backward_elements)
    kept = tuning.short_registers if short else tuning.registers
    return min(8, max(1, kept // (n * block // 32)))


def saved_shape(walks: int, tokens: int, channels: int, n: int) -> tuple[int, int, int, int]:
    """Of the states that a forward walk saves: before every segment but the first, channels in groups of 32."""
    return walks, -(-tokens // unroll_of(tokens, channels, n)) - 1, *state_shape(channels, n)


def saved_dtype(x: Tensor) -> torch.dtype:
    """Of the states that a forward walk saves: no finer than the tokens, for half of what training writes is these."""
    return torch.bfloat16 if x.dtype == torch.bfloat16 else torch.float32


def state_shape(channels: int, n: int) -> tuple[int, int]:
    """Room for the state of one walk, channels in groups of 32."""
    return -(-channels // 32) * 32, triton.next_power_of_2(n)


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

    def constants(self, elements: int) -> dict[str, int]:
        """The sizes a kernel is compiled for."""
        n = self.A.shape[-1]
        constants = {"N": n, "NP": triton.next_power_of_2(n), "BLOCK": block_of(self.x.shape[-1], n, elements)}
        return constants | {"WIDE": self.wide, "HAS_WEIGHT": self.weight is not None}

    @property
    def wide(self) -> bool:
        """Whether a token's offset within a sequence needs 64 bits."""
        furthest = max(strides[-1] for strides in self.input_strides())
        return self.tokens * max(furthest, self.x.shape[-1]) >= 2**31


def workers_for(problem: Problem, programs: int, tuning: Tuning) -> int:
    """How many programs share the sequences, when one sequence takes so many programs."""
    return min(problem.sequences, triton.cdiv(tuning.workers * multiprocessors(problem.x.device), programs))


def cut_into_chunks(problem: Problem, blocks: int, segments: int, programs: int) -> tuple[int, int]:
    """(chunks of a path, segments of a chunk): enough chunks that few long paths still fill the GPU."""
    wanted = programs * multiprocessors(problem.x.device) // (problem.walks * blocks)
    if problem.tokens <= SHORT:
        wanted = 1
    chunk_segments = triton.cdiv(segments, max(1, min(wanted, segments // 4)))
    return triton.cdiv(segments, chunk_segments), chunk_segments


def scan_forward(problem: Problem, save: bool, tuning: Tuning | None = None) -> tuple[Tensor, Tensor]:
    """(output, saved states); without `save` there are none."""
    tuning = tuning or TUNING
    x, tokens, paths = problem.x, problem.tokens, len(problem.codes)
    channels, short = x.shape[-1], tokens <= SHORT
    unroll = unroll_of(tokens, channels, problem.A.shape[-1], tuning)
    elements, wanted = tuning.short_elements if short else tuning.elements, tuning.programs
    if tokens >= LONG and not save:
        unroll, elements, wanted = tuning.long_unroll, tuning.long_elements, tuning.long_programs
    constants = problem.constants(elements)
    blocks = triton.cdiv(channels, constants["BLOCK"])
    segments = triton.cdiv(tokens, unroll)
    chunks, chunk_segments = cut_into_chunks(problem, blocks, segments, wanted)
    fp32 = {"dtype": torch.float32, "device": x.device}
    y = torch.empty(problem.walks, tokens, channels, dtype=x.dtype, device=x.device)
    shape = problem.walks, segments - 1 if save else 0, *state_shape(channels, constants["N"])
    saved = torch.empty(shape, dtype=saved_dtype(x), device=x.device)
    starts = ends = durations = y
    if chunks > 1:
        ends = torch.empty(problem.walks, chunks, *state_shape(channels, constants["N"]), **fp32)
        starts = torch.empty_like(ends)
        durations = torch.empty(problem.walks, chunks, ends.shape[2], **fp32)
    programs = blocks * chunks * paths

    def walk(summary: bool) -> None:
        launch(
            walk_forward, programs * workers_for(problem, programs, tuning),
            x, problem.delta, problem.A, problem.B, problem.C, problem.bias, problem.weight_or_any,
            y, saved, starts, ends, durations, *problem.input_strides(),
            problem.sequences, x.shape[1], paths, problem.packed_codes, chunks, chunk_segments * unroll,
            x.shape[2], x.shape[3], tokens, channels, segments,
            UNROLL=unroll, HAS_START=chunks > 1 and not summary, SAVE=save and not summary, SUMMARY=summary,
            **constants,
        )  # fmt: skip

    if chunks > 1:
        walk(summary=True)
        carry_on(problem, constants, ends, starts, durations, chunks, backward=False)
    walk(summary=False)
    out = empty_in_order(x)
    combine(problem, y, x, out)
    return out, saved


def scan_backward(problem: Problem, saved: Tensor, dy: Tensor, tuning: Tuning | None = None) -> tuple[Tensor, ...]:
    """Gradients of x, delta, A, B, C, D and delta_bias."""
    tuning = tuning or TUNING
    x, dy, tokens, paths = problem.x, flat(dy, 2), problem.tokens, len(problem.codes)
    channels, short = x.shape[-1], tokens <= SHORT
    unroll = unroll_of(tokens, channels, problem.A.shape[-1], tuning)
    constants = problem.constants(tuning.short_backward_elements if short else tuning.backward_elements)
    blocks = triton.cdiv(channels, constants["BLOCK"])
    segments = triton.cdiv(tokens, unroll)
    chunks, chunk_segments = cut_into_chunks(problem, blocks, segments, tuning.backward_programs)
    workers = workers_for(problem, blocks * paths * chunks, tuning)
    fp32 = {"dtype": torch.float32, "device": x.device}
    dx_parts = torch.empty(problem.walks, tokens, channels, dtype=x.dtype, device=x.device)
    ddelta = empty_in_order(problem.delta)
    shares = torch.empty(workers * chunks, paths, channels, constants["N"] + 2, **fp32)
    dBC = torch.empty(blocks, problem.walks, tokens, 2 * constants["NP"], **fp32)
    starts = dy
    if chunks > 1:
        ends = torch.empty(problem.walks, chunks, *state_shape(channels, constants["N"]), **fp32)
        starts = torch.empty_like(ends)
        durations = torch.empty(problem.walks, chunks, ends.shape[2], **fp32)
        _, delta_strides, _, C_strides, weight_strides = problem.input_strides()
        launch(
            gather_backward, problem.walks * chunks * blocks,
            problem.delta, problem.A, problem.C, problem.bias, problem.weight_or_any, dy, ends, durations,
            delta_strides, C_strides, weight_strides, strides(dy, 2),
            x.shape[1], paths, problem.packed_codes, chunks, chunk_segments * unroll,
            x.shape[2], x.shape[3], tokens, channels,
            UNROLL=unroll, **constants,
        )  # fmt: skip
        carry_on(problem, constants, ends, starts, durations, chunks, backward=True)
    launch(
        walk_backward, blocks * paths * chunks * workers,
        x, problem.delta, problem.A, problem.B, problem.C, problem.bias, problem.weight_or_any,
        dy, saved, starts, dx_parts, ddelta, dBC, shares,
        *problem.input_strides(), strides(dy, 2), strides(ddelta, 3),
        problem.sequences, x.shape[1], paths, problem.packed_codes, chunks, chunk_segments,
        x.shape[2], x.shape[3], tokens, channels, segments,
        UNROLL=unroll, HAS_START=chunks > 1, **constants,
    )  # fmt: skip
    dx = empty_in_order(x)
    combine(problem, dx_parts, dy, dx)
    dB, dC = (torch.empty(tensor.shape, dtype=tensor.dtype, device=x.device) for tensor in (problem.B, problem.C))
    rows = problem.walks * tokens
    sum_shares[(triton.cdiv(rows, 64),)](
        dBC, dB, dC, rows, blocks, N=constants["N"], NP=constants["NP"], ROWS_BLOCK=64, num_warps=4
    )
    dA, dD, dbias = (torch.empty(tensor.shape, **fp32) for tensor in (problem.A, problem.D, problem.bias))
    columns = shares[0].numel()
    sum_parameters[(triton.cdiv(columns, 32),)](
        shares, dA, dD, dbias, shares.shape[0], columns, N=constants["N"], ROWS_BLOCK=64, BLOCK=32, num_warps=4
    )
    return dx, ddelta, dA, dB, dC, dD, dbias


def carry_on(
    problem: Problem, constants: dict[str, int], ends: Tensor, starts: Tensor, durations: Tensor, chunks: int, *,
    backward: bool,
) -> None:  # fmt: skip
    """Fill `starts` with what each chunk receives from the ones before it (`backward`: after it)."""
    channels = problem.x.shape[-1]
    launch(
        carry, problem.walks * triton.cdiv(channels, 32),
        problem.A, ends, starts, durations, len(problem.codes), chunks, channels,
        N=constants["N"], NP=constants["NP"], BACKWARD=backward,
    )  # fmt: skip


def combine(problem: Problem, parts: Tensor, x: Tensor, out: Tensor) -> None:
    """out = Σₖ parts + ΣₖD·x."""
    channels, rows = x.shape[-1], 16
    block = min(128, triton.next_power_of_2(channels))
    unit = gcd(8, channels, *strides(x, 2), *strides(out, 2))
    x_strides, out_strides = (tuple(stride // unit for stride in strides(tensor, 2)) for tensor in (x, out))
    combine_paths[(problem.sequences, triton.cdiv(problem.tokens, rows), triton.cdiv(channels, block))](
        parts, x, problem.D, out, x_strides, out_strides, x.shape[1], problem.tokens, channels // unit,
        UNIT=unit, PATHS=len(problem.codes), TOKENS_BLOCK=rows, BLOCK=block, num_warps=4,
    )  # fmt: skip
