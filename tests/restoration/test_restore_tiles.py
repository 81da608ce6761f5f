"""Windows, feather and what is cut from moving frames."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from burstmamba.correspondence.field import Correspondence
from burstmamba.restoration.tiles import OVERLAP, SMALLEST_TILE, Box, Windows, border_index, cut, cut_burst, follow


@settings(max_examples=200, deadline=None)
@given(
    length=st.integers(1, 3000), tile=st.integers(SMALLEST_TILE // 2, 300).map(lambda n: 2 * n), scale=st.integers(1, 4)
)
def test_windows_cover_and_feather_sums_to_one(length, tile, scale):
    windows = Windows.cover(length, tile)
    assert windows.size <= tile and all(start % 2 == 0 for start in windows.starts)
    assert windows.starts[-1] + windows.size == length
    total = torch.zeros((windows.starts[-1] + windows.size) * scale)
    for start, weights in zip(windows.starts, windows.weights(scale), strict=True):
        total[start * scale : (start + windows.size) * scale] += weights
        assert weights.min() >= 0
    torch.testing.assert_close(total, torch.ones_like(total), atol=1e-6, rtol=0)


@settings(max_examples=200, deadline=None)
@given(length=st.integers(50, 3000), tile=st.integers(SMALLEST_TILE // 2, 300).map(lambda n: 2 * n))
def test_the_border_of_a_window_never_shows(length, tile):
    windows = Windows.cover(length, tile)
    weights = windows.weights(1)
    for i in range(1, len(windows.starts)):
        assert windows.starts[i - 1] + windows.size - windows.starts[i] >= OVERLAP - 2
        assert weights[i, : (OVERLAP - 2) // 3].sum() == 0
        assert weights[i - 1, -((OVERLAP - 2) // 3) :].sum() == 0


def test_values_of_one_window():
    assert Windows.cover(40, 48) == Windows(40, 40, (0,))
    assert Windows.cover(40, 48).weights(4).eq(1).all()


@pytest.mark.parametrize("start", [-9, -1, 0, 3])
def test_mirroring_keeps_the_phase(start):
    index = border_index(start, 30, 8, mirror=True)
    assert index.min() >= 0 and index.max() < 8
    assert (index % 2 == torch.arange(start, start + 30) % 2).all()


def test_values_past_the_border():
    picture = torch.arange(4.0).view(1, 1, 4)
    assert cut(picture, 0, -2, 1, 8).flatten().tolist() == [0, 0, 0, 1, 2, 3, 3, 3]
    assert cut(picture, 0, -2, 1, 8, mirror=True).flatten().tolist() == [2, 1, 0, 1, 2, 3, 2, 1]
    assert cut(torch.ones(1, 1, 1), -3, -3, 7, 7, mirror=True).eq(1).all()


def shifted_burst(shifts, h=80, w=96):
    """Frames that show a wide scene through windows moved by whole pixels, with exact maps."""
    generator = torch.Generator().manual_seed(0)
    scene = torch.rand(3, h + 80, w + 80, generator=generator)
    frames = torch.stack([scene[:, 40 - dy : 40 - dy + h, 40 - dx : 40 - dx + w] for dx, dy in shifts])
    to_frame = torch.tensor(shifts).float().view(1, -1, 2, 1, 1).expand(-1, -1, -1, h, w)
    return frames, Correspondence(to_frame, -to_frame, torch.ones(1, len(shifts), 1, h, w))


def test_large_motion_stays_inside_the_window():
    frames, maps = shifted_burst([(0, 0), (30, -21), (-17, 9)])
    window, inner = cut_burst(frames, maps, Box(30, 36, 20, 24))
    assert inner.to_frame.abs().max() <= 1  # whole even pixels are taken off
    gathered = inner.gather(window)
    torch.testing.assert_close(gathered[0, 1:, :, 1:-1, 1:-1], window[0, :1, :, 1:-1, 1:-1].expand(2, -1, -1, -1))
    # There and back again is the identity, so both maps were corrected alike.
    torch.testing.assert_close(inner.scatter(gathered)[0, :, :, 2:-2, 2:-2], window[0, :, :, 2:-2, 2:-2])


def test_frames_are_followed_by_even_numbers():
    frames, maps = shifted_burst([(0, 0), (7, 3)])
    _, inner = cut_burst(frames[:, :1], maps, Box(10, 10, 20, 20), mirror=True)
    removed = torch.tensor([7.0, 3.0]) - inner.to_frame[0, 1, :, 0, 0]
    assert (removed % 2 == 0).all()


def test_half_precision_frames_and_maps_are_widened():
    frames, maps = shifted_burst([(0, 0), (2, 2)])
    window, inner = cut_burst(frames.half(), maps.apply(torch.Tensor.half), Box(0, 0, 10, 10))
    assert window.dtype == inner.to_frame.dtype == inner.confidence.dtype == torch.float32


@pytest.mark.parametrize("motion", [-90.0, -5.0, 0.0, 7.0, 90.0])
@pytest.mark.parametrize(
    ("start", "size", "length"), [(0, 48, 48), (-1, 49, 48), (-1, 48, 200), (100, 48, 147), (20, 48, 200)]
)
def test_a_frame_s_window_stays_in_the_frame(start, size, length, motion):
    moved = follow(start, size, slice(None), length, motion)
    assert moved % 2 == 0
    assert start + moved >= -1 and start + moved + size <= length + 1


def test_a_window_at_the_border_keeps_what_its_core_needs():
    assert follow(0, 48, slice(0, 40), 200, 12.0) == 8  # 4 px of reserve on either side of the core
    assert follow(100, 48, slice(8, 40), 200, 12.0) == 12
