"""Rows and columns that are scanned one by one."""

from dataclasses import replace

import pytest
import torch

from burstmamba.kernels.selective_scan import PATHS, selective_scan
from burstmamba.model.config import preset
from burstmamba.model.keyframe_stream import SelectiveScan2d
from burstmamba.model.lines import scan_lines

REACH = 3.0
FOREVER = 1e9


@pytest.fixture
def arguments():
    """Of a scan over (4, 5) tokens, with states that last."""
    torch.manual_seed(0)
    b, k, h, w, d, n = 2, 4, 4, 5, 6, 3
    x, delta = torch.randn(b, 1, h, w, d), torch.randn(b, 1, k, h, w, d)
    B, C = torch.randn(2, b, 1, k, h, w, n)
    return [x, delta, -torch.rand(k, d, n), B, C, torch.randn(k, d), torch.randn(k, d)]


def line_by_line(x, delta, A, B, C, D, bias, path: str, k: int, axis: int) -> torch.Tensor:
    """One path of the reference over each line as if it were an image."""
    parts = []
    for line in range(x.shape[axis]):
        delta_, B_, C_ = (t[:, :, k : k + 1].narrow(axis + 1, line, 1) for t in (delta, B, C))
        A_, D_, bias_ = (t[k : k + 1] for t in (A, D, bias))
        alone = x.narrow(axis, line, 1)
        parts.append(selective_scan(alone, delta_, A_, B_, C_, D_, bias_, paths=(path,), backend="reference"))
    return torch.cat(parts, axis)


def test_a_line_knows_nothing_of_the_others(arguments):
    expected = sum(
        line_by_line(*arguments, path, k, 3 if path.startswith("columns") else 2) for k, path in enumerate(PATHS)
    )
    assert torch.allclose(scan_lines(*arguments, reach=FOREVER), expected, atol=1e-5)


def test_what_is_far_counts_less(arguments):
    """The influence of a token on another of its row, against the same where nothing fades."""
    influence = []
    for reach in (REACH, FOREVER):
        x = arguments[0].clone().requires_grad_()
        y = scan_lines(x, *arguments[1:], reach=reach)
        (gradient,) = torch.autograd.grad(y[0, 0, 1, 3].sum(), x)
        influence.append(gradient[0, 0])
    faded, plain = influence
    distance = torch.tensor([[3.0, 2, 1, 0, 1]])[..., None]
    assert torch.allclose(faded[1:2, :], plain[1:2, :] * torch.exp(-distance / REACH), rtol=1e-3, atol=1e-5)
    distance = torch.tensor([1.0, 0, 1, 2])[:, None]
    assert torch.allclose(faded[:, 3], plain[:, 3] * torch.exp(-distance / REACH), rtol=1e-3, atol=1e-5)
    elsewhere = torch.ones(4, 5, dtype=torch.bool)
    elsewhere[1], elsewhere[:, 3] = False, False
    assert faded[elsewhere].abs().max() == 0 < plain[1].abs().min()


def test_the_projection_of_delta_inside_the_scan(arguments):
    """As restoring on a CPU does it: Δ stays as narrow as its rank."""
    narrow, weight = torch.randn(2, 1, 4, 4, 5, 2), torch.randn(4, 6, 2)
    wide = torch.einsum("bpkijr,kdr->bpkijd", narrow, weight)
    x, _, *others = arguments
    with torch.no_grad():
        found = scan_lines(x, narrow, *others, reach=REACH, delta_weight=weight)
        assert torch.allclose(found, scan_lines(x, wide, *others, reach=REACH), atol=1e-5)


def test_long_lines_do_not_overflow():
    """Not even those that are longer than any window: their ends are as any other place, the gradients too."""
    x, delta = torch.randn(1, 1, 2, 6000, 4), torch.randn(1, 1, 4, 2, 6000, 4)
    B, C = torch.randn(2, 1, 1, 4, 2, 6000, 3).requires_grad_()
    found = scan_lines(x, delta, -torch.ones(4, 4, 3), B, C, torch.ones(4, 4), torch.zeros(4, 4), reach=16.0)
    ends = found[..., :100, :].std(), found[..., -100:, :].std()
    assert found.isfinite().all() and all(0.7 < end / found.std() < 1.4 for end in ends)
    for gradient in torch.autograd.grad(found.square().sum(), (B, C)):
        assert gradient.isfinite().all() and gradient[..., -9:, :].abs().amax(-1).min() > 0


def test_weights_fit_both():
    """Networks that differ in this alone hold the same parameters: either goes on from the other's."""
    image, lines = (SelectiveScan2d(replace(preset("tiny"), reach=reach)) for reach in (0.0, REACH))
    lines.load_state_dict(image.state_dict())
    tokens = torch.randn(1, 6, 7, image.channels)
    assert not torch.equal(image(tokens), lines(tokens))
