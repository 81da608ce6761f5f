"""The same scores on a GPU as on the CPU."""

import pytest
import torch
from test_evaluation_baselines import QUICK, SHIFTS, detailed_scene, take_burst
from test_evaluation_run import HEADER, benchmark

from burstmamba.evaluation.classical import solve
from burstmamba.evaluation.evaluate import Evaluation
from burstmamba.evaluation.protocol import protocol, score
from burstmamba.evaluation.reconstruct import Method
from burstmamba.model.burstmamba import BurstMamba
from burstmamba.model.config import preset

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU"),
]


@pytest.mark.parametrize("name", ["synburst-linear", "realbsr-rgb-fbanet", "openburst"])
def test_metrics(name):
    generator = torch.Generator().manual_seed(0)
    target = torch.rand(2, 3, 128, 120, generator=generator)
    prediction = target + 0.1 * torch.randn(target.shape, generator=generator)
    on_cpu = score(prediction, target, protocol(name))
    on_gpu = score(prediction.cuda(), target.cuda(), protocol(name))
    for metric, values in on_cpu.items():
        assert torch.allclose(values, on_gpu[metric].cpu(), atol=1e-6)


def test_solver():
    frames, maps, _ = take_burst(detailed_scene(4 * 16 + 32), 16, SHIFTS)
    on_cpu = solve(frames, maps, linear=True, settings=QUICK)
    on_gpu = solve(frames.cuda(), maps.to("cuda"), linear=True, settings=QUICK)
    assert (on_cpu - on_gpu.cpu()).abs().mean() < 1e-3


def test_evaluation(tmp_path):
    torch.manual_seed(0)
    model = BurstMamba(preset("tiny")).eval()
    methods = [Method("bicubic"), Method("network", 1), Method("network", 4, "exact")]
    books = {
        device: Evaluation(
            benchmark(), methods, tmp_path / device, model=model.to(device), device=device, workers=1
        ).run(HEADER)
        for device in ("cpu", "cuda")
    }
    for key, cpu_score in books["cpu"].scores.items():
        # The network computes in bfloat16 on a GPU.
        assert books["cuda"].scores[key].psnr == pytest.approx(cpu_score.psnr, abs=0.1)
