"""Triton scan in lanes: all states of a channel in one lane, so that sums over states need no exchange."""

from __future__ import annotations

import triton
import triton.language as tl

from burstmamba.kernels.selective_scan.triton_lane_steps import (
    LANES,
    advance,
    decay_factors,
    load_channels,
    load_decay,
    load_numbers,
    load_states,
    load_steps,
    read_out,
    store_states,
    sum_lanes,
    zeros,
)
from burstmamba.kernels.selective_scan.triton_steps import LOG2E, grid_index, grid_stride, next_index

KEPT = tl.constexpr(32)
"""Decay factors a lane keeps for the backward walk; where there are more, it computes all again from Δ."""


@triton.jit
def lanes_forward(
    x, delta, A, B, C, bias, weight, y, saved, starts, ends, durations,
    x_strides, delta_strides, B_strides, C_strides, weight_strides,
    sequences, pixels, paths, path_codes, chunks, chunk_length, rows, columns, tokens, channels, segments,
    N: tl.constexpr, NP: tl.constexpr, BLOCK: tl.constexpr, UNROLL: tl.constexpr,
    WIDE: tl.constexpr, HAS_WEIGHT: tl.constexpr, HAS_START: tl.constexpr, SAVE: tl.constexpr, SUMMARY: tl.constexpr,
):  # fmt: skip
    """`walk_forward` in lanes.

    saved: (b·p, k, segments, groups, n, 32). starts, ends: (b·p, k, chunks, groups, n, 32).
    durations: (b·p, k, chunks, groups, 32). BLOCK / 32 divides the number of groups.
    """
    GROUPS: tl.constexpr = BLOCK // LANES
    blocks = tl.cdiv(channels, BLOCK)
    program = tl.program_id(0)
    block = program % blocks
    chunk = (program // blocks) % chunks
    path = (program // (blocks * chunks)) % paths
    code = (path_codes >> (2 * path)) & 3
    lane = tl.arange(0, LANES)
    d = block * BLOCK + lane
    delta += path * delta_strides[2]
    B += path * B_strides[2]
    C += path * C_strides[2]
    decay = load_decay(A + path * channels * N, d, channels, N, GROUPS)
    shift = load_channels(bias + path * channels, d, channels, GROUPS)
    stride = grid_stride(code, columns)
    first = chunk * chunk_length

    workers = tl.num_programs(0) // (blocks * chunks * paths)
    for sequence in range(program // (blocks * chunks * paths), sequences, workers):
        b = (sequence // pixels).to(tl.int64)
        p = (sequence % pixels).to(tl.int64)
        walk = (sequence * paths + path).to(tl.int64)
        x_p = x + b * x_strides[0] + p * x_strides[1]
        delta_p = delta + b * delta_strides[0] + p * delta_strides[1]
        B_p = B + b * B_strides[0] + p * B_strides[1]
        C_p = C + b * C_strides[0] + p * C_strides[1]
        weight_p = weight + b * weight_strides[0] + p * weight_strides[1]
        y_p = y + walk * tokens * channels
        summary = (walk * chunks + chunk) * blocks + block
        state = zeros(N * GROUPS)
        if HAS_START:
            state = load_states(starts + summary * (BLOCK * N), lane, N * GROUPS)
        duration = zeros(GROUPS)
        for segment in range(first, tl.minimum(first + chunk_length, tokens), UNROLL):
            if SAVE:
                place = (walk * segments + segment // UNROLL) * blocks + block
                store_states(saved + place * (BLOCK * N), state, lane, N * GROUPS)
            token = grid_index(segment, code, rows, columns, tokens)
            outputs = ()
            places = ()
            for u in tl.static_range(UNROLL):
                at = token.to(tl.int64) if WIDE else token
                steps, _ = load_steps(
                    delta_p + at * delta_strides[3], shift, weight_p + at * weight_strides[2],
                    d, channels, GROUPS, HAS_WEIGHT,
                )  # fmt: skip
                inputs = load_channels(x_p + at * x_strides[2], d, channels, GROUPS)
                B_t = load_numbers(B_p + at * B_strides[3], lane, N)
                if SUMMARY:
                    live = ()
                    total = ()
                    for g in tl.static_range(GROUPS):
                        live = live + (tl.where(segment + u < tokens, steps[g], 0.0),)
                        total = total + (duration[g] + live[g],)
                    steps = live
                    duration = total
                    _, _, state = advance(state, steps, inputs, decay, B_t, N, GROUPS)
                else:
                    C_t = load_numbers(C_p + at * C_strides[3], lane, N)
                    _, _, state = advance(state, steps, inputs, decay, B_t, N, GROUPS)
                    outputs = outputs + read_out(state, C_t, N, GROUPS)
                    places = places + (at,)
                token = next_index(token, segment + u, stride, tokens)
            if not SUMMARY:
                # Stores after all loads of the segment, so that the loads can be issued ahead of the walk.
                for u in tl.static_range(UNROLL):
                    end = tl.where(segment + u < tokens, channels, 0)
                    for g in tl.static_range(GROUPS):
                        c = d + LANES * g
                        tl.store(y_p + places[u] * channels + c, outputs[u * GROUPS + g], mask=c < end)
        if SUMMARY:
            store_states(ends + summary * (BLOCK * N), state, lane, N * GROUPS)
            store_states(durations + summary * BLOCK, duration, lane, GROUPS)


@triton.jit
def lanes_carry(
    A, ends, starts, durations, paths, chunks, channels, N: tl.constexpr, NP: tl.constexpr, BACKWARD: tl.constexpr
):
    """`carry` in lanes: one program for one group of channels of one path."""
    lane = tl.arange(0, LANES)
    groups = tl.cdiv(channels, LANES)
    group = tl.program_id(0) % groups
    walk = tl.program_id(0) // groups
    decay = load_decay(A + walk % paths * channels * N, group * LANES + lane, channels, N, 1)
    state = zeros(N)
    for index in range(0, chunks):
        chunk = chunks - 1 - index if BACKWARD else index
        place = (walk.to(tl.int64) * chunks + chunk) * groups + group
        store_states(starts + place * (LANES * N), state, lane, N)
        duration = load_states(durations + place * LANES, lane, 1)
        factors = decay_factors(duration, decay, N, 1)
        end = load_states(ends + place * (LANES * N), lane, N)
        after = ()
        for n in tl.static_range(N):
            after = after + (factors[n] * state[n] + end[n],)
        state = after


@triton.jit
def lanes_gather(
    delta, A, C, bias, weight, dy, ends, durations,
    delta_strides, C_strides, weight_strides, dy_strides,
    pixels, paths, path_codes, chunks, chunk_length, rows, columns, tokens, channels,
    N: tl.constexpr, NP: tl.constexpr, BLOCK: tl.constexpr, UNROLL: tl.constexpr,
    WIDE: tl.constexpr, HAS_WEIGHT: tl.constexpr,
):  # fmt: skip
    """`gather_backward` in lanes."""
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
    delta += b * delta_strides[0] + p * delta_strides[1] + path * delta_strides[2]
    C += b * C_strides[0] + p * C_strides[1] + path * C_strides[2]
    dy += b * dy_strides[0] + p * dy_strides[1]
    weight += b * weight_strides[0] + p * weight_strides[1]
    decay = load_decay(A + path * channels * N, d, channels, N, GROUPS)
    shift = load_channels(bias + path * channels, d, channels, GROUPS)
    gradient = zeros(N * GROUPS)
    duration = zeros(GROUPS)
    first = chunk * chunk_length
    last = tl.minimum(first + chunk_length, tokens)
    for segment in range(0, tl.cdiv(last - first, UNROLL)):
        for u in tl.static_range(UNROLL):
            place = last - 1 - segment * UNROLL - u
            live = place >= first
            token = grid_index(tl.maximum(place, first), code, rows, columns, tokens)
            at = token.to(tl.int64) if WIDE else token
            steps, _ = load_steps(
                delta + at * delta_strides[3], shift, weight + at * weight_strides[2], d, channels, GROUPS, HAS_WEIGHT
            )
            dy_t = load_channels(dy + at * dy_strides[2], d, tl.where(live, channels, 0), GROUPS)
            C_t = load_numbers(C + at * C_strides[3], lane, N)
            total = ()
            for g in tl.static_range(GROUPS):
                total = total + (duration[g] + tl.where(live, steps[g], 0.0),)
            duration = total
            sent = ()
            for i in tl.static_range(N * GROUPS):
                step = tl.where(live, steps[i // N], 0.0)
                sent = sent + (tl.exp2(step * decay[i]) * (gradient[i] + dy_t[i // N] * C_t[i % N]),)
            gradient = sent
    summary = (walk.to(tl.int64) * chunks + chunk) * blocks + program % blocks
    store_states(ends + summary * (BLOCK * N), gradient, lane, N * GROUPS)
    store_states(durations + summary * BLOCK, duration, lane, GROUPS)


@triton.jit
def retreat(decayed, factors, gradient, dA_sum, steps, inputs, dy_t, decay, B_t, C_t, N: tl.constexpr, NP: tl.constexpr,
            GROUPS: tl.constexpr):  # fmt: skip
    """One token of the backward walk.

    Args:
        decayed, factors: exp(ΔA)·state and exp(ΔA) of this token.
        gradient: what later tokens send to the state after this token.

    Returns:
        the gradient sent to the previous state, dA so far, d(Δx) and Σₙ d(ΔA)·A·log₂e by group, and each lane's share
        of dB and dC, NP each.
    """
    sent = ()
    dA = ()
    d_driven = ()
    d_rate = ()
    dB = zeros(NP)
    dC = zeros(NP)
    for g in tl.static_range(GROUPS):
        driven = steps[g] * inputs[g]
        to_driven = tl.zeros((LANES,), dtype=tl.float32)
        to_rate = tl.zeros((LANES,), dtype=tl.float32)
        dB_sums = ()
        dC_sums = ()
        for n in tl.static_range(N):
            whole = gradient[g * N + n] + dy_t[g] * C_t[n]
            to_exponent = whole * decayed[g * N + n]
            dB_sums = dB_sums + (dB[n] + whole * driven,)
            dC_sums = dC_sums + (dC[n] + (decayed[g * N + n] + driven * B_t[n]) * dy_t[g],)
            to_driven += whole * B_t[n]
            to_rate += to_exponent * decay[g * N + n]
            dA = dA + (dA_sum[g * N + n] + to_exponent * steps[g],)
            sent = sent + (whole * factors[g * N + n],)
        dB = dB_sums + zeros(NP - N)
        dC = dC_sums + zeros(NP - N)
        d_driven = d_driven + (to_driven,)
        d_rate = d_rate + (to_rate,)
    return sent, dA, d_driven, d_rate, dB + dC


@triton.jit
def lanes_backward(
    x, delta, A, B, C, bias, weight, dy, saved, starts, dx, ddelta, dA, dB, dC, dbias,
    x_strides, delta_strides, B_strides, C_strides, weight_strides, dy_strides, ddelta_strides,
    sequences, pixels, paths, path_codes, chunks, chunk_segments, rows, columns, tokens, channels, segments,
    N: tl.constexpr, NP: tl.constexpr, BLOCK: tl.constexpr, UNROLL: tl.constexpr,
    WIDE: tl.constexpr, HAS_WEIGHT: tl.constexpr, SAVED: tl.constexpr, HAS_START: tl.constexpr,
):  # fmt: skip
    """`walk_backward` in lanes; saved and starts as in `lanes_forward`."""
    GROUPS: tl.constexpr = BLOCK // LANES
    KEEP: tl.constexpr = UNROLL * N * GROUPS <= KEPT
    blocks = tl.cdiv(channels, BLOCK)
    program = tl.program_id(0)
    block = program % blocks
    path = (program // blocks) % paths
    chunk = (program // (blocks * paths)) % chunks
    worker = program // (blocks * paths * chunks)
    code = (path_codes >> (2 * path)) & 3
    lane = tl.arange(0, LANES)
    d = block * BLOCK + lane
    # `sum_lanes` of dB and dC: which of the two a lane gets, and for which state.
    number = lane * (2 * NP) // LANES
    alone = lane * (2 * NP) % LANES == 0
    B_n = tl.where(alone, number, N)
    C_n = tl.where(alone & (number >= NP), number - NP, N)
    delta += path * delta_strides[2]
    ddelta += path * ddelta_strides[2]
    B += path * B_strides[2]
    C += path * C_strides[2]
    decay = load_decay(A + path * channels * N, d, channels, N, GROUPS)
    shift = load_channels(bias + path * channels, d, channels, GROUPS)
    stride = grid_stride(code, columns)
    dA_sum = zeros(N * GROUPS)
    dbias_sum = zeros(GROUPS)

    for sequence in range(worker, sequences, tl.num_programs(0) // (blocks * paths * chunks)):
        b = (sequence // pixels).to(tl.int64)
        p = (sequence % pixels).to(tl.int64)
        walk = (sequence * paths + path).to(tl.int64)
        x_p = x + b * x_strides[0] + p * x_strides[1]
        dy_p = dy + b * dy_strides[0] + p * dy_strides[1]
        delta_p = delta + b * delta_strides[0] + p * delta_strides[1]
        ddelta_p = ddelta + b * ddelta_strides[0] + p * ddelta_strides[1]
        B_p = B + b * B_strides[0] + p * B_strides[1]
        C_p = C + b * C_strides[0] + p * C_strides[1]
        weight_p = weight + b * weight_strides[0] + p * weight_strides[1]
        dx_p = dx + walk * tokens * channels
        share = (block.to(tl.int64) * sequences * paths + walk) * tokens * N
        gradient = zeros(N * GROUPS)
        if HAS_START:
            summary = (walk * chunks + chunk) * blocks + block
            gradient = load_states(starts + summary * (BLOCK * N), lane, N * GROUPS)
        after = tl.minimum((chunk + 1) * chunk_segments, segments)
        for back in range(0, after - chunk * chunk_segments):
            segment = after - 1 - back
            first = segment * UNROLL
            if SAVED:
                place = (walk * segments + segment) * blocks + block
                state = load_states(saved + place * (BLOCK * N), lane, N * GROUPS)
            else:
                state = zeros(N * GROUPS)
                for before in range(0, first):
                    token = grid_index(before, code, rows, columns, tokens)
                    at = token.to(tl.int64) if WIDE else token
                    step_t, _ = load_steps(
                        delta_p + at * delta_strides[3], shift, weight_p + at * weight_strides[2],
                        d, channels, GROUPS, HAS_WEIGHT,
                    )  # fmt: skip
                    x_t = load_channels(x_p + at * x_strides[2], d, channels, GROUPS)
                    B_t = load_numbers(B_p + at * B_strides[3], lane, N)
                    _, _, state = advance(state, step_t, x_t, decay, B_t, N, GROUPS)
            token = grid_index(first, code, rows, columns, tokens)
            places = ()
            steps = ()
            slopes = ()
            inputs = ()
            factors = ()
            decayed = ()
            for u in tl.static_range(UNROLL):
                at = token.to(tl.int64) if WIDE else token
                step_t, slope_t = load_steps(
                    delta_p + at * delta_strides[3], shift, weight_p + at * weight_strides[2],
                    d, channels, GROUPS, HAS_WEIGHT,
                )  # fmt: skip
                x_t = load_channels(x_p + at * x_strides[2], d, channels, GROUPS)
                B_t = load_numbers(B_p + at * B_strides[3], lane, N)
                factor, rest, state = advance(state, step_t, x_t, decay, B_t, N, GROUPS)
                places = places + (at,)
                steps = steps + (step_t,)
                slopes = slopes + (slope_t,)
                inputs = inputs + (x_t,)
                factors = factors + (factor,)
                decayed = decayed + (rest,)
                token = next_index(token, first + u, stride, tokens)
            for u in tl.static_range(UNROLL - 1, -1, -1):
                at = places[u]
                end = tl.where(first + u < tokens, channels, 0)
                N_end = tl.where(first + u < tokens, N, 0)
                dy_t = load_channels(dy_p + at * dy_strides[2], d, end, GROUPS)
                B_t = load_numbers(B_p + at * B_strides[3], lane, N)
                C_t = load_numbers(C_p + at * C_strides[3], lane, N)
                if KEEP:
                    step_t = steps[u]
                    slope_t = slopes[u]
                    x_t = inputs[u]
                    factor = factors[u]
                else:
                    x_t = load_channels(x_p + at * x_strides[2], d, channels, GROUPS)
                    step_t, slope_t = load_steps(
                        delta_p + at * delta_strides[3], shift, weight_p + at * weight_strides[2],
                        d, channels, GROUPS, HAS_WEIGHT,
                    )  # fmt: skip
                    factor = decay_factors(step_t, decay, N, GROUPS)
                gradient, dA_sum, d_driven, d_rate, shares = retreat(
                    decayed[u], factor, gradient, dA_sum, step_t, x_t, dy_t, decay, B_t, C_t, N, NP, GROUPS
                )
                dbias_t = ()
                for g in tl.static_range(GROUPS):
                    c = d + LANES * g
                    # decay carries log₂e, so its sum is divided by it again.
                    d_step = d_driven[g] * x_t[g] + d_rate[g] * (1.0 / LOG2E)
                    d_delta = d_step * slope_t[g]
                    dbias_t = dbias_t + (dbias_sum[g] + d_delta,)
                    tl.store(dx_p + at * channels + c, d_driven[g] * step_t[g], mask=c < end)
                    tl.store(ddelta_p + at * ddelta_strides[3] + c, d_delta, mask=c < end)
                dbias_sum = dbias_t
                total = sum_lanes(shares, lane, 2 * NP)
                tl.store(dB + share + at * N + B_n, total, mask=B_n < N_end)
                tl.store(dC + share + at * N + C_n, total, mask=C_n < N_end)
    place = ((worker * chunks + chunk) * paths + path) * channels
    for i in tl.static_range(N * GROUPS):
        c = d + LANES * (i // N)
        tl.store(dA + (place + c) * N + i % N, dA_sum[i], mask=c < channels)
    for g in tl.static_range(GROUPS):
        c = d + LANES * g
        tl.store(dbias + place + c, dbias_sum[g], mask=c < channels)
