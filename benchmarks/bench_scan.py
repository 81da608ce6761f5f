"""Time the selective scan: `python benchmarks/bench_scan.py [--device cpu|cuda] [--tune] [--peers]`.

Every kernel is first held against its reference on this device; nothing is timed if one fails. On a CPU a keyframe
block follows, and what the scan takes of it (`bench_cpu_block.py`). Peers are the
Triton walk that never cuts a path, as a plain loop kernel would be, the PyTorch reference compiled by `torch.compile`
(the forward of short paths: anything else takes minutes to compile), and the reference as it is (a loop over tokens,
timed by a call or a few), in this order. The results are written after every row.
"""

from __future__ import annotations

import argparse
import itertools
from collections.abc import Iterator
from dataclasses import replace

import torch
from bench_cpu_block import time_block
from checking import check_all
from measuring import copy_bandwidth, matrix_rate, timed, timed_briefly, write_results
from scan_cases import CASES, Case, make_inputs

from burstmamba.kernels.selective_scan import BACKENDS, selective_scan

SHORT = 16
"""Tokens of a path up to which compiling a loop over them is worth the wait."""
WORTH_A_MINUTE = 60e6
"""State updates up to which a CPU, or a loop that keeps every state, is asked at all."""


def time_case(
    case: Case, backend: str, device: torch.device, dtype: torch.dtype, scan=selective_scan, clock=timed
) -> dict:  # fmt: skip
    """Forward alone, and forward with backward."""
    inputs = make_inputs(case, dtype, device)

    def forward() -> None:
        with torch.no_grad():
            scan(*inputs, paths=case.paths, backend=backend)

    leaves = [tensor.detach().requires_grad_() for tensor in inputs]
    upstream = torch.randn_like(inputs[0])

    def both() -> None:
        y = scan(*leaves, paths=case.paths, backend=backend)
        torch.autograd.grad(y, leaves, upstream)

    row = {"case": case.name, "backend": backend, "forward": clock(forward, device)}
    if case.backward:
        row["forward_backward"] = clock(both, device)
    return row


def time_peers(cases: list[Case], device: torch.device, dtype: torch.dtype) -> Iterator[dict]:
    """Other ways to run the same scans, the quickest to time first."""
    if device.type == "cuda":
        tune("never cut")
        for case in cases:
            yield time_case(case, "triton", device, dtype) | {"backend": "triton, never cut"}
        tune("default")
    for case in cases:
        if case.tokens <= SHORT and (case.bar_ms or device.type == "cpu"):
            # The forward alone: the backward takes minutes to compile.
            compiled, forward = torch.compile(selective_scan, dynamic=False), replace(case, backward=False)
            yield time_case(forward, "reference", device, dtype, scan=compiled) | {"backend": "reference, compiled"}
    for case in sorted(cases, key=lambda case: case.tokens):
        # The backward of a loop keeps every state: tens of gigabytes for the long paths of a whole batch.
        small = case.tokens <= SHORT or (device.type == "cuda" and case.elements < WORTH_A_MINUTE)
        yield time_case(
            case if small else replace(case, backward=False), "reference", device, dtype, clock=timed_briefly
        )


def variants() -> dict[str, dict[str, int]]:
    """Tunings worth a try, by name; each shows its difference from the default."""
    return {
        "default": {},
        "never cut": {"programs": 0, "backward_programs": 0, "long_programs": 0},
        "one group": {"elements": 256, "backward_elements": 256, "short_elements": 256, "short_backward_elements": 256},
        "registers 48": {"registers": 48, "short_registers": 64},
        "registers 96": {"registers": 96, "short_registers": 112},
        "programs 8": {"programs": 8},
        "programs 32": {"programs": 32},
        "backward programs 4": {"backward_programs": 4},
        "backward programs 16": {"backward_programs": 16},
        "workers 16": {"workers": 16},
    }


def compile_variant(name: str) -> None:
    """Run a variant once, in a process of its own: kernels land in Triton's cache."""
    tune(name)
    for case in CASES:
        time_case(case, "triton", torch.device("cuda"), torch.bfloat16, clock=timed_briefly)


def tune(name: str) -> None:
    from burstmamba.kernels.selective_scan import triton_launch

    triton_launch.TUNING = replace(triton_launch.Tuning(), **variants()[name])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--tune", action="store_true", help="time variants of the Triton kernels too")
    parser.add_argument("--peers", action="store_true", help="time other ways to run the same scans")
    parser.add_argument("--only", default="", help="cases whose name contains this")
    args = parser.parse_args()
    device = torch.device(args.device)
    cases = [case for case in CASES if args.only in case.name]
    dtype = torch.bfloat16 if device.type == "cuda" else torch.float32
    if device.type == "cpu":
        cases = [case for case in cases if case.elements < WORTH_A_MINUTE]
    names = [b.name for b in BACKENDS if b.unavailable(torch.empty(1, device=device)) is None and b.name != "reference"]
    bandwidth = copy_bandwidth(device)
    rate = matrix_rate(device, dtype)
    print(f"copy bandwidth {bandwidth / 1e9:.0f} GB/s, matrix products {rate / 1e12:.1f} TFLOP/s", flush=True)
    rows: list[dict] = [{"copy_bytes_per_s": bandwidth, "matrix_flops_per_s": rate}]

    def keep(row: dict) -> None:
        rows.append(row)
        write_results(f"scan_{device.type}", device, rows)

    tried = list(variants()) if args.tune else ["default"]
    check_all(device, [(compile_variant, name) for name in tried if "triton" in names])
    for backend in names:
        tunings = tried if backend == "triton" else ["default"]
        for tuning, case in itertools.product(tunings, cases):
            if backend == "triton":
                tune(tuning)
            row = time_case(case, backend, device, dtype) | {"tuning": tuning}
            moved = case.bytes_moved(dtype.itemsize)
            total = row.get("forward_backward", row["forward"])["median_ms"]
            floor = 1000 * (sum(moved) if case.backward else moved[0]) / bandwidth
            row |= {"bytes_forward": moved[0], "bytes_backward": moved[1], "state_updates": case.elements}
            operations = case.operations / total * 1000
            row |= {"operations": case.operations, "operations_over_matrix_rate": round(operations / rate, 4)}
            row |= {"copy_floor_ms": round(floor, 4), "floor_over_time": round(floor / total, 3), "bar_ms": case.bar_ms}
            keep(row)
            print(
                f"{backend:9} {tuning:26} {case.name:40} forward {row['forward']['median_ms']:8.3f} ms   "
                f"with backward {total:8.3f} ms   copying alone {floor:6.3f} ms, {floor / total:.2f} of it   "
                f"{operations / 1e12:.2f} TFLOP/s, {operations / rate:.3f} of products'   bar {case.bar_ms}",
                flush=True,
            )
    for row in time_peers(cases, device, dtype) if args.peers else ():
        keep(row)
        kind = "with backward" if "forward_backward" in row else "forward"
        total = row.get("forward_backward", row["forward"])
        calls = f"   {total['calls']} calls" if "calls" in total else ""
        print(f"{row['backend']:20} {row['case']:40} {kind:13} {total['median_ms']:10.3f} ms{calls}", flush=True)
    print(f"written to {write_results(f'scan_{device.type}', device, rows)}")
    if device.type == "cpu" and "cpp" in names:
        time_block()


if __name__ == "__main__":
    main()
