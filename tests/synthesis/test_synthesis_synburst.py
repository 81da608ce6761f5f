"""SyntheticBurst, step by step: hand-computed values, OpenCV as a witness, the keyframe's kernel, exact maps."""

from dataclasses import replace

import cv2
import numpy as np
import pytest
import torch

from burstmamba.correspondence.field import pixel_grid
from burstmamba.errors import InputError
from burstmamba.synthesis import colour, synburst, synthesis_preset, synthesize_burst, unprocess
from burstmamba.synthesis.dice import Dice
from burstmamba.synthesis.sensor import pack

CONFIG = replace(synthesis_preset("synburst"), maps="exact")


def safe(value, red=2.0, rgb=1.25):
    """A grey value with its red gain undone."""
    gains = torch.tensor([[red * rgb, rgb, 1.5 * rgb]])
    return colour.safely_divide_gains(torch.full((1, 3, 1, 1), value), gains)[0, 0, 0, 0]


def camera(*weights):
    return colour.mix_cameras(torch.tensor([weights], dtype=torch.float32))[0]


TABLE = {
    "inverse tone at 0": (lambda: unprocess.inverse_tone(torch.tensor(0.0)), 0.0),
    "inverse tone at 5/32": (lambda: unprocess.inverse_tone(torch.tensor(0.15625)), 0.25),
    "inverse tone at 27/32": (lambda: unprocess.inverse_tone(torch.tensor(0.84375)), 0.75),
    "inverse tone beyond 1": (lambda: unprocess.inverse_tone(torch.tensor(1.3)), 1.0),
    "inverse gamma at 0.5": (lambda: unprocess.inverse_gamma(torch.tensor(0.5)), 0.21763764),
    "inverse gamma at 0.8": (lambda: unprocess.inverse_gamma(torch.tensor(0.8)), 0.61207160),
    "gains in the shade: 0.5 / 2.5": (lambda: safe(0.5), 0.2),
    "gains near white: mask 1/4, 0.25 + 0.75/2.5 = 0.55": (lambda: safe(0.95), 0.5225),
    "gains at white: mask 1": (lambda: safe(1.0), 1.0),
    "gains below 1 may lift: 0.5 / 0.8": (lambda: safe(0.5, red=1.0, rgb=0.8), 0.625),
    "first camera, red from red": (lambda: camera(1, 0, 0, 0)[0, 0], 0.82637855),
    "first camera, blue from green": (lambda: camera(1, 0, 0, 0)[2, 1], 0.24449135),
    "mixture 1:1:0:2, green from red": (lambda: camera(1, 1, 0, 2)[1, 0], 0.07561014),
    "read noise of shot 0.01": (lambda: unprocess.read_noise(torch.tensor(0.01), torch.tensor(0.0)), 1.4492e-4),
    "read noise of shot 1e-4, one sigma up": (
        lambda: unprocess.read_noise(torch.tensor(1e-4), torch.tensor(1.0)),
        8.204837e-9,
    ),
}


@pytest.mark.parametrize("step", TABLE)
def test_values(step):
    compute, expected = TABLE[step]
    assert compute().item() == pytest.approx(expected, rel=1e-4, abs=1e-6 if expected > 1e-3 or expected == 0 else 0)


def kernel_of(frame, i):
    """How HR column x weighs in LR column i of one frame, from impulses; rows are constant."""
    weights = []
    motion = synburst.turn(torch.zeros(1, 2), torch.tensor([[[1.5, 1.5], [0.0, 0.0]]]), (44.0, 44.0))
    for x in range(24 + 4 * i - 3, 24 + 4 * i + 5):
        linear = torch.zeros(1, 3, 88, 88)
        linear[..., x] = 1
        weights.append(synburst.downsampled(linear, motion, (10, 10), eight_bit=False)[0, frame, 0, 5, i].item())
    return weights


def test_keyframe_kernel():
    # Columns 4i-3 … 4i+4: a quarter, a half, a quarter around 4i.
    assert kernel_of(0, 4) == pytest.approx([0, 0, 0.25, 0.5, 0.25, 0, 0, 0], abs=1e-5)


def test_kernel_of_an_unmoved_frame():
    # The mean of HR 4i+1 and 4i+2.
    assert kernel_of(1, 4) == pytest.approx([0, 0, 0, 0, 0.5, 0.5, 0, 0], abs=1e-5)


def test_eight_bits_are_truncated():
    linear = torch.full((1, 3, 88, 88), 0.5)  # 127.5
    motion = synburst.turn(torch.zeros(1, 1), torch.full((1, 1, 2), 1.5), (44.0, 44.0))
    assert torch.equal(
        synburst.downsampled(linear, motion, (10, 10), eight_bit=True) * 255, torch.full((1, 1, 3, 10, 10), 127.0)
    )


