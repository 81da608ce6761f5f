"""PSNR, SSIM and LPIPS against closed forms and the packages everybody uses."""

import math
import sys
import types
from pathlib import Path

import numpy as np
import pytest
import torch

from burstmamba.errors import InputError
from burstmamba.evaluation.lpips import Lpips, load_lpips
from burstmamba.evaluation.metrics import psnr, ssim

SHARED = Path(__file__).resolve().parents[3] / "shared"
BACKBONE = SHARED / "data/weights/alexnet-features.safetensors"


def pair(b=3, h=40, w=53, noise=0.1, seed=0):
    generator = torch.Generator().manual_seed(seed)
    target = torch.rand(b, 3, h, w, generator=generator)
    return (target + noise * torch.randn(target.shape, generator=generator)).clamp(0, 1), target


def test_psnr_values():
    target = torch.full((2, 3, 8, 8), 0.5)
    assert torch.allclose(psnr(target + 0.1, target), torch.tensor([20.0, 20.0], dtype=torch.float64), atol=1e-5)
    assert torch.isinf(psnr(target, target)).all()


def test_psnr_channel_mean_is_above_pooled():
    target = torch.zeros(1, 3, 4, 4)
    prediction = torch.tensor([0.1, 0.01, 0.001]).view(1, 3, 1, 1).expand_as(target)
    pooled = -10 * math.log10((1e-2 + 1e-4 + 1e-6) / 3)
    assert psnr(prediction, target).item() == pytest.approx(pooled, abs=1e-5)
    assert psnr(prediction, target, channel_mean=True).item() == pytest.approx(40.0, abs=1e-5)


def test_ssim_values():
    constant = torch.full((1, 3, 16, 16), 0.4)
    offset = constant + 0.2
    expected = (2 * 0.4 * 0.6 + 1e-4) / (0.4**2 + 0.6**2 + 1e-4)  # no variance: the luminance term alone
    assert ssim(offset, constant).item() == pytest.approx(expected, abs=1e-6)
    assert ssim(constant, constant).item() == pytest.approx(1.0)


def test_agrees_with_scikit_image():
    metrics = pytest.importorskip("skimage.metrics", reason="scikit-image, the oracle, is not installed")
    prediction, target = pair()
    for index in range(len(target)):
        x, y = prediction[index].permute(1, 2, 0).numpy(), target[index].permute(1, 2, 0).numpy()
        expected = metrics.structural_similarity(
            x.astype(np.float64), y.astype(np.float64), data_range=1.0, channel_axis=2,
            gaussian_weights=True, sigma=1.5, use_sample_covariance=False,
        )  # fmt: skip
        assert ssim(prediction, target)[index].item() == pytest.approx(expected, abs=1e-6)
        assert psnr(prediction, target)[index].item() == pytest.approx(
            metrics.peak_signal_noise_ratio(y, x, data_range=1.0), abs=1e-4
        )


def test_agrees_with_torchmetrics():
    image = pytest.importorskip("torchmetrics.functional.image", reason="torchmetrics, the oracle, is not installed")
    prediction, target = pair()
    _, full = image.structural_similarity_index_measure(
        prediction, target, data_range=1.0, reduction="none", return_full_image=True
    )
    expected = full[..., 5:-5, 5:-5].mean(dim=(1, 2, 3))  # torchmetrics also averages over reflected borders
    assert torch.allclose(ssim(prediction, target).float(), expected, atol=1e-4)
    expected = image.peak_signal_noise_ratio(prediction, target, data_range=1.0, reduction="none", dim=(1, 2, 3))
    assert torch.allclose(psnr(prediction, target).float(), expected, atol=1e-4)


def test_batch_equals_one_by_one():
    prediction, target = pair()
    for metric in (psnr, ssim):
        single = torch.cat([metric(x[None], y[None]) for x, y in zip(prediction, target, strict=True)])
        assert torch.allclose(metric(prediction, target), single, atol=1e-12)


def test_errors():
    with pytest.raises(InputError, match=r"one shape, got \(1, 3, 8, 8\) and \(1, 3, 8, 9\)"):
        psnr(torch.zeros(1, 3, 8, 8), torch.zeros(1, 3, 8, 9))
    with pytest.raises(InputError, match="at least 11×11 pixels, got 9×10"):
        ssim(torch.zeros(1, 3, 10, 9), torch.zeros(1, 3, 10, 9))


