"""Which frames of a long burst are worth keeping: the sharp ones that show the keyframe's view."""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import blake2b

import cv2
import numpy as np

from burstmamba.files.frame import Frame
from burstmamba.files.metadata import SourceMetadata

THUMBNAIL, MEASURED = 192, 1024
"""Longest side in pixels of what overlap and sharpness are measured on."""


@dataclass(frozen=True)
class Survey:
    """What is remembered of a frame that was looked at and let go: about 100 kB."""

    index: int
    name: str
    size: tuple[int, int]
    digest: bytes
    sharpness: float
    thumbnail: np.ndarray
    """(h, w) float32 grey in [0, 1]."""
    metadata: SourceMetadata


def survey(index: int, frame: Frame) -> Survey:
    """Measure one frame."""
    grey = frame.grey(MEASURED)
    return Survey(index, frame.name, frame.size, digest(frame), sharpness(grey), frame.grey(THUMBNAIL), frame.metadata)


def digest(frame: Frame) -> bytes:
    """A fingerprint of the pixels: equal for exact duplicates, whatever their files are called."""
    return blake2b(np.ascontiguousarray(frame.pixels).data, digest_size=16).digest()


def sharpness(grey: np.ndarray) -> float:
    """Energy of fine detail relative to brightness; comparable between frames of one scene only.

    A band from one to two pixels: finer than that is mostly noise, which grows where a blurred frame was short of
    light.
    """
    fine = cv2.GaussianBlur(grey, (0, 0), 1.0) - cv2.GaussianBlur(grey, (0, 0), 2.0)
    return float(fine.std() / (grey.mean() + 1e-3))


def overlap(keyframe: np.ndarray, other: np.ndarray) -> float:
    """Share of the keyframe's view that another thumbnail shows, in [0, 1], by phase correlation."""
    if keyframe.shape != other.shape or min(keyframe.shape) < 8:
        return 1.0
    window = cv2.createHanningWindow(keyframe.shape[::-1], cv2.CV_32F)
    (dx, dy), _ = cv2.phaseCorrelate(keyframe - keyframe.mean(), other - other.mean(), window)
    height, width = keyframe.shape
    return max(0.0, 1 - abs(dx) / width) * max(0.0, 1 - abs(dy) / height)


def choose_frames(surveys: list[Survey], keyframe: int, limit: int) -> list[int]:
    """Positions in `surveys` of the best `limit` frames by sharpness × overlap; the keyframe is always one of them.

    Returns:
        Positions in rising order.
    """
    if len(surveys) <= limit:
        return list(range(len(surveys)))
    reference = surveys[keyframe].thumbnail
    scores = [item.sharpness * overlap(reference, item.thumbnail) for item in surveys]
    others = sorted((i for i in range(len(surveys)) if i != keyframe), key=lambda i: (-scores[i], i))
    return sorted([keyframe, *others[: limit - 1]])
