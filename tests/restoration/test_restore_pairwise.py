"""Alignment in pairs: the same burst and the same maps as all frames at once."""

from __future__ import annotations

import cv2
import numpy as np
import pytest
import torch

import burstmamba.restoration.pairwise as pairwise
from burstmamba.burst import Burst
from burstmamba.correspondence import align_burst
from burstmamba.errors import InputError


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


def in_pairs(monkeypatch, large: int = 1) -> None:
    """Take bursts of any size apart; from `large` pixels on with maps in half precision."""
    monkeypatch.setattr(pairwise, "SEVERAL", 1)
    monkeypatch.setattr(pairwise, "LARGE", large)


def test_maps_of_small_bursts_stay_exact(burst, monkeypatch):
    """In pairs like those of large ones; the tiniest are aligned as a whole."""
    in_pairs(monkeypatch, large=10**9)
    apart = pairwise.align(burst, "auto")
    monkeypatch.setattr(pairwise, "SEVERAL", 10**9)
    monkeypatch.setattr(pairwise, "_in_pairs", lambda *_: pytest.fail("taken apart"))
    whole = pairwise.align(burst, "auto")
    assert [report.kept for report in apart.frames] == [report.kept for report in whole.frames]
    for found, expected in zip(_maps(apart), _maps(whole), strict=True):
        assert found.dtype == expected.dtype == torch.float32
    torch.testing.assert_close(apart.correspondence.to_frame, whole.correspondence.to_frame, atol=0.02, rtol=0)


def test_frames_maps_and_reports_fit_each_other(burst, monkeypatch):
    given = burst.frames.clone()
    together = align_burst(burst)
    in_pairs(monkeypatch)
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
    in_pairs(monkeypatch)
    still = burst.select([0, 3, 4])
    alignment = pairwise.align(still, "auto")
    assert alignment.burst.frames.data_ptr() == still.frames.data_ptr()


def _maps(alignment) -> tuple[torch.Tensor, ...]:
    found = alignment.correspondence
    return found.to_frame, found.to_keyframe, found.confidence


def test_a_burst_equals_its_pairs_one_by_one(burst, monkeypatch):
    in_pairs(monkeypatch)
    together = pairwise.align(burst, "auto")
    place = 0
    for i in range(1, len(burst)):
        with pairwise.using_threads(1):
            pair = align_burst(burst.select([0, i]))
        assert pair.frames[0] == together.frames[0]
        numbers, expected = (
            {**vars(report), "index": i, "confidence": 0, "motion": 0, "overlap": 0}
            for report in (together.frames[i], pair.frames[1])
        )
        assert numbers == expected
        for number in ("confidence", "overlap"):  # of maps in half precision
            found, expected = getattr(together.frames[i], number), getattr(pair.frames[1], number)
            assert found == pytest.approx(expected, abs=1e-3)
        assert together.frames[i].motion == pytest.approx(pair.frames[1].motion, abs=1e-2)
        if together.frames[i].kept:
            place += 1
            assert torch.equal(together.burst.frames[place], pair.burst.frames[1])
            for found, alone in zip(_maps(together), _maps(pair), strict=True):
                assert torch.equal(found[:, place], alone[:, 1].half())
    assert place == 4 and together.frames[1].gains != (1.0, 1.0, 1.0)


def test_the_keyframes_part_is_computed_once(burst, monkeypatch):
    from burstmamba.correspondence import ecc, homography, luma, noise, relight

    calls: dict[str, int] = {}

    def count(owner, name):
        function = getattr(owner, name)

        def counted(*given, **options):
            calls[name] = calls.get(name, 0) + 1
            return function(*given, **options)

        monkeypatch.setattr(owner, name, counted)

    for owner, name in (
        (luma, "noise_level"),
        (ecc, "prepare"),
        (homography, "_features"),
        (homography, "_blurred"),
        (noise.Structure, "of"),
        (relight, "_small"),
    ):
        count(owner, name)
    in_pairs(monkeypatch)
    monkeypatch.setattr(pairwise, "pairs_at_once", lambda pixels: 1)  # counting is not for several threads
    kept = [report.kept for report in pairwise.align(burst, "homography").frames]
    once = {"noise_level": 1, "prepare": 1}
    each = {"_features": len(burst), "_blurred": len(burst), "of": len(burst), "_small": sum(kept)}
    assert calls == once | each


def test_threads_are_given_back(burst, monkeypatch):
    in_pairs(monkeypatch)
    before = torch.get_num_threads(), cv2.getNumThreads()
    pairwise.align(burst, "homography")
    assert (torch.get_num_threads(), cv2.getNumThreads()) == before


def test_unknown_methods_are_refused(burst, monkeypatch):
    in_pairs(monkeypatch)
    with pytest.raises(InputError, match="unknown correspondence method 'optical'"):
        pairwise.align(burst, "optical")


def test_maps_of_no_motion_take_no_memory(burst, monkeypatch):
    in_pairs(monkeypatch)
    alignment = pairwise.align(burst, "identity")
    assert all(found.untyped_storage().nbytes() == 4 for found in _maps(alignment))
    assert len(alignment.burst) == len(burst) and float(alignment.correspondence.to_frame.abs().max()) == 0
