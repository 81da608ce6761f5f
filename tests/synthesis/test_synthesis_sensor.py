"""Noise, mosaic and its interpolation."""

import pytest
import torch

from burstmamba.errors import InputError
from burstmamba.synthesis.dice import Dice
from burstmamba.synthesis.sensor import add_hot_pixels, add_noise, demosaic, mosaic, pack, unpack


@pytest.fixture
def dice():
    return Dice(torch.Generator().manual_seed(0), torch.device("cpu"))


def test_noise_variance_is_linear_in_the_signal(dice):
    shot, read = torch.tensor([0.01]), torch.tensor([1e-4])
    levels = torch.tensor([0.0, 0.1, 0.3, 0.6, 0.9])
    light = levels.view(1, 5, 1, 1, 1).expand(1, 5, 1, 300, 300)
    noisy = add_noise(light, shot, read, dice)
    variance = noisy.var((2, 3, 4))[0]
    assert torch.allclose(variance, levels * 0.01 + 1e-4, rtol=0.03)
    assert torch.allclose(noisy.mean((2, 3, 4))[0], levels, atol=2e-3)


def test_hot_pixels_stay_in_place(dice):
    light = torch.zeros(2, 4, 1, 64, 64)
    hot = add_hot_pixels(light, torch.tensor([True, False]), dice, share=0.01)
    assert torch.equal(hot[1], light[1])
    assert 20 < (hot[0, 0] > 0).sum() < 80
    assert all(torch.equal(hot[0, 0], hot[0, l]) for l in range(4))


def test_values_of_the_mosaic():
    image = torch.stack([torch.full((4, 4), v) for v in (1.0, 2.0, 3.0)])
    assert mosaic(image)[0, :2, :2].tolist() == [[1.0, 2.0], [2.0, 3.0]]
    packed = pack(torch.arange(16.0).view(1, 4, 4))
    assert packed[:, 0, 0].tolist() == [0.0, 1.0, 4.0, 5.0]  # R, Gr, Gb, B
    assert torch.equal(unpack(packed), torch.arange(16.0).view(1, 4, 4))


def test_demosaicking_keeps_flat_colours_and_ramps():
    flat = torch.tensor([0.2, 0.5, 0.8])[:, None, None].expand(3, 12, 12)
    assert torch.allclose(demosaic(mosaic(flat))[..., 2:-2, 2:-2], flat[..., 2:-2, 2:-2], atol=1e-6)
    ramp = torch.linspace(0, 1, 16).expand(3, 16, 16)
    assert torch.allclose(demosaic(mosaic(ramp))[..., 2:-2, 2:-2], ramp[..., 2:-2, 2:-2], atol=1e-5)


def test_demosaicking_beats_doing_nothing_clever():
    image = torch.nn.functional.interpolate(
        torch.rand(1, 1, 12, 12, generator=torch.Generator().manual_seed(3)), size=(48, 48), mode="bicubic"
    ).expand(1, 3, 48, 48)
    packed = pack(mosaic(image))
    naive = torch.nn.functional.interpolate(packed[:, [0, 1, 3]], scale_factor=2, mode="nearest")
    assert (demosaic(mosaic(image)) - image).abs().mean() < 0.3 * (naive - image).abs().mean()


def test_errors():
    with pytest.raises(InputError, match="even size"):
        pack(torch.zeros(1, 5, 4))
    with pytest.raises(InputError, match="4 planes"):
        unpack(torch.zeros(3, 4, 4))
