"""How the network's time grows with the area and with the frames: `python benchmarks/bench_growth.py [--model light]`.

Windows of several sizes and burst lengths take turns, round after round, and the fastest of each counts for the line,
since a busy machine only ever adds time; medians and quartiles are written beside. Kernels are held against their
references first. Writes results/growth_DEVICE.json with the R² of straight lines.
"""

from __future__ import annotations

import argparse

import torch
from checking import check_all
from measuring import clock, straightness, summary, write_results

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
    check_all(device)
    torch.manual_seed(0)
    runner = Runner(BurstMamba(preset(args.model)).to(device))
    points = dict.fromkeys([*((side, LENGTH) for side in SIDES), *((SIDE, length) for length in LENGTHS)])
    times: dict[tuple[int, int], list[float]] = {point: [] for point in points}
    for _ in range(args.rounds):
        for side, length in points:
            frames = torch.rand(1, length, runner.model.config.in_channels, side, side, device=device)
            maps = Correspondence.identity(frames)
            times[side, length].append(clock(lambda: runner(frames, maps).cpu()))  # noqa: B023 (called at once)
    fastest = {point: min(found) for point, found in times.items()}
    rows: list[dict] = [
        {"side": side, "length": length, "fastest_ms": round(fastest[side, length], 1)} | summary(found)
        for (side, length), found in times.items()
    ]
    area = [float(side * side) for side in SIDES], [fastest[side, LENGTH] for side in SIDES]
    length = [float(n) for n in LENGTHS], [fastest[SIDE, n] for n in LENGTHS]
    rows.append({"straight_in_area": straightness(*area)})
    rows.append({"straight_in_length": straightness(*length)})
    for row in rows:
        print(row)
    print(write_results(f"growth_{device.type}", device, rows))


if __name__ == "__main__":
    main()
