"""What a source file says beside its pixels, carried from the keyframe to the saved image."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from datetime import datetime

from PIL import Image

EXIF_IFD, GPS_IFD = 0x8769, 0x8825
ORIENTATION, WIDTH, HEIGHT = 0x0112, 0xA002, 0xA003
EXPOSURE_TIME, F_NUMBER, ISO, TAKEN, SUBSECOND, FOCAL_LENGTH = 0x829A, 0x829D, 0x8827, 0x9003, 0x9291, 0x920A
# Description, make, model, software, date, artist, rating, copyright; other tags of the first directory lay pixels out.
KEPT_IN_IFD0 = (0x010E, 0x010F, 0x0110, 0x0131, 0x0132, 0x013B, 0x4746, 0x4749, 0x8298)
# Maker notes hold offsets into the old file; the size and the interoperability pointer belong to the old pixels.
DROPPED_IN_EXIF = (0x927C, WIDTH, HEIGHT, 0xA005)


@dataclass(frozen=True)
class SourceMetadata:
    """Facts of one source file that a saved image keeps, and those that compare the frames of a burst."""

    exif: bytes | None = field(default=None, repr=False)
    """An EXIF block ("Exif\\0\\0" and a little-endian TIFF), orientation 1, without thumbnail and maker notes."""
    icc_profile: bytes | None = field(default=None, repr=False)
    """The colour profile that the pixel values are meant in; None means sRGB."""
    bit_depth: int = 8
    """Bits of a stored sample."""
    orientation: int = 1
    """EXIF orientation as found in the file; loaded pixels are already upright."""
    exposure: float | None = None
    """Seconds × ISO / f-number²: proportional to the recorded values of one scene; None when unknown."""
    taken: datetime | None = None
    """When the frame was taken, by the camera's clock."""


def describe(exif: Image.Exif, icc_profile: bytes | None = None, bit_depth: int = 8) -> SourceMetadata:
    """SourceMetadata of a file with this EXIF."""
    # TIFF/EP, the ancestor of most RAW formats, keeps the exposure in the first directory.
    details = {**exif, **_directory(exif, EXIF_IFD)}
    orientation = exif.get(ORIENTATION, 1)
    return SourceMetadata(
        exif=clean_exif(exif),
        icc_profile=icc_profile or None,
        bit_depth=bit_depth,
        orientation=orientation if orientation in range(1, 9) else 1,
        exposure=exposure_of(details.get(EXPOSURE_TIME), details.get(ISO), details.get(F_NUMBER)),
        taken=_time(details.get(TAKEN) or details.get(0x0132), details.get(SUBSECOND)),
    )


def clean_exif(exif: Image.Exif) -> bytes | None:
    """The descriptive part of an EXIF block with orientation 1, or None when nothing is left.

    Tags that cannot be written back (cameras write 0/0 and worse) are left out one by one.
    """
    clean = Image.Exif()
    clean.endian = "<"
    for tag in KEPT_IN_IFD0:
        value = _writable(tag, exif.get(tag))
        if value is not None:
            clean[tag] = _as_stored(value)
    for directory in (EXIF_IFD, GPS_IFD):
        found = _directory(exif, directory)
        tags = {tag: _writable(tag, value) for tag, value in found.items() if tag not in DROPPED_IN_EXIF}
        tags = {tag: value for tag, value in tags.items() if value is not None}
        if tags:
            clean[directory] = tags
    if not clean:
        return None
    clean[ORIENTATION] = 1
    return clean.tobytes()


def exif_for_size(metadata: SourceMetadata | None, width: int, height: int) -> Image.Exif:
    """The EXIF to write beside an upright image of this size; with metadata None only orientation and size."""
    exif = Image.Exif()
    if metadata is not None and metadata.exif:
        exif.load(metadata.exif)
    exif.endian = "<"
    for tag in KEPT_IN_IFD0:
        if tag in exif:
            exif[tag] = _as_stored(exif[tag])
    exif[ORIENTATION] = 1
    details = dict(_directory(exif, EXIF_IFD))
    details.update({WIDTH: width, HEIGHT: height})
    exif[EXIF_IFD] = details
    return exif


def exposure_of(seconds: object, iso: object, f_number: object) -> float | None:
    """Seconds × ISO / f-number², or None when the time is unknown; a missing ISO or f-number counts as 1."""
    time, speed, aperture = (_positive(value) for value in (seconds, iso, f_number))
    if time is None:
        return None
    return time * (speed or 1.0) / (aperture or 1.0) ** 2


def _positive(value: object) -> float | None:
    try:
        number = float(value[0] if isinstance(value, tuple) else value)  # type: ignore[arg-type] (caught below)
    except (TypeError, ValueError, ZeroDivisionError, IndexError):  # cameras write all kinds of nonsense
        return None
    return number if math.isfinite(number) and number > 0 else None


def _directory(exif: Image.Exif, tag: int) -> dict:
    value = exif.get(tag)
    if isinstance(value, dict):
        return value
    try:
        return exif.get_ifd(tag)
    except Exception:  # a damaged directory must not make a readable picture unreadable
        return {}


def _writable(tag: int, value: object) -> object | None:
    if isinstance(value, str):
        value = value.replace("\0", "").strip()
    if value is None or value in ("", b"") or isinstance(value, dict):
        return None
    probe = Image.Exif()
    probe.endian = "<"
    probe[tag] = value
    try:
        probe.tobytes()
    except Exception:  # whatever the encoder dislikes is one tag less, not a lost picture
        return None
    return value


def _as_stored(value: object) -> object:
    """Text with other letters than English ones as its bytes: Pillow reads them one by one, but writes only ASCII."""
    if not isinstance(value, str) or value.isascii():
        return value
    try:
        return value.encode("latin-1")
    except UnicodeEncodeError:  # not read by Pillow
        return value.encode()


def _time(text: object, fraction: object) -> datetime | None:
    try:
        time = datetime.strptime(str(text).strip("\0 "), "%Y:%m:%d %H:%M:%S")
    except ValueError:  # as above
        return None
    digits = str(fraction or "").strip("\0 ")
    return time.replace(microsecond=int(float(f"0.{digits}") * 1e6)) if digits.isdigit() else time
