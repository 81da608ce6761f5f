"""Pieces of the Triton scan: where a path goes, Δ, and the states of a channel as registers of one lane.

A warp walks 32·GROUPS channels. A state is a tuple of GROUPS·NP tensors of 32 channels, group after group, where NP is
N filled up to a power of two. Register i of a lane holds the state i XOR lane (modulo NP): what a lane keeps in a sum
over lanes, and what it hands on, are then the same registers in all.
"""

from __future__ import annotations

import triton
import triton.language as tl
from triton import knobs

LOG2E = tl.constexpr(1.4426950408889634)
LANES = tl.constexpr(32)
INTERPRETED = tl.constexpr(knobs.runtime.interpret)


@triton.jit
def grid_index(step, code, rows, columns, tokens):
    """The token that a path visits at `step`; code bit 0: down the columns, bit 1: backwards."""
    step = tl.minimum(step, tokens - 1)
    step = tl.where((code & 2) != 0, tokens - 1 - step, step)
    major = tl.where((code & 1) != 0, rows, 1)
    return (step % major) * columns + step // major


@triton.jit
def grid_stride(code, columns):
    """How far apart two consecutive tokens of a path lie in the grid, within a row or column."""
    return tl.where((code & 1) != 0, columns, 1) * tl.where((code & 2) != 0, -1, 1)


@triton.jit
def neighbour(token, stride, inside, tokens):
    """The token `stride` further, round the end of a row or column; itself where that is not `inside` the path."""
    after = token + stride
    after = tl.where(after >= tokens, after - (tokens - 1), after)
    after = tl.where(after < 0, after + (tokens - 1), after)
    return tl.where(inside, after, token)


@triton.jit
def zeros(COUNT: tl.constexpr):
    """COUNT tensors of 32 zeros."""
    values = ()
    for _ in tl.static_range(COUNT):
        values = values + (tl.zeros((LANES,), dtype=tl.float32),)
    return values


@triton.jit
def load_states(pointer, lane, end, COUNT: tl.constexpr):
    """A state stored group after group as (n, 32), for lanes before `end`; else zeros."""
    values = ()
    for i in tl.static_range(COUNT):
        values = values + (tl.load(pointer + lane + i * LANES, mask=lane < end, other=0.0).to(tl.float32),)
    return values


@triton.jit
def store_states(pointer, values, lane, end, COUNT: tl.constexpr):
    """The reverse of `load_states`."""
    for i in tl.static_range(COUNT):
        tl.store(pointer + lane + i * LANES, values[i], mask=lane < end)


