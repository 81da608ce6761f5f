"""The lens tester's numbers against closed forms."""

import math

import pytest
import torch
import torch.nn.functional as F

from burstmamba.evaluation.resolution import edge_mtf, mtf50, siemens_star, slanted_edge, star_contrast, star_limit


def blur(image, sigma):
    radius = math.ceil(4 * sigma)
    offsets = torch.arange(-radius, radius + 1, dtype=torch.float32)
    window = torch.exp(-offsets.square() / (2 * sigma**2))
    window = (window / window.sum()).expand(3, 1, -1)
    image = F.pad(image, (radius,) * 4, mode="replicate")
    return F.conv2d(F.conv2d(image, window[..., None], groups=3), window[:, :, None], groups=3)


def transfer(frequency, sigma):
    """Gaussian blur behind square pixels."""
    pixel = math.sin(math.pi * frequency) / (math.pi * frequency)
    return math.exp(-2 * (math.pi * sigma * frequency) ** 2) * pixel


@pytest.mark.parametrize("sigma", [1.0, 1.7, 3.0])
def test_edge_of_a_gaussian(sigma):
    image = blur(slanted_edge(128), sigma)[0, 0]
    frequency, measured = edge_mtf(image)
    for wanted in (0.05, 0.1):
        index = int((frequency - wanted).abs().argmin())
        assert measured[index].item() == pytest.approx(transfer(frequency[index].item(), sigma), abs=0.03)
    low, high = 1e-4, 0.5
    for _ in range(40):
        middle = (low + high) / 2
        low, high = (middle, high) if transfer(middle, sigma) > 0.5 else (low, middle)
    assert mtf50(image) == pytest.approx(low, rel=0.05)


def test_sharper_edges_score_higher():
    values = [mtf50(blur(slanted_edge(128), sigma)[0, 0]) for sigma in (3.0, 2.0, 1.0)]
    assert values == sorted(values) and values[2] > 2 * values[0]


def test_star_of_a_gaussian():
    sigma = 2.0
    frequency, contrast = star_contrast(blur(siemens_star(192), sigma)[0, 0])
    for wanted in (0.08, 0.12):
        index = int((frequency - wanted).abs().argmin())
        assert contrast[index].item() == pytest.approx(transfer(frequency[index].item(), sigma), abs=0.03)


def test_star_limit():
    sigma = 2.0
    limit = math.sqrt(-math.log(0.1) / 2) / (math.pi * sigma)  # where the Gaussian alone leaves 10 %
    assert star_limit(blur(siemens_star(192), sigma)[0, 0]) == pytest.approx(limit, rel=0.06)
    coarse = F.interpolate(F.avg_pool2d(siemens_star(192), 4), scale_factor=4, mode="bicubic")
    assert star_limit(coarse[0, 0]) < 0.177  # an LR frame's diagonal Nyquist frequency
