"""Colour spaces and tones."""

import pytest
import torch

from burstmamba.synthesis import colour
from burstmamba.synthesis.dice import Dice


@pytest.mark.parametrize(("encoded", "linear"), [(0.0, 0.0), (0.04045, 0.0031308), (0.5, 0.2140411), (1.0, 1.0)])
def test_values_of_srgb(encoded, linear):
    assert colour.to_linear(torch.tensor(encoded)).item() == pytest.approx(linear, abs=1e-6)
    assert colour.to_srgb(torch.tensor(linear)).item() == pytest.approx(encoded, abs=1e-5)


def test_matrices_keep_grey_and_invert():
    matrices = colour.camera_matrices(Dice(torch.Generator().manual_seed(0), torch.device("cpu")), 50)
    assert torch.allclose(matrices.sum(-1), torch.ones(50, 3), atol=1e-5)
    assert torch.allclose(colour.invert_matrices(matrices), torch.linalg.inv(matrices), atol=1e-4)
    image = torch.rand(50, 3, 4, 4)
    there = colour.apply_matrix(image, matrices)
    assert torch.allclose(there, torch.einsum("bij,bjhw->bihw", matrices, image), atol=1e-5)
    assert torch.allclose(colour.apply_matrix(there, colour.invert_matrices(matrices)), image, atol=1e-4)
    grey = torch.full((50, 3, 1, 1), 0.4)
    assert torch.allclose(colour.apply_matrix(grey, matrices), grey, atol=1e-5)


def test_matrices_apply_to_bursts():
    image, matrix = torch.rand(2, 5, 3, 4, 4), torch.rand(2, 3, 3)
    assert torch.allclose(
        colour.apply_matrix(image, matrix), torch.einsum("bij,bljhw->blihw", matrix, image), atol=1e-5
    )


def test_tone_curve_is_fixed_at_its_ends():
    x = torch.tensor([0.0, 0.25, 0.5, 1.0])
    assert colour.tone_curve(x, torch.tensor(1.0)).tolist() == pytest.approx([0.0, 0.15625, 0.5, 1.0])
    assert torch.equal(colour.tone_curve(x, torch.tensor(0.0)), x)
