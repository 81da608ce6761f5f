import math

import pytest
import torch

from burstmamba.model import wavelet
from burstmamba.model.wavelet import HIGH, LOW, dtcwt, project_subbands, resize_by_matrix, resize_twice


def high_pass_bands(tokens):
    """lh, hl and hh of tokens (n, h, w, c), filtered by explicit sums over a symmetric extension."""

    def along(x, taps, axis):
        size, reach = x.shape[axis], len(taps) // 2
        total = 0
        for k, tap in enumerate(taps):
            index = [(i + k - reach) % (2 * size) for i in range(size)]
            index = [i if i < size else 2 * size - 1 - i for i in index]
            total = total + tap * x.index_select(axis, torch.tensor(index))
        return total

    low, high = along(tokens, LOW, 2), along(tokens, HIGH, 2)
    return along(low, HIGH, 1), along(high, LOW, 1), along(high, HIGH, 1)


def test_filters_are_symmetric_and_split_the_constant():
    assert len(LOW) == 13 and len(HIGH) == 19
    assert LOW[::-1] == LOW and HIGH[::-1] == HIGH
    assert math.isclose(sum(LOW), 1, abs_tol=1e-12)
    assert abs(sum(HIGH)) < 1e-12


@pytest.mark.parametrize("size", [(6, 10), (2, 2), (150, 12), (12, 150)])
def test_energy_identity(size):
    """Σ|z|² over the six subbands equals the energy of lh, hl and hh; short, long and tiny axes alike."""
    torch.manual_seed(0)
    tokens = torch.randn(2, *size, 3, dtype=torch.float64)
    energy = sum(band.square().sum() for band in high_pass_bands(tokens))
    assert torch.allclose(dtcwt(tokens).square().sum(), energy, rtol=1e-10)


def test_shapes():
    assert dtcwt(torch.zeros(2, 7, 9, 5)).shape == (2, 4, 5, 60)
    assert dtcwt(torch.zeros(1, 1, 1, 3)).shape == (1, 1, 1, 36)


def test_values_constant_gives_zero():
    assert dtcwt(torch.full((1, 9, 8, 2), 0.7, dtype=torch.float64)).abs().max() < 1e-12


def test_odd_sizes_repeat_the_last_row_and_column():
    tokens = torch.randn(1, 7, 5, 2)
    padded = torch.cat((tokens, tokens[:, -1:]), 1)
    padded = torch.cat((padded, padded[:, :, -1:]), 2)
    assert torch.equal(dtcwt(tokens), dtcwt(padded))


def test_orientation_of_an_oblique_grating():
    """A grating answers in the subband of its own direction, not in the mirrored one."""
    y, x = torch.meshgrid(torch.arange(32.0), torch.arange(32.0), indexing="ij")
    winners = []
    for sign in (1, -1):
        wave = torch.cos(0.55 * math.pi * (x + sign * y))[None, :, :, None]
        parts = dtcwt(wave)[0, 4:-4, 4:-4].unflatten(-1, (6, 2))
        energy = dict(zip(("15", "165", "45", "135", "75", "105"), parts.square().sum((0, 1, 3)).tolist(), strict=True))
        strongest = max(energy, key=energy.get)
        weaker = energy["135" if strongest == "45" else "45"]
        assert strongest in ("45", "135") and energy[strongest] > 5 * weaker
        winners.append(strongest)
    assert winners[0] != winners[1]


def test_symmetric_borders_commute_with_flips():
    tokens = torch.randn(1, 12, 10, 2, dtype=torch.float64)
    z = dtcwt(tokens).unflatten(-1, (6, 2, 2))
    flipped = dtcwt(tokens.flip(2)).flip(2).unflatten(-1, (6, 2, 2))
    energy, mirrored = z.square().sum(4), flipped.square().sum(4)  # |z|² of each orientation and channel
    assert torch.allclose(energy[..., [1, 0, 3, 2, 5, 4], :], mirrored, atol=1e-10)


