"""Drawn stand-ins for photographs: dead leaves, shapes of all sizes that hide each other.

Like photographs they have sharp edges at every scale and a 1/f spectrum, so a newcomer can train without data.
"""

from __future__ import annotations

from pathlib import Path

import cv2
import numpy as np

from burstmamba.checkpoint import write_atomically

SHRINK = 2  # drawn larger and shrunk: smooth edges


def draw_leaves(size: int, rng: np.random.Generator, shapes: int = 260) -> np.ndarray:
    """Paint random ellipses and boxes, plain, striped or grained, until they cover the picture.

    Args:
        size: side in pixels.
        rng: where the picture comes from.
        shapes: how many to paint, the last in front.

    Returns:
        (size, size, 3) uint8 sRGB.
    """
    side = SHRINK * size
    picture = np.full((side, side, 3), 0.5, np.float32)
    y, x = np.mgrid[:side, :side].astype(np.float32)
    # Radii with density ∝ r⁻³ look the same at every scale; painting the big ones first keeps the small visible.
    radii = np.sort(1 / np.sqrt(rng.uniform(1 / (side / 3) ** 2, 1 / 14.0**2, shapes)))[::-1]
    for radius in radii:
        mask = np.zeros((side, side), np.uint8)
        centre = rng.uniform(0, side, 2)
        axes = radius * rng.uniform(0.4, 1.0, 2)
        angle = rng.uniform(0, 180)
        if rng.random() < 0.6:
            cv2.ellipse(mask, (tuple(centre), tuple(2 * axes), angle), 1, -1)
        else:
            corners = cv2.boxPoints((tuple(centre), tuple(2 * axes), angle))
            cv2.fillPoly(mask, [corners.astype(np.int32)], 1)
        left, top, width, height = cv2.boundingRect(mask)
        if width == 0:
            continue
        window = np.s_[top : top + height, left : left + width]
        picture[window][mask[window] > 0] = _leaf(x[window], y[window], rng)[mask[window] > 0]
    small = cv2.resize(picture, (size, size), interpolation=cv2.INTER_AREA)
    return (small.clip(0, 1) * 255 + 0.5).astype(np.uint8)


def _leaf(x: np.ndarray, y: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """The surface of one leaf at these pixels: a colour, often with stripes or grain."""
    grey = rng.uniform(0.05, 0.95)
    colour = (grey + rng.normal(0, 0.08, 3)).clip(0, 1).astype(np.float32)
    surface = np.broadcast_to(colour, (*x.shape, 3)).copy()
    kind = rng.random()
    if kind < 0.35:
        direction = rng.uniform(0, np.pi)
        period = np.exp(rng.uniform(np.log(5), np.log(40)))
        phase = 2 * np.pi * (np.cos(direction) * x + np.sin(direction) * y) / period + rng.uniform(0, 2 * np.pi)
        surface += rng.uniform(0.05, 0.3) * np.sin(phase)[..., None]
    elif kind < 0.55:
        surface += rng.uniform(0.02, 0.12) * rng.standard_normal((*x.shape, 1)).astype(np.float32)
    return surface


def _side(path: Path) -> int:
    """Side of a picture in pixels; 0 when there is none that can be read."""
    picture = cv2.imread(str(path)) if path.exists() else None
    return 0 if picture is None else picture.shape[0]


def write_leaves(folder: Path, count: int, size: int, seed: int, *, least: int = 0) -> Path:
    """Write `count` pictures as PNG into `folder`, unless they are there and their side is `least` or more.

    Returns:
        The folder.
    """
    for number in range(count):
        path = folder / f"leaves-{number:02d}.png"
        if _side(path) < max(least, 1):
            picture = draw_leaves(size, np.random.default_rng((seed, number)))
            write_atomically(path, cv2.imencode(".png", picture[..., ::-1])[1].tobytes())
    return folder
