"""Triton scan: one warp walks a path, or a chunk of it, for a block of channels; short paths one after the other.

What a segment of UNROLL tokens needs is loaded while the segment before it is walked.
"""

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
    advance,
    decay_factors,
    grid_index,
    grid_stride,
    load_decay,
    load_states,
    read_out,
    spread,
    steps_and_slopes,
    store_states,
    zeros,
)


@triton.jit(do_not_specialize=SIZES, do_not_specialize_on_alignment=POINTERS)
def walk_forward(
    x, delta, A, B, C, bias, weight, y, saved, starts, ends, durations,
    x_strides, delta_strides, B_strides, C_strides, weight_strides,
    sequences, pixels, paths, path_codes, chunks, chunk_length, rows, columns, tokens, channels, segments,
    N: tl.constexpr, NP: tl.constexpr, BLOCK: tl.constexpr, UNROLL: tl.constexpr,
    WIDE: tl.constexpr, HAS_WEIGHT: tl.constexpr, HAS_START: tl.constexpr, SAVE: tl.constexpr, SUMMARY: tl.constexpr,
):  # fmt: skip
    """Walk one chunk of one path, sequence after sequence: write y, or with SUMMARY the final state and ΣΔ.

    y: (b·p, k, t, d) in grid order. saved: (b·p, k, segments - 1, groups, n, 32), the state before every segment
    but the first. starts, ends: (b·p, k, chunks, groups, n, 32). durations: (b·p, k, chunks, groups, 32).
    BLOCK / 32 divides the number of groups.
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
    state_of_lane = lane & (NP - 1)
    decay, shift = load_path(A, bias, path, d, channels, state_of_lane, N, NP, GROUPS)
    stride = grid_stride(code, columns)
    first = chunk * chunk_length
    start = grid_index(first, code, rows, columns, tokens)

    workers = tl.num_programs(0) // (blocks * chunks * paths)
    for sequence in range(program // (blocks * chunks * paths), sequences, workers):
        b = (sequence // pixels).to(tl.int64)
        p = (sequence % pixels).to(tl.int64)
        walk = (sequence * paths + path).to(tl.int64)
        x_p = of_sequence(x, x_strides, b, p)
        delta_p = of_sequence(delta, delta_strides, b, p)
        B_p = of_sequence(B, B_strides, b, p)
        C_p = of_sequence(C, C_strides, b, p)
        weight_p = of_sequence(weight, weight_strides, b, p)
        y_p = y + walk * tokens * channels
        summary = (walk * chunks + chunk) * blocks + block
        state = zeros(NP * GROUPS)
        if HAS_START:
            state = load_states(starts + summary * (BLOCK * NP), lane, LANES, NP * GROUPS)
        duration = zeros(GROUPS)
        places, token = segment_places(start, first, stride, tokens, False, UNROLL, WIDE)
        deltas = load_segment(delta_p, delta_strides[3], places, d, channels, GROUPS, UNROLL)
        inputs = load_segment(x_p, x_strides[2], places, d, channels, GROUPS, UNROLL)
        Bs = load_segment(B_p, B_strides[3], places, state_of_lane, N, 1, UNROLL)
        Cs = load_segment(C_p, C_strides[3], places, state_of_lane, 0 if SUMMARY else N, 1, UNROLL)
        weights = load_weights(weight_p, weight_strides[2], places, UNROLL, HAS_WEIGHT)
        for segment in range(first, tl.minimum(first + chunk_length, tokens), UNROLL):
            next_places, token = segment_places(token, segment + UNROLL, stride, tokens, False, UNROLL, WIDE)
            next_deltas = load_segment(delta_p, delta_strides[3], next_places, d, channels, GROUPS, UNROLL)
            next_inputs = load_segment(x_p, x_strides[2], next_places, d, channels, GROUPS, UNROLL)
            next_Bs = load_segment(B_p, B_strides[3], next_places, state_of_lane, N, 1, UNROLL)
            next_Cs = load_segment(C_p, C_strides[3], next_places, state_of_lane, 0 if SUMMARY else N, 1, UNROLL)
            next_weights = load_weights(weight_p, weight_strides[2], next_places, UNROLL, HAS_WEIGHT)
            if SAVE:
                place = (walk * (segments - 1) + segment // UNROLL - 1) * blocks + block
                store_states(saved + place * (BLOCK * NP), state, lane, tl.minimum(segment, 1) * LANES, NP * GROUPS)
            for u in tl.static_range(UNROLL):
                live = segment + u < tokens
                steps, _ = steps_and_slopes(deltas, shift, weights, u, GROUPS, HAS_WEIGHT)
                if SUMMARY:
                    lived = ()
                    total = ()
                    for g in tl.static_range(GROUPS):
                        lived = lived + (tl.where(live, steps[g], 0.0),)
                        total = total + (duration[g] + lived[g],)
                    steps = lived
                    duration = total
                driven = ()
                for g in tl.static_range(GROUPS):
                    driven = driven + (steps[g] * inputs[u * GROUPS + g].to(tl.float32),)
                _, _, state = advance(state, steps, driven, decay, spread(Bs[u], lane, NP), NP, GROUPS)
                if not SUMMARY:
                    outputs = read_out(state, spread(Cs[u], lane, NP), NP, GROUPS)
                    end = tl.where(live, channels, 0)
                    for g in tl.static_range(GROUPS):
                        c = d + LANES * g
                        tl.store(y_p + places[u] * channels + c, outputs[g], mask=c < end)
            places = next_places
            deltas = next_deltas
            inputs = next_inputs
            Bs = next_Bs
            Cs = next_Cs
            weights = next_weights
        if SUMMARY:
            store_states(ends + summary * (BLOCK * NP), state, lane, LANES, NP * GROUPS)
            store_states(durations + summary * BLOCK, duration, lane, LANES, GROUPS)


@triton.jit(do_not_specialize=SIZES, do_not_specialize_on_alignment=POINTERS)
def carry(
    A, ends, starts, durations, paths, chunks, channels, N: tl.constexpr, NP: tl.constexpr, BACKWARD: tl.constexpr
):
    """Turn what every chunk passes on by itself into what it receives: states, or BACKWARD gradients of states.

    One program for one group of channels of one path.
    """
    lane = tl.arange(0, LANES)
    groups = tl.cdiv(channels, LANES)
    group = tl.program_id(0) % groups
    walk = tl.program_id(0) // groups
    decay = load_decay(A + walk % paths * channels * N, group * LANES + lane, channels, lane & (NP - 1), N, NP, 1)
    state = zeros(NP)
    for index in range(0, chunks):
        chunk = chunks - 1 - index if BACKWARD else index
        place = (walk.to(tl.int64) * chunks + chunk) * groups + group
        store_states(starts + place * (LANES * NP), state, lane, LANES, NP)
        duration = load_states(durations + place * LANES, lane, LANES, 1)
        factors = decay_factors(duration, decay, NP, 1)
        end = load_states(ends + place * (LANES * NP), lane, LANES, NP)
        after = ()
        for n in tl.static_range(NP):
            after = after + (factors[n] * state[n] + end[n],)
        state = after
