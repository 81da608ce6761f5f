"""Time the selective scan: `python benchmarks/bench_scan.py [--device cpu|cuda] [--tune] [--peers]`.

Every backend is first checked against the reference on this device; a backend that fails is not timed. Peers are the
Triton walk that never cuts a path, as a plain loop kernel would be, the PyTorch reference compiled by `torch.compile`
(the forward of short paths: anything else takes minutes to compile), and the reference as it is (a loop over tokens,
timed by a call or a few), in this order. The results are written after every row.
"""

from __future__ import annotations

import argparse
import itertools
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from multiprocessing import get_context

import torch
from measuring import copy_bandwidth, timed, timed_briefly, write_results
from scan_cases import CASES, TWO, Case, make_inputs

from burstmamba.kernels.selective_scan import BACKENDS, selective_scan

FOUR = ("rows", "columns", "rows reversed", "columns reversed")
SHORT = 16
"""Tokens of a path up to which compiling a loop over them is worth the wait."""
TOLERANCE = {torch.float32: 2e-4, torch.bfloat16: 3e-2}
# Case, dtype, and whether tokens are weighted.
CHECKS = (
    (Case("check long", 2, 1, 9, 11, 90, 16, FOUR), torch.bfloat16, False),
    (Case("check narrow", 1, 1, 4, 24, 20, 8, ("columns reversed", "rows")), torch.float32, True),
    (Case("check burst", 2, 33, 14, 1, 45, 16, TWO), torch.bfloat16, True),
    (Case("check two frames", 1, 40, 2, 1, 24, 8, TWO), torch.float32, False),
    (Case("check chunks", 1, 1, 16, 17, 8, 16, ("columns", "rows reversed")), torch.float32, False),
)


def gradients(case: Case, inputs: list, backend: str, weight) -> list:
    leaves = [tensor.detach().requires_grad_() for tensor in inputs]
    y = selective_scan(*leaves, paths=case.paths, weight=weight, backend=backend)
    upstream = torch.sin(torch.arange(y.numel(), device=y.device).view(y.shape)).to(y.dtype)
    return [y.detach(), *torch.autograd.grad(y, leaves, upstream)]


def check(backend: str, kind: str, index: int) -> tuple[str, float]:
    """The largest error of one check against the reference in float32, relative to each tensor's largest value."""
    (case, dtype, weighted), device = CHECKS[index], torch.device(kind)
    inputs = make_inputs(case, dtype, device)
    weight = torch.rand(case.b, case.p, case.i, case.j, device=device) if weighted else None
    names = ("y", "dx", "ddelta", "dA", "dB", "dC", "dD", "dbias")
    truth = gradients(case, [tensor.float() for tensor in inputs], "reference", weight)
    worst = ("", 0.0)
    for name, a, b in zip(names, gradients(case, inputs, backend, weight), truth, strict=True):
        error = ((a.float() - b).abs().max() / b.abs().max().clamp_min(1e-6)).nan_to_num(torch.inf).item()
        worst = max(worst, (f"{name} of {case.name} in {dtype}", error / TOLERANCE[dtype]), key=lambda pair: pair[1])
    return worst


def check_all(backend: str, device: torch.device, tunings: list[str]) -> None:
    """Check a backend, and compile the variants meanwhile; stop here if it is off."""
    with ProcessPoolExecutor(min(16, len(CHECKS) + len(tunings)), mp_context=get_context("spawn")) as pool:
        jobs = [pool.submit(check, backend, device.type, index) for index in range(len(CHECKS))]
        compiling = [pool.submit(compile_variant, name) for name in tunings]
        what, worst = max((job.result() for job in jobs), key=lambda pair: pair[1])
        if not worst <= 1:
            raise SystemExit(f"{backend}: {what} is off by {worst:.1f} times the tolerance; not timed.")
        print(f"{backend}: agrees with the reference; the worst, {what}, is {worst:.2f} of the tolerance", flush=True)
        for job in compiling:
            job.result()


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
        if case.tokens <= SHORT and case.bar_ms:  # the forward alone: the backward takes minutes to compile
            compiled, forward = torch.compile(selective_scan, dynamic=False), replace(case, backward=False)
            yield time_case(forward, "reference", device, dtype, scan=compiled) | {"backend": "reference, compiled"}
    for case in sorted(cases, key=lambda case: case.tokens):
        # The backward of a loop keeps every state: tens of gigabytes for the long paths of a whole batch.
        small = case.tokens <= SHORT or (device.type == "cuda" and case.elements < 60e6)
        yield time_case(
            case if small else replace(case, backward=False), "reference", device, dtype, clock=timed_briefly
        )


def matrix_rate(device: torch.device, dtype: torch.dtype) -> float:
    """Measured operations a second of a large matrix product."""
    side = 8192 if device.type == "cuda" else 1024
    a, b = (torch.randn(side, side, dtype=dtype, device=device) for _ in range(2))
    return 2 * side**3 / (timed(lambda: a @ b, device)["median_ms"] / 1000)


def variants() -> dict[str, dict[str, int]]:
    """Tunings worth a try, by name; each shows its difference from the default."""
    return {
        "default": {},
        "never cut": {"programs": 0, "long_programs": 0, "backward_programs": 0},
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
        cases = [case for case in cases if case.elements < 60e6]
    names = [b.name for b in BACKENDS if b.unavailable(torch.empty(1, device=device)) is None and b.name != "reference"]
    bandwidth = copy_bandwidth(device)
    rate = matrix_rate(device, dtype)
    print(f"copy bandwidth {bandwidth / 1e9:.0f} GB/s, matrix products {rate / 1e12:.1f} TFLOP/s", flush=True)
    rows: list[dict] = [{"copy_bytes_per_s": bandwidth, "matrix_flops_per_s": rate}]

    def keep(row: dict) -> None:
        rows.append(row)
        write_results(f"scan_{device.type}", device, rows)

    for backend in names:
        tunings = list(variants()) if args.tune and backend == "triton" else ["default"]
        check_all(backend, device, tunings if backend == "triton" else [])
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
                f"with backward {total:8.3f} ms   copying alone {floor:6.3f} ms   bar {case.bar_ms}",
                flush=True,
            )
    for row in time_peers(cases, device, dtype) if args.peers else ():
        keep(row)
        kind = "with backward" if "forward_backward" in row else "forward"
        total = row.get("forward_backward", row["forward"])
        calls = f"   {total['calls']} calls" if "calls" in total else ""
        print(f"{row['backend']:20} {row['case']:40} {kind:13} {total['median_ms']:10.3f} ms{calls}", flush=True)
    print(f"written to {write_results(f'scan_{device.type}', device, rows)}")


if __name__ == "__main__":
    main()
