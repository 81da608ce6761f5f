"""Pictures and numbers about an alignment, for looking at it."""

from __future__ import annotations

import json
import os
from dataclasses import asdict
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import torch
import torch.nn.functional as F
from PIL import Image, ImageDraw
from torch import Tensor

from burstmamba.burst import Burst
from burstmamba.correspondence.align import Alignment
from burstmamba.correspondence.field import pixel_grid, sample_at
from burstmamba.correspondence.light import encode_srgb
from burstmamba.folders import make_folder

PICTURE_SIDE = 480


def write_report(alignment: Alignment, folder: Path) -> list[Path]:
    """Write the report of an alignment into `folder`.

    Returns:
        The files: report.json, motion.png, flow.png, residual.png, confidence.png, before.webp and after.webp (frames
        one after the other, as they came and warped to the keyframe).
    """
    make_folder(folder)
    frames = pictures(alignment.burst)  # (l, 3, h, w)
    maps = alignment.correspondence
    factor = alignment.burst.size[1] / frames.shape[-1]
    flow = F.interpolate(maps.to_frame[0].float(), frames.shape[-2:], mode="bilinear") / factor
    warped = sample_at(frames, flow)
    residual = (warped - frames[:1]).abs().mean(1)
    trust = torch.ones(len(frames), *frames.shape[-2:])
    if maps.confidence is not None:
        trust = F.interpolate(maps.confidence[0].float(), frames.shape[-2:], mode="bilinear")[:, 0]
    names = alignment.burst.names
    longest = float(flow.norm(dim=1).max())
    flows = [*(flow_picture(f, longest) for f in flow), colour_wheel(frames.shape[-2], frames.shape[-1])]
    images = {
        "motion.png": motion_plot(alignment),
        "flow.png": contact_sheet(flows, (*names, f"up to {factor * longest:.1f} px")),
        "residual.png": contact_sheet([heat_picture(r / 0.2) for r in residual], names),
        "confidence.png": contact_sheet([heat_picture(c) for c in trust], names),
    }
    written = []
    for name, image in images.items():
        written.append(_save(Image.fromarray(image), folder / name))
    for name, stack in (("before.webp", frames), ("after.webp", warped)):
        film = [Image.fromarray(_bytes(frame)) for frame in stack]
        written.append(_save(film[0], folder / name, save_all=True, append_images=film[1:], duration=250, loop=0))
    path = folder / "report.json"
    temporary = path.with_name("report.json.part")
    temporary.write_text(json.dumps(as_data(alignment), indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    os.replace(temporary, path)
    return [*written, path]


def as_data(alignment: Alignment) -> dict[str, Any]:
    """The alignment's numbers, ready for JSON."""
    frames = [asdict(frame) for frame in alignment.frames]
    height, width = alignment.burst.size
    return {"width": width, "height": height, "frames": frames, "notes": list(alignment.notes)}


def pictures(burst: Burst) -> Tensor:
    """The frames as small viewable pictures (l, 3, h, w) in [0, 1]; mosaics in grey."""
    factor = max(1, -(-max(burst.size) // PICTURE_SIDE))
    factor = max(1, min(factor, *burst.size))
    small = []
    for frame in burst.frames:
        frame = frame.detach().float().cpu()[None]
        if burst.camera.cfa and min(burst.size) > 1:
            frame = F.pad(F.avg_pool2d(frame, 2, stride=1), (0, 1, 0, 1), mode="replicate")
        frame = F.avg_pool2d(frame, factor)[0]
        small.append(frame.expand(3, -1, -1))
    stack = torch.stack(small)
    if not burst.camera.linear:
        return stack.clamp(0, 1)
    bright = torch.quantile(stack[0].flatten()[:1_000_000], 0.99).clamp(min=1e-4)
    return encode_srgb((stack / bright).clamp(0, 1))


def flow_picture(flow: Tensor, longest: float) -> np.ndarray:
    """Colour wheel: hue = direction, saturation = length over `longest`; (2, h, w) → (h, w, 3) bytes."""
    x, y = flow.numpy()
    hue = ((np.degrees(np.arctan2(y, x)) % 360) / 2).astype(np.uint8)
    saturation = np.clip(np.hypot(x, y) / max(longest, 1e-6) * 255, 0, 255).astype(np.uint8)
    wheel = np.stack((hue, saturation, np.full_like(hue, 255)), -1)
    return cv2.cvtColor(wheel, cv2.COLOR_HSV2RGB)


def colour_wheel(height: int, width: int) -> np.ndarray:
    """The key to flow pictures: a disc whose points have the colour of the flow from its centre to them."""
    radius = max(min(height, width) / 2 - 1, 1)
    spokes = pixel_grid(torch.empty(height, width))[0] - torch.tensor([width - 1, height - 1]).view(2, 1, 1) / 2
    return flow_picture(spokes * (spokes.norm(dim=0) <= radius), radius)


def heat_picture(values: Tensor) -> np.ndarray:
    """(h, w) in [0, 1] → (h, w, 3) bytes, dark to bright."""
    grey = (values.clamp(0, 1) * 255).round().byte().numpy()
    return cv2.cvtColor(cv2.applyColorMap(grey, cv2.COLORMAP_VIRIDIS), cv2.COLOR_BGR2RGB)


def contact_sheet(tiles: list[np.ndarray], names: tuple[str, ...], columns: int = 4) -> np.ndarray:
    """Pictures of one size in rows, each under its name."""
    h, w = tiles[0].shape[:2]
    strip, gap = 16, 4
    columns = min(columns, len(tiles))
    rows = -(-len(tiles) // columns)
    sheet = Image.new("RGB", (columns * (w + gap) + gap, rows * (h + strip + gap) + gap), "white")
    draw = ImageDraw.Draw(sheet)
    for i, (tile, name) in enumerate(zip(tiles, names, strict=True)):
        x, y = gap + i % columns * (w + gap), gap + i // columns * (h + strip + gap)
        draw.text((x, y), name[-max(4, w // 7) :], fill="black")
        sheet.paste(Image.fromarray(tile), (x, y + strip))
    return np.asarray(sheet)


def motion_plot(alignment: Alignment, side: int = 480) -> np.ndarray:
    """Where each frame's view lies: mean motion in pixels, keyframe in the middle, frames left out in red."""
    reports = alignment.frames
    reach = max(1.0, *(max(abs(v) for v in r.motion) for r in reports)) * 1.25
    image = Image.new("RGB", (side, side), "white")
    draw = ImageDraw.Draw(image)
    middle = side / 2
    step = _round_step(reach)
    for k in range(-int(reach / step), int(reach / step) + 1):
        at = middle + k * step / reach * middle
        shade = "#999999" if k == 0 else "#dddddd"
        draw.line((at, 0, at, side), fill=shade)
        draw.line((0, at, side, at), fill=shade)
        draw.text((at + 2, side - 14), f"{k * step:g}", fill="#666666")
        if k:
            draw.text((2, at - 12), f"{k * step:g}", fill="#666666")
    draw.text((side - 88, 4), "x, y in pixels", fill="#666666")
    for report in reports:
        x, y = (middle + v / reach * middle for v in report.motion)
        colour = "#1f4e9c" if report.kept else "#c22222"
        draw.ellipse((x - 4, y - 4, x + 4, y + 4), fill=colour)
        draw.text((x + 6, y - 6), str(report.index), fill=colour)
    return np.asarray(image)


def _round_step(reach: float) -> float:
    """A round number of pixels for about four grid lines a side."""
    power = 10.0 ** np.floor(np.log10(reach / 4))
    return float(min((m * power for m in (1, 2, 5, 10)), key=lambda s: abs(reach / s - 4)))


def _bytes(image: Tensor) -> np.ndarray:
    return (image.clamp(0, 1) * 255).round().byte().permute(1, 2, 0).numpy()


def _save(image: Image.Image, path: Path, **options: Any) -> Path:
    temporary = path.with_name(path.name + ".part")
    image.save(temporary, format=path.suffix[1:].upper(), **options)
    os.replace(temporary, path)
    return path