@pytest.mark.parametrize("h, w", [(40, 66), (128, 130), (196, 4)])
def test_long_axes_in_parts_agree_with_one_matrix(monkeypatch, h, w):
    """A last part of two samples, whole parts only, and an axis shorter than the filter."""
    tokens, weight = torch.randn(2, h, w, 3, dtype=torch.float64), torch.randn(5, 36, dtype=torch.float64)
    bias = torch.zeros(5, dtype=torch.float64)
    monkeypatch.setattr(wavelet, "MATRIX_UP_TO", 256)
    by_matrix = project_subbands(tokens, weight, bias)
    monkeypatch.setattr(wavelet, "MATRIX_UP_TO", 0)
    assert torch.allclose(by_matrix, project_subbands(tokens, weight, bias), atol=1e-11)


def test_gradients():
    tokens = torch.randn(1, 4, 5, 2, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(dtcwt, (tokens,))


def test_agrees_with_pytorch_wavelets():
    oracle = pytest.importorskip("pytorch_wavelets", reason="the oracle package is not installed")
    tokens = torch.randn(1, 16, 20, 2)
    _, high = oracle.DTCWTForward(J=1, biort="near_sym_b", qshift="qshift_b")(tokens.permute(0, 3, 1, 2))
    expected = high[0][:, :, [0, 5, 1, 4, 2, 3]].permute(0, 3, 4, 2, 5, 1).flatten(3)
    assert torch.allclose(dtcwt(tokens), expected, atol=1e-5)


def test_shift_by_two_pixels_moves_the_subbands_by_one_sample():
    torch.manual_seed(0)
    tokens = torch.randn(1, 48, 48, 2, dtype=torch.float64)
    moved = dtcwt(tokens.roll((2, 4), dims=(1, 2)))
    expected = dtcwt(tokens).roll((1, 2), dims=(1, 2))
    inside = (slice(None), slice(8, -8), slice(8, -8))  # away from borders, where the pictures differ
    assert torch.allclose(moved[inside], expected[inside], atol=1e-12)


def test_shift_by_one_pixel_hardly_changes_the_energy_of_a_grating():
    """What the complex transform is for: magnitudes do not depend on the phase of the sampling."""
    y, x = torch.meshgrid(torch.arange(64.0), torch.arange(64.0), indexing="ij")
    energies = []
    for shift in (0.0, 0.5, 1.0):
        wave = torch.cos(0.55 * math.pi * (x + shift + y))[None, :, :, None]
        energies.append(dtcwt(wave)[0, 8:-8, 8:-8].unflatten(-1, (6, 2)).square().sum(-1))
    strongest = energies[0].mean((0, 1)).argmax()
    means = [energy[..., strongest].mean().item() for energy in energies]
    spreads = [energy[..., strongest].std().item() for energy in energies]
    assert max(means) < 1.02 * min(means) and max(spreads) < 0.1 * means[0]


@pytest.mark.parametrize("size", [(6, 8), (7, 9), (1, 1), (2, 31)])
def test_projecting_in_matrix_products_is_the_same(size):
    tokens = torch.randn(2, *size, 3, dtype=torch.float64)
    weight, bias = torch.randn(5, 36, dtype=torch.float64), torch.randn(5, dtype=torch.float64)
    expected = torch.nn.functional.linear(dtcwt(tokens), weight, bias)
    assert torch.allclose(project_subbands(tokens, weight, bias), expected, atol=1e-12)


def test_resizing_by_matrix_is_the_same():
    tokens = torch.randn(2, 5, 1, 3, dtype=torch.float64)
    assert torch.allclose(resize_by_matrix(tokens), resize_twice(tokens), atol=1e-12)


def test_filters_made_without_gradients_serve_training():
    with torch.inference_mode():
        dtcwt(torch.zeros(1, 22, 26, 1))
    tokens = torch.zeros(1, 22, 26, 1, requires_grad=True)
    dtcwt(tokens).sum().backward()
    assert tokens.grad is not None
