"""Pictures and RAW files that the tests write."""

from __future__ import annotations

from math import isqrt
from pathlib import Path

import numpy as np
import pytest
import tifffile
from PIL import Image

SHARED = Path(__file__).parents[3] / "shared"
GAINS = (2.0, 1.0, 1.5)
# Camera → sRGB of an invented sensor, rows sum to one.
MATRIX = np.array([[1.6, -0.5, -0.1], [-0.2, 1.5, -0.3], [0.0, -0.4, 1.4]])
XYZ_FROM_SRGB = np.array([[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]])


@pytest.fixture
def shared_data() -> Path:
    """The folder of real photographs, where there is one."""
    if not (SHARED / "data").is_dir():
        pytest.skip("needs the photographs of ../shared/data, which are not part of the project")
    return SHARED / "data"


@pytest.fixture
def photo():
    """A function: a smooth colourful picture (h, w, 3) uint8, another one for each seed."""

    def make(height: int = 24, width: int = 32, seed: int = 0) -> np.ndarray:
        rng = np.random.default_rng(seed)
        small = rng.integers(30, 226, (4, 5, 3), dtype=np.uint8)
        return np.array(Image.fromarray(small).resize((width, height), Image.Resampling.BICUBIC))

    return make


@pytest.fixture
def whole_mosaic() -> np.ndarray:
    """A 12-bit RGGB mosaic (66, 98)."""
    return np.random.default_rng(0).integers(300, 3800, (66, 98)).astype(np.uint16)


@pytest.fixture
def mosaic(whole_mosaic):
    """A function: the crop (64, 96) of the whole mosaic that has the order given."""

    def make(cfa: str = "RGGB") -> np.ndarray:
        # A crop that starts one row lower or one column further right has another order.
        top, left = divmod(cfa.index("R"), 2)
        return whole_mosaic[top : top + 64, left : left + 96]

    return make


@pytest.fixture
def write_dng():
    """A function that writes a real DNG of a mosaic (or, for (h, w, 3), a linear DNG)."""

    def write(path: Path, pixels: np.ndarray, cfa: str = "RGGB", *, orientation: int = 1, extra: tuple = ()) -> Path:
        to_camera = np.diag(1 / np.array(GAINS)) @ np.linalg.inv(MATRIX) @ np.linalg.inv(XYZ_FROM_SRGB)
        matrix = [part for value in to_camera.ravel() for part in (round(value * 10000), 10000)]
        neutral = [part for gain in GAINS for part in (round(10000 / gain), 10000)]
        tags = [
            (271, 2, None, "Acme", True),
            (272, 2, None, "Testcam", True),
            (274, 3, 1, orientation, True),
            (50706, 1, 4, bytes((1, 4, 0, 0)), True),
            (50707, 1, 4, bytes((1, 1, 0, 0)), True),
            (50708, 2, None, "Acme Testcam", True),
            (50714, 3, 1 if pixels.ndim == 2 else 3, (256,) * (1 if pixels.ndim == 2 else 3), True),
            (50717, 3, 1 if pixels.ndim == 2 else 3, (3840,) * (1 if pixels.ndim == 2 else 3), True),
            (50721, 10, 9, tuple(matrix), True),
            (50728, 5, 3, tuple(neutral), True),
            (50778, 3, 1, 21, True),
        ]
        if pixels.ndim == 2:
            tags += [
                (33421, 3, 2, (isqrt(len(cfa)),) * 2, True),
                (33422, 1, len(cfa), bytes("RGB".index(colour) for colour in cfa), True),
            ]
        photometric = 32803 if pixels.ndim == 2 else 34892
        planes = "contig" if pixels.ndim == 3 else None  # tifffile's newer versions would write rows as pages
        kind = {"photometric": photometric, "planarconfig": planes}
        tifffile.imwrite(path, pixels, extratags=[*tags, *extra], metadata=None, **kind)
        return path

    return write
