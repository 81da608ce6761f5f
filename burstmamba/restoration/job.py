"""One job: somebody's files in, one picture file out. The command, the page and batches all run this."""

from __future__ import annotations

import importlib.util
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from math import hypot
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor

from burstmamba.burst import Burst, Camera
from burstmamba.checkpoint import load_model, shipped_models
from burstmamba.device import pick_device
from burstmamba.errors import InputError
from burstmamba.files import SourceMetadata, check_output, read_burst, save_image
from burstmamba.files.develop import automatic_exposure, develop
from burstmamba.files.saving import check_size
from burstmamba.files.shots import Shots, find_shots
from burstmamba.kernels.selective_scan import select_backend
from burstmamba.memory import keep_freed_memory
from burstmamba.model.burstmamba import BurstMamba
from burstmamba.restoration.canvas import Canvas
from burstmamba.restoration.comparison import save_comparison
from burstmamba.restoration.restore import Progress, Restoration
from burstmamba.restoration.tiles import Box

Say = Callable[[str], None]
AUTO = {"RGB": "light", "RAW mosaics": "light-raw"}
"""The shipped model that is taken for each kind of frames unless another is named."""
LONG_WORK = 64 * 64 * 8
"""LR pixels from which on the time is estimated first."""
STILL = 0.25
"""LR pixels: a burst that moves less holds no sub-pixel information, as from a tripod."""


@dataclass(frozen=True)
class JobSettings:
    """How a burst is restored; the defaults suit a handheld burst."""

    model: str = "auto"
    """A shipped name, a checkpoint or a repository; `auto` is `light`, and `light-raw` for mosaics."""
    device: str = "auto"
    burst_length: int | None = 30
    """At most this many frames, the best ones; None takes all that memory holds."""
    keyframe: str = "first"
    """`first`, `sharpest`, a position from 0 or a file name."""
    correspondence: str = "auto"
    scale: int = 4
    """1 to the model's scale; less is area-averaged from the full result."""
    crop: tuple[int, int, int, int] | None = None
    """x, y, width, height in frame pixels."""
    tile: int | None = None
    ensemble: bool = False
    linear: bool = False
    """Keep a RAW result linear instead of developing it."""
    bits: int | None = None
    compare: str | None = None
    """Where to write a before/after picture."""
    force: bool = False


@dataclass
class JobReport:
    """What was decided, frame by frame, and what it cost."""

    output: str = ""
    size: tuple[int, int] = (0, 0)
    """Width and height of the result."""
    frame_size: tuple[int, int] = (0, 0)
    keyframe: str = ""
    keyframe_reason: str = ""
    frames: list[dict] = field(default_factory=list)
    """Name, whether kept and why not, motion in pixels, sharpness and confidence of each frame."""
    motion: float = 0.0
    """Largest motion of a frame in pixels."""
    estimator: str = "none"
    model: str = ""
    device: str = "cpu"
    precision: str = "float32"
    backend: str = ""
    tile: int = 0
    tiles: int = 1
    ensemble: bool = False
    estimated_seconds: float | None = None
    seconds: dict[str, float] = field(default_factory=dict)
    peak_memory_mb: int = 0
    clipped: float = 0.0
    notes: list[str] = field(default_factory=list)
    compare: str | None = None

    def take(self, restoration: Restoration) -> None:
        """What the restoration decided and measured while it ran."""
        done = restoration.report
        self.seconds |= done.seconds
        self.tile, self.tiles, self.clipped = done.tile, done.tiles, done.clipped

    def to_dict(self) -> dict:
        """For `--json`."""
        return asdict(self)


