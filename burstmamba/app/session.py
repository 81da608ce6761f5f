"""One visitor's burst between upload and download."""

from __future__ import annotations

import shutil
import tempfile
import threading
from dataclasses import dataclass, field
from math import hypot
from pathlib import Path

import cv2
import numpy as np
import torch.nn.functional as F
from torch import Tensor, nn

from burstmamba.app.uploads import UploadLimits, collect
from burstmamba.burst import Burst
from burstmamba.correspondence import Alignment
from burstmamba.files import LoadedBurst, read_burst, save_image
from burstmamba.files.develop import automatic_exposure, develop
from burstmamba.restoration.pairwise import align
from burstmamba.restoration.restore import Progress, Restoration

THUMBNAIL = 240


class Cancelled(Exception):
    """The visitor pressed cancel."""


@dataclass
class Session:
    """Frames as loaded, what the visitor chose, and the pictures made so far."""

    folder: Path = field(default_factory=lambda: Path(tempfile.mkdtemp(prefix="burstmamba-app-")))
    loaded: LoadedBurst | None = None
    keyframe: int = 0
    """Position among the loaded frames."""
    dropped: set[int] = field(default_factory=set)
    selected: int | None = None
    alignment: Alignment | None = None
    order: list[int] = field(default_factory=list)
    """Positions of the loaded frames in the order that was aligned, keyframe first."""
    aligned_with: tuple[int, str] | None = None
    """Keyframe and estimator that the alignment belongs to."""
    cancel: threading.Event = field(default_factory=threading.Event)
    result: Tensor | None = None
    restoration: Restoration | None = None
    restored: int = 0
    """The keyframe of the result."""
    model: nn.Module | None = None
    """The network that made it."""
    runs: int = 0
    """Pictures of each run have addresses of their own: a browser would show the old ones again."""

    def close(self) -> None:
        """Remove the visitor's files."""
        self.cancel.set()
        shutil.rmtree(self.folder, ignore_errors=True)

    def forget(self) -> None:
        """Be as before the first upload."""
        self.loaded, self.alignment, self.aligned_with, self.result, self.restoration = None, None, None, None, None
        self.keyframe, self.dropped, self.selected = 0, set(), None
        shutil.rmtree(self.folder / "frames", ignore_errors=True)  # of an earlier zip file

    def upload(self, paths: list[str], limits: UploadLimits, limit: int) -> None:
        """Read other files; everything known about earlier ones is forgotten."""
        self.forget()
        shots = collect(paths, self.folder / "frames", limits)
        self.loaded = read_burst(shots, limit=limit, max_pixels=int(limits.megapixels * 1e6))

    @property
    def burst(self) -> Burst:
        """The loaded frames in their own order."""
        if self.loaded is None:
            raise ValueError("nothing is loaded")
        return self.loaded.burst

    def align(self, estimator: str, progress: Progress | None = None) -> None:
        """Estimate motion against the chosen keyframe, unless that is known already."""
        if self.aligned_with == (self.keyframe, estimator):
            return
        order = [self.keyframe, *(i for i in range(len(self.burst)) if i != self.keyframe)]
        tell = progress or (lambda stage, done, total: None)
        alignment = align(self.burst.select(order), estimator, lambda done, total: tell("align", done, total))
        self.order, self.alignment, self.aligned_with = order, alignment, (self.keyframe, estimator)

    def thumbnails(self) -> list[tuple[np.ndarray, str]]:
        """A small picture and a line for every loaded frame, in its own order."""
        reports = {} if self.alignment is None else {self.order[r.index]: r for r in self.alignment.frames}
        items = []
        for i, name in enumerate(self.burst.names):
            report, line = reports.get(i), name
            if i == self.keyframe:
                line = f"★ {name} · keyframe"
            elif i in self.dropped:
                line = f"✕ {name} · left out by you"
            elif report is not None and not report.kept:
                line = f"✕ {name} · {report.reason}"
            elif report is not None:
                moved = hypot(*report.motion)
                line = f"{name} · moved {moved:.1f} px · sharp {report.sharpness:.0%} · sure {report.confidence:.0%}"
            items.append((self._thumbnail(i), line))
        return items

    def left_out(self, index: int) -> str | None:
        """Why the alignment could not use a loaded frame; None if it could."""
        found = () if self.alignment is None else self.alignment.frames
        return next((r.reason for r in found if self.order[r.index] == index and not r.kept), None)

    def _thumbnail(self, index: int) -> np.ndarray:
        step = max(1, max(self.burst.size) // (2 * THUMBNAIL))
        frame = self.burst.frames[index]
        if self.burst.camera.cfa:
            small = F.avg_pool2d(frame.float(), 2)[..., ::step, ::step].expand(3, -1, -1)  # grey is enough here
            small = (small / small.max().clamp(min=1e-3)) ** (1 / 2.2)
        else:
            small = frame[..., ::step, ::step].float()
        pixels = (small.clamp(0, 1) * 255).round().byte().permute(1, 2, 0).numpy()
        width = max(1, round(THUMBNAIL * pixels.shape[1] / max(pixels.shape[:2])))
        height = max(1, round(THUMBNAIL * pixels.shape[0] / max(pixels.shape[:2])))
        return cv2.resize(pixels, (width, height), interpolation=cv2.INTER_AREA)

    def restore(self, model: nn.Module, estimator: str, length: int, progress: Progress | None = None) -> Restoration:
        """Restore the keyframe from the frames that are kept; the picture is in `result`."""
        self.cancel.clear()

        def checked(stage: str, done: int, total: int) -> None:
            if self.cancel.is_set():
                raise Cancelled
            if progress:
                progress(stage, done, total)

        self.align(estimator, checked)
        assert self.alignment is not None
        aligned = [self.order[report.index] for report in self.alignment.frames if report.kept]
        kept = [i for i, frame in enumerate(aligned) if i == 0 or frame not in self.dropped][:length]
        burst, maps = self.alignment.burst.select(kept), self.alignment.correspondence.select(kept)
        restoration = Restoration(model, burst, correspondence=maps, progress=checked)
        # All at once: whoever cancels keeps the picture before, and what it is compared with.
        self.result, self.restoration, self.restored, self.model = (
            restoration.image(),
            restoration,
            self.keyframe,
            model,
        )
        shutil.rmtree(self.folder / f"run-{self.runs - 1}", ignore_errors=True)  # the one before may still be shown
        self.runs += 1
        return restoration

    def single(self, progress: Progress | None = None) -> Tensor:
        """What the same network makes of the keyframe alone."""
        assert self.restoration is not None and self.model is not None
        return Restoration(self.model, self.restoration.burst.select([0]), progress=progress).image()

    def interpolated(self) -> Tensor:
        """The keyframe, enlarged bicubically: what everybody has without a burst."""
        assert self.restoration is not None
        keyframe = self.restoration.keyframe()[None]
        return F.interpolate(keyframe, self.restoration.size, mode="bicubic", align_corners=False)[0].clamp(0, 1)

    def picture(self, name: str, image: Tensor) -> str:
        """Develop where needed and save as PNG; returns the path."""
        assert self.loaded is not None and self.result is not None
        camera = self.burst.camera
        if camera.linear:
            image = develop(image, camera, exposure=automatic_exposure(self.result, camera))
        folder, metadata = self.folder / f"run-{self.runs}", self.loaded.every_metadata[self.restored]
        folder.mkdir(parents=True, exist_ok=True)
        return str(save_image(folder / f"{name}.png", image, metadata=metadata, force=True))
