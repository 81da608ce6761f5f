"""How the network's time grows with the area and with the frames: `python benchmarks/bench_growth.py [--model light]`.

Windows of several sizes and burst lengths take turns, round after round, and the fastest of each counts, since a busy
machine only ever adds time. Writes results/growth_DEVICE.json with the R² of straight lines.
"""

from __future__ import annotations

import argparse
import time

import torch
from measuring import straightness, write_results

from burstmamba.correspondence.field import Correspondence
from burstmamba.memory import keep_freed_memory
from burstmamba.model.burstmamba import BurstMamba
from burstmamba.model.config import preset
from burstmamba.restoration.runner import Runner

SIDES = (48, 64, 96, 128)
LENGTHS = (2, 8, 14, 20, 26)
SIDE, LENGTH = 96, 14


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", default="light")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    args = parser.parse_args()
    device = torch.device(args.device)
    if device.type == "cpu":
        keep_freed_memory()  # as `restore` does
    torch.manual_seed(0)
    runner = Runner(BurstMamba(preset(args.model)).to(device))
    points = dict.fromkeys([*((side, LENGTH) for side in SIDES), *((SIDE, length) for length in LENGTHS)])
    fastest = dict.fromkeys(points, float("inf"))
    for _ in range(args.rounds):
        for side, length in points:
            frames = torch.rand(1, length, runner.model.config.in_channels, side, side, device=device)
            maps = Correspondence.identity(frames)
            start = time.perf_counter()
            runner(frames, maps).cpu()
            fastest[side, length] = min(fastest[side, length], time.perf_counter() - start)
    rows: list[dict] = [{"side": s, "length": l, "seconds": round(t, 4)} for (s, l), t in fastest.items()]
    area = [float(side * side) for side in SIDES], [fastest[side, LENGTH] for side in SIDES]
    length = [float(n) for n in LENGTHS], [fastest[SIDE, n] for n in LENGTHS]
    rows.append({"straight_in_area": straightness(*area)})
    rows.append({"straight_in_length": straightness(*length)})
    for row in rows:
        print(row)
    print(write_results(f"growth_{device.type}", device, rows))


if __name__ == "__main__":
    main()