def run_job(
    shots: Shots,
    output: str | Path | None,
    settings: JobSettings | None = None,
    *,
    dry_run: bool = False,
    say: Say | None = None,
    progress: Progress | None = None,
) -> JobReport:
    """Restore one burst into one file.

    Args:
        shots: a folder, a clip or a list of files.
        output: the file to write; None is a dry run.
        settings: see JobSettings.
        dry_run: stop before the network and only report what would be done.
        say: called with each sentence for the user as soon as it is known.
        progress: called as (stage, done, total).
    """
    settings, say = settings or JobSettings(), say or (lambda sentence: None)
    keep_freed_memory()
    if output is not None:
        check_outputs(Path(output), settings)
        keep_frames(shots, [Path(output), *([Path(settings.compare)] if settings.compare else [])])
    dry_run = dry_run or output is None
    report = JobReport(output="" if dry_run else str(output), ensemble=settings.ensemble)
    tell = progress or (lambda stage, done, total: None)
    burst, metadata = load_shots(shots, settings, report, tell)
    if output is not None:
        check_colours(Path(output), burst.camera, settings)
    camera, restoration = burst.camera, plan(burst, settings, report, tell)
    if output is not None:
        check_size(output, *report.size, settings.bits)
    del burst  # the restoration keeps the frames that it uses
    for sentence in describe(report):
        say(sentence)
    if needs_estimate(restoration):
        start = time.perf_counter()
        report.estimated_seconds = restoration.estimate_seconds()
        report.seconds["trial"] = time.perf_counter() - start
        say(f"this will take about {duration(report.estimated_seconds)}")
    if output is not None and not dry_run:
        start = time.perf_counter()
        canvas = Canvas(restoration, settings.scale, Path(output))
        report.take(restoration)
        report.seconds["collect"] = time.perf_counter() - start - report.seconds["network"]
        before = restoration.keyframe() if settings.compare else None
        exposure = None
        if camera.linear and settings.crop:  # a part is developed as bright as it is in the whole
            exposure = automatic_exposure(F.avg_pool2d(restoration.keyframe(whole=True), 4, ceil_mode=True), camera)
        del restoration  # frames and maps are no longer needed, the file's encoder may need the memory
        start = time.perf_counter()
        tell("save", 0, 1)
        write(canvas.image, before, Path(output), camera, metadata, settings, report, exposure)
        report.seconds["save"] = time.perf_counter() - start
        tell("save", 1, 1)
    report.peak_memory_mb = peak_memory() >> 20
    return report


def needs_estimate(restoration: Restoration) -> bool:
    """Whether the network will run long enough for a small trial to be worth its time."""
    turns = 8 if restoration.ensemble else 1
    return restoration.crop.height * restoration.crop.width * turns >= LONG_WORK


def check_outputs(output: Path, settings: JobSettings) -> None:
    """Refuse what could not be written before any work is done."""
    check_output(output, bits=settings.bits, force=settings.force)
    if settings.compare:
        check_output(settings.compare, force=settings.force)
        if Path(settings.compare).suffix.lower() == ".dng":
            raise InputError("a DNG holds RAW colours and a comparison is developed; name it .png or .jpg.")
        if Path(settings.compare).resolve() == output.resolve():
            raise InputError(f"{output} cannot be the picture and the comparison; give them two names.")


def keep_frames(shots: Shots, outputs: list[Path]) -> None:
    """Refuse to replace one of the burst's own files."""
    existing = [path for path in outputs if path.exists()]
    for frame in find_shots(shots).paths if existing else ():
        for path in existing:
            if path.samefile(frame):
                raise InputError(f"{path} is one of the frames; choose another name for the picture.")


def check_colours(output: Path, camera: Camera, settings: JobSettings) -> None:
    """Refuse linear output of frames that were developed already."""
    if camera.cfa is None and (output.suffix.lower() == ".dng" or settings.linear):
        what = "DNG holds" if output.suffix.lower() == ".dng" else "--linear asks for"
        raise InputError(f"{what} linear RAW colours and these frames are developed RGB; save .tif or .png without it.")


def load_shots(
    shots: Shots, settings: JobSettings, report: JobReport, progress: Progress
) -> tuple[Burst, SourceMetadata]:
    """Read the burst; what was decided goes into the report."""
    start = time.perf_counter()
    keyframe = int(settings.keyframe) if settings.keyframe.isdecimal() else settings.keyframe
    loaded = read_burst(
        shots,
        keyframe=keyframe,
        limit=settings.burst_length,
        progress=lambda done, total: progress("load", done, total),
    )
    report.seconds["load"] = time.perf_counter() - start
    report.notes.extend(loaded.notes)
    height, width = loaded.burst.size
    report.keyframe, report.frame_size = loaded.burst.names[0], (width, height)
    reasons = {"first": "the first frame", "sharpest": "the sharpest frame"}
    report.keyframe_reason = reasons.get(settings.keyframe, "as asked for")
    return loaded.burst, loaded.metadata


def pick_model(name: str, camera: Camera) -> str:
    """The model asked for; `auto` is the shipped one that reads these frames."""
    if name != "auto":
        return name
    kind, other = ("RAW mosaics", "develop them to 16-bit TIFF first") if camera.cfa else ("RGB", "give RAW files")
    chosen = AUTO[kind]
    if chosen not in shipped_models():
        raise InputError(
            f"the frames are {kind} and no model for them is shipped with this version; name one with "
            f"--model FILE.safetensors, or {other}."
        )
    return chosen


