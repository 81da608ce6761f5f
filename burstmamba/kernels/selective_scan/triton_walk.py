"""Triton scan: one warp walks a path, or a chunk of it, for a block of channels; short paths one after the other."""

from __future__ import annotations

import triton
import triton.language as tl

from burstmamba.kernels.selective_scan.triton_steps import (
    LOG2E,
    advance,
    grid_index,
    grid_stride,
    load_step,
    next_index,
    retreat,
)


@triton.jit
def walk_forward(
    x, delta, A, B, C, bias, weight, y, saved, starts, ends, durations,
    x_strides, delta_strides, B_strides, C_strides, weight_strides,
    sequences, pixels, paths, path_codes, chunks, chunk_length, rows, columns, tokens, channels, segments,
    N: tl.constexpr, NP: tl.constexpr, BLOCK: tl.constexpr, UNROLL: tl.constexpr,
    WIDE: tl.constexpr, HAS_WEIGHT: tl.constexpr, HAS_START: tl.constexpr, SAVE: tl.constexpr, SUMMARY: tl.constexpr,
):  # fmt: skip
    """Walk one chunk of one path, sequence after sequence: write y, or with SUMMARY the final state and ΣΔ.

    y: (b·p, k, t, d) in grid order. saved: (b·p, k, segments, d, NP), the state before every UNROLL tokens.
    starts, ends: (b·p, k, chunks, d, NP). durations: (b·p, k, chunks, d).
    """
    blocks = tl.cdiv(channels, BLOCK)
    program = tl.program_id(0)
    block = program % blocks
    chunk = (program // blocks) % chunks
    path = (program // (blocks * chunks)) % paths
    code = (path_codes >> (2 * path)) & 3
    d = block * BLOCK + tl.arange(0, BLOCK)
    n = tl.arange(0, NP)
    d_mask = d < channels
    n_mask = n < N
    tile = d[:, None] * NP + n[None, :]
    tile_mask = d_mask[:, None] & n_mask[None, :]
    delta += path * delta_strides[2]
    B += path * B_strides[2]
    C += path * C_strides[2]
    decay = tl.load(A + (path * channels + d[:, None]) * N + n[None, :], mask=tile_mask, other=0.0) * LOG2E
    shift = tl.load(bias + path * channels + d, mask=d_mask, other=0.0)
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
        summary = (walk * chunks + chunk) * channels
        if HAS_START:
            state = tl.load(starts + summary * NP + tile, mask=tile_mask, other=0.0)
        else:
            state = tl.zeros((BLOCK, NP), dtype=tl.float32)
        duration = tl.zeros((BLOCK,), dtype=tl.float32)
        for segment in range(first, tl.minimum(first + chunk_length, tokens), UNROLL):
            if SAVE:
                place = (walk * segments + segment // UNROLL) * channels * NP
                tl.store(saved + place + tile, state, mask=tile_mask)
            token = grid_index(segment, code, rows, columns, tokens)
            outputs = ()
            places = ()
            for u in tl.static_range(UNROLL):
                at = token.to(tl.int64) if WIDE else token
                step, _ = load_step(
                    delta_p + (at * delta_strides[3] + d), shift, weight_p + at * weight_strides[2], d_mask, HAS_WEIGHT
                )
                driven = step * tl.load(x_p + (at * x_strides[2] + d), mask=d_mask, other=0.0).to(tl.float32)
                B_t = tl.load(B_p + (at * B_strides[3] + n), mask=n_mask, other=0.0).to(tl.float32)
                if SUMMARY:
                    live = segment + u < tokens
                    step = tl.where(live, step, 0.0)
                    driven = tl.where(live, driven, 0.0)
                    duration += step
                    state = advance(state, step, driven, decay, B_t)
                else:
                    C_t = tl.load(C_p + (at * C_strides[3] + n), mask=n_mask, other=0.0).to(tl.float32)
                    state = advance(state, step, driven, decay, B_t)
                    outputs = outputs + (tl.sum(state * C_t[None, :], axis=1),)
                    places = places + (at,)
                token = next_index(token, segment + u, stride, tokens)
            if not SUMMARY:
                # Stores after all loads of the segment, so that the loads can be issued ahead of the walk.
                for u in tl.static_range(UNROLL):
                    live = d < tl.where(segment + u < tokens, channels, 0)
                    tl.store(y_p + (places[u] * channels + d), outputs[u], mask=live)
        if SUMMARY:
            tl.store(ends + summary * NP + tile, state, mask=tile_mask)
            tl.store(durations + summary + d, duration, mask=d_mask)


@triton.jit
def carry(
    A, ends, starts, durations, paths, chunks, channels,
    N: tl.constexpr, NP: tl.constexpr, BLOCK: tl.constexpr, BACKWARD: tl.constexpr,
):  # fmt: skip
    """Turn what every chunk passes on by itself into what it receives: states, or BACKWARD gradients of states."""
    blocks = tl.cdiv(channels, BLOCK)
    program = tl.program_id(0)
    d = (program % blocks) * BLOCK + tl.arange(0, BLOCK)
    walk = program // blocks
    path = walk % paths
    n = tl.arange(0, NP)
    tile = d[:, None] * NP + n[None, :]
    mask = (d < channels)[:, None] & (n < N)[None, :]
    decay = tl.load(A + (path * channels + d[:, None]) * N + n[None, :], mask=mask, other=0.0) * LOG2E
    state = tl.zeros((BLOCK, NP), dtype=tl.float32)
    for index in range(0, chunks):
        chunk = chunks - 1 - index if BACKWARD else index
        place = (walk.to(tl.int64) * chunks + chunk) * channels
        tl.store(starts + place * NP + tile, state, mask=mask)
        duration = tl.load(durations + place + d, mask=d < channels, other=0.0)
        end = tl.load(ends + place * NP + tile, mask=mask, other=0.0)
        state = tl.exp2(duration[:, None] * decay) * state + end


@triton.jit
def gather_backward(
    delta, A, C, bias, weight, dy, ends, durations,
    delta_strides, C_strides, weight_strides, dy_strides,
    pixels, paths, path_codes, chunks, chunk_length, rows, columns, tokens, channels,
    N: tl.constexpr, NP: tl.constexpr, BLOCK: tl.constexpr, UNROLL: tl.constexpr,
    WIDE: tl.constexpr, HAS_WEIGHT: tl.constexpr,
):  # fmt: skip
    """Walk one chunk backwards for its summary alone: the gradient that it sends to the state before it, and ΣΔ."""
    blocks = tl.cdiv(channels, BLOCK)
    program = tl.program_id(0)
    block = program % blocks
    chunk = (program // blocks) % chunks
    walk = program // (blocks * chunks)
    path = walk % paths
    sequence = walk // paths
    code = (path_codes >> (2 * path)) & 3
    d = block * BLOCK + tl.arange(0, BLOCK)
    n = tl.arange(0, NP)
    d_mask = d < channels
    n_mask = n < N
    tile = d[:, None] * NP + n[None, :]
    tile_mask = d_mask[:, None] & n_mask[None, :]
    b = (sequence // pixels).to(tl.int64)
    p = (sequence % pixels).to(tl.int64)
    delta += b * delta_strides[0] + p * delta_strides[1] + path * delta_strides[2]
    C += b * C_strides[0] + p * C_strides[1] + path * C_strides[2]
    dy += b * dy_strides[0] + p * dy_strides[1]
    weight += b * weight_strides[0] + p * weight_strides[1]
    decay = tl.load(A + (path * channels + d[:, None]) * N + n[None, :], mask=tile_mask, other=0.0) * LOG2E
    shift = tl.load(bias + path * channels + d, mask=d_mask, other=0.0)
    gradient = tl.zeros((BLOCK, NP), dtype=tl.float32)
    duration = tl.zeros((BLOCK,), dtype=tl.float32)
    first = chunk * chunk_length
    last = tl.minimum(first + chunk_length, tokens)
    for segment in range(0, tl.cdiv(last - first, UNROLL)):
        for u in tl.static_range(UNROLL):
            place = last - 1 - segment * UNROLL - u
            live = place >= first
            token = grid_index(tl.maximum(place, first), code, rows, columns, tokens)
            at = token.to(tl.int64) if WIDE else token
            step, _ = load_step(
                delta + (at * delta_strides[3] + d), shift, weight + at * weight_strides[2], d_mask, HAS_WEIGHT
            )
            step = tl.where(live, step, 0.0)
            d_live = d < tl.where(live, channels, 0)
            dy_t = tl.load(dy + (at * dy_strides[2] + d), mask=d_live, other=0.0).to(tl.float32)
            C_t = tl.load(C + (at * C_strides[3] + n), mask=n_mask, other=0.0).to(tl.float32)
            gradient = tl.exp2(step[:, None] * decay) * (gradient + dy_t[:, None] * C_t[None, :])
            duration += step
    summary = (walk.to(tl.int64) * chunks + chunk) * channels
    tl.store(ends + summary * NP + tile, gradient, mask=tile_mask)
    tl.store(durations + summary + d, duration, mask=d_mask)


@triton.jit
def walk_backward(
    x, delta, A, B, C, bias, weight, dy, saved, starts, dx, ddelta, dA, dB, dC, dbias,
    x_strides, delta_strides, B_strides, C_strides, weight_strides, dy_strides, ddelta_strides,
    sequences, pixels, paths, path_codes, chunks, chunk_segments, rows, columns, tokens, channels, segments,
    N: tl.constexpr, NP: tl.constexpr, BLOCK: tl.constexpr, UNROLL: tl.constexpr,
    WIDE: tl.constexpr, HAS_WEIGHT: tl.constexpr, SAVED: tl.constexpr, HAS_START: tl.constexpr,
):  # fmt: skip
    """Walk one chunk of a path backwards, sequence after sequence, the states of UNROLL tokens at a time in registers.

    They are recomputed from the saved ones, or without SAVED from the beginning of the (short) path.
    starts: (b·p, k, chunks, d, NP), the gradient that later chunks send to this one's last state.
    dx: (b·p, k, t, d) in grid order. dA: (workers, chunks, k, d, n). dbias: (workers, chunks, k, d).
    dB, dC: (blocks, b·p, k, t, n), the share of each block of channels.
    """
    blocks = tl.cdiv(channels, BLOCK)
    program = tl.program_id(0)
    block = program % blocks
    path = (program // blocks) % paths
    chunk = (program // (blocks * paths)) % chunks
    worker = program // (blocks * paths * chunks)
    code = (path_codes >> (2 * path)) & 3
    d = block * BLOCK + tl.arange(0, BLOCK)
    n = tl.arange(0, NP)
    d_mask = d < channels
    n_mask = n < N
    tile = d[:, None] * NP + n[None, :]
    tile_mask = d_mask[:, None] & n_mask[None, :]
    delta += path * delta_strides[2]
    ddelta += path * ddelta_strides[2]
    B += path * B_strides[2]
    C += path * C_strides[2]
    decay = tl.load(A + (path * channels + d[:, None]) * N + n[None, :], mask=tile_mask, other=0.0) * LOG2E
    shift = tl.load(bias + path * channels + d, mask=d_mask, other=0.0)
    stride = grid_stride(code, columns)
    dA_sum = tl.zeros((BLOCK, NP), dtype=tl.float32)
    dbias_sum = tl.zeros((BLOCK,), dtype=tl.float32)

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
        if HAS_START:
            gradient = tl.load(starts + (walk * chunks + chunk) * channels * NP + tile, mask=tile_mask, other=0.0)
        else:
            gradient = tl.zeros((BLOCK, NP), dtype=tl.float32)
        after = tl.minimum((chunk + 1) * chunk_segments, segments)
        for back in range(0, after - chunk * chunk_segments):
            segment = after - 1 - back
            first = segment * UNROLL
            if SAVED:
                place = (walk * segments + segment) * channels * NP
                state = tl.load(saved + place + tile, mask=tile_mask, other=0.0)
            else:
                state = tl.zeros((BLOCK, NP), dtype=tl.float32)
                for before in range(0, first):
                    token = grid_index(before, code, rows, columns, tokens)
                    at = token.to(tl.int64) if WIDE else token
                    step, _ = load_step(
                        delta_p + (at * delta_strides[3] + d),
                        shift,
                        weight_p + at * weight_strides[2],
                        d_mask,
                        HAS_WEIGHT,
                    )
                    driven = step * tl.load(x_p + (at * x_strides[2] + d), mask=d_mask, other=0.0).to(tl.float32)
                    B_t = tl.load(B_p + (at * B_strides[3] + n), mask=n_mask, other=0.0).to(tl.float32)
                    state = advance(state, step, driven, decay, B_t)
            token = grid_index(first, code, rows, columns, tokens)
            states = ()
            places = ()
            for u in tl.static_range(UNROLL):
                at = token.to(tl.int64) if WIDE else token
                step, _ = load_step(
                    delta_p + (at * delta_strides[3] + d), shift, weight_p + at * weight_strides[2], d_mask, HAS_WEIGHT
                )
                driven = step * tl.load(x_p + (at * x_strides[2] + d), mask=d_mask, other=0.0).to(tl.float32)
                B_t = tl.load(B_p + (at * B_strides[3] + n), mask=n_mask, other=0.0).to(tl.float32)
                state = advance(state, step, driven, decay, B_t)
                states = states + (state,)
                places = places + (at,)
                token = next_index(token, first + u, stride, tokens)
            for u in tl.static_range(UNROLL - 1, -1, -1):
                at = places[u]
                d_live = d < tl.where(first + u < tokens, channels, 0)
                n_live = n < tl.where(first + u < tokens, N, 0)
                step, slope = load_step(
                    delta_p + (at * delta_strides[3] + d), shift, weight_p + at * weight_strides[2], d_mask, HAS_WEIGHT
                )
                x_t = tl.load(x_p + (at * x_strides[2] + d), mask=d_mask, other=0.0).to(tl.float32)
                dy_t = tl.load(dy_p + (at * dy_strides[2] + d), mask=d_live, other=0.0).to(tl.float32)
                B_t = tl.load(B_p + (at * B_strides[3] + n), mask=n_mask, other=0.0).to(tl.float32)
                C_t = tl.load(C_p + (at * C_strides[3] + n), mask=n_mask, other=0.0).to(tl.float32)
                gradient, d_exponent, d_driven, dB_t, dC_t = retreat(
                    states[u], gradient, step, step * x_t, dy_t, decay, B_t, C_t
                )
                dA_sum += d_exponent * step[:, None]
                # decay carries log₂e, so its sum is divided by it again.
                d_step = d_driven * x_t + tl.sum(d_exponent * decay, axis=1) * (1.0 / LOG2E)
                d_delta = d_step * slope
                dbias_sum += d_delta
                tl.store(dx_p + (at * channels + d), d_driven * step, mask=d_live)
                tl.store(ddelta_p + (at * ddelta_strides[3] + d), d_delta, mask=d_live)
                tl.store(dB + share + (at * N + n), dB_t, mask=n_live)
                tl.store(dC + share + (at * N + n), dC_t, mask=n_live)
    total = ((worker * chunks + chunk) * paths + path) * channels
    tl.store(dA + (total + d[:, None]) * N + n[None, :], dA_sum, mask=tile_mask)
    tl.store(dbias + total + d, dbias_sum, mask=d_mask)
