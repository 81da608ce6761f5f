"""Side-by-side panels with magnified insets, and before/after strips."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from PIL import Image, ImageDraw, ImageFont
from torch import Tensor

from burstmamba.burst import Camera
from burstmamba.errors import InputError
from burstmamba.evaluation.metrics import psnr, size_text
from burstmamba.files.develop import automatic_exposure, develop

WHITE, BLACK, MARK = (255, 255, 255), (20, 20, 20), (255, 200, 0)
GAP = 8
LINE = 22
"""Height of a line of text in pixels."""


@dataclass(frozen=True)
class Box:
    """A rectangle in HR pixels."""

    left: int
    top: int
    width: int
    height: int

    @classmethod
    def parse(cls, text: str) -> Box:
        """Read `left,top,width,height`."""
        try:
            box = cls(*(int(part) for part in text.split(",")))
        except (ValueError, TypeError):
            raise InputError(f"a box is LEFT,TOP,WIDTH,HEIGHT in pixels, got {text!r}.") from None
        if min(box.left, box.top) < 0 or min(box.width, box.height) < 1:
            raise InputError(f"a box needs a place inside the picture and a size of at least 1, got {text!r}.")
        return box

    def cut(self, image: Tensor) -> Tensor:
        """The part of (..., h, w) inside the box."""
        if self.left + self.width > image.shape[-1] or self.top + self.height > image.shape[-2]:
            text = f"{self.left},{self.top},{self.width},{self.height}"
            raise InputError(f"the box {text} reaches beyond the picture of {size_text(image)}.")
        return image[..., self.top : self.top + self.height, self.left : self.left + self.width]


def most_different_box(pictures: list[Tensor], size: int = 96, border: int = 16) -> Box:
    """Where pictures (3, h, w) of one scene differ most: the square with the largest variance between them."""
    stack = torch.stack([picture.float() for picture in pictures])
    h, w = stack.shape[-2:]
    size = min(size, h - 2 * border, w - 2 * border)
    if size < 1:
        raise InputError(f"a picture of {size_text(stack)} is too small for an inset.")
    variance = stack.var(dim=0, correction=0).mean(dim=0)[border : h - border, border : w - border]
    sums = F.avg_pool2d(variance[None, None], size, stride=4)[0, 0]
    index = int(sums.argmax())
    top, left = divmod(index, sums.shape[1])
    return Box(border + 4 * left, border + 4 * top, size, size)


def developer(camera: Camera, like: Tensor) -> Callable[[Tensor], Tensor]:
    """What develops linear pictures (3, h, w) of one scene for display, all with the exposure that suits `like`."""
    exposure = automatic_exposure(like, camera)
    return lambda picture: develop(picture, camera, exposure=exposure)


def comparison(
    pictures: dict[str, Tensor],
    truth: Tensor | None = None,
    box: Box | None = None,
    *,
    zoom: int = 3,
    show: Callable[[Tensor], Tensor] = lambda picture: picture,
) -> Image.Image:
    """The scene with its box marked, and the box of every method magnified beside it.

    Args:
        pictures: (3, h, w) in [0, 1], by name.
        truth: the same for the ground truth; adds its inset and each inset's PSNR.
        box: what is magnified; None takes where the methods differ most.
        zoom: magnification of the insets, pixels kept square.
        show: makes a picture displayable; PSNR is of the picture itself.
    """
    if not pictures:
        raise InputError("a comparison needs at least one picture.")
    everything = dict(pictures) if truth is None else {**pictures, "ground truth": truth}
    sizes = {name: tuple(picture.shape) for name, picture in everything.items()}
    if len(set(sizes.values())) > 1:
        raise InputError(f"pictures of one comparison must have one size, got {sizes}.")
    others = list(everything.values())
    box = box or most_different_box(others if len(others) > 1 else [others[0], torch.zeros_like(others[0])])
    insets = []
    for name, picture in everything.items():
        text = name
        if truth is not None and name != "ground truth":
            text += f"  {psnr(box.cut(picture)[None], box.cut(truth)[None]).item():.2f} dB"
        insets.append((text, box.cut(show(picture))))
    cells = grid(insets, columns=max(2, (len(insets) + 1) // 2), zoom=zoom)
    scene = _scene(show(others[-1]), box, cells.height)
    canvas = Image.new("RGB", (scene.width + GAP + cells.width, scene.height), WHITE)
    canvas.paste(scene, (0, 0))
    canvas.paste(cells, (scene.width + GAP, 0))
    return canvas


def strip(before: Tensor, after: Tensor, labels: tuple[str, str] = ("before", "after")) -> Image.Image:
    """One picture whose left half shows `before` and whose right half shows `after`, both (3, h, w)."""
    if before.shape[-2:] != after.shape[-2:]:
        before = F.interpolate(before[None], size=after.shape[-2:], mode="nearest")[0]
    middle = after.shape[-1] // 2
    joined = to_image(torch.cat((before[..., :middle], after[..., middle:]), dim=-1))
    draw = ImageDraw.Draw(joined)
    draw.line((middle, 0, middle, joined.height), fill=WHITE, width=2)
    _label(draw, (8, joined.height - LINE - 6), labels[0])
    _label(draw, (middle + 8, joined.height - LINE - 6), labels[1])
    return joined


def grid(pictures: list[tuple[str, Tensor]], columns: int = 4, *, zoom: int = 1) -> Image.Image:
    """Pictures (3, h, w) of one size with a caption each, in as few rows of up to `columns` as evenly as possible."""
    images = [(name, _magnify(picture, zoom)) for name, picture in pictures]
    width, height = images[0][1].size
    width = max(width, *(round(_font().getlength(name)) + 4 for name, _ in images))
    rows = -(-len(images) // columns)
    columns = -(-len(images) // rows)
    canvas = Image.new("RGB", (columns * (width + GAP) - GAP, rows * (height + LINE + GAP) - GAP), WHITE)
    draw = ImageDraw.Draw(canvas)
    for index, (name, image) in enumerate(images):
        x, y = (index % columns) * (width + GAP), (index // columns) * (height + LINE + GAP)
        canvas.paste(image, (x, y))
        draw.text((x + 2, y + height + 3), name, fill=BLACK, font=_font())
    return canvas


def to_image(picture: Tensor) -> Image.Image:
    """(3, h, w) in [0, 1] as an 8-bit picture."""
    pixels = (picture.detach().float().clamp(0, 1) * 255).round().byte()
    return Image.fromarray(np.ascontiguousarray(pixels.permute(1, 2, 0).cpu().numpy()))


def _magnify(picture: Tensor, zoom: int) -> Image.Image:
    image = to_image(picture)
    return image.resize((image.width * zoom, image.height * zoom), Image.Resampling.NEAREST)


def _scene(picture: Tensor, box: Box, height: int) -> Image.Image:
    image = to_image(picture)
    ImageDraw.Draw(image).rectangle(
        (box.left - 2, box.top - 2, box.left + box.width + 1, box.top + box.height + 1), outline=MARK, width=3
    )
    return image.resize((round(image.width * height / image.height), height), Image.Resampling.LANCZOS)


def _label(draw: ImageDraw.ImageDraw, place: tuple[int, int], text: str) -> None:
    draw.rectangle(draw.textbbox((place[0] + 4, place[1] + 2), text, font=_font()), fill=BLACK)
    draw.text((place[0] + 4, place[1] + 2), text, fill=WHITE, font=_font())


def _font() -> ImageFont.ImageFont | ImageFont.FreeTypeFont:
    return ImageFont.load_default(size=15)
