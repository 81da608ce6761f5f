"""Right before fast: every kernel against its reference, by the cases and the tolerances of the tests."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "kernels"))

import normalization_agreement as normalization
import sampling_agreement as sampling
import scan_agreement as scan

from burstmamba.kernels.selective_scan import BACKENDS

CASES = {"scan": scan.SMALL + scan.LARGE, "sampling": sampling.SAMPLINGS, "normalization": normalization.TOKENS}


def check(operator: str, backend: str, kind: str, index: int) -> tuple[str, float]:
    """The worst result of one case, and its error as a share of the tolerance."""
    case = CASES[operator][index]
    if operator == "normalization":
        found, tolerance = normalization.errors(case, kind), normalization.TOLERANCE
    else:
        cases = scan if operator == "scan" else sampling
        found, tolerance = cases.errors(case, backend, kind), cases.TOLERANCE
    allowed = {name: tolerance[case.dtype] for name in found}
    if operator == "normalization":
        allowed |= {name: tolerance[torch.float32] for name in found if name != "gated"}
    shares = {name: error / allowed[name] for name, error in found.items()}
    worst = max(shares, key=shares.__getitem__)
    return f"{worst} of {case}", shares[worst]


def served(operator: str, backend: str) -> list[int]:
    """The cases of an operator that a backend takes: between products, C++ takes float32 alone."""
    cases = CASES[operator]
    every = operator == "scan" or backend == "triton"
    return [i for i, case in enumerate(cases) if every or case.dtype == torch.float32]


def judge(kernel: str, found: list[tuple[str, float]]) -> None:
    """Say that a kernel agrees with its reference, or stop here."""
    what, share = max(found, key=lambda pair: pair[1])
    if not share <= 1:
        raise SystemExit(f"{kernel}: {what} is off by {share:.1f} times the tolerance; not timed.")
    print(f"{kernel}: agrees with the reference; the worst, {what}, is {share:.2f} of the tolerance", flush=True)


def check_all(device: torch.device, meanwhile: Iterable[tuple[Callable[[str], None], str]] = ()) -> None:
    """Check the kernels of a device, in processes of their own; stop here if one is off.

    Args:
        device: whose kernels.
        meanwhile: functions and what they are given, to be run beside.
    """
    probe = torch.empty(1, device=device)
    backends = [b.name for b in BACKENDS if b.unavailable(probe) is None and b.name != "reference"]
    with ProcessPoolExecutor(min(16, os.cpu_count() or 1), mp_context=get_context("spawn")) as pool:
        others = [pool.submit(function, argument) for function, argument in meanwhile]
        jobs = {
            (operator, backend): [
                pool.submit(check, operator, backend, device.type, index) for index in served(operator, backend)
            ]
            for backend in backends
            for operator in CASES
        }
        for (operator, backend), checks in jobs.items():
            judge(f"{operator}, {backend}", [job.result() for job in checks])
        for job in others:
            job.result()
