"""Time the C++ scan against the rest of a keyframe block: `python benchmarks/bench_cpu_block.py`.

The scan and the block around it take turns within one run, so that both see the same machine. The scan is timed by
itself, and "the rest of the block" with Δ's projection in it; restoring has that inside the scan, which is timed too.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import replace
from statistics import median
from unittest.mock import patch

import torch
from checking import check_all
from measuring import clock, summary, write_results
from scan_cases import CASES, make_inputs

import burstmamba.kernels.selective_scan as kernels
from burstmamba.kernels.selective_scan import BACKENDS, selective_scan
from burstmamba.memory import keep_freed_memory
from burstmamba.model import keyframe_stream
from burstmamba.model.config import preset

BARS = {"scan / rest of the block": "at most 0.5", "one thread / 2 threads": "1.7", "reference loop / scan": "7"}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=61)
    args = parser.parse_args()
    check_all(torch.device("cpu"))
    time_block(args.repeats)


def time_block(repeats: int = 61) -> None:
    """Measure, print, and write results/scan_cpu_block.json; whoever calls has checked the kernels."""
    device = torch.device("cpu")
    keep_freed_memory()  # as `restore` does
    case = next(case for case in CASES if case.name == "paper tile, 48×48")
    block = keyframe_stream.Block(preset("paper"), drop_path=0.0).eval()
    tokens = torch.randn(1, 48, 48, 180)
    inputs = make_inputs(case, torch.float32, device)
    threads = torch.get_num_threads()

    def scan(backend: str = "cpp") -> None:
        selective_scan(*inputs, paths=case.paths, backend=backend)

    apart = tuple(replace(backend, widens=False) for backend in BACKENDS)
    runs: dict[str, list[float]] = {}

    def time(name: str, run: Callable[[], object]) -> None:
        runs.setdefault(name, []).append(clock(run))

    with torch.no_grad():
        for number in range(repeats + 1):
            torch.set_num_threads(threads)
            time("scan", scan)
            time("block", lambda: block(tokens))
            with patch.object(kernels, "BACKENDS", apart):
                time("block, projection apart", lambda: block(tokens))
            torch.set_num_threads(1)
            time("scan, one thread", scan)
            if number == 0:
                runs.clear()  # a warm-up
        torch.set_num_threads(threads)
        for _ in range(3):
            time("reference loop", lambda: scan("reference"))
    rows: list[dict] = [{"what": name} | summary(times) for name, times in runs.items()]

    def ratio(above: str, below: Callable[[int], float]) -> float:
        """The median over rounds, since a clock that changes is the same within one."""
        return median(time / below(i) for i, time in enumerate(runs[above]))

    ratios = {
        "scan / rest of the block": ratio("scan", lambda i: runs["block, projection apart"][i] - runs["scan"][i]),
        "block, projection apart / block": ratio("block, projection apart", lambda i: runs["block"][i]),
        f"one thread / {threads} threads": ratio("scan, one thread", lambda i: runs["scan"][i]),
        "reference loop / scan": median(runs["reference loop"]) / median(runs["scan"]),
    }
    for row in rows:
        print("{what:34} {median_ms:9.2f} ms   ({q1_ms:.2f} to {q3_ms:.2f})".format(**row))
    for name, value in ratios.items():
        rows.append({"what": name, "ratio": round(value, 3)})
        print(f"{name:34} {value:9.2f}" + (f"      to reach: {BARS[name]}" if name in BARS else ""))
    print(f"written to {write_results('scan_cpu_block', device, rows)}")


if __name__ == "__main__":
    main()
