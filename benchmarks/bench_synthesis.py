"""How fast bursts are made: `python benchmarks/bench_synthesis.py [--photos FOLDER] [--output FILE]`.

Times a batch of 20 bursts of 14 frames, 30×30 LR pixels, nuisances on, crops included; medians and spread over
repetitions. Without photographs, noise images are used: the work does not depend on the content.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import time
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import torch

from burstmamba.data.photographs import PhotographBank
from burstmamba.data.source import BurstSource
from burstmamba.synthesis import synthesis_preset


def main() -> None:
    """Measure every preset, print a table, write the result as JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--photos", type=Path)
    parser.add_argument("--output", type=Path)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--batch", type=int, default=20)
    parser.add_argument("--size", type=int, default=30)
    parser.add_argument("--repetitions", type=int, default=30)
    options = parser.parse_args()
    with TemporaryDirectory() as scratch:
        bank = PhotographBank(options.photos or _noise_images(Path(scratch)), options.device, smallest=512)
    rows = []
    for name in ("handheld-rgb", "handheld-raw", "synburst"):
        for graph in (True, False) if options.device.startswith("cuda") else (False,):
            config = synthesis_preset(name)
            source = BurstSource(bank, config, batch=options.batch, size=options.size, graph=graph)
            rows.append({"preset": name, "cuda_graph": graph, **_measure(source, options)})
            print(
                "{preset:13s} graph={cuda_graph!s:5s} {median_ms:8.2f} ms  "
                "(quartiles {quartiles_ms[0]:.2f}-{quartiles_ms[1]:.2f})  {bursts_per_second:9.1f} bursts/s".format(
                    **rows[-1]
                )
            )
    result = {**_conditions(options), "rows": rows}
    if options.output:
        temporary = options.output.with_suffix(".tmp")
        temporary.write_text(json.dumps(result, indent=2) + "\n")
        os.replace(temporary, options.output)


def _measure(source: BurstSource, options: argparse.Namespace) -> dict[str, object]:
    """Wall time of one batch, device finished."""
    repetitions = options.repetitions if options.device.startswith("cuda") else min(5, options.repetitions)
    times = []
    for i in range(repetitions + 2):
        start = time.perf_counter()
        next(source)
        if options.device.startswith("cuda"):
            torch.cuda.synchronize()
        if i >= 2:
            times.append(1e3 * (time.perf_counter() - start))
    quartiles = statistics.quantiles(times, n=4)
    median = statistics.median(times)
    return {
        "median_ms": round(median, 3),
        "quartiles_ms": [round(quartiles[0], 3), round(quartiles[2], 3)],
        "bursts_per_second": round(1e3 * options.batch / median, 1),
    }


def _conditions(options: argparse.Namespace) -> dict[str, object]:
    commit = subprocess.run(("git", "rev-parse", "--short", "HEAD"), capture_output=True, text=True, check=False)
    on_gpu = options.device.startswith("cuda")
    return {
        "benchmark": "synthesis",
        "commit": commit.stdout.strip(),
        "hardware": torch.cuda.get_device_name() if on_gpu else f"CPU, {torch.get_num_threads()} threads",
        "torch": torch.__version__,
        "python": platform.python_version(),
        "batch": options.batch,
        "frames": 14,
        "size": options.size,
    }


def _noise_images(folder: Path) -> Path:
    from PIL import Image

    draw = np.random.default_rng(0)
    for i in range(4):
        Image.fromarray(draw.integers(0, 256, (768, 768, 3), dtype=np.uint8)).save(folder / f"{i}.png")
    return folder


if __name__ == "__main__":
    main()
