"""Which files a burst is made of: folders, lists, patterns and clips, in natural order."""

from __future__ import annotations

import glob
import os
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from burstmamba.errors import InputError
from burstmamba.files.ahead import ahead
from burstmamba.files.frame import MAX_PIXELS, Frame
from burstmamba.files.metadata import SourceMetadata
from burstmamba.files.raw import RAW_SUFFIXES, HeaderlessRaw, peek_raw, read_headerless, read_raw
from burstmamba.files.rgb import RGB_SUFFIXES, peek_rgb, read_rgb
from burstmamba.files.video import VIDEO_SUFFIXES, read_video

PIXELS_AT_ONCE = 200_000_000
"""Of pictures that are decoded side by side; each takes up to 16 bytes while it is."""

Result = TypeVar("Result")
Shots = str | os.PathLike[str] | Sequence[str | os.PathLike[str]]


@dataclass(frozen=True)
class ShotFiles:
    """The files of one burst, in order: pictures of one kind, or a single video clip."""

    paths: tuple[Path, ...]
    notes: tuple[str, ...] = ()
    max_pixels: int = MAX_PIXELS
    headerless: HeaderlessRaw | None = None

    @property
    def is_clip(self) -> bool:
        """Whether this is a video clip."""
        return kind_of(self.paths[0]) == "video"

    def each(self, look: Callable[[int, Frame], Result], wanted: Sequence[int] | None = None) -> Iterator[Result]:
        """Yield `look(index, frame)` in rising order of index; pictures are decoded and looked at in threads.

        Args:
            look: lets go of the frame, or returns it with what was found about it.
            wanted: indices of files, or of frames of the clip; None for all.
        """
        if self.is_clip:
            clip = read_video(self.paths[0], None if wanted is None else set(wanted), self.max_pixels)
            yield from (look(index, frame) for index, frame in clip)
            return

        def read(index: int) -> Result:
            return look(index, read_frame(self.paths[index], self.max_pixels, self.headerless))

        indices = range(len(self.paths)) if wanted is None else sorted(wanted)
        yield from ahead(read, indices, most=max(1, PIXELS_AT_ONCE // self.pixels))

    @property
    def pixels(self) -> int:
        """Pixels of the first picture."""
        if self.headerless:
            return self.headerless.width * self.headerless.height
        height, width = peek(self.paths[0], self.max_pixels)[0]
        return height * width


def kind_of(path: Path) -> str | None:
    """ "rgb", "raw", "video", or None, by the file name's ending."""
    suffix = path.suffix.lower()
    for kind, suffixes in (("rgb", RGB_SUFFIXES), ("raw", RAW_SUFFIXES), ("video", VIDEO_SUFFIXES)):
        if suffix in suffixes:
            return kind
    return None


def read_frame(path: Path, max_pixels: int = MAX_PIXELS, headerless: HeaderlessRaw | None = None) -> Frame:
    """Read one picture or RAW file."""
    if kind_of(path) != "raw":
        return read_rgb(path, max_pixels)
    return read_headerless(path, headerless) if headerless else read_raw(path, max_pixels)


def peek(path: Path, max_pixels: int = MAX_PIXELS) -> tuple[tuple[int, int], SourceMetadata]:
    """The upright (h, w) and the metadata of one picture or RAW file, from its header."""
    return peek_raw(path, max_pixels) if kind_of(path) == "raw" else peek_rgb(path, max_pixels)


def natural_key(path: str | os.PathLike[str]) -> tuple:
    """Sort key under which shot2 comes before shot10."""
    parts = re.split(r"(\d+)", os.fspath(path).casefold())
    return tuple((1, int(part), "") if part.isdecimal() else (0, 0, part) for part in parts if part), os.fspath(path)


def pictures_in(folder: Path) -> list[Path]:
    """The visible files of a folder with a known ending, in natural order."""
    found = [p for p in folder.iterdir() if p.is_file() and not p.name.startswith(".") and kind_of(p)]
    return sorted(found, key=lambda path: natural_key(path.name))


def find_shots(shots: Shots, max_pixels: int = MAX_PIXELS, headerless: HeaderlessRaw | None = None) -> ShotFiles:
    """Turn a folder, a file, a glob pattern, a clip or a list of files into the files of one burst.

    Folders and patterns are sorted naturally; a list keeps its order, since its first file is the asked-for keyframe.
    """
    notes: list[str] = []
    if isinstance(shots, (str, os.PathLike)):
        if not os.fspath(shots):
            raise InputError("the name of the burst is empty; name a folder, some pictures or a video clip.")
        paths = _expand(Path(shots), notes)
    else:
        paths = [path for item in shots for path in _expand(Path(item), notes)]
        if not paths:
            raise InputError("no files were given; name a folder, some pictures or a video clip.")
    kinds = [kind_of(path) for path in paths]
    if kinds.count("video") and len(paths) > 1:
        clip = paths[kinds.index("video")]
        raise InputError(f"{clip.name} is a video clip among {len(paths)} files; give one clip alone or pictures only.")
    if None in kinds:
        odd = paths[kinds.index(None)]
        raise InputError(f"{odd.name} has no ending of a picture, RAW file or clip that is read here; leave it out.")
    if "raw" in kinds and "rgb" in kinds:
        odd, other = paths[kinds.index("rgb")], paths[kinds.index("raw")]
        raise InputError(f"{odd.name} is a developed picture and {other.name} is RAW; give frames of one kind.")
    return ShotFiles(tuple(paths), tuple(notes), max_pixels, headerless)


def _expand(path: Path, notes: list[str]) -> list[Path]:
    try:
        os.stat(path)
    except (FileNotFoundError, NotADirectoryError):  # said below
        pass
    except OSError as error:
        raise InputError(f"{path} cannot be read ({error.strerror}).") from None
    if path.is_dir():
        return _from_folder(path, notes)
    if not path.exists() and glob.has_magic(str(path)):
        found = sorted((Path(name) for name in glob.glob(str(path))), key=natural_key)
        if not found:
            raise InputError(f"no file matches {path}; check the pattern.")
        return [member for match in found for member in _expand(match, notes)]
    if not path.exists():
        raise InputError(f"{path} does not exist; check the name.")
    return [path]


def _from_folder(folder: Path, notes: list[str]) -> list[Path]:
    try:
        paths = pictures_in(folder)
        others = [p for p in folder.iterdir() if p.is_file() and not p.name.startswith(".") and not kind_of(p)]
    except OSError as error:
        raise InputError(f"the folder {folder} cannot be read ({error.strerror}).") from None
    if not paths:
        raise InputError(f"the folder {folder} holds no picture, RAW file or clip; expected at least one.")
    if others:
        notes.append(f"{len(others)} other file(s) in {folder.name} ignored, such as {min(others).name}")
    kinds = {path: kind_of(path) for path in paths}
    clips = [path for path in paths if kinds[path] == "video"]
    if clips and len(clips) < len(paths):  # phones put a short clip beside each picture
        notes.append(f"{len(clips)} clip(s) beside the pictures in {folder.name} ignored")
        paths = [path for path in paths if kinds[path] != "video"]
    kept = without_twins(paths)
    if len(kept) < len(paths):
        notes.append(f"{len(paths) - len(kept)} developed picture(s) beside RAW files of the same name ignored")
    return kept


def without_twins(paths: list[Path]) -> list[Path]:
    """The paths without developed pictures that lie beside a RAW file of the same name."""
    raw_stems = {path.stem for path in paths if kind_of(path) == "raw"}
    return [path for path in paths if kind_of(path) == "raw" or path.stem not in raw_stems]
