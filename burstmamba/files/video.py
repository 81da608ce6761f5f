"""Video clips through OpenCV."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import cv2
import numpy as np

from burstmamba.errors import InputError
from burstmamba.files.frame import MAX_PIXELS, Frame, check_pixels
from burstmamba.files.metadata import SourceMetadata
from burstmamba.files.rgb import opening_bytes

VIDEO_SUFFIXES = (".mp4", ".mov", ".m4v", ".avi", ".mkv", ".webm", ".3gp")


def read_video(path: Path, wanted: set[int] | None = None, max_pixels: int = MAX_PIXELS) -> Iterator[tuple[int, Frame]]:
    """Decode a clip once, front to back, and yield (index, frame) of the wanted frames, upright.

    Args:
        wanted: frame numbers from 0; None for all of them.
    """
    opening_bytes(path)
    os.environ.setdefault("OPENCV_FFMPEG_LOGLEVEL", "-8")  # a damaged clip is reported once, by us
    capture = cv2.VideoCapture(str(path))
    try:
        if not capture.isOpened():
            raise _unreadable(path)
        size = capture.get(cv2.CAP_PROP_FRAME_WIDTH), capture.get(cv2.CAP_PROP_FRAME_HEIGHT)
        check_pixels(path.name, int(size[0]), int(size[1]), max_pixels)
        index, last = 0, max(wanted, default=-1) if wanted is not None else None
        while (last is None or index <= last) and capture.grab():
            if wanted is None or index in wanted:
                found, pixels = capture.retrieve()
                if not found:
                    break
                yield index, _frame(path, index, pixels)
            index += 1
        if index == 0 and wanted != set():
            raise _unreadable(path)
    finally:
        capture.release()


def _frame(path: Path, index: int, pixels: np.ndarray) -> Frame:
    rgb = cv2.cvtColor(pixels, cv2.COLOR_GRAY2RGB if pixels.ndim == 2 else cv2.COLOR_BGR2RGB)
    return Frame(rgb, f"{path.name}#{index}", SourceMetadata())


def _unreadable(path: Path) -> InputError:
    return InputError(
        f"{path.name} holds no video that this OpenCV can decode; "
        "convert it to H.264 MP4 or extract its frames as PNG files."
    )
