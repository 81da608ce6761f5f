"""Developing: neutral greys, white highlights, colours in gamut, a monotone curve."""

from __future__ import annotations

import pytest
import torch

from burstmamba.burst import Camera
from burstmamba.errors import InputError
from burstmamba.files.develop import automatic_exposure, decode_srgb, develop, encode_srgb, into_gamut, tone

CAMERA = Camera(
    linear=True,
    white_balance=(2.0, 1.0, 1.5),
    color_matrix=((1.6, -0.5, -0.1), (-0.2, 1.5, -0.3), (0.0, -0.4, 1.4)),
)


def flat(red: float, green: float, blue: float) -> torch.Tensor:
    """A 4×4 image of one colour."""
    return torch.tensor([red, green, blue]).view(3, 1, 1).expand(3, 4, 4)


@pytest.mark.parametrize("level", [0.02, 0.1, 0.3, 0.49])
@pytest.mark.parametrize("look", ["neutral", "linear"])
def test_grey_stays_grey(level, look):
    """What the sensor records of a grey surface, 1/gain in each channel, is developed to equal channels."""
    developed = develop(flat(level / 2.0, level, level / 1.5), CAMERA, exposure=0.0, look=look)
    assert developed.shape == (3, 4, 4)
    assert float(developed.max() - developed.min()) < 1e-4


def test_linear_is_linear():
    image = flat(0.1, 0.2, 0.15)
    once = develop(image, CAMERA, look="linear")
    torch.testing.assert_close(develop(2 * image, CAMERA, look="linear"), 2 * once)
    torch.testing.assert_close(develop(image, CAMERA, look="linear", exposure=1.0), 2 * once)


def test_clipped_highlights_are_white():
    """Gains alone would turn a clipped sensor magenta."""
    developed = develop(flat(1.0, 1.0, 1.0), CAMERA, exposure=0.0)
    assert float(developed.min()) > 0.9 and float(developed.max() - developed.min()) < 0.01
    # Green clipped, the others nearly: a white cloud, not a pink one.
    cloud = develop(flat(0.75, 1.0, 1.0), CAMERA, exposure=0.0)[:, 0, 0]
    assert float(cloud[1]) > float(cloud[0]) - 0.05


def test_one_clipped_channel_keeps_its_colour():
    red = develop(flat(1.0, 0.1, 0.05), CAMERA, exposure=0.0)[:, 0, 0]
    assert float(red[0]) > 0.9 and float(red[1:].max()) < 0.6


def test_gamut():
    light = torch.randn(3, 20, 20, generator=torch.Generator().manual_seed(0)) * 0.5 + 0.4
    inside = into_gamut(light)
    assert float(inside.min()) >= 0
    weights = torch.tensor([0.2126, 0.7152, 0.0722]).view(3, 1, 1)
    before, after = (light * weights).sum(0), (inside * weights).sum(0)
    torch.testing.assert_close(after[before > 0], before[before > 0], atol=1e-5, rtol=1e-5)
    untouched = (light >= 0).all(dim=0)
    torch.testing.assert_close(inside[:, untouched], light[:, untouched])


def test_tone_curve():
    """Rises everywhere, black stays black, three times diffuse white is white, slope without a kink."""
    light = torch.linspace(0, 3, 3001)
    values = tone(light)
    assert (values[1:] > values[:-1]).all()
    assert float(values[0]) == 0 and float(values[-1]) == pytest.approx(1, abs=1e-5)
    assert float(tone(torch.tensor(0.18))) == pytest.approx(0.4612, abs=0.03)
    slopes = values.diff()[200:]
    assert float((slopes[1:] - slopes[:-1]).abs().max()) < 2e-5


def test_srgb_curve():
    values = torch.linspace(0, 1, 1001)
    torch.testing.assert_close(encode_srgb(decode_srgb(values)), values, atol=1e-5, rtol=0)
    assert float(encode_srgb(torch.tensor(0.2140))) == pytest.approx(0.5, abs=1e-3)


def test_automatic_exposure():
    """Dark pictures are lifted, bright ones left alone, and nobody is lifted by more than four stops."""
    grey = torch.rand(3, 64, 64, generator=torch.Generator().manual_seed(0)) * 0.02 + 0.01
    stops = automatic_exposure(grey, CAMERA)
    assert 1 < stops < 4
    assert automatic_exposure(grey / 2, CAMERA) == pytest.approx(min(stops + 1, 4), abs=0.05)
    assert automatic_exposure(torch.full((3, 8, 8), 0.7), CAMERA) == 0
    assert automatic_exposure(torch.zeros(3, 8, 8), CAMERA) == 4


def test_strips_make_no_difference(monkeypatch):
    import burstmamba.files.develop as module

    image = torch.rand(3, 50, 20, generator=torch.Generator().manual_seed(0))
    whole = develop(image, CAMERA)
    monkeypatch.setattr(module, "ROWS", 7)
    torch.testing.assert_close(develop(image, CAMERA), whole, atol=1e-6, rtol=0)
    assert float(whole.min()) >= 0 and float(whole.max()) <= 1


def test_in_place():
    image = torch.rand(3, 100, 20, generator=torch.Generator().manual_seed(0))
    expected = develop(image, CAMERA)
    assert develop(image, CAMERA, out=image) is image
    torch.testing.assert_close(image, expected, atol=0, rtol=0)


def test_half_precision():
    image = torch.rand(3, 8, 8).half()
    assert develop(image, CAMERA).dtype == torch.float32


def test_errors():
    with pytest.raises(InputError, match=r"develop expects floating-point camera RGB \(3, h, w\)"):
        develop(torch.zeros(1, 4, 4), CAMERA)
    with pytest.raises(InputError, match="these colours are developed already"):
        develop(torch.zeros(3, 4, 4), Camera())
    with pytest.raises(InputError, match='look must be "neutral" or "linear", got \'vivid\''):
        develop(torch.zeros(3, 4, 4), CAMERA, look="vivid")  # type: ignore[arg-type] (refused)
