"""Linear DNG: demosaicked camera RGB that RAW converters develop like any RAW file."""

from __future__ import annotations

import numpy as np

from burstmamba.burst import Camera
from burstmamba.errors import InputError
from burstmamba.files.raw import XYZ_FROM_SRGB
from burstmamba.files.tiff import BYTE, Directory, Entry, longs, rationals, shorts, text

LINEAR_RAW, D65 = 34892, 21


def dng_tags(camera: Camera | None, model: str | None) -> Directory:
    """The tags that make an RGB TIFF of camera colours a linear DNG.

    Args:
        camera: whose colours the pixels are in; must be linear.
        model: the camera's name, from EXIF.
    """
    if camera is None or not camera.linear:
        raise InputError("a linear DNG holds linear camera colours, so it needs a RAW burst; save PNG or TIFF instead.")
    gains = np.array(camera.white_balance, np.float64)
    # XYZ → linear sRGB → white-balanced camera → camera, as ColorMatrix is defined.
    to_camera = np.diag(1 / gains) @ np.linalg.inv(camera.color_matrix) @ np.linalg.inv(XYZ_FROM_SRGB)
    name = model or "BurstMamba"
    return {
        254: longs(0),
        262: shorts(LINEAR_RAW),
        272: text(name),
        50706: Entry(BYTE, bytes((1, 4, 0, 0))),
        50707: Entry(BYTE, bytes((1, 1, 0, 0))),
        50708: text(name),
        50714: shorts(0, 0, 0),
        50717: shorts(65535, 65535, 65535),
        50721: rationals(*to_camera.ravel(), signed=True),
        50728: rationals(*(gains.min() / gains)),
        50778: shorts(D65),
    }
