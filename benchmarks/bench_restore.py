"""Time and peak memory of whole jobs: files in, picture out, at several sizes.

    python benchmarks/bench_restore.py --model light --megapixels 3 6
    python benchmarks/bench_restore.py --stand-in --megapixels 3 6        # everything but the network, its memory kept
    python benchmarks/bench_restore.py --model paper --megapixels 12 --device cuda --ending tif

Every job runs in a process of its own, since a peak never falls; the median one is written, with the quartiles of all.
Frames are JPEG files of a textured scene that is moved and turned a little from frame to frame. `--stand-in`
interpolates instead of running a network and allocates what a network's window may take on a CPU, so that the memory of
all the rest can be measured in minutes.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from math import ceil
from pathlib import Path

import cv2
import numpy as np
import torch
from checking import check_all
from measuring import provenance, results_folder, summary
from torch import Tensor, nn

import burstmamba.restoration.job as job
from burstmamba.checkpoint import load_model, write_atomically
from burstmamba.device import pick_device
from burstmamba.model.burstmamba import BurstMamba
from burstmamba.model.config import PRESETS, ModelConfig, preset
from burstmamba.restoration.job import JobSettings, run_job
from burstmamba.restoration.runner import Footprint

BLOCK = 2**24
"""Bytes of a tensor in a window of the light network, more or less."""


class StandIn(nn.Module):
    """Interpolates the keyframe; its first windows take and free as much memory as those of a real network may."""

    config = ModelConfig(channels=48, head_channels=24, burst_channels=24)
    heavy = 8

    def forward(self, frames: Tensor, maps: object) -> Tensor:
        """(1, l, 3, h, w) → (1, 3, 4h, 4w)."""
        if self.heavy:
            self.heavy -= 1
            _, length, _, h, w = frames.shape
            taken = Footprint().bytes_per_pixel(self.config, length, frames.device) * h * w
            [torch.ones(BLOCK, dtype=torch.uint8) for _ in range(ceil(taken / BLOCK))]
        return nn.functional.interpolate(frames[:, 0], scale_factor=4, mode="bicubic")


def write_frames(folder: Path, megapixels: float, count: int) -> None:
    """Frames of 4:3, shifted by up to 20 pixels and turned by up to 0.3 degrees."""
    height = int((megapixels * 0.75e6) ** 0.5) // 2 * 2
    width = height * 4 // 6 * 2
    rng = np.random.default_rng(0)
    scene = np.zeros((height, width, 3), np.float32)
    for octave in (4, 16, 64):
        noise = rng.random((height // octave + 2, width // octave + 2, 3), dtype=np.float32)
        scene += cv2.resize(noise, (width, height), interpolation=cv2.INTER_CUBIC) / 3
    scene = (scene.clip(0, 1) * 255).astype(np.uint8)
    for i in range(count):
        turn, (dx, dy) = (0.0, (0.0, 0.0)) if i == 0 else (rng.uniform(-0.3, 0.3), rng.uniform(-20, 20, 2))
        matrix = cv2.getRotationMatrix2D((width / 2, height / 2), turn, 1.0)
        matrix[:, 2] += dx, dy
        frame = cv2.warpAffine(scene, matrix, (width, height), flags=cv2.INTER_LINEAR, borderMode=cv2.BORDER_REFLECT)
        cv2.imwrite(str(folder / f"{i:02d}.jpg"), frame, [cv2.IMWRITE_JPEG_QUALITY, 95])


def run_one(arguments: argparse.Namespace, megapixels: float) -> dict:
    """One job in this process; its report."""
    if arguments.stand_in:
        job.load_model = lambda name, device: StandIn()
    elif arguments.model in PRESETS:  # shipped weights where there are, random ones of the same cost elsewhere
        try:
            load_model(arguments.model)
        except ValueError:  # none are shipped
            torch.manual_seed(0)
            job.load_model = lambda name, device: BurstMamba(preset(arguments.model)).to(device)
    with tempfile.TemporaryDirectory(dir=arguments.folder) as folder:
        frames = Path(folder) / "frames"
        frames.mkdir()
        write_frames(frames, megapixels, arguments.frames)
        settings = JobSettings(model=arguments.model, device=arguments.device, tile=arguments.tile)
        wall, cpu = time.perf_counter(), time.process_time()
        report = run_job(
            frames, Path(folder) / f"out.{arguments.ending}", settings, say=lambda line: print(line, file=sys.stderr)
        )
        wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
        again = None
        if megapixels in arguments.again:
            again = run_job(frames, Path(folder) / f"again.{arguments.ending}", settings)
    network = report.seconds["network"] + report.seconds.get("trial", 0.0)
    entry = {"megapixels": megapixels, "frames": arguments.frames, "seconds": report.seconds, "tile": report.tile}
    entry |= {"total_s": wall, "beside_network_s": wall - network, "cpu_s": cpu}
    if again:
        entry["seconds_again"] = again.seconds
    gpu = torch.cuda.max_memory_allocated() >> 20 if torch.cuda.is_available() else 0
    return entry | {"tiles": report.tiles, "peak_memory_mb": report.peak_memory_mb, "peak_gpu_mb": gpu}


def line(entry: dict) -> str:
    """One size, for the table."""
    total, network = entry["total"], entry["seconds_again" if "seconds_again" in entry else "seconds"]["network"]
    return (
        f"{entry['megapixels']:6.1f} MP × {entry['frames']}   files to picture {total['median_ms'] / 1000:7.2f} s "
        f"({total['q1_ms'] / 1000:.2f} to {total['q3_ms'] / 1000:.2f})   network {network:7.2f} s   "
        f"{entry['tiles']} windows   {entry['peak_memory_mb']} MB, GPU {entry['peak_gpu_mb']} MB"
    )


def main() -> None:
    """Measure, print, and write benchmarks/results/restore_*.json."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="light")
    parser.add_argument("--stand-in", action="store_true")
    parser.add_argument("--megapixels", type=float, nargs="+", default=[3.0, 6.0])
    parser.add_argument("--frames", type=int, default=14)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--tile", type=int)
    parser.add_argument("--ending", default="png")
    parser.add_argument("--folder", help="where the frames and the picture are written; default: the temporary folder")
    parser.add_argument("--output", type=Path)
    parser.add_argument(
        "--again", type=float, nargs="*", default=[], help="sizes restored twice in one process: a GPU is then set up"
    )
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--inner", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.inner:
        print(json.dumps(run_one(arguments, arguments.megapixels[0])))
        return
    device = pick_device(arguments.device)
    name = "stand-in" if arguments.stand_in else Path(arguments.model).stem
    output = arguments.output or results_folder() / f"restore_{name}_{device.type}.json"
    if not arguments.stand_in:
        check_all(device)
    entries = []
    for megapixels in arguments.megapixels:
        # The last --megapixels counts.
        call = [sys.executable, __file__, *sys.argv[1:], "--inner", "--megapixels", str(megapixels)]
        jobs = [
            json.loads(subprocess.run(call, stdout=subprocess.PIPE, text=True, check=True).stdout)
            for _ in range(arguments.repeats)
        ]
        jobs.sort(key=lambda entry: entry["total_s"])
        entries.append(jobs[len(jobs) // 2] | {"total": summary([1000 * entry["total_s"] for entry in jobs])})
        print(line(entries[-1]), flush=True)
        result = {"what": f"restore, {name}", "provenance": provenance(device), "entries": entries}
        write_atomically(output, json.dumps(result, indent=2).encode() + b"\n")


if __name__ == "__main__":
    main()
