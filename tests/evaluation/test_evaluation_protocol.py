"""Protocols on hand-made images with known answers."""

import math

import cv2
import numpy as np
import pytest
import torch

from burstmamba.errors import InputError
from burstmamba.evaluation import color_alignment
from burstmamba.evaluation.color_alignment import base_frame
from burstmamba.evaluation.protocol import PROTOCOLS, average, display, protocol, quantise, score

WANTED = (
    "synburst-linear", "realbsr-rgb", "realbsr-rgb-fbanet", "realbsr-raw-linear", "realbsr-raw-vis",
    "burstsr-aligned", "openburst",
)  # fmt: skip


def grey(value=0.5, size=128, b=1):
    return torch.full((b, 3, size, size), value)


def psnr_of(prediction, target, name, **more):
    return score(prediction, target, protocol(name), **more)["psnr"].tolist()


def test_wanted_protocols_exist():
    assert set(WANTED) <= set(PROTOCOLS)


def test_constant_offset():
    for name in ("realbsr-rgb", "realbsr-rgb-fbanet", "realbsr-raw-linear"):
        assert psnr_of(grey(0.51), grey(0.5), name) == pytest.approx([40.0], abs=1e-3)


def test_fourteen_bits_truncate():
    step = 2**-14
    truncated = quantise(torch.tensor([0.0, 0.9 * step, 1.5 * step, 1.0]), 2**14)
    assert truncated.tolist() == [0.0, 0.0, step, 1.0]
    # 0.9 of a step above the target truncates to the target: an infinite PSNR, skipped by the mean
    values = psnr_of(grey(0.5 + 0.9 * step), grey(0.5), "synburst-linear")
    assert math.isinf(values[0])
    below = psnr_of(grey(0.5 - 0.1 * step), grey(0.5), "synburst-linear")
    assert below == pytest.approx([20 * 14 * math.log10(2)], abs=1e-2)


def test_eight_bits_round():
    assert quantise(torch.tensor([0.4 / 255, 0.6 / 255]), 255).tolist() == pytest.approx([0.0, 1 / 255])
    assert psnr_of(grey(100.4 / 255), grey(101 / 255), "openburst") == pytest.approx([20 * math.log10(255)], abs=1e-3)


@pytest.mark.parametrize("name", ["synburst-linear", "realbsr-rgb", "openburst"])
def test_border(name):
    rules = protocol(name)
    prediction, target = grey(1.0), grey(0.0)
    inside = prediction.clone()
    inside[..., rules.border : -rules.border, rules.border : -rules.border] = 0.0
    assert math.isinf(psnr_of(inside, target, name)[0])
    inside[..., rules.border, rules.border] = 1.0  # the first pixel that counts
    assert math.isfinite(psnr_of(inside, target, name)[0])


def test_prediction_is_clamped():
    assert math.isinf(psnr_of(grey(1.7), grey(1.0), "realbsr-rgb")[0])


def test_channel_mean_against_pooled():
    prediction = grey(0.5)
    prediction[:, 0] += 0.1
    prediction[:, 1] += 0.01
    prediction[:, 2] += 0.001
    assert psnr_of(prediction, grey(0.5), "realbsr-rgb-fbanet") == pytest.approx([40.0], abs=0.01)
    pooled = -10 * math.log10((1e-2 + 1e-4 + 1e-6) / 3)
    assert psnr_of(prediction, grey(0.5), "realbsr-rgb") == pytest.approx([pooled], abs=1e-3)


def test_average_by_batches_overweights_the_last():
    values = [10.0] * 16 + [40.0]
    assert average(values, protocol("realbsr-rgb-fbanet")) == pytest.approx(25.0)
    assert average(values, protocol("realbsr-rgb")) == pytest.approx(200 / 17)
    assert average([math.inf, 30.0, math.nan], protocol("synburst-linear")) == 30.0
    assert math.isnan(average([math.inf], protocol("synburst-linear")))


def test_display_by_hand():
    image = torch.tensor([0.02, 0.04, 0.02]).view(1, 3, 1, 1).expand(1, 3, 4, 4)
    shown = display(image, [(2.0, 1.0, 1.5)])
    white = [0.04, 0.04, 0.03]
    mean = sum(white) / 3
    for channel, value in enumerate(white):
        curve = min(value / (5 * mean), 1) ** (1 / 2.2)
        expected = math.floor((3 * curve**2 - 2 * curve**3) * 255) / 255
        assert shown[0, channel, 0, 0].item() == pytest.approx(expected, abs=1e-6)
    assert torch.equal(display(image * 3, [(2.0, 1.0, 1.5)]), shown)  # exposure is normalised


def test_display_protocol_needs_white_balance():
    with pytest.raises(InputError, match="realbsr-raw-vis needs the white balance of each image"):
        psnr_of(grey(), grey(), "realbsr-raw-vis")
    noisy = grey(0.2) + 0.01 * torch.rand(1, 3, 128, 128)
    assert psnr_of(noisy, grey(0.2), "realbsr-raw-vis", white_balance=[(2.0, 1.0, 1.5)])[0] > 20


