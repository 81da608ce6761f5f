"""Time one training step and one inference window on a GPU: `python benchmarks/bench_train_step.py [--only paper]`.

Each step is timed as a user of plain PyTorch would run it (launched, nothing compiled, the same scan), and as `train`
runs it (blocks compiled, the whole step a CUDA graph). Inputs are random and stay on the device. Windows are replayed
as `restore` replays them. Kernels are held against their references first. Operations are those of forward and
backward, two a multiply-add; with the matrix rate of the same run they give a floor. Writes results/train_step.json,
or train_step_NAME.json with --only NAME.
"""

from __future__ import annotations

import argparse
import copy
import time
from dataclasses import dataclass

import torch
from checking import check_all
from measuring import matrix_rate, straightness, summary, timed, write_results

from burstmamba.correspondence.field import Correspondence
from burstmamba.evaluation.complexity import measure_complexity
from burstmamba.model.burstmamba import BurstMamba
from burstmamba.model.config import preset
from burstmamba.restoration.runner import Runner
from burstmamba.synthesis import synthesis_preset
from burstmamba.training.graph_step import GraphStep
from burstmamba.training.processes import Processes
from burstmamba.training.recipe import Phase, Photographs, Recipe
from burstmamba.training.step import Inputs


@dataclass(frozen=True)
class Case:
    """One training step."""

    name: str
    model: str
    batch: int
    side: int
    length: int
    bar_ms: float | None = None
    """The time to reach on an H200."""

    @property
    def operations(self) -> float:
        """Of a step: a backward takes twice as many as its forward."""
        once = measure_complexity(preset(self.model), self.side, self.side, self.length).total("double-scan")
        return 3 * self.batch * once


CASES = (
    Case("light complete", "light", 24, 32, 14, 30.0),
    Case("light single", "light", 24, 32, 1),
    Case("paper keyframe", "paper", 20, 40, 1, 130.0),
    Case("paper complete", "paper", 20, 30, 14, 130.0),
)
LENGTHS = (2, 4, 8, 14, 20)
SIDES = (48, 96, 144, 192)
LARGE = 144
"""Side at which a window fills a GPU: in smaller ones the burst stream runs in the keyframe stream's shadow."""


def make_inputs(model: str, batch: int, side: int, length: int, device: torch.device) -> Inputs:
    """Random frames, target, and maps of a hand's motion."""
    generator = torch.Generator(device).manual_seed(0)
    config = preset(model)
    frames = torch.rand(batch, length, config.in_channels, side, side, generator=generator, device=device)
    target = torch.rand(batch, 3, config.scale * side, config.scale * side, generator=generator, device=device)
    maps = 2 * torch.randn(batch, length, 2, 1, 1, generator=generator, device=device).expand(-1, -1, -1, side, side)
    maps[:, 0] = 0
    confidence = torch.rand(batch, length, 1, side, side, generator=generator, device=device)
    return Inputs(frames, target, Correspondence(maps.contiguous(), -maps, confidence))


def time_step(case: Case, device: torch.device, launched: bool) -> dict:
    """Milliseconds of one step both ways, seconds until the captured one is ready, peak memory."""
    phase = Phase("bench", 10, case.batch, case.side)
    recipe = Recipe(
        model=preset(case.model),
        data=Photographs(synthesis_preset("handheld-rgb")),
        loss="charbonnier",
        phases=(phase,),
    )
    torch.manual_seed(0)
    model = BurstMamba(recipe.model).to(device).to(memory_format=torch.channels_last)
    step = GraphStep(model, copy.deepcopy(model).requires_grad_(False), recipe, phase, Processes())
    inputs = make_inputs(case.model, case.batch, case.side, case.length, device)
    row: dict = {
        "case": case.name,
        "batch": case.batch,
        "side": case.side,
        "length": case.length,
        "bar_ms": case.bar_ms,
    }
    if launched:
        row["launched"] = timed(lambda: step.compute(inputs), device, graph=False)
    torch.cuda.reset_peak_memory_stats(device)
    start = time.perf_counter()
    step.prepare(lambda: [inputs])
    row["prepare_s"] = round(time.perf_counter() - start, 1)
    row["captured"] = timed(lambda: step.run(inputs, number=1, rate=1e-4, ema_weight=1e-3), device, graph=False)
    row["memory_gib"] = round(torch.cuda.max_memory_allocated(device) / 2**30, 2)
    return row


def time_window(model: str, side: int, length: int, device: torch.device) -> dict:
    """Latency of one window, replayed, its output left on the device."""
    torch.manual_seed(0)
    runner = Runner(BurstMamba(preset(model)).to(device))
    runner.graphs = True
    inputs = make_inputs(model, 1, side, length, device)
    time_of = timed(lambda: runner(inputs.frames, inputs.correspondence), device, graph=False)
    return {"model": model, "side": side, "length": length, "window": time_of}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", default="", help="steps whose name contains this")
    parser.add_argument("--skip-windows", action="store_true")
    parser.add_argument("--skip-launched", action="store_true")
    args = parser.parse_args()
    if not torch.cuda.is_available():
        parser.error("training steps are timed on a CUDA GPU, and there is none; use another machine.")
    name = "_".join(["train_step", *args.only.split()])  # a part is not written over the whole
    device = torch.device("cuda")
    torch.backends.cudnn.benchmark = True
    check_all(device)
    rate = matrix_rate(device, torch.bfloat16)
    rows: list[dict] = [{"matrix_flops_per_s": rate}]

    def keep(row: dict) -> dict:
        rows.append(row)
        write_results(name, device, rows)
        return row

    for case in CASES:
        if args.only in case.name:
            row = time_step(case, device, not args.skip_launched)
            row |= {"operations": case.operations, "matrix_floor_ms": round(1000 * case.operations / rate, 2)}
            keep(row | {"floor_over_time": round(row["matrix_floor_ms"] / row["captured"]["median_ms"], 3)})
            launched = row.get("launched", summary([float("nan")]))["median_ms"]
            print(
                f"{case.name:16} launched {launched:7.2f} ms   captured {row['captured']['median_ms']:7.2f} ms   "
                f"products alone {row['matrix_floor_ms']:6.2f} ms   bar {case.bar_ms} ms   "
                f"{row['memory_gib']} GiB   {row['prepare_s']} s to prepare",
                flush=True,
            )
    if not args.skip_windows:
        times: dict[tuple[int, int], float] = {}
        for side, length in dict.fromkeys([*((LARGE, length) for length in LENGTHS), *((side, 14) for side in SIDES)]):
            row = keep(time_window("paper", side, length, device))
            times[side, length] = row["window"]["median_ms"]
            print(f"paper window {side}² L = {length:2}: {times[side, length]:.2f} ms", flush=True)
        straight = {
            "straight_in_length": straightness(list(map(float, LENGTHS)), [times[LARGE, length] for length in LENGTHS]),
            "straight_in_area": straightness([float(side**2) for side in SIDES], [times[side, 14] for side in SIDES]),
        }
        print("R² in length {straight_in_length:.4f}, in area {straight_in_area:.4f}".format(**keep(straight)))
    print(write_results(name, device, rows))


if __name__ == "__main__":
    main()