def open_model(name: str, device: torch.device, scale: int) -> BurstMamba:
    """The model, if it can enlarge that much."""
    model = load_model(name, device)
    if not 1 <= scale <= model.config.scale:
        raise InputError(f"scale must be a whole number from 1 to {model.config.scale}, got {scale}.")
    return model


def plan(burst: Burst, settings: JobSettings, report: JobReport, progress: Progress) -> Restoration:
    """Choose model and device, align, lay out the windows."""
    device = pick_device(settings.device)
    name = pick_model(settings.model, burst.camera)
    start = time.perf_counter()
    model = open_model(name, device, settings.scale)
    report.seconds["model"] = time.perf_counter() - start
    crop = None
    if settings.crop is not None:
        x, y, width, height = settings.crop
        crop = Box(y, x, height, width)
    restoration = Restoration(
        model,
        burst,
        correspondence=settings.correspondence,
        tile=settings.tile,
        ensemble=settings.ensemble,
        crop=crop,
        progress=progress,
    )
    report.model, report.device, report.precision = name, str(device), restoration.report.precision
    report.backend = select_backend(torch.empty(1, device=device)).name
    report.estimator = restoration.report.estimator
    report.take(restoration)
    height, width = (side * settings.scale // model.config.scale for side in restoration.size)
    report.size = (width, height)
    describe_frames(restoration, report)
    return restoration


def describe_frames(restoration: Restoration, report: JobReport) -> None:
    """One entry for every frame, from the alignment where there was one."""
    report.notes.extend(restoration.report.notes)
    found = restoration.report.frame_reports
    if not found:
        report.frames = [{"name": name, "kept": True} for name in restoration.burst.names]
        return
    report.frames = [asdict(frame) for frame in found]
    report.motion = max((hypot(*frame.motion) for frame in found if frame.kept), default=0.0)
    models = {frame.model for frame in found[1:] if frame.kept}
    if models and report.estimator == "auto":
        report.estimator = f"auto ({', '.join(sorted(models))})"
    if models - {"identity"} and report.motion < STILL:  # identity: nobody looked, or nothing could be found
        report.notes.append("nothing moved between the frames (a tripod?): they lower the noise but add little detail")


def write(
    image: Tensor,
    before: Tensor | None,
    output: Path,
    camera: Camera,
    metadata: SourceMetadata,
    settings: JobSettings,
    report: JobReport,
    exposure: float | None = None,
) -> None:
    """Develop a RAW result, save the picture, and the comparison when asked for; `image` is written to.

    Without an `exposure` in stops it is found in the picture.
    """
    shown, dng = image, output.suffix.lower() == ".dng"
    if camera.linear:
        exposure = automatic_exposure(image, camera) if exposure is None else exposure
        if before is not None:
            before = develop(before, camera, exposure=exposure)
            if dng or settings.linear:  # pictures are compared developed all the same
                shown = develop(image, camera, exposure=exposure)
        if not dng:
            look, stops = ("linear", None) if settings.linear else ("neutral", exposure)
            develop(image, camera, look=look, exposure=stops, out=image)
    options = {"bits": settings.bits, "metadata": metadata, "camera": camera, "force": settings.force}
    save_image(output, image, linear=settings.linear, **options)
    if before is not None and settings.compare is not None:
        save_comparison(settings.compare, before, shown, icc_profile=metadata.icc_profile, force=settings.force)
        report.compare = settings.compare


def describe(report: JobReport) -> list[str]:
    """What was decided, as sentences."""
    kept = [frame for frame in report.frames if frame["kept"]]
    width, height = report.frame_size
    lines = [f"{len(kept)} frame(s) of {width}×{height}, keyframe {report.keyframe} ({report.keyframe_reason})"]
    if len(kept) > 1:
        lines.append(f"motion up to {report.motion:.1f} pixels, estimator {report.estimator}")
    lines.extend(report.notes)
    turns = ", each in 8 turns" if report.ensemble else ""
    lines.append(f"model {report.model} on {report.device} ({report.precision}, scan {report.backend})")
    lines.append(f"{report.tiles} window(s) of up to {report.tile} pixels{turns} → {report.size[0]}×{report.size[1]}")
    return lines


def duration(seconds: float) -> str:
    """Seconds in words that fit their size."""
    if seconds < 150:
        return f"{max(seconds, 1):.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


def peak_memory() -> int:
    """The most bytes this process has held so far; 0 where the system does not tell."""
    if importlib.util.find_spec("resource") is None:
        return 0
    import resource

    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024
