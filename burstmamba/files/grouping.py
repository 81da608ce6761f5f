"""A folder of many bursts: which files belong together."""

from __future__ import annotations

import os
import re
from collections import Counter
from dataclasses import dataclass
from datetime import datetime
from itertools import groupby, pairwise
from pathlib import Path

from burstmamba.errors import InputError
from burstmamba.files.shots import kind_of, natural_key, peek, pictures_in, without_twins

GAP = 1.5
"""Seconds: a longer pause between two frames starts another burst. EXIF times are often whole seconds."""


@dataclass(frozen=True)
class BurstGroup:
    """The files of one burst in a folder of many."""

    name: str
    """The subfolder, or the first file without its ending: unique in the folder, fit for an output's name."""
    paths: tuple[Path, ...]


def group_bursts(
    folder: str | os.PathLike[str], *, gap: float = GAP, without: str | os.PathLike[str] | None = None
) -> list[BurstGroup]:
    """Group the files under a folder into bursts.

    Each subfolder with pictures is one burst. Pictures directly in the folder are grouped by the time they were taken
    (a pause longer than `gap` seconds starts another burst), or by their name without its last number where the time
    is unknown; frames of different size or kind never mix. Each clip is a burst of its own. A subfolder `without`,
    such as that of the results, is not looked into.
    """
    root = Path(folder)
    if not root.is_dir():
        raise InputError(f"{root} is not a folder; expected a folder of bursts.")
    groups = _by_time_and_name(pictures_in(root), gap)
    left_out = None if without is None else Path(without).resolve()
    seen = {root.resolve(), left_out}
    for place, folders, _ in os.walk(root, followlinks=True):
        visible = [name for name in sorted(folders, key=natural_key) if not name.startswith(".")]
        folders[:] = [name for name in visible if Path(place, name).resolve() not in seen]
        seen |= {Path(place, name).resolve() for name in folders}  # a link may lead back to where it is
        if Path(place) != root:
            groups.extend(_of_subfolder(Path(place), root))
    if not groups:
        raise InputError(f"the folder {root} holds no picture, RAW file or clip; expected at least one burst.")
    return _with_unique_names(groups, root)


def _of_subfolder(folder: Path, root: Path) -> list[BurstGroup]:
    paths = pictures_in(folder)
    pictures = without_twins([path for path in paths if kind_of(path) != "video"])
    name = folder.relative_to(root).as_posix()
    if pictures:
        return [BurstGroup(name, tuple(pictures))]
    return [BurstGroup(f"{name}/{path.stem}", (path,)) for path in paths]


def _by_time_and_name(paths: list[Path], gap: float) -> list[BurstGroup]:
    groups = [BurstGroup(path.stem, (path,)) for path in paths if kind_of(path) == "video"]
    dated: list[tuple[tuple, datetime, Path]] = []
    undated: dict[tuple, list[Path]] = {}
    for path in without_twins([path for path in paths if kind_of(path) != "video"]):
        size, taken = _size_and_time(path)
        if taken is not None:
            dated.append(((kind_of(path), size), taken, path))
        else:
            undated.setdefault((kind_of(path), size, _series(path)), []).append(path)
    dated.sort(key=lambda item: (str(item[0]), item[1], natural_key(item[2].name)))
    for _, members in groupby(dated, key=lambda item: item[0]):
        groups.extend(_split_at_pauses(list(members), gap))
    groups.extend(BurstGroup(members[0].stem, tuple(members)) for members in undated.values())
    return sorted(groups, key=lambda group: natural_key(group.paths[0].name))


def _size_and_time(path: Path) -> tuple[tuple[int, int] | None, datetime | None]:
    try:
        size, metadata = peek(path)
    except InputError:  # reported when its burst is read, beside the good ones
        return None, None
    return size, metadata.taken


def _series(path: Path) -> str:
    """The name without its last number: a_01 and a_02 belong together, b_01 does not."""
    return re.sub(r"\d+(?=\D*$)", "", path.stem)


def _split_at_pauses(members: list[tuple[tuple, datetime, Path]], gap: float) -> list[BurstGroup]:
    runs = [[members[0]]]
    for previous, current in pairwise(members):
        if (current[1] - previous[1]).total_seconds() > gap:
            runs.append([])
        runs[-1].append(current)
    return [BurstGroup(run[0][2].stem, tuple(path for _, _, path in run)) for run in runs]


def _with_unique_names(groups: list[BurstGroup], root: Path) -> list[BurstGroup]:
    """Where a file without its ending is called like another burst, it keeps the ending; a folder keeps its name."""
    times = Counter(group.name for group in groups)
    unique = []
    for group in groups:
        first = group.paths[0].relative_to(root)
        is_folder = group.name == first.parent.as_posix()
        unique.append(group if is_folder or times[group.name] == 1 else BurstGroup(first.as_posix(), group.paths))
    return unique
