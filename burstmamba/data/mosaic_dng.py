"""Mosaics as DNG files, so that synthetic RAW bursts open in every RAW converter."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
from torch import Tensor

from burstmamba.burst import Camera
from burstmamba.data.pictures import write_whole
from burstmamba.errors import InputError
from burstmamba.synthesis.colour import SRGB_TO_XYZ

BLACK, WHITE = 512, 16383
"""Levels on disk; room below black keeps noise around 0."""
_CFA = 32803


def write_mosaic_dng(path: Path, mosaic: Tensor, camera: Camera) -> None:
    """Write one RGGB mosaic with its colours and noise.

    Args:
        path: ends with .dng.
        mosaic: (1, h, w) linear in [0, 1].
        camera: white balance, colour matrix and noise become DNG tags.
    """
    import tifffile

    if camera.cfa != "RGGB":
        raise InputError(f"mosaics are written as RGGB, got {camera.cfa}; shift the frames by one pixel first.")
    levels = (mosaic[0].double().cpu().numpy() * (WHITE - BLACK) + BLACK).round().clip(0, 65535).astype(np.uint16)
    gains = np.array(camera.white_balance)
    # DNG describes the camera by XYZ → unbalanced camera RGB.
    back = np.diag(1 / gains) @ np.linalg.inv(np.array(camera.color_matrix)) @ np.linalg.inv(np.array(SRGB_TO_XYZ))
    tags = [
        (33421, "H", 2, (2, 2), True),  # CFARepeatPatternDim
        (33422, "B", 4, (0, 1, 1, 2), True),  # CFAPattern
        (50706, "B", 4, (1, 4, 0, 0), True),  # DNGVersion
        (50707, "B", 4, (1, 1, 0, 0), True),  # DNGBackwardVersion
        (50708, "s", 0, "BurstMamba synthetic camera", True),  # UniqueCameraModel
        (50714, "H", 1, BLACK, True),  # BlackLevel
        (50717, "H", 1, WHITE, True),  # WhiteLevel
        (50721, "2i", 9, _rationals(back.ravel()), True),  # ColorMatrix1
        (50728, "2I", 3, _rationals(1 / gains), True),  # AsShotNeutral
        (50778, "H", 1, 21, True),  # CalibrationIlluminant1: D65
    ]
    if camera.noise is not None:
        tags.append((51041, "d", 2, tuple(float(v) for v in camera.noise), True))  # NoiseProfile
    stream = io.BytesIO()
    tifffile.imwrite(stream, levels, photometric=_CFA, extratags=tags, metadata=None, software="BurstMamba")
    write_whole(path, stream.getvalue())


def read_mosaic_dng(path: Path) -> np.ndarray:
    """(h, w) linear values of a mosaic that `write_mosaic_dng` wrote; other cameras' files go through `files`."""
    import tifffile

    try:
        with tifffile.TiffFile(path) as file:
            page = file.pages.first
            own = [page.tags.valueof(code) for code in (50714, 50717)] == [BLACK, WHITE]
            levels = page.asarray() if own else None
    except (tifffile.TiffFileError, ValueError, OSError) as error:
        raise InputError(f"{path} cannot be read as DNG ({error}); make it again.") from error
    if levels is None:
        raise InputError(
            f"{path} is another camera's: only mosaics with black {BLACK} and white {WHITE} are read here."
        )
    if levels.ndim != 2 or levels.dtype != np.uint16:
        raise InputError(f"{path} should hold one 16-bit mosaic, got {levels.dtype} {levels.shape}.")
    return (levels.astype(np.float32) - BLACK) / (WHITE - BLACK)


def _rationals(values: np.ndarray, denominator: int = 1_000_000) -> tuple[int, ...]:
    return tuple(int(n) for value in values for n in (round(float(value) * denominator), denominator))
