"""Hot and dead pixels are mended; stars, texture and noise are not."""

from __future__ import annotations

import torch

from burstmamba.files.hot_pixels import mend_hot_pixels


def scene(frames: int, seed: int = 0) -> torch.Tensor:
    """A smooth mosaic burst (l, 1, 48, 64) with some noise, moving by two pixels a frame."""
    generator = torch.Generator().manual_seed(seed)
    coarse = torch.rand(1, 1, 3, 5, generator=generator) * 0.4 + 0.2
    wide = torch.nn.functional.interpolate(coarse, (48, 64 + 2 * frames), mode="bilinear")
    burst = torch.cat([wide[..., 2 * i : 2 * i + 64] for i in range(frames)])
    return (burst + 0.005 * torch.randn(burst.shape, generator=generator)).clamp(0, 1)


def test_values():
    """Planted defects vanish into their surroundings and nothing else is touched."""
    clean = scene(6)
    burst = clean.clone()
    hot, dead = ((5, 7), (20, 20), (47, 63), (0, 0)), ((30, 41),)
    for y, x in hot:
        burst[:, 0, y, x] = 1.0
    for y, x in dead:
        burst[:, 0, y, x] = 0.0
    assert mend_hot_pixels(burst) == 5
    changed = (burst != clean).any(dim=0)[0].nonzero().tolist()
    assert sorted(map(tuple, changed)) == sorted(hot + dead)
    assert float((burst - clean).abs().max()) < 0.05


def test_moving_points_stay():
    """A point of light that moves with the scene is at another pixel in every frame."""
    burst = scene(6)
    for i in range(6):
        burst[i, 0, 24, 40 - 2 * i] = 1.0
    before = burst.clone()
    assert mend_hot_pixels(burst) == 0 and torch.equal(burst, before)


def test_a_spread_star_stays_on_a_tripod():
    """The lens spreads a star over neighbours of other colours."""
    burst = scene(1).expand(6, 1, 48, 64).clone() * 0.2
    burst[:, 0, 24, 24] += 0.7
    for y, x in ((23, 24), (25, 24), (24, 23), (24, 25)):
        burst[:, 0, y, x] += 0.45
    assert mend_hot_pixels(burst) == 0


def test_noise_is_left_alone():
    generator = torch.Generator().manual_seed(0)
    burst = (0.1 + 0.05 * torch.randn(8, 1, 64, 64, generator=generator)).clamp(0, 1)
    assert mend_hot_pixels(burst) == 0


def test_single_frame_mends_only_what_glares():
    burst = scene(1)
    burst[0, 0, 10, 10] = 1.0
    burst[0, 0, 30, 30] += 0.08
    assert mend_hot_pixels(burst) == 1
    assert float(burst[0, 0, 10, 10]) < 0.7


def test_half_precision_and_tiny_frames():
    burst = scene(4).half()
    burst[:, 0, 9, 9] = 1.0
    assert mend_hot_pixels(burst) == 1 and burst.dtype == torch.float16
    assert mend_hot_pixels(torch.rand(4, 1, 4, 4)) == 0
