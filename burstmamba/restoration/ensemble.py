"""The eight flips and turns of a window, applied to frames and maps together and undone on the result."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from burstmamba.correspondence.field import Correspondence


@dataclass(frozen=True)
class Turn:
    """One element of the square's symmetry group: first transpose, then flip."""

    transpose: bool = False
    flip_x: bool = False
    flip_y: bool = False

    def picture(self, picture: Tensor) -> Tensor:
        """(..., h, w) → the turned picture."""
        if self.transpose:
            picture = picture.transpose(-2, -1)
        return picture.flip([axis for axis, on in ((-2, self.flip_y), (-1, self.flip_x)) if on])

    def undo(self, picture: Tensor) -> Tensor:
        """The picture before `picture()` turned it."""
        picture = picture.flip([axis for axis, on in ((-2, self.flip_y), (-1, self.flip_x)) if on])
        return picture.transpose(-2, -1) if self.transpose else picture

    def displacement(self, displacement: Tensor) -> Tensor:
        """(b, l, 2, h, w): turn the map and the vectors in it."""
        turned = self.picture(displacement)
        if self.transpose:
            turned = turned.flip(2)  # x and y change places
        sign = torch.tensor([-1.0 if self.flip_x else 1.0, -1.0 if self.flip_y else 1.0], device=turned.device)
        return turned * sign.view(1, 1, 2, 1, 1)

    def maps(self, maps: Correspondence | None) -> Correspondence | None:
        """The correspondence of turned frames."""
        if maps is None:
            return None
        confidence = None if maps.confidence is None else self.picture(maps.confidence)
        return Correspondence(self.displacement(maps.to_frame), self.displacement(maps.to_keyframe), confidence)


TURNS = tuple(Turn(bool(i & 4), bool(i & 1), bool(i & 2)) for i in range(8))
