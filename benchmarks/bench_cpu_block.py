"""Time the C++ scan against the rest of a keyframe block: `python benchmarks/bench_cpu_block.py`.

The scan and the block around it take turns within one run, so that both see the same machine. The scan is timed by
itself, and "the rest of the block" with Δ's projection in it; restoring has that inside the scan, which is timed too.
"""

from __future__ import annotations

import argparse
from dataclasses import replace
from unittest.mock import patch

import torch
from bench_scan import check_all
from measuring import clock, summary, write_results
from scan_cases import CASES, make_inputs

import burstmamba.kernels.selective_scan as kernels
from burstmamba.kernels.selective_scan import BACKENDS, selective_scan
from burstmamba.memory import keep_freed_memory
from burstmamba.model import keyframe_stream
from burstmamba.model.config import preset


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=15)
    parser.add_argument("--reference", action="store_true", help="time the reference loop too")
    args = parser.parse_args()
    device = torch.device("cpu")
    keep_freed_memory()  # as `restore` does
    check_all("cpp", device, [])
    case = next(case for case in CASES if case.name == "paper tile, 48×48")
    block = keyframe_stream.Block(preset("paper"), drop_path=0.0).eval()
    tokens = torch.randn(1, 48, 48, 180)
    inputs = make_inputs(case, torch.float32, device)
    threads = torch.get_num_threads()

    def scan(backend: str = "cpp") -> None:
        selective_scan(*inputs, paths=case.paths, backend=backend)

    apart = [replace(backend, widens=False) for backend in BACKENDS]
    runs = {"scan": [], "block": [], "block, projection apart": [], "scan, one thread": []}
    with torch.no_grad():
        for _ in range(args.repeats + 1):
            torch.set_num_threads(threads)
            runs["scan"].append(clock(scan))
            runs["block"].append(clock(lambda: block(tokens)))
            with patch.object(kernels, "BACKENDS", apart):
                runs["block, projection apart"].append(clock(lambda: block(tokens)))
            torch.set_num_threads(1)
            runs["scan, one thread"].append(clock(scan))
        torch.set_num_threads(threads)
        if args.reference:
            runs["reference loop"] = [0.0] + [clock(lambda: scan("reference")) for _ in range(3)]
    rows: list[dict] = [{"what": name} | summary(times[1:]) for name, times in runs.items()]
    medians = {row["what"]: row["median_ms"] for row in rows}
    rest = medians["block, projection apart"] - medians["scan"]
    ratios = {"scan / rest of the block": medians["scan"] / rest}
    ratios["block, projection apart / block"] = medians["block, projection apart"] / medians["block"]
    ratios[f"one thread / {threads} threads"] = medians["scan, one thread"] / medians["scan"]
    if args.reference:
        ratios["reference loop / scan"] = medians["reference loop"] / medians["scan"]
    for name, value in ratios.items():
        rows.append({"what": name, "ratio": round(value, 3)})
    for row in rows:
        print("  ".join(f"{key} {value}" for key, value in row.items() if key != "what"), "", row["what"], sep="  ")
    print(f"written to {write_results('scan_cpu_block', device, rows)}")


if __name__ == "__main__":
    main()
