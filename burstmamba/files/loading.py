"""From somebody's files to a Burst: read, check, order, and say what was decided."""

from __future__ import annotations

import operator
import os
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import torch
from torch import Tensor

from burstmamba.burst import Burst, Camera
from burstmamba.errors import InputError
from burstmamba.files.exposure import match_exposure
from burstmamba.files.frame import MAX_PIXELS, Frame
from burstmamba.files.hot_pixels import mend_hot_pixels
from burstmamba.files.metadata import SourceMetadata
from burstmamba.files.raw import HeaderlessRaw
from burstmamba.files.selection import Survey, choose_frames, digest, survey
from burstmamba.files.shots import ShotFiles, Shots, find_shots, peek

HALF_ABOVE = 1 << 30
"""Bytes in float32 above which frames are kept in half precision."""
MOST_BYTES = 4 << 30
"""Without a limit, as many frames are kept as fit into this."""


@dataclass(frozen=True)
class LoadedBurst:
    """A burst with what its files said and what was decided while reading them."""

    burst: Burst
    every_metadata: tuple[SourceMetadata, ...]
    """Of each frame of the burst."""
    notes: tuple[str, ...] = ()
    """Sentences for the user: frames left out, conversions, scaling."""

    @property
    def metadata(self) -> SourceMetadata:
        """Of the keyframe, for the saved image."""
        return self.every_metadata[0]


def load_burst(shots: Shots, *, keyframe: int | str = "first", limit: int | None = None) -> Burst:
    """Read a folder, a list of files, a glob pattern or a video clip as a burst, keyframe first.

    Args:
        shots: folder, file, pattern, clip, or a sequence of files.
        keyframe: "first", "sharpest", a position from 0, or a file name.
        limit: keep at most this many frames, the best by sharpness and overlap; None keeps what 4 GiB hold.

    Returns:
        The burst; `read_burst` has more options and returns metadata and notes with it.
    """
    return read_burst(shots, keyframe=keyframe, limit=limit).burst


def read_burst(
    shots: Shots,
    *,
    keyframe: int | str = "first",
    limit: int | None = None,
    exposure: Literal["match", "as-is"] = "match",
    hot_pixels: Literal["mend", "keep"] = "mend",
    precision: Literal["auto", "float32", "float16"] = "auto",
    headerless: HeaderlessRaw | None = None,
    max_pixels: int = MAX_PIXELS,
    progress: Callable[[int, int], None] | None = None,
) -> LoadedBurst:
    """`load_burst` with every option, the keyframe's metadata and notes on what was decided.

    Args:
        shots, keyframe, limit: as for `load_burst`.
        exposure: "match" scales RAW exposure brackets and refuses developed ones; "as-is" leaves frames alone.
        hot_pixels: whether defective pixels of RAW frames are mended.
        precision: of the frames; "auto" takes half precision beyond 1 GiB.
        headerless: geometry of .raw files that have no header.
        max_pixels: larger pictures are refused before they are decoded.
        progress: called as (frames read, frames to read); the second is 0 while a clip is searched.
    """
    if limit is not None and limit < 1:
        raise InputError(f"limit must be at least 1 frame, got {limit}.")
    for option, value, known in (
        ("exposure", exposure, ("match", "as-is")),
        ("hot_pixels", hot_pixels, ("mend", "keep")),
        ("precision", precision, ("auto", "float32", "float16")),
    ):
        if value not in known:
            raise InputError(f"{option} must be one of {', '.join(known)}, got {value!r}.")
    files = find_shots(shots, max_pixels, headerless)
    if not files.is_clip and headerless is None:
        check_sizes(files)
    notes = list(files.notes)
    tell = progress or (lambda done, total: None)
    wanted, first = _plan(files, keyframe, limit, notes, tell)
    stack = _read(files, wanted, first, precision, notes, tell)
    if stack.camera.cfa and hot_pixels == "mend":
        mended = mend_hot_pixels(stack.frames)
        if mended:
            notes.append(f"{mended} hot or dead pixels of the sensor mended")
    kept = list(range(len(stack.frames)))
    if exposure == "match":
        kept, more = match_exposure(stack.frames, stack.metadata, stack.names, linear=stack.camera.linear)
        notes.extend(more)
    frames = stack.frames if len(kept) == len(stack.frames) else stack.frames[kept]
    burst = Burst(frames, stack.camera, tuple(stack.names[i] for i in kept))
    every = tuple(stack.metadata[i] for i in kept)
    if len({metadata.icc_profile for metadata in every}) > 1:
        notes.append(f"the frames' colour profiles differ; that of {burst.names[0]} is taken for all")
    return LoadedBurst(burst, every, tuple(notes))


def check_sizes(files: ShotFiles) -> None:
    """Refuse files of different sizes from their headers, naming the odd one out."""
    sizes = [peek(path, files.max_pixels)[0] for path in files.paths]
    (usual, _), *rest = Counter(sizes).most_common()
    if rest:
        odd = next(i for i, size in enumerate(sizes) if size != usual)
        more = sum(size != usual for size in sizes) - 1
        others = f" ({more} more differ as well)" if more else ""
        raise InputError(
            f"{files.paths[odd].name} is {sizes[odd][1]}×{sizes[odd][0]} where the other frames are "
            f"{usual[1]}×{usual[0]}{others}; frames of one burst must have one size, leave the odd ones out."
        )


