"""Shipped weights on windows: no seams, and a result that hardly depends on the window."""

from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

import burstmamba
from burstmamba.burst import Burst
from burstmamba.checkpoint import load_model, shipped_models
from burstmamba.restoration.restore import Restoration

EXAMPLES = Path(burstmamba.__file__).parent / "examples"

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif("light" not in shipped_models(), reason="needs the shipped weights of `light`"),
]


@pytest.fixture(scope="module")
def restored():
    """Two examples side by side (they move alike), 320×120 pixels, restored in windows of 128 and of 256 pixels."""
    frames = []
    for i in range(3):
        parts = [np.asarray(Image.open(EXAMPLES / name / f"{i:02d}.png")) for name in ("fig", "nuthatch")]
        frames.append(torch.from_numpy(np.concatenate(parts, axis=1)).permute(2, 0, 1).float() / 255)
    burst, model = Burst(torch.stack(frames)), load_model("light")
    small, large = (Restoration(model, burst, correspondence="homography", tile=tile) for tile in (128, 256))
    return small.image(), large.image(), small.columns


def test_the_window_hardly_matters(restored):
    small, large, _ = restored
    psnr = -10 * torch.log10((small - large).square().mean())
    assert psnr >= 50


def test_no_seams(restored):
    small, large, columns = restored
    steepness = (small[..., 1:] - small[..., :-1]).abs().mean((0, 1))
    expected = (large[..., 1:] - large[..., :-1]).abs().mean((0, 1))
    blended = torch.zeros_like(steepness, dtype=torch.bool)
    for i in range(1, len(columns.starts)):
        blended[4 * columns.starts[i] : 4 * (columns.starts[i - 1] + columns.size)] = True
    assert blended.any() and not blended.all()
    at_borders = steepness[blended].mean() / expected[blended].mean()
    elsewhere = steepness[~blended].mean() / expected[~blended].mean()
    assert at_borders <= 1.05 * elsewhere
