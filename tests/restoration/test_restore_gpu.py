"""Restoring on a GPU: captured windows equal eager ones, and both are near the CPU's float32."""

import pytest
import torch
import torch.nn.functional as F

import burstmamba.restoration.restore as restore_module
from burstmamba.burst import Burst
from burstmamba.correspondence.field import Correspondence
from burstmamba.model.burstmamba import BurstMamba
from burstmamba.model.config import preset
from burstmamba.restoration.restore import Restoration

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU"),
]


@pytest.fixture(scope="module")
def scene():
    """A moving burst, its maps, and a small random network whose learnt part is mild."""
    generator = torch.Generator().manual_seed(0)
    frames = F.interpolate(torch.rand(4, 3, 30, 28, generator=generator), (150, 140), mode="bicubic").clamp(0, 1)
    shift = torch.randn(4, 2, 1, 1, generator=generator).expand(-1, -1, 150, 140) * 3
    shift = shift * (torch.arange(4) > 0).view(4, 1, 1, 1)
    maps = Correspondence(shift[None], -shift[None], torch.ones(1, 4, 1, 150, 140))
    torch.manual_seed(0)
    model = BurstMamba(preset("tiny"))
    for parameter in model.keyframe.parameters():
        parameter.data *= 0.5
    return Burst(frames), maps, model


def restored(scene, device, tile=64, ensemble=False):
    burst, maps, model = scene
    restoration = Restoration(model.to(device), burst, correspondence=maps, tile=tile, ensemble=ensemble)
    return restoration.image(), restoration


@pytest.mark.parametrize("ensemble", [False, True])
def test_graphs_change_nothing(scene, monkeypatch, ensemble):
    captured, restoration = restored(scene, "cuda", ensemble=ensemble)
    assert restoration.runner.graphs and len(restoration.runner.captured) == (2 if ensemble else 1)
    monkeypatch.setattr(restore_module, "GRAPH_FROM", 10_000)
    eager, restoration = restored(scene, "cuda", ensemble=ensemble)
    assert not restoration.runner.graphs
    torch.testing.assert_close(captured, eager, atol=2e-3, rtol=0)


def test_the_gpu_agrees_with_the_cpu(scene):
    gpu, restoration = restored(scene, "cuda")
    assert restoration.report.precision == "bfloat16"
    cpu, _ = restored(scene, "cpu")
    psnr = -10 * torch.log10((gpu - cpu).square().mean())
    assert psnr > 40
