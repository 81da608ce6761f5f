"""What the training loop adds to the step: `python benchmarks/bench_training.py --data FOLDER [--recipes NAME ...]`.

The bare step is forward, backward, clipping and AdamW on one batch that stays on the device. The loop adds cropping,
synthesis one batch ahead, copying, averaged weights, counting and a look at the numbers. Both are measured on the burst
lengths that the recipe's last phase draws. Writes results/training_RECIPE.json.
"""

from __future__ import annotations

import argparse
import copy
import time
from pathlib import Path
from tempfile import TemporaryDirectory
from unittest.mock import patch

import torch
from measuring import write_results

from burstmamba.device import pick_device
from burstmamba.model.burstmamba import BurstMamba
from burstmamba.training import graph_step
from burstmamba.training.chance import burst_length
from burstmamba.training.graph_step import GraphStep
from burstmamba.training.overrides import load_recipe, override
from burstmamba.training.preparation import open_data
from burstmamba.training.processes import Processes
from burstmamba.training.recipe import Recipe
from burstmamba.training.source import Prefetcher, Source, inputs_of
from burstmamba.training.step import TrainStep


def main() -> None:
    """Measure each recipe, print a line, write the results."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", nargs="*", default=[])
    parser.add_argument("--recipes", nargs="+", default=["open-rgb", "open-paper"])
    parser.add_argument("--set", nargs="*", default=[], dest="settings")
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--device", default="auto")
    options = parser.parse_args()
    device = pick_device(options.device)
    for name in options.recipes:
        recipe = override(load_recipe(name), ["validation.bursts=1", *options.settings])
        with TemporaryDirectory() as scratch:
            source, _ = open_data(recipe, options.data, None, Path(scratch), device, Processes())
            row = {"recipe": name, **measure(recipe, source, device, options.steps)}
        print(
            "{recipe}: bare step {step_ms:.2f} ms, in the loop {loop_ms:.2f} ms: {overhead_percent:.1f} % more; "
            "{prepare_s:.0f} s to prepare, {first_batches_s:.1f} s more to the first batches".format(**row)
        )
        print(write_results(f"training_{name}", device, [row]))


def measure(recipe: Recipe, source: Source, device: torch.device, steps: int) -> dict[str, object]:
    """Mean milliseconds of the bare step and of the loop's, over the same burst lengths."""
    phase = recipe.phases[-1]
    lengths = [burst_length(phase, recipe.seed, number) for number in range(steps)]
    begun = time.perf_counter()
    step = build(recipe, device)
    examples = {length: inputs_of(source.example(0, phase, length)) for length, _ in phase.frames}
    step.prepare(lambda: list(examples.values()))
    synchronize(device)
    prepared = time.perf_counter()
    for length in examples:
        source.batch(0, phase, length)  # waits for the photographs, records the synthesis
    synchronize(device)
    prepare, first_batch = prepared - begun, time.perf_counter() - prepared

    def loop() -> None:
        prefetcher = Prefetcher(source, device)
        for number, length in enumerate(lengths):
            inputs = prefetcher.take(number, phase, length)
            step.run(inputs, number=number, rate=1e-6, ema_weight=0.001)
            prefetcher.prepare(number + 1, phase, lengths[(number + 1) % steps])
            if number % recipe.log_every == 0:
                step.progress()

    whole = mean_ms(loop, device, steps)
    step.average, step.count = (lambda: None), (lambda loss, norm, finite: None)  # type: ignore[method-assign] (left out)
    with patch.object(graph_step, "precompile"):  # all is compiled by now
        step.prepare(lambda: list(examples.values()))
    by_length = {}
    for length in sorted(examples):

        def bare(length: int = length) -> None:
            for _ in range(20):
                step.replay(length) if isinstance(step, GraphStep) else step.compute(examples[length])

        bare()
        by_length[length] = mean_ms(bare, device, 20)
    alone = sum(by_length[length] for length in lengths) / steps
    return {
        "batch": phase.batch,
        "patch": phase.patch,
        "step_ms_by_length": {str(length): round(ms, 3) for length, ms in by_length.items()},
        "step_ms": round(alone, 3),
        "loop_ms": round(whole, 3),
        "overhead_percent": round(100 * (whole / alone - 1), 2),
        "prepare_s": round(prepare, 1),
        "first_batches_s": round(first_batch, 1),
        "memory_gib": round(torch.cuda.max_memory_reserved(device) / 2**30, 2) if device.type == "cuda" else None,
    }


def build(recipe: Recipe, device: torch.device) -> TrainStep:
    """The step as `train` builds it."""
    model = BurstMamba(recipe.model).to(device)
    if device.type == "cuda":
        model.to(memory_format=torch.channels_last)
        torch.backends.cudnn.benchmark = True
    kind = GraphStep if device.type == "cuda" else TrainStep
    return kind(model, copy.deepcopy(model).requires_grad_(False), recipe, recipe.phases[-1], Processes())


def mean_ms(run, device: torch.device, count: int) -> float:
    """Wall milliseconds of each of `count` repetitions that `run` makes."""
    synchronize(device)
    start = time.perf_counter()
    run()
    synchronize(device)
    return 1000 * (time.perf_counter() - start) / count


def synchronize(device: torch.device) -> None:
    """Wait for the device."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


if __name__ == "__main__":
    main()
