"""Lines that are scanned one by one."""

from dataclasses import replace

import pytest
import torch

from burstmamba.kernels.selective_scan import selective_scan
from burstmamba.model.config import preset
from burstmamba.model.keyframe_stream import SelectiveScan2d


@pytest.fixture
def problem():
    """A scan with states that last, its tokens (2, 4, 5, d), and what they select."""
    torch.manual_seed(0)
    scan = SelectiveScan2d(replace(preset("tiny"), lines=True))
    torch.nn.init.normal_(scan.D)
    torch.nn.init.normal_(scan.delta_bias)
    tokens = torch.randn(2, 4, 5, 2 * scan.channels)
    A, _ = scan.fold(gpu=False)
    with torch.no_grad():
        delta, B, C = scan.select(tokens, None)
        selection = delta @ scan.delta_weight.transpose(1, 2)[None, :, None], B, C
    return scan, tokens, selection, A.detach()


def test_a_line_knows_nothing_of_the_others(problem):
    scan, tokens, selection, A = problem
    expected = torch.zeros_like(tokens)
    for k, (path, axis) in enumerate((("rows", 1), ("columns", 2), ("rows reversed", 1), ("columns reversed", 2))):
        for line in range(tokens.shape[axis]):
            alone = tokens.narrow(axis, line, 1)
            delta, B, C = (t[:, None, k : k + 1].narrow(axis + 2, line, 1) for t in selection)
            A_, D, bias = (w[k : k + 1] for w in (A, scan.D, scan.delta_bias))
            y = selective_scan(alone[:, None], delta, A_, B, C, D, bias, paths=(path,), backend="reference")
            expected.narrow(axis, line, 1).add_(y[:, 0])
    assert torch.allclose(scan.scan_lines(tokens, selection, A, None), expected, atol=1e-5)


@pytest.mark.parametrize("lines", [True, False])
def test_how_far_a_token_reaches(problem, lines):
    scan, tokens, selection, A = problem
    tokens.requires_grad_()
    y = (scan.scan_lines if lines else scan.scan_image)(tokens, selection, A, None)
    (reached,) = torch.autograd.grad(y[0, 1, 3].sum(), tokens)
    reached = reached[0].abs().amax(-1) > 0
    row_and_column = torch.zeros(4, 5, dtype=torch.bool)
    row_and_column[1], row_and_column[:, 3] = True, True
    assert torch.equal(reached, row_and_column if lines else torch.ones_like(reached))


def test_the_projection_of_delta_inside_the_scan(problem):
    """As restoring on a CPU does it: Δ stays as narrow as its rank."""
    scan, tokens, selection, A = problem
    with torch.no_grad():
        found = scan.scan_lines(tokens, scan.select(tokens, None), A, scan.delta_weight)
        assert torch.allclose(found, scan.scan_lines(tokens, selection, A, None), atol=1e-5)


def test_weights_fit_both():
    """Networks that differ in this alone hold the same parameters: either goes on from the other's."""
    image, lines = (SelectiveScan2d(replace(preset("tiny"), lines=lines)) for lines in (False, True))
    lines.load_state_dict(image.state_dict())
    tokens = torch.randn(1, 6, 7, image.channels)
    assert not torch.equal(image(tokens), lines(tokens))
