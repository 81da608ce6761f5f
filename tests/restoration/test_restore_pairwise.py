"""Alignment in pairs: the same burst and the same maps as all frames at once."""

from __future__ import annotations

import cv2
import numpy as np
import pytest
import torch

import burstmamba.restoration.pairwise as pairwise
from burstmamba.burst import Burst
from burstmamba.correspondence import align_burst


@pytest.fixture
def burst() -> Burst:
    """Six textured frames, shifted by whole pixels; the second is darker, the third shows something else."""
    generator = np.random.default_rng(0)
    frames = []
    scene, other = (cv2.resize(generator.random((50, 60, 3), np.float32), (240, 200)) for _ in range(2))
    for i in range(6):
        picture = (other if i == 2 else scene)[i : i + 160, 2 * i : 2 * i + 200]
        frames.append(torch.from_numpy(picture * (0.8 if i == 1 else 1.0)).permute(2, 0, 1))
    return Burst(torch.stack(frames).clamp(0, 1), names=tuple("abcdef"))


def test_frames_maps_and_reports_fit_each_other(burst, monkeypatch):
    given = burst.frames.clone()
    together = align_burst(burst)
    monkeypatch.setattr(pairwise, "LARGE", 1)
    apart = pairwise.align(burst, "auto")
    assert torch.equal(burst.frames, given)  # the caller's frames are the caller's
    assert apart.burst.names == together.burst.names == ("a", "b", "d", "e", "f")
    assert [(r.name, r.index, r.kept) for r in apart.frames] == [(r.name, r.index, r.kept) for r in together.frames]
    torch.testing.assert_close(apart.burst.frames, together.burst.frames, atol=2e-3, rtol=0)
    assert torch.equal(apart.burst.frames[2:], given[3:]) and not torch.equal(apart.burst.frames[1], given[1])
    for found, expected in zip(_maps(apart), _maps(together), strict=True):
        assert found.dtype == torch.float16 and found.shape == expected.shape
        torch.testing.assert_close(found[:, 0], expected[:, 0].half())  # the keyframe's
    for i, shift in enumerate((0, 1, 3, 4, 5)):
        moved = apart.correspondence.to_frame[0, i].float().mean((1, 2))
        torch.testing.assert_close(moved, torch.tensor([-2.0 * shift, -1.0 * shift]), atol=0.05, rtol=0)
        back = apart.correspondence.to_keyframe[0, i].float().mean((1, 2))
        torch.testing.assert_close(back, -moved, atol=0.05, rtol=0)


def test_nothing_is_copied_where_nothing_changes(burst, monkeypatch):
    monkeypatch.setattr(pairwise, "LARGE", 1)
    still = burst.select([0, 3, 4])
    alignment = pairwise.align(still, "auto")
    assert alignment.burst.frames.data_ptr() == still.frames.data_ptr()


def _maps(alignment) -> tuple[torch.Tensor, ...]:
    found = alignment.correspondence
    return found.to_frame, found.to_keyframe, found.confidence
