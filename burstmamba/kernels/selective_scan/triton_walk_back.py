"""Triton scan: the backward walk, which has no registers left to load ahead, and the summary of a chunk before it."""

from __future__ import annotations

import triton
import triton.language as tl

from burstmamba.kernels.selective_scan.triton_segments import (
    POINTERS,
    SIZES,
    load_path,
    load_segment,
    load_weights,
    of_sequence,
    segment_places,
)
from burstmamba.kernels.selective_scan.triton_steps import (
    LANES,
    LOG2E,
    advance,
    decay_factors,
    grid_index,
    grid_stride,
    load_channels,
    load_states,
    retreat,
    spread,
    steps_and_slopes,
    store_states,
    sum_lanes,
    zeros,
)

KEPT = tl.constexpr(32)
"""Decay factors a lane keeps for the backward walk; where there are more, it computes them again from Δ."""


@triton.jit(do_not_specialize=SIZES, do_not_specialize_on_alignment=POINTERS)
def gather_backward(
    delta, A, C, bias, weight, dy, ends, durations,
    delta_strides, C_strides, weight_strides, dy_strides,
    pixels, paths, path_codes, chunks, chunk_length, rows, columns, tokens, channels,
    N: tl.constexpr, NP: tl.constexpr, BLOCK: tl.constexpr, UNROLL: tl.constexpr,
    WIDE: tl.constexpr, HAS_WEIGHT: tl.constexpr,
):  # fmt: skip
    """Walk one chunk backwards for its summary alone: the gradient that it sends to the state before it, and ΣΔ."""
    GROUPS: tl.constexpr = BLOCK // LANES
    blocks = tl.cdiv(channels, BLOCK)
    program = tl.program_id(0)
    chunk = (program // blocks) % chunks
    walk = program // (blocks * chunks)
    path = walk % paths
    sequence = walk // paths
    code = (path_codes >> (2 * path)) & 3
    lane = tl.arange(0, LANES)
    d = (program % blocks) * BLOCK + lane
    b = (sequence // pixels).to(tl.int64)
    p = (sequence % pixels).to(tl.int64)
    delta = of_sequence(delta, delta_strides, b, p) + path * delta_strides[2]
    C = of_sequence(C, C_strides, b, p) + path * C_strides[2]
    dy = of_sequence(dy, dy_strides, b, p)
    weight = of_sequence(weight, weight_strides, b, p)
    state_of_lane = lane & (NP - 1)
    decay, shift = load_path(A, bias, path, d, channels, state_of_lane, N, NP, GROUPS)
    stride = grid_stride(code, columns)
    gradient = zeros(NP * GROUPS)
    duration = zeros(GROUPS)
    first = chunk * chunk_length
    step = tl.cdiv(tl.minimum(first + chunk_length, tokens), UNROLL) * UNROLL - 1
    token = grid_index(step, code, rows, columns, tokens)
    places, token = segment_places(token, step, stride, tokens, True, UNROLL, WIDE)
    deltas = load_segment(delta, delta_strides[3], places, d, channels, GROUPS, UNROLL)
    dys = load_segment(dy, dy_strides[2], places, d, channels, GROUPS, UNROLL)
    Cs = load_segment(C, C_strides[3], places, state_of_lane, N, 1, UNROLL)
    weights = load_weights(weight, weight_strides[2], places, UNROLL, HAS_WEIGHT)
    for back in range(0, (step + 1 - first) // UNROLL):
        last = step - back * UNROLL
        next_places, token = segment_places(token, last - UNROLL, stride, tokens, True, UNROLL, WIDE)
        next_deltas = load_segment(delta, delta_strides[3], next_places, d, channels, GROUPS, UNROLL)
        next_dys = load_segment(dy, dy_strides[2], next_places, d, channels, GROUPS, UNROLL)
        next_Cs = load_segment(C, C_strides[3], next_places, state_of_lane, N, 1, UNROLL)
        next_weights = load_weights(weight, weight_strides[2], next_places, UNROLL, HAS_WEIGHT)
        for u in tl.static_range(UNROLL - 1, -1, -1):
            live = last - (UNROLL - 1 - u) < tokens
            steps, _ = steps_and_slopes(deltas, shift, weights, u, GROUPS, HAS_WEIGHT)
            C_t = spread(Cs[u], lane, NP)
            lived = ()
            total = ()
            for g in tl.static_range(GROUPS):
                lived = lived + (tl.where(live, steps[g], 0.0),)
                total = total + (duration[g] + lived[g],)
            duration = total
            sent = ()
            for i in tl.static_range(NP * GROUPS):
                dy_t = tl.where(live, dys[u * GROUPS + i // NP].to(tl.float32), 0.0)
                sent = sent + (tl.exp2(lived[i // NP] * decay[i]) * (gradient[i] + dy_t * C_t[i % NP]),)
            gradient = sent
        deltas = next_deltas
        dys = next_dys
        Cs = next_Cs
        weights = next_weights
    summary = (walk.to(tl.int64) * chunks + chunk) * blocks + program % blocks
    store_states(ends + summary * (BLOCK * NP), gradient, lane, LANES, NP * GROUPS)
    store_states(durations + summary * BLOCK, duration, lane, LANES, GROUPS)


@triton.jit
def to_float(values, GROUPS: tl.constexpr):
    """The same numbers in float32."""
    converted = ()
    for g in tl.static_range(GROUPS):
        converted = converted + (values[g].to(tl.float32),)
    return converted


@triton.jit
def load_row(pointer, lane, N: tl.constexpr, NP: tl.constexpr):
    """B or C of a token, by register."""
    state = lane & (NP - 1)
    return spread(tl.load(pointer + state, mask=state < N, other=0.0), lane, NP)


@triton.jit
def load_driven(
    x, delta, weight, x_strides, delta_strides, weight_strides, at, shift, d, channels,
    GROUPS: tl.constexpr, HAS_WEIGHT: tl.constexpr,
):  # fmt: skip
    """Δ, dΔ/ddelta and Δ·x of the token `at`, by group."""
    weights = load_weights(weight, weight_strides[2], (at,), 1, HAS_WEIGHT)
    deltas = load_channels(delta + at * delta_strides[3], d, channels, GROUPS)
    steps, slopes = steps_and_slopes(deltas, shift, weights, 0, GROUPS, HAS_WEIGHT)
    inputs = to_float(load_channels(x + at * x_strides[2], d, channels, GROUPS), GROUPS)
    driven = ()
    for g in tl.static_range(GROUPS):
        driven = driven + (steps[g] * inputs[g],)
    return steps, slopes, driven


@triton.jit(do_not_specialize=SIZES, do_not_specialize_on_alignment=POINTERS)
def walk_backward(
    x, delta, A, B, C, bias, weight, dy, saved, starts, dx, ddelta, dBC, shares,
    x_strides, delta_strides, B_strides, C_strides, weight_strides, dy_strides, ddelta_strides,
    sequences, pixels, paths, path_codes, chunks, chunk_segments, rows, columns, tokens, channels, segments,
    N: tl.constexpr, NP: tl.constexpr, BLOCK: tl.constexpr, UNROLL: tl.constexpr,
    WIDE: tl.constexpr, HAS_WEIGHT: tl.constexpr, HAS_START: tl.constexpr,
):  # fmt: skip
    """Walk one chunk of a path backwards, sequence after sequence, the states of a segment at a time in registers.

    They are recomputed from the saved ones. starts: as in `walk_forward`, the gradient that later chunks send to this
    one's last state. dx: (b·p, k, t, d) in grid order. dBC: (blocks, b·p, k, t, 2·NP), the share of each
    block of channels. shares: (workers, chunks, k, d, n + 2), of dA and after it of dD and dbias.
    """
    GROUPS: tl.constexpr = BLOCK // LANES
    KEEP: tl.constexpr = UNROLL * NP * GROUPS <= KEPT
    blocks = tl.cdiv(channels, BLOCK)
    program = tl.program_id(0)
    block = program % blocks
    path = (program // blocks) % paths
    chunk = (program // (blocks * paths)) % chunks
    worker = program // (blocks * paths * chunks)
    code = (path_codes >> (2 * path)) & 3
    lane = tl.arange(0, LANES)
    d = block * BLOCK + lane
    delta += path * delta_strides[2]
    ddelta += path * ddelta_strides[2]
    B += path * B_strides[2]
    C += path * C_strides[2]
    state_of_lane = lane & (NP - 1)
    decay, shift = load_path(A, bias, path, d, channels, state_of_lane, N, NP, GROUPS)
    stride = grid_stride(code, columns)
    dA_sum = zeros(NP * GROUPS)
    dD_sum = zeros(GROUPS)
    dbias_sum = zeros(GROUPS)
    last = tl.minimum((chunk + 1) * chunk_segments, segments) - 1
    final = (last + 1) * UNROLL - 1
    start = grid_index(final, code, rows, columns, tokens)

    for sequence in range(worker, sequences, tl.num_programs(0) // (blocks * paths * chunks)):
        b = (sequence // pixels).to(tl.int64)
        p = (sequence % pixels).to(tl.int64)
        walk = (sequence * paths + path).to(tl.int64)
        x_p = of_sequence(x, x_strides, b, p)
        dy_p = of_sequence(dy, dy_strides, b, p)
        delta_p = of_sequence(delta, delta_strides, b, p)
        ddelta_p = of_sequence(ddelta, ddelta_strides, b, p)
        B_p = of_sequence(B, B_strides, b, p)
        C_p = of_sequence(C, C_strides, b, p)
        weight_p = of_sequence(weight, weight_strides, b, p)
        dx_p = dx + walk * tokens * channels
        dBC_p = dBC + (block.to(tl.int64) * sequences * paths + walk) * tokens * (2 * NP)
        saved_p = saved + (walk * (segments - 1) * blocks + block) * (BLOCK * NP)
        summary = (walk * chunks + chunk) * blocks + block
        gradient = zeros(NP * GROUPS)
        if HAS_START:
            gradient = load_states(starts + summary * (BLOCK * NP), lane, LANES, NP * GROUPS)
        token = start
        for back in range(0, last + 1 - chunk * chunk_segments):
            segment = last - back
            begin = segment * UNROLL
            state = load_states(
                saved_p + ((segment - 1) * blocks).to(tl.int64) * (BLOCK * NP),
                lane,
                tl.minimum(segment, 1) * LANES,
                NP * GROUPS,
            )
            places, token = segment_places(token, begin + UNROLL - 1, stride, tokens, True, UNROLL, WIDE)
            # Before the stores, behind which loads would have to wait.
            dys = ()
            Cs = ()
            for u in tl.static_range(UNROLL):
                end = tl.where(begin + u < tokens, channels, 0)
                dys = dys + (load_channels(dy_p + places[u] * dy_strides[2], d, end, GROUPS),)
                Cs = Cs + load_channels(C_p + places[u] * C_strides[3], state_of_lane, N, 1)
            factors = ()
            decayed = ()
            for u in tl.static_range(UNROLL):
                steps, _, driven = load_driven(
                    x_p, delta_p, weight_p, x_strides, delta_strides, weight_strides, places[u], shift, d, channels,
                    GROUPS, HAS_WEIGHT,
                )  # fmt: skip
                B_t = load_row(B_p + places[u] * B_strides[3], lane, N, NP)
                factor, rest, state = advance(state, steps, driven, decay, B_t, NP, GROUPS)
                factors = factors + (factor,)
                decayed = decayed + (rest,)
            for u in tl.static_range(UNROLL - 1, -1, -1):
                at = places[u]
                live = begin + u < tokens
                end = tl.where(live, channels, 0)
                # Loaded and computed again: kept in registers they would push others out.
                steps, slopes, driven = load_driven(
                    x_p, delta_p, weight_p, x_strides, delta_strides, weight_strides, at, shift, d, channels,
                    GROUPS, HAS_WEIGHT,
                )  # fmt: skip
                dy_t = to_float(dys[u], GROUPS)
                B_t = load_row(B_p + at * B_strides[3], lane, N, NP)
                C_t = spread(Cs[u], lane, NP)
                factor = factors[u] if KEEP else decay_factors(steps, decay, NP, GROUPS)
                gradient, dA_sum, d_driven, d_rate, dB_t, dC_t = retreat(
                    decayed[u], factor, gradient, dA_sum, steps, driven, dy_t, decay, B_t, C_t, NP, GROUPS
                )
                x_t = to_float(load_channels(x_p + at * x_strides[2], d, channels, GROUPS), GROUPS)
                dD_t = ()
                dbias_t = ()
                for g in tl.static_range(GROUPS):
                    c = d + LANES * g
                    # decay carries log₂e, so its sum is divided by it again.
                    d_delta = (d_driven[g] * x_t[g] + d_rate[g] * (1.0 / LOG2E)) * slopes[g]
                    dD_t = dD_t + (dD_sum[g] + dy_t[g] * x_t[g],)
                    dbias_t = dbias_t + (dbias_sum[g] + d_delta,)
                    tl.store(dx_p + at * channels + c, d_driven[g] * steps[g], mask=c < end)
                    tl.store(ddelta_p + at * ddelta_strides[3] + c, d_delta, mask=c < end)
                dD_sum = dD_t
                dbias_sum = dbias_t
                total = sum_lanes(dB_t, dC_t, lane, NP)
                tl.store(dBC_p + at * (2 * NP) + lane, total, mask=lane < tl.where(live, 2 * NP, 0))
    place = ((worker * chunks + chunk) * paths + path) * channels
    for g in tl.static_range(GROUPS):
        c = d + LANES * g
        share = shares + (place + c) * (N + 2)
        for i in tl.static_range(NP):
            n = state_of_lane ^ i
            tl.store(share + n, dA_sum[g * NP + i], mask=(c < channels) & (n < N))
        tl.store(share + N, dD_sum[g], mask=c < channels)
        tl.store(share + N + 1, dbias_sum[g], mask=c < channels)
