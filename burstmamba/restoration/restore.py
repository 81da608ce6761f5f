"""restore_burst: a burst in, one picture out. The only place that knows tiles, borders and precision.

Correspondence is estimated once on whole frames. The network then runs on overlapping windows whose feathered
results are added up one row of windows at a time, so that memory depends on the input and not on the output.
"""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Callable, Iterator

import torch
from torch import Tensor, nn

from burstmamba.burst import Burst
from burstmamba.correspondence.field import Correspondence
from burstmamba.errors import InputError
from burstmamba.model.config import ModelConfig
from burstmamba.restoration.ensemble import TURNS
from burstmamba.restoration.runner import TRIAL, Runner, fitting_tile, is_out_of_memory
from burstmamba.restoration.tiles import OVERLAP, SMALLEST_TILE, Box, Windows, cut, cut_burst

if TYPE_CHECKING:
    from burstmamba.correspondence import FrameReport

log = logging.getLogger(__name__)

Progress = Callable[[str, int, int], None]
"""Called as (stage, done, total); raising an exception in it stops the work."""

GRAPH_FROM = 6
"""Windows from which on capturing a CUDA graph, which costs three runs, pays."""
GRAPH_UP_TO = 256**2
"""LR pixels of a window up to which it does: in larger ones the GPU takes longer than launching its work."""
STEPS = 16
"""Steps of the progress in one window."""
MARGIN = OVERLAP // 3
"""LR pixels around a crop that the network sees as well."""

# Where the first red pixel of a mosaic lies: windows start on one, as in training.
RED_FIRST = {None: (0, 0), "RGGB": (0, 0), "GRBG": (0, 1), "GBRG": (1, 0), "BGGR": (1, 1)}


@dataclass
class RestoreReport:
    """What was decided and what it cost."""

    frames: int = 1
    """Frames the network was given."""
    estimator: str = "none"
    tile: int = 0
    """Side of a window in LR pixels."""
    tiles: int = 1
    device: str = "cpu"
    precision: str = "float32"
    ensemble: bool = False
    seconds: dict[str, float] = field(default_factory=dict)
    """Time of each stage."""
    clipped: float = 0.0
    """Share of output values that lay outside [0, 1] by more than a step of 8 bits."""
    notes: tuple[str, ...] = ()
    frame_reports: tuple[FrameReport, ...] = ()
    """What the alignment found about every frame; empty when nothing was aligned."""


def restore_burst(
    model: nn.Module,
    burst: Burst,
    *,
    correspondence: Correspondence | str = "auto",
    tile: int | None = None,
    ensemble: bool = False,
    progress: Progress | None = None,
) -> Tensor:
    """Reconstruct the keyframe at the model's scale from all frames.

    Args:
        model: a BurstMamba on the device to compute on.
        burst: keyframe first; frames may be half precision to save memory.
        correspondence: the name of an estimator, or maps for a batch of 1.
        tile: side of a window in LR pixels; None takes what fits in memory.
        ensemble: average over eight flips and turns, at eight times the cost.
        progress: called as (stage, done, total).

    Returns:
        (3, s·h, s·w) float32 in [0, 1]: sRGB-encoded for RGB bursts, linear camera RGB for mosaics.
    """
    return Restoration(
        model, burst, correspondence=correspondence, tile=tile, ensemble=ensemble, progress=progress
    ).image()