def test_geometry_agrees_with_opencv():
    generator = torch.Generator().manual_seed(0)
    coarse = torch.rand(1, 3, 30, 30, generator=generator)
    linear = torch.nn.functional.interpolate(coarse, size=(120, 120), mode="bicubic").clamp(0, 1)
    motion = synburst.camera_motion(Dice(generator, torch.device("cpu")), 1, (120, 120), CONFIG)
    ours = synburst.downsampled(linear, motion, (18, 18), eight_bit=True)[0] * 255
    source = (linear[0].permute(1, 2, 0).numpy() * 255).astype(np.uint8)
    for l in range(CONFIG.frames):
        warped = cv2.warpAffine(source, motion[0, l, :2].double().numpy(), (120, 120), flags=cv2.INTER_LINEAR)
        small = cv2.resize(warped[24:-24, 24:-24], None, fx=0.25, fy=0.25, interpolation=cv2.INTER_LINEAR)
        error = np.abs(ours[l].permute(1, 2, 0).numpy() - small.astype(np.float32))
        # OpenCV releases differ in how they round halves; nothing else may differ.
        assert error.max() <= 2 and error.mean() < 0.3


def test_rotation_is_opencvs():
    theirs = cv2.getRotationMatrix2D((60, 50), 0.7, 1.0) @ np.array([[1, 0, 3], [0, 1, -2], [0, 0, 1.0]])
    ours = synburst.turn(torch.tensor([[0.7]]), torch.tensor([[[3.0, -2.0]]]), (60.0, 50.0))[0, 0, :2]
    assert np.allclose(ours.numpy(), theirs, atol=1e-5)


def test_exact_maps(smooth):
    config = replace(CONFIG, eight_bit=False)
    dice = Dice(torch.Generator().manual_seed(5), torch.device("cpu"))
    linear = smooth(2, config.source_size(40), 60)
    motion = synburst.camera_motion(dice, 2, linear.shape[-2:], config)
    frames = synburst.downsampled(linear, motion, (40, 40), eight_bit=False)
    maps = synburst.exact_maps(motion, (40, 40))
    seen = (maps.confidence == 1).float()[:, 1:]
    error = ((maps.gather(frames) - frames[:, :1])[:, 1:].square() * seen).sum() / (3 * seen.sum())
    assert -10 * error.log10() > 45
    # The keyframe samples its photograph at 4i.
    assert torch.allclose(frames[:, 0], linear[..., 24:-24:4, 24:-24:4], atol=5e-3)


def test_shift_of_a_pure_translation():
    motion = synburst.turn(torch.zeros(1, 2), torch.tensor([[[1.5, 1.5], [9.5, -6.5]]]), (60.0, 60.0))
    maps = synburst.exact_maps(motion, (8, 8))
    assert torch.allclose(maps.to_frame[0, 1, :, 3, 3], torch.tensor([2.0, -2.0]), atol=1e-5)
    assert torch.allclose(maps.to_keyframe[0, 1, :, 3, 3], torch.tensor([-2.0, 2.0]), atol=1e-5)
    assert pixel_grid(maps.to_frame).shape == (1, 2, 8, 8)


def test_shapes_and_ranges(smooth):
    sample = synthesize_burst(smooth(2, 432, 30), CONFIG, torch.Generator().manual_seed(0), cameras=True)
    assert sample.frames.shape == (2, 14, 1, 96, 96) and sample.target.shape == (2, 3, 384, 384)
    assert pack(sample.frames).shape == (2, 14, 4, 48, 48)
    assert sample.frames.min() >= 0 and sample.frames.max() <= 1 and sample.centres == "corner"
    for camera_drawn in sample.cameras:
        shot, read = camera_drawn.noise
        assert 1e-4 <= shot <= 0.012 and 0 < read < 1e-3
        assert 1.9 <= camera_drawn.white_balance[0] <= 2.4 and 1.5 <= camera_drawn.white_balance[2] <= 1.9


def test_noise_follows_its_levels():
    photo = torch.full((1, 3, 48 + 4 * 64, 48 + 4 * 64), 0.6)
    dice = Dice(torch.Generator().manual_seed(3), torch.device("cpu"))
    sample, processing = synburst.synthesize_synburst(photo, replace(CONFIG, eight_bit=False), dice)
    greens = pack(sample.frames)[:, :, 1:3, 5:-5, 5:-5]
    expected = sample.target[0, 1, 99, 99] * processing.shot[0] + processing.read[0]
    assert greens.var().item() == pytest.approx(expected.item(), rel=0.04)


def test_unprocessing_is_undone_by_processing(smooth):
    photos = smooth(3, 64, 20)
    processing = unprocess.Processing.draw(Dice(torch.Generator().manual_seed(1), torch.device("cpu")), 3)
    back = unprocess.process(unprocess.unprocess(photos, processing), processing)
    unclipped = (unprocess.unprocess(photos, processing) * processing.gains[:, :, None, None] < 0.9).all(
        1, keepdim=True
    )
    assert unclipped.float().mean() > 0.5
    assert ((back - photos).abs() * unclipped).max() < 5e-3


def test_errors():
    with pytest.raises(InputError, match=r"sides 4·n \+ 48 .* got 100×100; crop them to config.source_size"):
        synthesize_burst(torch.zeros(1, 3, 100, 100), CONFIG, torch.Generator())
