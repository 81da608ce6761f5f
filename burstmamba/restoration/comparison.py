"""A before/after picture: the keyframe interpolated beside the result, and a few details of both at full size."""

from __future__ import annotations

from pathlib import Path

import cv2
import numpy as np
import torch
from PIL import Image, ImageDraw, ImageFont
from torch import Tensor

from burstmamba.files import SourceMetadata, save_image

WIDTH, TALLEST, GAP, INSETS, DETAIL = 760, 1140, 12, 3, 122
"""Largest overview, space between pictures, number of insets, and the side of a detail in result pixels."""
COLOURS = ((255, 196, 0), (0, 200, 255), (255, 96, 160))


def save_comparison(
    path: str | Path, before: Tensor, after: Tensor, *, icc_profile: bytes | None = None, force: bool = False
) -> None:
    """Write the picture.

    Args:
        before: (3, h, w) in [0, 1]: the keyframe.
        after: (3, s·h, s·w) in [0, 1]: the result.
        icc_profile: what the values of both are meant in; None is sRGB.
        force: replace an existing file.
    """
    picture = torch.from_numpy(compare(before, after)).permute(2, 0, 1).float() / 255
    save_image(path, picture, metadata=SourceMetadata(icc_profile=icc_profile), force=force)


def compare(before: Tensor, after: Tensor) -> np.ndarray:
    """(height, width, 3) uint8."""
    height, width = after.shape[1:]
    factor = min(WIDTH / width, TALLEST / height)
    overview = (max(1, round(width * factor)), max(1, round(height * factor)))
    side = (WIDTH - (INSETS - 1) * GAP) // INSETS
    details = find_details(after)
    sheet = Image.new("RGB", (2 * WIDTH + 3 * GAP, overview[1] + side + 3 * GAP + 28), (24, 24, 24))
    draw = ImageDraw.Draw(sheet)
    for column, (title, source) in enumerate((("keyframe, bicubic", before), ("BurstMamba", after))):
        left = GAP + column * (WIDTH + GAP)
        draw.text((left, 8), title, fill=(235, 235, 235), font=ImageFont.load_default(16))
        sheet.paste(Image.fromarray(resized(source, overview)), (left, 28))
        for number, (y, x, size) in enumerate(details):
            corners = (left + x * factor, 28 + y * factor, left + (x + size) * factor, 28 + (y + size) * factor)
            draw.rectangle(corners, outline=COLOURS[number], width=2)
            detail = Image.fromarray(resized(window(source, y, x, size, after.shape[1:]), (side, side)))
            place = left + number * (side + GAP), 28 + overview[1] + GAP
            sheet.paste(detail, place)
            draw.rectangle((*place, place[0] + side - 1, place[1] + side - 1), outline=COLOURS[number], width=2)
    return np.array(sheet)


def window(source: Tensor, y: int, x: int, size: int, full: torch.Size) -> Tensor:
    """The part of `source`, whatever its scale, that a square of the full-size result shows."""
    factor = source.shape[1] / full[0]
    y, x, size = round(y * factor), round(x * factor), max(1, round(size * factor))
    return source[:, y : y + size, x : x + size]


def resized(source: Tensor, size: tuple[int, int]) -> np.ndarray:
    """(3, h, w) in [0, 1] → (height, width, 3) uint8 of the given (width, height)."""
    method = cv2.INTER_AREA if size[0] < source.shape[2] else cv2.INTER_CUBIC
    planes = [
        cv2.resize(plane, size, interpolation=method) for plane in source.numpy()
    ]  # never a copy of a large picture
    return (np.stack(planes, axis=-1).clip(0, 1) * 255).round().astype(np.uint8)


def find_details(after: Tensor) -> list[tuple[int, int, int]]:
    """(y, x, side) of the squares with the most fine structure, apart from each other."""
    height, width = after.shape[1:]
    size = min(DETAIL, height, width)
    step = max(1, max(height, width) // 2048)  # a large picture is judged on every n-th pixel
    grey = after[:, ::step, ::step].mean(0).numpy()
    energy = np.abs(cv2.Laplacian(cv2.GaussianBlur(grey, (0, 0), 1.5), cv2.CV_32F))
    window = max(1, size // step)
    score = cv2.boxFilter(energy, -1, (window, window), normalize=True, anchor=(0, 0))
    score = score[: max(1, grey.shape[0] - window + 1), : max(1, grey.shape[1] - window + 1)].copy()
    found = []
    for _ in range(INSETS):
        y, x = divmod(int(score.argmax()), score.shape[1])
        if found and score[y, x] < 0:
            break
        found.append((min(y * step, height - size), min(x * step, width - size), size))
        apart = 2 * window
        score[max(0, y - apart) : y + apart, max(0, x - apart) : x + apart] = -1
    return found
