"""How fast bursts are scored: `python benchmarks/bench_evaluation.py [--preset light] [--size 48]`.

Network, PSNR and SSIM (and LPIPS, where its files are) of 14×48×48 bursts in batches of 16, as `evaluate` runs them,
on synthetic bursts in memory; medians and quartiles, and the metrics' share.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import torch
from checking import check_all
from measuring import timed, write_results

from burstmamba.correspondence.field import Correspondence
from burstmamba.evaluation.lpips import load_lpips, lpips_available
from burstmamba.evaluation.protocol import protocol, score
from burstmamba.evaluation.reconstruct import run_network
from burstmamba.model.burstmamba import BurstMamba
from burstmamba.model.config import preset


def main() -> None:
    """Measure, print, write benchmarks/results/evaluation.json."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--preset", default="light")
    parser.add_argument("--size", type=int, default=48)
    parser.add_argument("--frames", type=int, default=14)
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--lpips-backbone", type=Path)
    parser.add_argument("--lpips-heads", type=Path)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    options = parser.parse_args()
    device = torch.device(options.device)
    check_all(device)
    model = BurstMamba(preset(options.preset)).to(device).eval()
    b, l, side = options.batch, options.frames, options.size
    frames = torch.rand(b, l, model.config.in_channels, side, side, device=device)
    maps = Correspondence(*(torch.randn(b, l, 2, side, side, device=device) for _ in range(2)))
    target = torch.rand(b, 3, 4 * side, 4 * side, device=device)
    found = lpips_available(options.lpips_backbone, options.lpips_heads)
    lpips = load_lpips(options.lpips_backbone, options.lpips_heads, device) if found else None
    picture = run_network(model, frames, maps).clone()
    rules = protocol("openburst")
    repeats = 15 if device.type == "cuda" else 3
    network = timed(lambda: run_network(model, frames, maps), device, repeats, graph=False)
    metrics = timed(lambda: score(picture, target, rules, lpips=lpips), device, repeats, graph=False)
    both = network["median_ms"] + metrics["median_ms"]
    row = {
        "preset": options.preset, "batch": b, "frames": l, "size": side, "lpips": found,
        "network": network, "metrics": metrics, "bursts_per_second": round(1000 * b / both, 1),
        "metrics_share": round(metrics["median_ms"] / both, 3),
    }  # fmt: skip
    print(row)
    print(write_results("evaluation", device, [row]))


if __name__ == "__main__":
    main()