@triton.jit
def load_decay(A, d, channels, state, N: tl.constexpr, NP: tl.constexpr, GROUPS: tl.constexpr):
    """A (d, n) times log₂e; `state` is a lane's first."""
    values = ()
    for i in tl.static_range(NP * GROUPS):
        c = d + LANES * (i // NP)
        n = state ^ (i % NP)
        values = values + (tl.load(A + (c * N + n), mask=(c < channels) & (n < N), other=0.0) * LOG2E,)
    return values


@triton.jit
def load_channels(pointer, d, channels, GROUPS: tl.constexpr):
    """One number a channel, by group, in its own type."""
    values = ()
    for g in tl.static_range(GROUPS):
        c = d + LANES * g
        values = values + (tl.load(pointer + c, mask=c < channels, other=0.0),)
    return values


@triton.jit
def across(values, lane, DISTANCE: tl.constexpr):
    """What the lane has whose number differs in the bits of DISTANCE."""
    if INTERPRETED:
        return tl.gather(values, lane ^ DISTANCE, 0)
    return tl.inline_asm_elementwise(
        "shfl.sync.bfly.b32 $0, $1, $2, 31, -1;", "=f,f,r", [values, DISTANCE], dtype=tl.float32, is_pure=True, pack=1
    )


@triton.jit
def spread(row, lane, NP: tl.constexpr):
    """B or C of a token, in each lane that of its first state, for all NP: cheaper than as many loads and casts."""
    row = row.to(tl.float32)
    values = (row,)
    for i in tl.static_range(1, NP):
        values = values + (across(row, lane, i),)
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
def steps_and_slopes(deltas, shift, weight, u: tl.constexpr, GROUPS: tl.constexpr, HAS_WEIGHT: tl.constexpr):
    """(Δ, dΔ/ddelta) of token u of a segment, by group."""
    steps = ()
    slopes = ()
    for g in tl.static_range(GROUPS):
        step, slope = step_and_slope(deltas[u * GROUPS + g].to(tl.float32) + shift[g])
        if HAS_WEIGHT:
            step = step * weight[u].to(tl.float32)
            slope = slope * weight[u].to(tl.float32)
        steps = steps + (step,)
        slopes = slopes + (slope,)
    return steps, slopes


@triton.jit
def decay_factors(steps, decay, NP: tl.constexpr, GROUPS: tl.constexpr):
    """exp(ΔA)."""
    values = ()
    for i in tl.static_range(NP * GROUPS):
        values = values + (tl.exp2(steps[i // NP] * decay[i]),)
    return values


@triton.jit
def advance(state, steps, driven, decay, B_t, NP: tl.constexpr, GROUPS: tl.constexpr):
    """(exp(ΔA), exp(ΔA)·state, the next state), for driven = Δ·x."""
    factors = decay_factors(steps, decay, NP, GROUPS)
    decayed = ()
    after = ()
    for i in tl.static_range(NP * GROUPS):
        rest = factors[i] * state[i]
        decayed = decayed + (rest,)
        after = after + (rest + driven[i // NP] * B_t[i % NP],)
    return factors, decayed, after


@triton.jit
def read_out(state, C_t, NP: tl.constexpr, GROUPS: tl.constexpr):
    """Σₙ C·state, by group."""
    values = ()
    for g in tl.static_range(GROUPS):
        total = state[g * NP] * C_t[0]
        for n in tl.static_range(1, NP):
            total += state[g * NP + n] * C_t[n]
        values = values + (total,)
    return values


@triton.jit
def retreat(decayed, factors, gradient, dA_sum, steps, driven, dy_t, decay, B_t, C_t, NP: tl.constexpr,
            GROUPS: tl.constexpr):  # fmt: skip
    """One token of the backward walk.

    Args:
        decayed, factors: exp(ΔA)·state and exp(ΔA) of this token.
        gradient: what later tokens send to the state after this token.

    Returns:
        the gradient sent to the previous state, dA so far, d(Δx) and Σₙ d(ΔA)·A·log₂e by group, and each lane's shares
        of dB and of dC.
    """
    sent = ()
    dA = ()
    d_driven = ()
    d_rate = ()
    dB = zeros(NP)
    dC = zeros(NP)
    for g in tl.static_range(GROUPS):
        to_driven = tl.zeros((LANES,), dtype=tl.float32)
        to_rate = tl.zeros((LANES,), dtype=tl.float32)
        dB_sums = ()
        dC_sums = ()
        for n in tl.static_range(NP):
            whole = gradient[g * NP + n] + dy_t[g] * C_t[n]
            to_exponent = whole * decayed[g * NP + n]
            dB_sums = dB_sums + (dB[n] + whole * driven[g],)
            dC_sums = dC_sums + (dC[n] + (decayed[g * NP + n] + driven[g] * B_t[n]) * dy_t[g],)
            to_driven += whole * B_t[n]
            to_rate += to_exponent * decay[g * NP + n]
            dA = dA + (dA_sum[g * NP + n] + to_exponent * steps[g],)
            sent = sent + (whole * factors[g * NP + n],)
        dB = dB_sums
        dC = dC_sums
        d_driven = d_driven + (to_driven,)
        d_rate = d_rate + (to_rate,)
    return sent, dA, d_driven, d_rate, dB, dC


@triton.jit
def halve(values, lane, HALF: tl.constexpr):
    """Each lane hands half of its values to the lane HALF away, and adds what that one hands it."""
    kept = ()
    for i in tl.static_range(HALF):
        kept = kept + (values[i] + across(values[i + HALF], lane, HALF),)
    return kept


@triton.jit
def sum_states(values, lane, NP: tl.constexpr):
    """NP values of each lane, added up over the lanes that differ in the bits of NP - 1: the one of its first state."""
    for r in tl.static_range(5):
        if (NP >> r) > 1:
            values = halve(values, lane, NP >> (r + 1))
    return values[0]


@triton.jit
def sum_lanes(dB, dC, lane, NP: tl.constexpr):
    """Sums over all lanes: lane n < NP gets that of dB's state n, lane NP + n that of dC's."""
    dB_sum = sum_states(dB, lane, NP)
    dC_sum = sum_states(dC, lane, NP)
    upper = (lane & NP) != 0
    total = tl.where(upper, dC_sum, dB_sum) + across(tl.where(upper, dB_sum, dC_sum), lane, NP)
    for r in tl.static_range(1, 5):
        if (NP << r) < LANES:
            total += across(total, lane, NP << r)
    return total
