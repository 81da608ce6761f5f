"""Pieces of the Triton scan in lanes: a channel's states are registers of one lane.

A warp walks 32·GROUPS channels. A state is a tuple of GROUPS·N tensors of 32 channels, group after group.
"""

from __future__ import annotations

import triton
import triton.language as tl

from burstmamba.kernels.selective_scan.triton_steps import LOG2E

LANES = tl.constexpr(32)


@triton.jit
def zeros(COUNT: tl.constexpr):
    """COUNT tensors of 32 zeros."""
    values = ()
    for _ in tl.static_range(COUNT):
        values = values + (tl.zeros((LANES,), dtype=tl.float32),)
    return values


@triton.jit
def load_states(pointer, lane, COUNT: tl.constexpr):
    """A state stored group after group as (n, 32): constant offsets, and no mask."""
    values = ()
    for i in tl.static_range(COUNT):
        values = values + (tl.load(pointer + lane + i * LANES),)
    return values


@triton.jit
def store_states(pointer, values, lane, COUNT: tl.constexpr):
    """The reverse of `load_states`."""
    for i in tl.static_range(COUNT):
        tl.store(pointer + lane + i * LANES, values[i])


@triton.jit
def load_decay(A, d, channels, N: tl.constexpr, GROUPS: tl.constexpr):
    """A (d, n) times log₂e."""
    values = ()
    for i in tl.static_range(N * GROUPS):
        c = d + LANES * (i // N)
        values = values + (tl.load(A + (c * N + i % N), mask=c < channels, other=0.0) * LOG2E,)
    return values


@triton.jit
def load_channels(pointer, d, channels, GROUPS: tl.constexpr):
    """One number a channel, by group."""
    values = ()
    for g in tl.static_range(GROUPS):
        c = d + LANES * g
        values = values + (tl.load(pointer + c, mask=c < channels, other=0.0).to(tl.float32),)
    return values


@triton.jit
def load_numbers(pointer, lane, N: tl.constexpr):
    """B or C of a token for all lanes: one load, then an exchange for each, which is less than N loads and casts."""
    row = tl.load(pointer + lane, mask=lane < N, other=0.0).to(tl.float32)
    values = ()
    for n in tl.static_range(N):
        values = values + (tl.gather(row, lane * 0 + n, 0),)
    return values


@triton.jit
def step_and_slope(v):
    """Softplus and its derivative, to 3e-7 of their values and without a logarithm, which takes 30 instructions.

    With z = exp(−|v|), softplus is max(v, 0) + log(1 + z) and its derivative exp(min(v, 0) − log(1 + z)).
    log(1 + z) / z is interpolated in the nine Chebyshev points of [0, 1], where it is within 4e-8.
    """
    z = tl.exp2(tl.abs(v) * -LOG2E)
    ratio = 0.0051261021 * z - 0.029074065
    ratio = ratio * z + 0.077516087
    ratio = ratio * z - 0.136022476
    ratio = ratio * z + 0.190768807
    ratio = ratio * z - 0.248353990
    ratio = ratio * z + 0.333181217
    ratio = ratio * z - 0.499994450
    ratio = ratio * z + 0.999999966
    logarithm = ratio * z
    return tl.maximum(v, 0.0) + logarithm, tl.exp2((tl.minimum(v, 0.0) - logarithm) * LOG2E)


@triton.jit
def load_steps(delta, shift, weight, d, channels, GROUPS: tl.constexpr, HAS_WEIGHT: tl.constexpr):
    """(Δ, dΔ/ddelta) of one token, by group; pointers to its delta and its weight."""
    values = load_channels(delta, d, channels, GROUPS)
    steps = ()
    slopes = ()
    for g in tl.static_range(GROUPS):
        step, slope = step_and_slope(values[g] + shift[g])
        if HAS_WEIGHT:
            confidence = tl.load(weight).to(tl.float32)
            step = step * confidence
            slope = slope * confidence
        steps = steps + (step,)
        slopes = slopes + (slope,)
    return steps, slopes


@triton.jit
def decay_factors(steps, decay, N: tl.constexpr, GROUPS: tl.constexpr):
    """exp(ΔA)."""
    values = ()
    for i in tl.static_range(N * GROUPS):
        values = values + (tl.exp2(steps[i // N] * decay[i]),)
    return values


@triton.jit
def advance(state, steps, inputs, decay, B_t, N: tl.constexpr, GROUPS: tl.constexpr):
    """(exp(ΔA), exp(ΔA)·state, the next state)."""
    factors = decay_factors(steps, decay, N, GROUPS)
    decayed = ()
    after = ()
    for i in tl.static_range(N * GROUPS):
        rest = factors[i] * state[i]
        decayed = decayed + (rest,)
        after = after + (rest + steps[i // N] * inputs[i // N] * B_t[i % N],)
    return factors, decayed, after


@triton.jit
def read_out(state, C_t, N: tl.constexpr, GROUPS: tl.constexpr):
    """Σₙ C·state, by group."""
    values = ()
    for g in tl.static_range(GROUPS):
        total = state[g * N] * C_t[0]
        for n in tl.static_range(1, N):
            total += state[g * N + n] * C_t[n]
        values = values + (total,)
    return values


@triton.jit
def halve(values, lane, HALF: tl.constexpr, DISTANCE: tl.constexpr):
    """One round of `sum_lanes`: each lane hands half of its values to the lane DISTANCE away, and gets the other's."""
    kept = ()
    for i in tl.static_range(HALF):
        upper = (lane & DISTANCE) != 0
        send = tl.where(upper, values[i], values[i + HALF])
        keep = tl.where(upper, values[i + HALF], values[i])
        kept = kept + (keep + tl.gather(send, lane ^ DISTANCE, 0),)
    return kept


@triton.jit
def sum_lanes(values, lane, COUNT: tl.constexpr):
    """Sums over the lanes of COUNT values, a power of two up to 32; lane l gets that of value l·COUNT // 32."""
    for r in tl.static_range(5):
        if (COUNT >> r) > 1:
            values = halve(values, lane, COUNT >> (r + 1), 16 >> r)
        else:
            values = (values[0] + tl.gather(values[0], lane ^ (16 >> r), 0),)
    return values[0]