class Restoration:
    """A burst that is aligned and ready to run; `bands` yields the picture from top to bottom."""

    def __init__(
        self,
        model: nn.Module,
        burst: Burst,
        *,
        correspondence: Correspondence | str = "auto",
        tile: int | None = None,
        ensemble: bool = False,
        crop: Box | None = None,
        progress: Progress | None = None,
    ) -> None:
        self.config = check_fits(model, burst, ensemble=ensemble, tile=tile, crop=crop)
        self.runner = Runner(model)
        self.progress = progress or (lambda stage, done, total: None)
        self.ensemble = ensemble
        self.report = RestoreReport(device=str(self.runner.device), precision=self.runner.precision, ensemble=ensemble)
        self.burst, self.maps = self._align(burst, correspondence)
        self._move_near()
        self.mirror = burst.camera.cfa is not None
        self.crop = crop or Box(0, 0, *self.burst.size)
        self._set_tile(tile or fitting_tile(self.config, len(self.burst), self.runner.device))

    @property
    def size(self) -> tuple[int, int]:
        """(height, width) of the result."""
        return self.crop.height * self.config.scale, self.crop.width * self.config.scale

    def keyframe(self, *, whole: bool = False) -> Tensor:
        """(3, h, w) float32: the keyframe as it came, a mosaic demosaicked simply; its crop unless `whole`."""
        frame, crop = self.burst.frames[0].float().cpu(), self.crop
        if self.mirror:
            from burstmamba.files.mosaic import mosaic_to_rgb

            red = RED_FIRST[self.burst.camera.cfa]
            h, w = (2 * -(-side // 2) + 2 for side in self.burst.size)
            even = cut(frame, -red[0], -red[1], h, w, mirror=True)
            frame = mosaic_to_rgb(even)[:, red[0] :, red[1] :]
        return frame if whole else cut(frame, crop.top, crop.left, crop.height, crop.width)

    def image(self) -> Tensor:
        """(3, s·h, s·w) float32 in [0, 1]."""
        image, row = torch.empty(3, *self.size), 0
        for band in self.bands():
            image[:, row : row + band.shape[1]] = band
            row += band.shape[1]
        return image

    def bands(self) -> Iterator[Tensor]:
        """Yield (3, rows, s·w) float32 in [0, 1] from top to bottom, on the model's device.

        The windows are halved when memory runs out.
        """
        start, done, clipped, spent = time.perf_counter(), 0, 0, 0.0
        while True:
            try:
                for band in self._bands_from(done):
                    clipped += int(((band < -1 / 255) | (band > 256 / 255)).sum())
                    done += band.shape[1] // self.config.scale
                    band = band.clamp(0, 1)
                    spent += time.perf_counter() - start  # what the caller does with a band is not the network's
                    yield band
                    start = time.perf_counter()
                break
            except RuntimeError as error:
                if not is_out_of_memory(error) or self.report.tile // 2 < SMALLEST_TILE:
                    raise
            # The failed window's tensors are gone only now, with the error.
            self.runner.release()
            self._set_tile(self.report.tile // 2)
            log.warning("out of memory: continuing with windows of %d pixels", self.report.tile)
        self.report.clipped = clipped / (3 * self.size[0] * self.size[1])
        self.report.seconds["network"] = spent

    def estimate_seconds(self) -> float:
        """How long `bands` will take, judged from a small window of the burst."""
        top, left = self.origin
        side = min(TRIAL.get(self.runner.device.type, TRIAL["cpu"]), self.rows.size, self.columns.size)
        frames, maps = cut_burst(self.frames, self.maps, Box(top, left, side, side), mirror=self.mirror)
        pixels = self.report.tiles * self.rows.size * self.columns.size
        return self.runner.seconds_per_pixel(frames, maps) * pixels * (len(TURNS) if self.ensemble else 1)

    def _align(self, burst: Burst, correspondence: Correspondence | str) -> tuple[Burst, Correspondence | None]:
        """The frames that are used, and their maps; neither is needed for a single image."""
        if self.config.burst_channels == 0 or len(burst) == 1:
            if len(burst) > 1:
                self.report.notes = ("a single-image model: only the keyframe is used.",)
            return burst.select([0]), None
        start = time.perf_counter()
        if isinstance(correspondence, Correspondence):
            maps, expected = correspondence.to("cpu"), (1, len(burst), 2, *burst.size)
            if (got := tuple(maps.to_frame.shape)) != expected:
                raise InputError(f"correspondence must have maps {expected} for this burst, got {got}.")
            if not (maps.to_frame.isfinite().all() and maps.to_keyframe.isfinite().all()):
                raise InputError("correspondence holds values that are not finite; a lost place has confidence 0.")
            self.report.estimator = "given"
        else:
            from burstmamba.restoration.pairwise import align  # brings OpenCV along

            alignment = align(burst, correspondence, lambda done, total: self.progress("align", done, total))
            self.report.frame_reports, self.report.notes = alignment.frames, alignment.notes
            self.report.estimator, burst, maps = correspondence, alignment.burst, alignment.correspondence
        self.report.frames = len(burst)
        self.report.seconds["align"] = time.perf_counter() - start
        return burst, maps if len(burst) > 1 else None

    def _move_near(self) -> None:
        """Keep frames and maps on a GPU that has room for them: cutting windows there costs next to nothing."""
        maps = 0 if self.maps is None else self.maps.to_frame.nbytes + self.maps.to_keyframe.nbytes
        device = self.runner.near(self.burst.frames.nbytes + maps)
        self.frames = self.burst.frames.detach().to(device)
        self.maps = None if self.maps is None else self.maps.to(device)

    def _set_tile(self, tile: int) -> None:
        """Lay windows over the crop and a margin around it; they start on a red pixel of a mosaic."""
        spans, origin = [], []
        starts, sizes = (self.crop.top, self.crop.left), (self.crop.height, self.crop.width)
        for start, size, length, red in zip(
            starts, sizes, self.burst.size, RED_FIRST[self.burst.camera.cfa], strict=True
        ):
            first = max(start - MARGIN, 0)
            first -= (first - red) % 2
            spans.append(Windows.cover(min(start + size + MARGIN, length) - first, tile))
            origin.append(first)
        self.rows, self.columns = spans
        self.origin = (origin[0], origin[1])
        self.report.tile, self.report.tiles = tile, len(self.rows.starts) * len(self.columns.starts)
        small = self.rows.size * self.columns.size <= GRAPH_UP_TO
        self.runner.graphs = self.runner.device.type == "cuda" and small and self.report.tiles >= GRAPH_FROM

    def _bands_from(self, first: int) -> Iterator[Tensor]:
        """The rows from LR row `first` of the crop on, each band as soon as no further window touches it."""
        rows, columns, s = self.rows, self.columns, self.config.scale
        left_edge = (self.crop.left - self.origin[1]) * s
        done = self.crop.top - self.origin[0] + first  # from here on, rows count from the first window
        end = self.crop.top - self.origin[0] + self.crop.height
        device = self.runner.device
        feather_y, feather_x = rows.weights(s).to(device), columns.weights(s).to(device)
        total, previous = torch.zeros(3, rows.size * s, columns.length * s, device=device), 0
        for i, top in enumerate(rows.starts):
            keep = total[:, (top - previous) * s :]
            total = torch.cat((keep, torch.zeros_like(total[:, : (top - previous) * s])), dim=1)
            previous = top
            for j, left in enumerate(columns.starts):
                if done < top + rows.size:
                    window = self._window(i, j) * (feather_y[i][:, None] * feather_x[j])
                    total[..., left * s : (left + columns.size) * s] += window
            settled = min(rows.settled(i), end)
            if settled > done:
                band = total[:, (done - top) * s : (settled - top) * s, left_edge : left_edge + self.size[1]]
                done = settled
                yield band
        self._tell(self.report.tiles)

    def _tell(self, tiles: float) -> None:
        """How many windows are done."""
        self.progress("restore", round(STEPS * tiles), STEPS * self.report.tiles)

    def _window(self, i: int, j: int) -> Tensor:
        """(3, s·height, s·width): the network's result for window i from the top, j from the left."""
        rows, columns, s = self.rows, self.columns, self.config.scale
        # A mosaic keeps its phase under a flip only if the window has an odd number of pixels.
        extra = self.ensemble and self.mirror
        height, width = (size + (extra and size % 2 == 0) for size in (rows.size, columns.size))
        y, x = self.origin[0] + rows.starts[i], self.origin[1] + columns.starts[j]
        core = rows.core(i, self.crop.top - y, self.crop.height), columns.core(j, self.crop.left - x, self.crop.width)
        box = Box(y, x, height, width, core)
        frames, maps = cut_burst(self.frames, self.maps, box, mirror=self.mirror)
        turns = TURNS if self.ensemble else TURNS[:1]
        mean = torch.zeros(3, height * s, width * s, device=self.runner.device)
        for k, turn in enumerate(turns):
            before = i * len(columns.starts) + j + k / len(turns)
            self._tell(before)
            with self.runner.watched(lambda share, before=before: self._tell(before + share / len(turns))):
                mean += turn.undo(self.runner(turn.picture(frames).contiguous(), turn.maps(maps)))
        mean /= len(turns)
        return mean[:, : rows.size * s, : columns.size * s]


def check_fits(model: nn.Module, burst: Burst, *, ensemble: bool, tile: int | None, crop: Box | None) -> ModelConfig:
    """The model's configuration; InputError unless it can restore this burst in the way asked for."""
    config = getattr(model, "config", None)
    if not isinstance(config, ModelConfig):
        raise InputError(
            f"expected a model with a ModelConfig, got {type(model).__name__}; use load_model or BurstMamba."
        )
    if not isinstance(burst, Burst):
        raise InputError(f"expected a Burst, got {type(burst).__name__}; use load_burst or Burst.from_arrays.")
    mosaic = burst.camera.cfa is not None
    if mosaic and config.in_channels != 1:
        raise InputError(
            "this model reads RGB frames and the burst is a RAW mosaic; use a model whose name ends in -raw."
        )
    if not mosaic and config.in_channels == 1:
        raise InputError("this model reads RAW mosaics and the burst is RGB; use a model without -raw in its name.")
    if tile is not None and tile < SMALLEST_TILE:
        raise InputError(f"tile must be at least {SMALLEST_TILE} pixels (windows overlap by {OVERLAP}), got {tile}.")
    h, w = burst.size
    if crop and not (0 <= crop.top < crop.top + crop.height <= h and 0 <= crop.left < crop.left + crop.width <= w):
        at = f"{crop.width}×{crop.height} at x {crop.left}, y {crop.top}"
        raise InputError(f"the crop must lie inside the {w}×{h} frames, got {at}.")
    if ensemble and config.centres != "half-pixel":
        raise InputError("the self-ensemble needs a model with half-pixel centres; this one's lie on corners.")
    return config
