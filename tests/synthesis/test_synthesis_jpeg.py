"""JPEG against a real encoder."""

import io

import numpy as np
import pytest
import torch
from PIL import Image

from burstmamba.synthesis.jpeg import compress, quantisation_tables


def picture(h=48, w=64):
    generator = torch.Generator().manual_seed(0)
    coarse = torch.rand(1, 3, h // 8, w // 8, generator=generator)
    image = torch.nn.functional.interpolate(coarse, size=(h, w), mode="bicubic").clamp(0, 1)
    image = (image + 0.05 * torch.rand(1, 3, h, w, generator=generator)).clamp(0, 1)
    return (image * 255).round() / 255


def encoded(image, quality, subsampling):
    stream = io.BytesIO()
    Image.fromarray((image[0] * 255).byte().permute(1, 2, 0).numpy()).save(
        stream, "JPEG", quality=quality, subsampling=subsampling
    )
    with Image.open(stream) as jpeg:
        tables = jpeg.quantization
        pixels = torch.from_numpy(np.array(jpeg)).permute(2, 0, 1)[None].float() / 255
    return pixels, tables


@pytest.mark.parametrize("quality", [80, 92, 100])
def test_agrees_with_an_encoder(quality):
    image = picture()
    real, _ = encoded(image, quality, 0)
    ours = compress(image[:, None], torch.tensor([float(quality)]), torch.tensor([False]), torch.zeros(1, 2).long())
    change = (real - image).abs().mean()
    assert (ours[:, 0] - real).abs().mean() < 0.25 * change + 0.5 / 255


def test_agrees_with_halved_colour():
    image = picture()
    real, _ = encoded(image, 90, 2)
    ours = compress(image[:, None], torch.tensor([90.0]), torch.tensor([True]), torch.zeros(1, 2).long())[:, 0]
    assert (ours - real).abs().mean() < 0.35 * (real - image).abs().mean()


@pytest.mark.parametrize("quality", [30, 75, 95])
def test_tables_are_the_encoders(quality):
    _, tables = encoded(picture(), quality, 0)
    ours = quantisation_tables(torch.tensor([float(quality)]))[0]
    assert sorted(ours[0].flatten().int().tolist()) == sorted(tables[0])
    assert sorted(ours[1].flatten().int().tolist()) == sorted(tables[1])


def test_grid_phase_moves_the_blocks():
    image = picture()
    at = {
        p: compress(image[:, None], torch.tensor([60.0]), torch.tensor([False]), torch.tensor([p]))
        for p in ((0, 0), (3, 5))
    }
    assert not torch.equal(at[0, 0], at[3, 5])
    # A picture moved by the phase gives the moved result.
    moved = image.roll((3, 5), (-2, -1))
    other = compress(moved[:, None], torch.tensor([60.0]), torch.tensor([False]), torch.zeros(1, 2).long())
    assert torch.allclose(
        other[..., 16:40, 16:48], at[3, 5].roll((3, 5), (-2, -1))[..., 16:40, 16:48], atol=1 / 255 + 1e-6
    )


def test_awkward_sizes():
    image = picture()[..., :30, :23]
    out = compress(image[:, None], torch.tensor([95.0]), torch.tensor([True]), torch.tensor([[15, 7]]))
    assert out.shape == (1, 1, 3, 30, 23)
    assert (out[:, 0] - image).abs().mean() < 0.03
