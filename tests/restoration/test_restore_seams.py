"""Shipped weights on windows: no seams, and a result that hardly depends on the window."""

from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

import burstmamba
from burstmamba import load_burst
from burstmamba.burst import Burst, Camera
from burstmamba.checkpoint import load_model, shipped_models
from burstmamba.restoration.restore import Restoration
from burstmamba.synthesis.colour import to_linear
from burstmamba.synthesis.sensor import mosaic

EXAMPLES = Path(burstmamba.__file__).parent / "examples"
STREET = Path(__file__).parents[3] / "shared/data/bursts/street-lr"

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not {"light", "light-raw", "paper"} <= {*shipped_models()}, reason="needs the shipped weights"),
]


def side_by_side() -> Burst:
    """Two examples, which move alike: three frames of 320×120 pixels."""
    frames = []
    for i in range(3):
        parts = [np.asarray(Image.open(EXAMPLES / name / f"{i:02d}.png")) for name in ("fig", "nuthatch")]
        frames.append(torch.from_numpy(np.concatenate(parts, axis=1)).permute(2, 0, 1).float() / 255)
    return Burst(torch.stack(frames))


def strip() -> Burst:
    """Part of the same, for the slower network."""
    return Burst(side_by_side().frames[:2, :, 40:88])


def street() -> Burst:
    """Four real frames of 320×180 pixels, fine and full of contrast: windows matter most here."""
    if not STREET.is_dir():
        pytest.skip("needs the real bursts of ../shared/data, which are not part of the project")
    return load_burst(sorted(STREET.glob("*.png"))[:4])


def street_as_mosaics() -> Burst:
    """The same as a camera's sensor would hand it over, a little darker than white."""
    return Burst(mosaic(0.6 * to_linear(street().frames)), Camera(cfa="RGGB", linear=True))


@pytest.fixture(
    scope="module",
    params=[(side_by_side, "light"), (street, "light"), (street_as_mosaics, "light-raw"), (strip, "paper")],
)
def restored(request):
    """A burst restored in windows of 128 and of 256 pixels."""
    make, name = request.param
    burst, model = make(), load_model(name)
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