def textured(size=192, seed=0):
    noise = torch.rand(1, 3, size // 4, size // 4, generator=torch.Generator().manual_seed(seed))
    return torch.nn.functional.interpolate(noise, scale_factor=4, mode="bicubic").clamp(0.05, 0.95)


def test_aligned_protocol_forgives_shift_and_tint():
    """A prediction in another camera's colours and one pixel off scores like the target; without it, badly."""
    target = textured() * 0.5
    tint = torch.tensor([[0.8, 0.1, 0.0], [0.1, 0.9, 0.05], [0.0, 0.1, 0.7]])
    other = torch.einsum("ij,bjhw->bihw", tint, target)
    prediction = torch.roll(other, 1, dims=-1)
    keyframe = torch.nn.functional.avg_pool2d(prediction, 8)
    plain = psnr_of(prediction, target, "realbsr-raw-linear")[0]
    aligned = psnr_of(prediction, target, "burstsr-aligned", keyframe=keyframe)[0]
    assert aligned > 35 and aligned > plain + 10
    worse = (prediction + 0.05 * torch.randn(prediction.shape, generator=torch.Generator().manual_seed(1))).clamp(0, 1)
    assert psnr_of(worse, target, "burstsr-aligned", keyframe=keyframe)[0] < aligned - 5


def test_colour_match_by_hand(monkeypatch):
    """Nothing moved: the least-squares matrix, unclamped, and a mask that ends where the fit did."""
    monkeypatch.setattr(color_alignment, "_flow", lambda target, prediction: torch.zeros(2, *target.shape[-2:]))
    target, prediction = textured(size=256), textured(size=256, seed=3)
    keyframe = torch.nn.functional.avg_pool2d(prediction, 8)
    matched, valid = color_alignment.align_to_target(prediction, target, keyframe)
    middle = target[0].double().numpy().reshape(3, 32, 8, 32, 8)[:, :, 3:5, :, 3:5].mean(axis=(2, 4))  # no antialiasing
    small = [cv2.GaussianBlur(image.transpose(1, 2, 0), (7, 7), 1.5)[5:-5, 5:-5] for image in (
        keyframe[0].double().numpy(), middle,
    )]  # fmt: skip
    matrix, *_ = np.linalg.lstsq(small[0].reshape(-1, 3), small[1].reshape(-1, 3), rcond=None)
    expected = prediction[0].permute(1, 2, 0).double().numpy() @ matrix
    assert np.abs(matched[0].permute(1, 2, 0).numpy() - expected).max() < 1e-3
    trusted = np.pad(np.linalg.norm(small[0] @ matrix - small[1], axis=-1) * 255 < 20, 5).astype(np.float64)
    shown = (
        torch.nn.functional.interpolate(torch.from_numpy(trusted)[None, None], scale_factor=8, mode="bilinear") > 0.9
    )
    assert torch.equal(valid, shown) and not valid[..., :43, :].any() and valid[..., 43:-43, 43:-43].any()
    bright, _ = color_alignment.align_to_target(prediction * 0.5, (target * 3).clamp(0, 1), keyframe * 0.2)
    assert bright.max() > 1


def test_aligned_protocol_scores_what_a_file_would_hold():
    """14 bits are left of a prediction before it is warped and matched, not after."""
    target = textured(seed=1) * 0.5
    keyframe = torch.nn.functional.avg_pool2d(target, 8)
    prediction = torch.roll(target, 1, dims=-1) + 0.002 * textured(seed=2)
    stored = quantise(prediction.clamp(0, 1), 2**14)
    assert not torch.equal(stored, prediction)
    scores = [psnr_of(image, target, "burstsr-aligned", keyframe=keyframe)[0] for image in (prediction, stored)]
    assert scores[0] == scores[1]


def test_colours_are_matched_on_the_packed_keyframe():
    mosaic = torch.tensor([[1.0, 2.0, 5.0, 6.0], [3.0, 4.0, 7.0, 8.0]]).view(1, 1, 2, 4)
    assert base_frame(mosaic).tolist() == [[[[1.0, 5.0]], [[2.0, 6.0]], [[4.0, 8.0]]]]


def test_batch_equals_one_by_one():
    generator = torch.Generator().manual_seed(0)
    target = torch.rand(3, 3, 120, 100, generator=generator)
    prediction = target + 0.1 * torch.randn(target.shape, generator=generator)
    for name in ("synburst-linear", "realbsr-rgb-fbanet", "openburst"):
        together = score(prediction, target, protocol(name))
        for index in range(3):
            alone = score(prediction[index : index + 1], target[index : index + 1], protocol(name))
            for metric in ("psnr", "ssim"):
                assert together[metric][index].item() == pytest.approx(alone[metric].item(), abs=1e-9)


def test_errors():
    with pytest.raises(InputError, match="unknown protocol 'psnr'; the known ones are synburst-linear"):
        protocol("psnr")
    with pytest.raises(InputError, match="drops 40 pixels on each side and needs at least 11 more, got 80×80"):
        psnr_of(grey(size=80), grey(size=80), "realbsr-rgb")
    with pytest.raises(InputError, match="NaN"):
        psnr_of(grey() * math.nan, grey(), "openburst")
    with pytest.raises(InputError, match="burstsr-aligned needs the LR keyframe"):
        psnr_of(grey(), grey(), "burstsr-aligned")
