"""Bilinear sampling: closed forms, borders, errors."""

import pytest
import torch

from burstmamba.errors import InputError
from burstmamba.kernels.sampling import sample_bilinear, select_backend


def ramp(h=5, w=6):
    y, x = torch.meshgrid(torch.arange(h, dtype=torch.float64), torch.arange(w, dtype=torch.float64), indexing="ij")
    return (2 * x + 10 * y)[None, None], x, y


def test_values_of_a_ramp():
    """Bilinear sampling of 2x + 10y is exact inside, and clamps the position outside."""
    features, x, y = ramp()
    displacement = torch.tensor([0.25, -0.75], dtype=torch.float64).view(1, 2, 1, 1).expand(1, 2, 5, 6)
    expected = 2 * (x + 0.25).clamp(0, 5) + 10 * (y - 0.75).clamp(0, 4)
    torch.testing.assert_close(sample_bilinear(features, displacement)[0, 0], expected)


def test_zero_displacement_is_the_identity():
    features = torch.randn(2, 3, 4, 5)
    torch.testing.assert_close(sample_bilinear(features, torch.zeros(2, 2, 4, 5)), features)


def test_output_has_the_size_of_the_map():
    assert sample_bilinear(torch.randn(1, 3, 4, 5), torch.zeros(1, 2, 7, 2)).shape == (1, 3, 7, 2)


def test_no_gradient_to_the_map():
    displacement = torch.zeros(1, 2, 4, 5, requires_grad=True)
    features = torch.randn(1, 3, 4, 5, requires_grad=True)
    sample_bilinear(features, displacement).sum().backward()
    assert displacement.grad is None and features.grad is not None


def test_errors():
    with pytest.raises(InputError, match=r"expects features \(n, c, h, w\) .* got \(1, 3, 4\)"):
        sample_bilinear(torch.zeros(1, 3, 4), torch.zeros(1, 2, 4, 4))
    with pytest.raises(InputError, match="unknown sampling backend 'magic'; known: triton, cpp, reference"):
        select_backend(torch.zeros(1), "magic")
    with pytest.raises(InputError, match=r"sampling backend 'triton' cannot run here: \S+"):
        select_backend(torch.zeros(1, dtype=torch.float64), "triton")
