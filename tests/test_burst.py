"""A burst made of arrays, as an application has them."""

import numpy as np
import pytest
import torch

from burstmamba import Burst, Camera, InputError


@pytest.mark.parametrize(
    ("kind", "white"), [("uint8", 255), ("uint16", 65535), (">u2", 65535), ("float32", 1), ("float64", 1)]
)
def test_values(kind, white):
    picture = np.zeros((4, 6, 3), kind)
    picture[1, 2] = np.array([1, 0.4, 0]) * white
    burst = Burst.from_arrays([picture, picture[::-1]])
    assert burst.frames.shape == (2, 3, 4, 6) and burst.frames.dtype == torch.float32
    np.testing.assert_allclose(burst.frames[0, :, 1, 2], [1, 0.4, 0], atol=1e-6)
    np.testing.assert_allclose(burst.frames[1, :, 2, 2], [1, 0.4, 0], atol=1e-6)


def test_a_mosaic():
    burst = Burst.from_arrays([np.full((4, 6), 0.25)], Camera(cfa="GRBG", linear=True), names=("a.dng",))
    assert burst.frames.shape == (1, 1, 4, 6) and burst.names == ("a.dng",)


def test_errors():
    good = np.zeros((4, 6, 3), np.uint8)
    for pictures, message in (
        ([], "at least one picture"),
        ([good, good[:3]], r"the first is \(4, 6, 3\), number 1 is \(3, 6, 3\)"),
        ([good.astype(np.int32)], r"picture 0 must be an array \(h, w, 3\) of uint8.* got int32"),
        ([good[0, 0, :1]], r"got uint8 \(1,\)"),
        ([good, good.astype(float) + 90], r"picture 1 must lie in \[0, 1\], got 90 to 90; divide by the white level"),
        ([good[..., 0]], "picture 0 is a mosaic of uint8"),
        ([good[..., 0].astype(float)], r"RGB frames must have 3 channel\(s\), got 1"),
        ([np.full((2, 2, 3), np.nan)], "NaN"),
        ([good[:0]], "at least 1×1 pixels"),
    ):
        with pytest.raises(InputError, match=message):
            Burst.from_arrays(pictures)


@pytest.mark.parametrize("kind", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
def test_one_value_that_is_not_finite(kind, value):
    """It is found wherever it lies, at both ends of a frame and among values of any size."""
    for place in ((1, 0, 0, 0), (1, 1, 7, 5), (0, 2, 16, 20)):
        frames = torch.rand(2, 3, 17, 21).to(kind)
        frames[0, 0, 0, :2] = torch.tensor([-6e4, 6e4])
        Burst(frames)
        frames[place] = value
        with pytest.raises(InputError, match="NaN or infinite"):
            Burst(frames)
