"""How fast bursts are made: `python benchmarks/bench_synthesis.py [--photos FOLDER]`.

Times a batch of 20 bursts of 14 frames, 30×30 LR pixels, nuisances on, crops included; medians and quartiles over
repetitions. Without photographs, noise images are used: the work does not depend on the content. Writes
results/synthesis_DEVICE.json.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import torch
from measuring import clock, summary, write_results
from PIL import Image

from burstmamba.data.photographs import PhotographBank
from burstmamba.data.source import BurstSource
from burstmamba.synthesis import synthesis_preset


def main() -> None:
    """Measure every preset, print a table, write the result as JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--photos", type=Path)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--batch", type=int, default=20)
    parser.add_argument("--size", type=int, default=30)
    parser.add_argument("--repetitions", type=int, default=30)
    options = parser.parse_args()
    device = torch.device(options.device)
    with TemporaryDirectory() as scratch:
        bank = PhotographBank(options.photos or noise_images(Path(scratch)), device, smallest=512)
    rows: list[dict] = []
    for name in ("handheld-rgb", "handheld-raw", "synburst"):
        for graph in (True, False) if device.type == "cuda" else (False,):
            source = BurstSource(bank, synthesis_preset(name), batch=options.batch, size=options.size, graph=graph)
            row = {"preset": name, "batch": options.batch, "frames": 14, "size": options.size, "cuda_graph": graph}
            row |= summary(times_of(source, device, options.repetitions))
            rows.append(row | {"bursts_per_second": round(1000 * options.batch / row["median_ms"], 1)})
            print(
                "{preset:13s} graph={cuda_graph!s:5s} {median_ms:8.2f} ms  "
                "(quartiles {q1_ms:.2f}-{q3_ms:.2f})  {bursts_per_second:9.1f} bursts/s".format(**rows[-1])
            )
            path = write_results(f"synthesis_{device.type}", device, rows)
    print(f"written to {path}")


def times_of(source: BurstSource, device: torch.device, repetitions: int) -> list[float]:
    """Milliseconds of a batch each, device finished, after two that do not count; fewer on a CPU."""

    def batch() -> None:
        next(source)
        if device.type == "cuda":
            torch.cuda.synchronize(device)

    count = repetitions if device.type == "cuda" else min(5, repetitions)
    return [clock(batch) for _ in range(count + 2)][2:]


def noise_images(folder: Path) -> Path:
    """Photographs of nothing."""
    draw = np.random.default_rng(0)
    for i in range(4):
        Image.fromarray(draw.integers(0, 256, (768, 768, 3), dtype=np.uint8)).save(folder / f"{i}.png")
    return folder


if __name__ == "__main__":
    main()
