import json
import subprocess
import sys
from dataclasses import replace

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from burstmamba.errors import InputError
from burstmamba.evaluation import complexity_plot
from burstmamba.evaluation.complexity import Complexity, cost_of_further_frame, measure_complexity, sum_operations
from burstmamba.model.burstmamba import BurstMamba
from burstmamba.model.config import preset


def test_values_are_the_papers():
    config = preset("paper")
    single = measure_complexity(config, 48, 48, 1)
    totals = {name: single.total(name) / 1e9 for name in ("paper", "modules", "no-scan", "double", "double-scan")}
    assert totals["paper"] == pytest.approx(63.24, abs=0.005)
    assert [round(totals[name]) for name in ("modules", "no-scan", "double", "double-scan")] == [39, 46, 92, 109]
    assert cost_of_further_frame(config, 48, 48, "paper") / 1e9 == pytest.approx(1.295, abs=5e-4)
    assert measure_complexity(preset("balanced"), 48, 48, 1).total("paper") / 1e9 == pytest.approx(41.74, abs=0.005)


@pytest.mark.parametrize(("even", "centric"), [("light-balanced", "light"), ("balanced", "paper")])
def test_the_even_split_costs_the_same(even, centric):
    """The rows of the ablation's split: one total, half of it in the keyframe stream or clearly more."""
    costs = [measure_complexity(preset(name), 48, 48, 14) for name in (even, centric)]
    totals = [cost.total("paper") for cost in costs]
    shares = [sum_operations(cost.keyframe.values()).total("paper") / cost.total("paper") for cost in costs]
    assert totals[0] == pytest.approx(totals[1], rel=0.02)
    assert shares[0] == pytest.approx(0.5, abs=0.04) and shares[1] > 0.58


@pytest.mark.parametrize("name", ["light", "light-raw"])
def test_light_stays_under_its_bound(name):
    cost = measure_complexity(preset(name), 48, 48, 14)
    keyframe = sum_operations(cost.keyframe.values()).total("paper")
    assert cost.total("paper") <= 8e9 and keyframe > 0.5 * cost.total("paper")


@pytest.mark.parametrize("name", ["tiny", "tiny-raw", "paper shortened"])
@pytest.mark.parametrize("frames", [1, 3])
def test_dense_count_equals_pytorchs(name, frames):
    """Convolutions and matrix products of the real network, counted by PyTorch (2 a MAC)."""
    # 32 channels: with 16, Δ has rank 1 and PyTorch multiplies it element-wise, which it does not count.
    shortened = replace(preset("paper"), blocks=(1, 2))
    config = shortened if name == "paper shortened" else replace(preset(name), channels=32)
    model = BurstMamba(config)
    with FlopCounterMode(display=False) as counter:  # without gradients Δ's projection would count in the scan
        model(torch.rand(1, frames, config.in_channels, 8, 6))
    parts = measure_complexity(config, 8, 6, frames)
    total = sum_operations((*parts.keyframe.values(), *parts.burst.values()))
    # On axes this short the wavelet's filters are dense matrices, low and high together: 2w, then 4h products a pixel.
    stages, c = len(config.blocks), config.burst_channels
    matrices = frames * stages * 8 * 6 * c * (2 * 6 + 4 * 8) if parts.burst else 0
    matrices += frames * stages * 4 * 3 * 4 * c * config.psi_channels if parts.burst else 0  # low and low, times 0
    extra = 2 * 3 * 9 * 8 * 6 if config.global_skip == "bicubic" and config.in_channels == 1 else 0  # demosaicking
    gates = sum(config.blocks) * 2 * config.channels * max(4, round(config.channels / 30))  # element-wise, not counted
    expected = 2 * (total.modules + total.projections + total.psi_half + matrices + extra - gates)
    scan = counter.get_flop_counts()["Global"]
    counted = sum(value for op, value in scan.items() if "scan" not in str(op))
    assert counted == pytest.approx(expected, rel=1e-9)


def test_scans_are_counted_from_the_first_one_on():
    """In a process of its own: a counter knows the operators that were registered when it was made."""
    code = """
import torch
from torch.utils.flop_counter import FlopCounterMode
from burstmamba import BurstMamba
from burstmamba.model.config import preset
model = BurstMamba(preset("tiny"))
with torch.inference_mode(), FlopCounterMode(display=False) as counter:
    model(torch.rand(1, 3, 3, 8, 6))
print(sum(count for operator, count in counter.get_flop_counts()["Global"].items() if "scan" in str(operator)))
"""
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    config = preset("tiny")
    parts = measure_complexity(config, 8, 6, 3)
    inside = sum(config.blocks) * 4 * 8 * 6 * 2 * config.channels * config.delta_rank  # Δ's projection
    scans = sum_operations((*parts.keyframe.values(), *parts.burst.values())).scan
    assert int(run.stdout) == scans + 2 * inside, run.stderr


def test_cost_is_linear_in_frames_and_area():
    config = preset("light")
    costs = [measure_complexity(config, 16, 16, l).total("executed") for l in range(2, 6)]
    steps = {round(b - a) for a, b in zip(costs, costs[1:], strict=False)}
    assert len(steps) == 1
    small, large = (measure_complexity(config, side, side, 14) for side in (32, 64))
    squeeze = sum(config.blocks) * 2 * config.channels * 4  # channel attention acts once an image
    assert large.total("executed") - squeeze == pytest.approx(4 * (small.total("executed") - squeeze), rel=1e-9)


def test_plots_that_cannot_be_written(tmp_path, monkeypatch):
    pytest.importorskip("matplotlib", reason="plots need matplotlib")
    monkeypatch.setattr(complexity_plot, "measure_complexity", lambda *_: Complexity(0, 0, {}, {}))
    (tmp_path / "file").write_text("")
    for name in ("file/c.png", "c.nonsense"):
        with pytest.raises(InputError, match=rf"cannot write .*{name} \(.*\); name another PNG"):
            complexity_plot.plot_complexity(preset("tiny"), 8, 8, tmp_path / name)


def test_command_prints_json_and_draws():
    command = [
        sys.executable,
        "-m",
        "burstmamba",
        "complexity",
        "--preset",
        "paper",
        "--burst-length",
        "14",
        "--size",
        "48",
    ]
    report = json.loads(subprocess.run([*command, "--json"], capture_output=True, text=True, check=True).stdout)
    assert report["parameters"] == {"keyframe": 20_569_575, "burst": 794_040}
    assert report["gflops"]["paper"]["keyframe"] == pytest.approx(63.24, abs=0.005)
    assert report["gflops"]["paper"]["each further frame"] == pytest.approx(1.295, abs=5e-4)
    assert report["gflops"]["executed"]["total"] < report["gflops"]["paper"]["total"]
    bad = subprocess.run([*command[:-1], "4x8x9"], capture_output=True, text=True)
    assert bad.returncode == 2 and "--size must be a number or HEIGHTxWIDTH" in bad.stderr
    assert "Traceback" not in bad.stderr
