"""What a visitor may upload: kinds, sizes and counts, and how a zip file is opened without trusting it."""

from __future__ import annotations

import lzma
import shutil
import zipfile
import zlib
from dataclasses import dataclass
from pathlib import Path

from burstmamba.errors import InputError
from burstmamba.files.shots import kind_of, natural_key

# What damaged, locked and unusual zip files raise; a name may be longer than the system takes.
UNPACKING = (
    *(zipfile.BadZipFile, zipfile.LargeZipFile, zlib.error, lzma.LZMAError),
    *(RuntimeError, ValueError, EOFError, OSError),
)


@dataclass(frozen=True)
class UploadLimits:
    """What one visitor may ask of the machine."""

    megabytes: int = 300
    """Of one file, and of everything that a zip file unpacks to."""
    files: int = 60
    megapixels: float = 24.0
    """Of one frame."""


def collect(paths: list[str], folder: Path, limits: UploadLimits) -> list[Path]:
    """The frames, or the clip, among uploaded files; zip files are unpacked into `folder`.

    Raises:
        InputError: when something is too large, too much or of an unknown kind.
    """
    if len(paths) > limits.files:
        raise InputError(f"{len(paths)} files are more than the {limits.files} that this page takes; drop fewer.")
    found: list[Path] = []
    for number, path in enumerate(map(Path, paths)):
        if path.suffix.lower() == ".zip":
            found.extend(unpack(path, folder / str(number), limits))
        elif kind_of(path) is None:
            raise InputError(f"{path.name} is no picture, RAW file, clip or zip file that is read here; leave it out.")
        else:
            check_size(path.name, path.stat().st_size, limits)
            found.append(path)
        if len(found) > limits.files:
            raise InputError(f"{len(found)} files are more than the {limits.files} that this page takes; drop fewer.")
    if not found:
        raise InputError("drop the frames of one burst, a zip file of them, or a short clip.")
    return sorted(found, key=lambda path: natural_key(path.name))


def unpack(archive: Path, folder: Path, limits: UploadLimits) -> list[Path]:
    """Copy the pictures of a zip file into `folder` under their plain names; nothing else of it is used."""
    try:
        with zipfile.ZipFile(archive) as file:
            members = [m for m in file.infolist() if not m.is_dir() and wanted(m.filename)]
            if not members:
                raise InputError(f"{archive.name} holds no picture, RAW file or clip.")
            if len(members) > limits.files:
                raise InputError(f"{archive.name} holds {len(members)} files, more than {limits.files}; zip fewer.")
            check_size(f"{archive.name}, unpacked,", sum(member.file_size for member in members), limits)
            folder.mkdir(parents=True, exist_ok=True)
            found = []
            for number, member in enumerate(members):
                name = Path(member.filename).name
                target = folder / name if not (folder / name).exists() else folder / f"{number}-{name}"
                with file.open(member) as source, target.open("wb") as copy:
                    shutil.copyfileobj(source, copy)
                found.append(target)
            return found
    except UNPACKING as error:
        reason = "it is encrypted" if "encrypted" in str(error) else getattr(error, "strerror", None) or error
        raise InputError(
            f"{archive.name} cannot be unpacked ({reason}); zip the frames again, without a password."
        ) from None


def wanted(name: str) -> bool:
    """Whether a member of a zip file is a frame; archives made on a Mac carry shadows of every file."""
    path = Path(name)
    return kind_of(path) is not None and not path.name.startswith(".") and "__MACOSX" not in path.parts


def check_size(name: str, size: int, limits: UploadLimits) -> None:
    """Refuse more bytes than the limit."""
    if size > limits.megabytes * 1_000_000:
        raise InputError(f"{name} has {size / 1e6:.0f} MB, more than the {limits.megabytes} MB that this page takes.")
