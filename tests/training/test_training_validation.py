"""What a run is watched with."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from PIL import Image
from torch import nn
from training_toys import MODEL, toy_sample

from burstmamba.model.base_image import base_image
from burstmamba.training.validation import ValidationSet, psnr, write_picture


class Recorder(nn.Module):
    """Answers with the interpolated keyframe plus an offset that depends on how it was asked."""

    def __init__(self, offsets: dict[str, float]) -> None:
        super().__init__()
        self.offsets, self.asked = offsets, []

    def forward(self, frames, correspondence):
        if frames.shape[1] == 1:
            kind = "single"
        else:
            kind = "copies" if torch.equal(frames, frames[:, :1].expand_as(frames)) else "burst"
            assert (kind == "copies") == (not correspondence.to_frame.any())
        self.asked.append((kind, self.training))
        return base_image(frames[:, 0], 4, "half-pixel") * 0 + 0.5 + self.offsets[kind]


def test_values_of_psnr():
    """Each image on its own, without the border, after clamping."""
    target = torch.full((2, 3, 64, 64), 0.5)
    image = target.clone()
    image[0] += 0.1
    image[1] += 0.01
    image[:, :, :16] = image[:, :, -16:] = 7.0  # the border does not count
    assert psnr(image, target).tolist() == pytest.approx([20.0, 40.0], abs=1e-4)
    assert psnr(target * 0 + 9.0, target * 0 + 1.0).min() == pytest.approx(100.0)  # clamped to 1


def test_asks_for_one_frame_all_frames_and_copies():
    sample = toy_sample(3, 4, 16, seed=1)
    flat = ValidationSet(replace(sample, target=torch.full_like(sample.target, 0.5)), MODEL)
    model = Recorder({"single": 0.1, "burst": 0.01, "copies": 0.05}).train()
    scores, picture = flat.score(model)
    assert scores.single == pytest.approx(20.0, abs=1e-3)
    assert scores.burst == pytest.approx(40.0, abs=1e-3)
    assert scores.copies == pytest.approx(26.02, abs=1e-2)
    assert scores.base == pytest.approx(psnr(flat.base, flat.sample.target).mean().item())
    assert {kind for kind, _ in model.asked} == {"single", "burst", "copies"}
    assert not any(training for _, training in model.asked) and model.training
    assert picture.shape == (3, 3 * 64, 4 * 64) and picture.min() >= 0 and picture.max() <= 1


def test_picture_is_written_whole(tmp_path):
    image = torch.zeros(3, 4, 6)
    image[0] = 1.0
    write_picture(tmp_path / "deep" / "a.png", image)
    with Image.open(tmp_path / "deep" / "a.png") as picture:
        assert picture.size == (6, 4) and picture.getpixel((0, 0)) == (255, 0, 0)
    assert [path.name for path in (tmp_path / "deep").iterdir()] == ["a.png"]


def test_bursts_are_made_when_they_are_first_needed():
    made = []
    lazy = ValidationSet(lambda: made.append(1) or toy_sample(2, 3, 8, seed=1), MODEL)
    assert not made
    model = Recorder({"single": 0.0, "burst": 0.0, "copies": 0.0})
    first, second = lazy.score(model)[0], lazy.score(model)[0]
    assert made == [1] and first == second == ValidationSet(toy_sample(2, 3, 8, seed=1), MODEL).score(model)[0]
