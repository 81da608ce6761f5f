"""Lens and pixel: closed forms and the slow way of doing it."""

from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F

from burstmamba.synthesis import synthesis_preset
from burstmamba.synthesis.dice import Dice
from burstmamba.synthesis.motion import centred_grid
from burstmamba.synthesis.optics import convolve, expose, gaussian_kernels, lens_kernels, middle_light, pixel_light

DELTA = torch.zeros(1, 3, 3).index_put((torch.tensor(0), torch.tensor(1), torch.tensor(1)), torch.tensor(1.0))


def test_values_of_pixels():
    light = torch.rand(1, 3, 44, 44, generator=torch.Generator().manual_seed(0))
    frames = expose(pixel_light(light, DELTA), centred_grid(9, 9, light.device).expand(1, 1, 2, 9, 9))
    # An LR pixel covers HR pixels 4i…4i+3 of the centred view (4·9 = 36 of 44, so it starts at 4).
    expected = F.avg_pool2d(light[..., 4:40, 4:40], 4)
    assert torch.allclose(frames[:, 0], expected, atol=1e-5)


@pytest.mark.parametrize("shift", [(1, 0), (-2, 3)])
def test_moved_pixels_see_moved_light(shift):
    light = torch.rand(1, 3, 64, 64, generator=torch.Generator().manual_seed(1))
    x, y = shift
    points = centred_grid(10, 10, light.device) + torch.tensor([x / 4, y / 4])[:, None, None]
    frames = expose(pixel_light(light, DELTA), points.expand(1, 1, 2, 10, 10))
    expected = F.avg_pool2d(light[..., 12 + y : 52 + y, 12 + x : 52 + x], 4)
    assert torch.allclose(frames[:, 0], expected, atol=1e-5)


def test_flat_light_stays_flat():
    config = synthesis_preset("handheld-rgb")
    kernels = lens_kernels(Dice(torch.Generator().manual_seed(2), torch.device("cpu")), 5, config)
    assert torch.allclose(kernels.sum((1, 2)), torch.ones(5))
    light = pixel_light(torch.full((5, 3, 40, 40), 0.37), kernels)
    assert torch.allclose(light, torch.full_like(light, 0.37), atol=1e-6)


def test_kernels_have_their_widths():
    kernel = gaussian_kernels(torch.tensor([1.5]), torch.tensor([0.9]), torch.tensor([0.0]), radius=8)[0]
    ramp = torch.arange(-8, 9.0)
    assert (kernel.sum(0) * ramp**2).sum() == pytest.approx(1.5**2, rel=1e-3)
    assert (kernel.sum(1) * ramp**2).sum() == pytest.approx(0.9**2, rel=1e-3)


def test_lenses_are_anisotropic_within_their_range():
    config = replace(synthesis_preset("handheld-rgb"), lens_blur=(0.9, 1.2))  # wide enough for moments on a pixel grid
    kernels = lens_kernels(Dice(torch.Generator().manual_seed(0), torch.device("cpu")), 200, config)
    half = kernels.shape[-1] // 2
    ramp = torch.arange(-half, half + 1.0)
    xx, yy = (kernels.sum(1) * ramp**2).sum(1), (kernels.sum(2) * ramp**2).sum(1)
    xy = (kernels * ramp[:, None] * ramp).sum((1, 2))
    major, minor = torch.linalg.eigvalsh(torch.stack((xx, xy, xy, yy), -1).view(-1, 2, 2)).sqrt().unbind(-1)[::-1]
    assert 1.25 < (major / minor).max() < 1.31 and (major * minor).sqrt().max() < 1.21


def test_each_image_has_its_own_kernel():
    images = torch.rand(2, 3, 12, 12, generator=torch.Generator().manual_seed(3))
    kernels = torch.rand(2, 5, 5, generator=torch.Generator().manual_seed(4))
    padded = F.pad(images, [2] * 4, mode="replicate")
    for i in range(2):
        expected = F.conv2d(padded[i][:, None], kernels[i][None, None])[:, 0]
        assert torch.allclose(convolve(images, kernels)[i], expected, atol=1e-5)


def test_frames_are_aliased():
    # Stripes of 5 HR pixels are beyond what LR pixels of 4 can show, and still leave a false pattern.
    x = torch.arange(128)
    light = (0.5 + 0.5 * torch.cos(2 * torch.pi * x / 5)).expand(1, 3, 128, 128)
    frames = expose(
        pixel_light(light, gaussian_kernels(*(torch.tensor([0.5]),) * 3, 3)),
        centred_grid(16, 16, light.device)[None, None],
    )
    assert frames.std(-1).mean() > 0.02


def test_small_pixels_collect_the_middle():
    light = torch.rand(1, 3, 36, 36)
    points = centred_grid(9, 9, light.device).expand(1, 1, 2, 9, 9)
    expected = light.unfold(2, 4, 4).unfold(3, 4, 4)[..., 1:3, 1:3].mean((-2, -1))
    torch.testing.assert_close(expose(middle_light(light), points)[:, 0], expected)
