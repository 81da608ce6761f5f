"""Augmentation: frames, maps and target stay together."""

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st

from burstmamba.correspondence.field import Correspondence, pixel_grid
from burstmamba.data.augment import augment, crop, take, turn
from burstmamba.data.sample import Sample
from burstmamba.errors import InputError
from burstmamba.synthesis.sensor import mosaic


def sample_of(*, raw=False, seed=0, h=12, w=16, l=3):
    """Frames with whole-pixel motion, so that gather is exact; target pixels carry their LR pixel's value."""
    generator = torch.Generator().manual_seed(seed)
    keyframe = torch.rand(1, 1, 3, h, w, generator=generator)
    shifts = torch.randint(-2, 3, (1, l, 2, 1, 1), generator=generator).float()
    shifts[:, 0] = 0
    maps = Correspondence(shifts.expand(1, l, 2, h, w), -shifts.expand(1, l, 2, h, w), torch.ones(1, l, 1, h, w))
    frames = maps.scatter(keyframe.expand(1, l, 3, h, w))
    target = F.interpolate(keyframe[:, 0], scale_factor=4, mode="nearest")
    frames = mosaic(frames) if raw else frames
    return Sample(frames, target, maps, maps)


def seen(displacement):
    landed = pixel_grid(displacement)[:, None] + displacement
    h, w = displacement.shape[-2:]
    return (landed[:, :, :1] >= 0) & (landed[:, :, :1] <= w - 1) & (landed[:, :, 1:] >= 0) & (landed[:, :, 1:] <= h - 1)


def consistent(sample):
    """Maps still bring every frame onto the keyframe, and the keyframe into every frame."""
    maps, keyframe = sample.exact, sample.frames[:, :1].expand_as(sample.frames)
    gathered = (maps.gather(sample.frames) - keyframe).abs() * seen(maps.to_frame)
    scattered = (maps.scatter(keyframe) - sample.frames).abs() * seen(maps.to_keyframe)
    return max(error[..., 2:-2, 2:-2].max() for error in (gathered, scattered)) < 1e-5


@settings(max_examples=60, deadline=None)
@given(kind=st.integers(0, 7), seed=st.integers(0, 20), top=st.integers(0, 3), left=st.integers(0, 3))
def test_turns_and_crops_commute_with_the_maps(kind, seed, top, left):
    sample = crop(turn(sample_of(seed=seed), kind), top, left, 8, 8)
    assert consistent(sample)
    assert torch.allclose(F.avg_pool2d(sample.target, 4), sample.frames[:, 0], atol=1e-6)


@settings(max_examples=20, deadline=None)
@given(kind=st.integers(0, 3), seed=st.integers(0, 20))
def test_turning_twice_is_nothing(kind, seed):
    sample = sample_of(seed=seed)
    again = turn(turn(sample, kind), kind)
    assert torch.equal(again.frames, sample.frames) and torch.equal(again.target, sample.target)
    assert torch.equal(again.exact.to_frame, sample.exact.to_frame)


def test_eight_turns_are_different():
    sample = sample_of(h=12, w=12)
    assert len({turn(sample, kind).frames.numpy().tobytes() for kind in range(8)}) == 8


@settings(max_examples=40, deadline=None)
@given(kind=st.integers(0, 7), top=st.sampled_from([0, 2]), left=st.sampled_from([0, 2]))
def test_mosaics_keep_their_phase(kind, top, left):
    h, w = 12, 16
    colours = torch.tensor([0.1, 0.5, 0.9])[:, None, None].expand(3, h, w)
    flat = mosaic(colours)[None, None]
    target = F.interpolate(colours[None], scale_factor=4)
    turned = crop(turn(Sample(flat, target), kind), top, left, 8, 8)
    assert torch.equal(turned.frames[0, 0], mosaic(colours[:, :8, :8]))
    assert turned.target.shape[-2:] == (32, 32)


def test_mosaics_keep_their_target():
    sample = sample_of(raw=True)
    for kind in range(8):
        turned = turn(sample, kind)
        small = F.avg_pool2d(turned.target, 4)
        assert torch.allclose(mosaic(small), turned.frames[:, 0], atol=1e-6)


@pytest.mark.parametrize("kind", range(8))
def test_corner_alignment_survives(kind):
    h, w = 8, 10
    ramp = torch.arange(4 * w).float().expand(1, 3, 4 * h, -1) + 100 * torch.arange(4 * h).float()[:, None]
    frames = ramp[:, None, :, ::4, ::4]  # LR pixel i lies on HR pixel 4i
    turned = turn(Sample(frames, ramp, centres="corner"), kind)
    assert torch.equal(turned.target[..., ::4, ::4], turned.frames[:, 0])


def test_matches_that_leave_the_window_are_distrusted():
    h = w = 12
    shift = torch.tensor([3.0, 0.0]).view(1, 1, 2, 1, 1).expand(1, 1, 2, h, w)
    maps = Correspondence(shift, -shift, torch.ones(1, 1, 1, h, w))
    cut = crop(Sample(torch.rand(1, 1, 3, h, w), torch.rand(1, 3, 48, 48), maps, maps), 0, 0, 12, 8)
    assert cut.exact.confidence[0, 0, 0, 5].tolist() == [1, 1, 1, 1, 1, 0, 0, 0]


def test_order_and_length():
    sample = sample_of(l=6)
    short = augment(sample, torch.Generator().manual_seed(0), size=8, lengths=(4,))
    assert short.frames.shape == (1, 4, 3, 8, 8) and short.target.shape == (1, 3, 32, 32)
    assert short.exact.to_frame.shape[1] == 4
    lengths = {augment(sample, torch.Generator().manual_seed(s), lengths=(1, 2, 6)).frames.shape[1] for s in range(20)}
    assert lengths == {1, 2, 6}
    ordered = take(sample, [0, 3, 1])
    assert torch.equal(ordered.frames[:, 1], sample.frames[:, 3])
    assert torch.equal(ordered.exact.to_frame[:, 1], sample.exact.to_frame[:, 3])


def test_random_crops_of_mosaics_are_even():
    sample = sample_of(raw=True)
    for seed in range(10):
        out = augment(sample, torch.Generator().manual_seed(seed), size=6)
        small = F.avg_pool2d(out.target, 4)
        assert torch.allclose(mosaic(small), out.frames[:, 0], atol=1e-6)


def test_errors():
    sample = sample_of()
    with pytest.raises(InputError, match="from 0 to 7, got 8"):
        turn(sample, 8)
    with pytest.raises(InputError, match=r"window of 20×4 at \(0, 0\) does not fit frames of 16×12"):
        crop(sample, 0, 0, 4, 20)
    with pytest.raises(InputError, match="even places and sizes"):
        crop(sample_of(raw=True), 1, 0, 4, 4)
    with pytest.raises(InputError, match=r"keyframe \(frame 0\) must stay first"):
        take(sample, [1, 0])
    with pytest.raises(InputError, match="crops of 99×99 do not fit"):
        augment(sample, torch.Generator(), size=99)