def alexnet_features():
    """AlexNet's feature extractor, as torchvision builds it, for running the lpips package without torchvision."""
    nn = torch.nn
    return nn.Sequential(
        nn.Conv2d(3, 64, 11, 4, 2), nn.ReLU(True), nn.MaxPool2d(3, 2),
        nn.Conv2d(64, 192, 5, padding=2), nn.ReLU(True), nn.MaxPool2d(3, 2),
        nn.Conv2d(192, 384, 3, padding=1), nn.ReLU(True),
        nn.Conv2d(384, 256, 3, padding=1), nn.ReLU(True),
        nn.Conv2d(256, 256, 3, padding=1), nn.ReLU(True), nn.MaxPool2d(3, 2),
    )  # fmt: skip


@pytest.fixture
def needs_lpips():
    if not BACKBONE.is_file():
        pytest.skip(f"AlexNet's weights are not at {BACKBONE}")
    import importlib.util

    if importlib.util.find_spec("lpips") is None:
        pytest.skip("the package lpips, which carries the linear heads, is not installed")


def test_lpips_agrees_with_its_package(needs_lpips, monkeypatch):
    from safetensors.torch import load_file

    weights = {key.removeprefix("features."): value.float() for key, value in load_file(BACKBONE).items()}
    features = alexnet_features()
    features.load_state_dict(weights)
    models = types.ModuleType("torchvision.models")
    models.alexnet = lambda **_: types.SimpleNamespace(features=features)
    torchvision = types.ModuleType("torchvision")
    torchvision.models = models
    for name in [name for name in sys.modules if name.split(".")[0] in ("lpips", "torchvision")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "torchvision", torchvision)
    monkeypatch.setitem(sys.modules, "torchvision.models", models)
    import lpips as package

    oracle = package.LPIPS(net="alex", verbose=False)
    ours = load_lpips(BACKBONE)
    prediction, target = pair(b=2, h=96, w=80)
    with torch.no_grad():
        assert torch.allclose(ours(prediction, target), oracle(prediction * 2 - 1, target * 2 - 1).flatten(), atol=1e-5)
        expected = oracle(prediction, target).flatten()
    assert torch.allclose(ours(prediction, target, signed=False), expected, atol=1e-5)
    assert torch.equal(ours(target, target), torch.zeros(2))
    for name in [name for name in sys.modules if name.split(".")[0] == "lpips"]:
        monkeypatch.delitem(sys.modules, name)


def test_lpips_errors(tmp_path, monkeypatch):
    monkeypatch.delenv("BURSTMAMBA_LPIPS_BACKBONE", raising=False)
    monkeypatch.setenv("TORCH_HOME", str(tmp_path))
    with pytest.raises(InputError, match=r"needs AlexNet's weights and found none.*--lpips-backbone"):
        load_lpips()
    with pytest.raises(InputError, match=r"found none at .*missing\.pth"):
        load_lpips(tmp_path / "missing.pth")
    torch.save({"features.0.weight": torch.zeros(1)}, tmp_path / "wrong.pth")
    with pytest.raises(InputError, match="do not fit AlexNet"):
        load_lpips(tmp_path / "wrong.pth", tmp_path / "wrong.pth")
    for name, content in (
        ("a.pth", b""),
        ("b.pth", b"not weights"),
        ("c.pth", b"#!/bin/sh\n"),
        ("d.safetensors", b"x"),
    ):
        (tmp_path / name).write_bytes(content)
        with pytest.raises(InputError, match=rf"{name} holds no LPIPS weights, or is damaged \("):
            load_lpips(tmp_path / name, tmp_path / "wrong.pth")
    with pytest.raises(InputError, match="at least 64×64 pixels, got 50×63 without the border; --no-lpips leaves"):
        Lpips()(torch.zeros(1, 3, 63, 50), torch.zeros(1, 3, 63, 50))


def test_lpips_example_images(needs_lpips):
    """The lpips project's three example images, where its `imgs` folder lies beside the data."""
    folder = SHARED / "data/test/lpips"
    if not (folder / "ex_ref.png").is_file():
        pytest.skip(f"the lpips project's example images are not in {folder}")
    from PIL import Image

    def read(name):
        return torch.from_numpy(np.asarray(Image.open(folder / name).convert("RGB"))).permute(2, 0, 1)[None] / 255

    metric = load_lpips(BACKBONE)
    assert metric(read("ex_ref.png"), read("ex_p0.png")).item() == pytest.approx(0.722, abs=2e-3)
    assert metric(read("ex_ref.png"), read("ex_p1.png")).item() == pytest.approx(0.138, abs=2e-3)