def _plan(
    files: ShotFiles, keyframe: int | str, limit: int | None, notes: list[str], tell: Callable[[int, int], None]
) -> tuple[list[int] | None, int]:
    """Which frames to read (None: all) and which of them is the keyframe, by index.

    Frames are looked at once before they are loaded only where something has to be chosen.
    """
    count = None if files.is_clip else len(files.paths)
    if count is not None and keyframe != "sharpest" and (limit is None or count <= limit):
        first = _position(keyframe, [path.name for path in files.paths])
        channels = 1 if files.headerless else 3
        if count * files.pixels * channels * 2 <= MOST_BYTES:  # in half precision
            return None, first
    surveys: list[Survey] = []
    seen: dict[bytes, int] = {}
    names: list[str] = []
    places: list[int] = []  # among the surveys, of each file or of the one that it repeats
    for item in files.each(survey):
        tell(item.index + 1, count or 0)
        if item.digest not in seen:
            seen[item.digest] = len(surveys)
            surveys.append(item)
        names.append(item.name)
        places.append(seen[item.digest])
    if len(surveys) < len(names):
        notes.append(f"{len(names) - len(surveys)} exact duplicate(s) dropped")
    if keyframe == "sharpest":
        chosen = max(range(len(surveys)), key=lambda i: surveys[i].sharpness)
        notes.append(f"{surveys[chosen].name} is the keyframe: the sharpest of {len(surveys)} frames")
    else:
        chosen = places[_position(keyframe, names)]
    height, width = surveys[0].size
    fitting = max(1, MOST_BYTES // (height * width * 3 * 2))
    kept = choose_frames(surveys, chosen, min(limit or fitting, fitting))
    if len(kept) < len(surveys):
        notes.append(f"the best {len(kept)} of {len(surveys)} frames by sharpness and overlap are used")
    return [surveys[i].index for i in kept], surveys[chosen].index


def _position(keyframe: int | str, names: list[str]) -> int:
    if keyframe == "first":
        return 0
    if not isinstance(keyframe, str):
        keyframe = operator.index(keyframe)
        if not 0 <= keyframe < len(names):
            raise InputError(f"keyframe {keyframe} is out of range: the burst has frames 0 to {len(names) - 1}.")
        return keyframe
    name = os.path.basename(keyframe)
    if name not in names:
        raise InputError(f"keyframe must be first, sharpest, a position or one of the frames, got {keyframe!r}.")
    return names.index(name)


@dataclass
class _Stack:
    """Frames being collected, keyframe first."""

    frames: Tensor
    camera: Camera
    names: list[str] = field(default_factory=list)
    metadata: list[SourceMetadata] = field(default_factory=list)


def _read(
    files: ShotFiles,
    wanted: list[int] | None,
    keyframe: int,
    precision: str,
    notes: list[str],
    tell: Callable[[int, int], None],
) -> _Stack:
    """Decode the wanted frames into one tensor, a few at a time, so that never two copies of the burst exist."""
    count = len(wanted if wanted is not None else files.paths)
    stack: _Stack | None = None
    seen: dict[bytes, int] = {}
    conversions: Counter[str] = Counter()
    place, key_place = 0, 0
    found = files.each(lambda index, frame: (index, frame, digest(frame)), wanted)
    for done, (index, frame, mark) in enumerate(found, start=1):
        tell(done, count)
        if mark in seen and stack is not None:
            notes.append(f"{frame.name} dropped: an exact duplicate of {stack.names[seen[mark]]}")
            key_place = seen[mark] if index == keyframe else key_place
            continue
        if stack is None:
            stack = _Stack(_allocate(count, frame, precision), frame.camera)
        _check_alike(stack, frame)
        seen[mark] = place
        conversions.update(frame.notes)
        if index == keyframe:
            key_place, stack.camera = place, frame.camera
        frame.copy_into(stack.frames[place])
        stack.names.append(frame.name)
        stack.metadata.append(frame.metadata)
        place += 1
    if stack is None:
        raise InputError(f"{Path(files.paths[0]).name} gave no frame.")
    notes.extend(f"{note} ({n} of {place} frames)" for note, n in conversions.items())
    stack.frames = stack.frames[:place]
    if key_place:
        _to_front(stack, key_place)
    return stack


def _allocate(count: int, frame: Frame, precision: str) -> Tensor:
    channels = 1 if frame.camera.cfa else 3
    shape = (count, channels, *frame.size)
    size = 4 * count * channels * frame.size[0] * frame.size[1]
    half = precision == "float16" or (precision == "auto" and size > HALF_ABOVE)
    return torch.empty(shape, dtype=torch.float16 if half else torch.float32)


def _check_alike(stack: _Stack, frame: Frame) -> None:
    channels, height, width = stack.frames.shape[1:]
    if frame.size != (height, width):
        raise InputError(
            f"{frame.name} is {frame.size[1]}×{frame.size[0]} where the other frames are {width}×{height}; "
            "frames of one burst must have one size, leave the odd ones out."
        )
    if (1 if frame.camera.cfa else 3) != channels:
        raise InputError(f"{frame.name} comes from another kind of sensor than {stack.names[0]}; leave it out.")


def _to_front(stack: _Stack, place: int) -> None:
    """Move the keyframe to the front, frame by frame in place; the order of the others stays."""
    keyframe = stack.frames[place].clone()
    for i in range(place, 0, -1):
        stack.frames[i] = stack.frames[i - 1]
    stack.frames[0] = keyframe
    stack.names.insert(0, stack.names.pop(place))
    stack.metadata.insert(0, stack.metadata.pop(place))
