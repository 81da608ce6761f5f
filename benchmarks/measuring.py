"""What every benchmark shares: where it ran, medians with their spread, and one JSON file a run."""

from __future__ import annotations

import json
import os
import platform
import statistics
import subprocess
import time
from functools import cache
from pathlib import Path
from typing import Callable

import torch

RESULTS = Path(__file__).parent / "results"
LOAD = round(os.getloadavg()[0], 2) if hasattr(os, "getloadavg") else None  # Windows counts none
"""Processes that wanted a core in the minute before: a busy machine distorts ratios, too."""
PATIENCE_S = 5.0
"""How long a slow peer is timed."""


@cache
def provenance(device: torch.device) -> dict[str, str | float | None]:
    """Commit, hardware and versions, so that a number can be traced."""
    git = ["git", "-C", str(Path(__file__).parent)]
    commit = subprocess.run([*git, "rev-parse", "--short", "HEAD"], capture_output=True, text=True).stdout.strip()
    if subprocess.run([*git, "status", "--porcelain", "--", "../burstmamba"], capture_output=True, text=True).stdout:
        commit += " with changes"
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else cpu_name()
    return {
        "commit": commit or "unknown",
        "device": name,
        "threads": torch.get_num_threads(),
        "load_before": LOAD,
        "python": platform.python_version(),
        "torch": torch.__version__,
    }


def cpu_name() -> str:
    """The processor's name and its number of cores."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return f"{names[0] if names else platform.processor()}, {os.cpu_count()} cores"


def timed(run: Callable[[], object], device: torch.device, repeats: int = 15, graph: bool = True) -> dict[str, float]:
    """Median and quartiles of a call in milliseconds; on a GPU it is replayed as a CUDA graph.

    A graph leaves out the time Python takes to launch, which the training step and the restoration leave out too.
    """
    if device.type != "cuda":
        run()
        return summary([clock(run) for _ in range(repeats)])
    replay = capture(run) if graph else run
    times = []
    for _ in range(repeats + 2):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        replay()
        end.record()
        end.synchronize()
        times.append(start.elapsed_time(end))
    return summary(times[2:])


def timed_briefly(run: Callable[[], object], device: torch.device, repeats: int = 3) -> dict[str, float]:
    """Like `timed` for a slow peer, launched: once where the first call takes longer than `PATIENCE_S`.

    The number of calls that count is given; the first is a warm-up if there are more.
    """

    def finished() -> None:
        run()
        if device.type == "cuda":
            torch.cuda.synchronize(device)

    first = clock(finished)
    if first > 1000 * PATIENCE_S:
        return summary([first]) | {"calls": 1}
    times = [clock(finished)]
    while len(times) < repeats and sum(times) < 1000 * PATIENCE_S:
        times.append(clock(finished))
    return summary(times) | {"calls": len(times)}


def capture(run: Callable[[], object]) -> Callable[[], None]:
    """The call as a CUDA graph."""
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        run()
        run()
    torch.cuda.current_stream().wait_stream(stream)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        run()
    return graph.replay


def clock(run: Callable[[], object]) -> float:
    start = time.perf_counter()
    run()
    return 1000 * (time.perf_counter() - start)


def summary(times: list[float]) -> dict[str, float]:
    """Median and quartiles, none of them beyond what was measured."""
    quartiles = statistics.quantiles(times, n=4, method="inclusive") if len(times) > 1 else [times[0]] * 3
    return {"median_ms": round(quartiles[1], 4), "q1_ms": round(quartiles[0], 4), "q3_ms": round(quartiles[2], 4)}


def copy_bandwidth(device: torch.device) -> float:
    """Measured bytes a second of a large copy, reads and writes counted."""
    source = torch.empty(2**28 if device.type == "cuda" else 2**24, dtype=torch.float32, device=device)
    target = torch.empty_like(source)
    return 2 * source.nbytes / (timed(lambda: target.copy_(source), device)["median_ms"] / 1000)


def matrix_rate(device: torch.device, dtype: torch.dtype) -> float:
    """Measured operations a second of a large matrix product."""
    side = 8192 if device.type == "cuda" else 1024
    a, b = (torch.randn(side, side, dtype=dtype, device=device) for _ in range(2))
    return 2 * side**3 / (timed(lambda: a @ b, device)["median_ms"] / 1000)


def results_folder() -> Path:
    """benchmarks/results, or $BENCH_RESULTS."""
    folder = Path(os.environ.get("BENCH_RESULTS", RESULTS))
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def write_results(name: str, device: torch.device, rows: list[dict]) -> Path:
    """benchmarks/results/NAME.json (or below $BENCH_RESULTS), whole or not at all.

    Written again after every row, so that a run that is cut off leaves what it measured.
    """
    path = results_folder() / f"{name}.json"
    text = json.dumps({"provenance": provenance(device), "rows": rows}, indent=1, ensure_ascii=False)
    temporary = path.with_suffix(".tmp")
    temporary.write_text(text + "\n")
    os.replace(temporary, path)
    return path


def straightness(xs: list[float], ys: list[float]) -> float:
    """R² of a straight line through the points."""
    return statistics.correlation(xs, ys) ** 2
