"""RAW files through LibRaw: Bayer mosaics normalised to RGGB, other sensors demosaicked to RGB."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from burstmamba.burst import CFA_ORDERS, Camera
from burstmamba.errors import InputError
from burstmamba.files.frame import MAX_PIXELS, Frame, check_pixels
from burstmamba.files.metadata import (
    EXIF_IFD,
    EXPOSURE_TIME,
    F_NUMBER,
    FOCAL_LENGTH,
    ISO,
    TAKEN,
    SourceMetadata,
    describe,
)
from burstmamba.files.mosaic import shift_to_rggb, upright_mosaic
from burstmamba.files.rgb import TIFF_MAGIC, opening_bytes

RAW_SUFFIXES = (
    *(".3fr", ".arw", ".cr2", ".cr3", ".crw", ".dcr", ".dng", ".erf", ".fff", ".iiq", ".kdc", ".mef", ".mos", ".mrw"),
    *(".nef", ".nrw", ".orf", ".pef", ".raf", ".raw", ".rw2", ".rwl", ".sr2", ".srf", ".srw", ".x3f"),
)
# LibRaw's flip → EXIF orientation.
ORIENTATIONS = {0: 1, 3: 3, 5: 8, 6: 6}
# Linear sRGB to XYZ (D65), IEC 61966-2-1.
XYZ_FROM_SRGB = np.array([[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]])
NOISE_PROFILE = 51041


@dataclass(frozen=True)
class HeaderlessRaw:
    """What must be known of a sensor dump without header: little-endian 16-bit samples, row by row."""

    width: int
    height: int
    cfa: str
    black: float
    white: float
    white_balance: tuple[float, float, float] = (1.0, 1.0, 1.0)

    def __post_init__(self) -> None:
        if self.cfa not in CFA_ORDERS:
            raise InputError(f"cfa must be one of {', '.join(CFA_ORDERS)}, got {self.cfa!r}.")
        if self.width < 1 or self.height < 1 or self.white <= self.black:
            raise InputError(
                "a headerless RAW needs a positive size and a white level above its black level, got "
                f"{self.width}×{self.height}, black {self.black}, white {self.white}."
            )


def read_headerless(path: Path, layout: HeaderlessRaw) -> Frame:
    """Read a headerless sensor dump as a normalised RGGB mosaic."""
    opening_bytes(path)
    expected = 2 * layout.width * layout.height
    if path.stat().st_size != expected:
        raise InputError(
            f"{path.name} has {path.stat().st_size} bytes where {layout.width}×{layout.height} 16-bit samples "
            f"take {expected}; check the size given."
        )
    mosaic = np.fromfile(path, "<u2").reshape(layout.height, layout.width)
    pixels = shift_to_rggb(_normalised(mosaic, np.full((2, 2), layout.black), layout.white), layout.cfa)
    camera = Camera(cfa="RGGB", linear=True, white_balance=layout.white_balance)
    return Frame(np.ascontiguousarray(pixels), path.name, SourceMetadata(bit_depth=16), camera, _moved(layout.cfa))


def read_raw(path: Path, max_pixels: int = MAX_PIXELS) -> Frame:
    """Read one RAW file: a normalised RGGB mosaic, or sRGB-encoded RGB where the sensor has no Bayer mosaic."""
    with _opened(path) as raw:
        check_pixels(path.name, raw.sizes.width, raw.sizes.height, max_pixels)
        metadata = _metadata(path, raw)
        cfa = _bayer_order(raw)
        if cfa is None:
            return _demosaicked(path, raw, metadata)
        black, white = _levels(raw)
        camera = _camera(raw, _noise(path))
        mosaic = _normalised(raw.raw_image_visible, black, white)
    turned, cfa = upright_mosaic(mosaic, cfa, metadata.orientation)
    return Frame(np.ascontiguousarray(shift_to_rggb(turned, cfa)), path.name, metadata, camera, _moved(cfa))


def peek_raw(path: Path, max_pixels: int = MAX_PIXELS) -> tuple[tuple[int, int], SourceMetadata]:
    """The upright (h, w) of the visible sensor area and the metadata, without unpacking pixels."""
    with _opened(path) as raw:
        width, height = raw.sizes.width, raw.sizes.height
        check_pixels(path.name, width, height, max_pixels)
        metadata = _metadata(path, raw)
    return ((width, height) if metadata.orientation >= 5 else (height, width)), metadata


@contextmanager
def _opened(path: Path) -> Iterator[Any]:
    """A RAW file open in LibRaw; what LibRaw reports becomes one sentence that names the file."""
    magic = opening_bytes(path)
    if path.suffix.lower() == ".raw" and magic[:2] not in (b"II", b"MM"):  # LibRaw would guess from the file's size
        raise InputError(
            f"{path.name} has no header that says what it is; in Python, give its size and levels to read_burst as "
            "HeaderlessRaw."
        )
    try:
        import rawpy
    except ImportError:
        raise InputError(f"{path.name} is a RAW file, which needs rawpy: pip install rawpy.") from None
    try:
        raw = rawpy.imread(str(path) if str(path).isprintable() else path.open("rb"))  # rawpy wants names in UTF-8
    except rawpy.LibRawError:
        raise InputError(f"{path.name} is not a RAW file that LibRaw reads; leave it out.") from None
    try:
        with raw:
            yield raw
    except rawpy.LibRawError as error:  # a damaged body shows only when the pixels are asked for
        reason = error.args[0].decode() if error.args and isinstance(error.args[0], bytes) else str(error)
        raise InputError(f"{path.name} is cut off or damaged ({reason}); copy it again or leave it out.") from error


def _normalised(mosaic: np.ndarray, black: np.ndarray, white: float) -> np.ndarray:
    """(h, w) float32 in [0, 1]; `black` is (2, 2), one level for each site of the tile."""
    levels = mosaic.astype(np.float32)
    for y, x in ((0, 0), (0, 1), (1, 0), (1, 1)):
        levels[y::2, x::2] -= black[y, x]
        levels[y::2, x::2] /= white - black[y, x]
    return levels.clip(0, 1, out=levels)


def _moved(cfa: str) -> tuple[str, ...]:
    return () if cfa == "RGGB" else (f"{cfa} mosaic cropped by a row or column to start with red",)


def _bayer_order(raw) -> str | None:
    """The order of the visible area's top-left 2×2, or None when the sensor has no Bayer mosaic of R, G and B."""
    import rawpy

    if raw.raw_type != rawpy.RawType.Flat or raw.num_colors != 3 or raw.raw_pattern is None:
        return None
    if raw.raw_pattern.shape != (2, 2):
        return None
    order = "".join(chr(raw.color_desc[index]) for index in raw.raw_colors_visible[:2, :2].ravel())
    return order if order in CFA_ORDERS else None


def _levels(raw) -> tuple[np.ndarray, float]:
    """Black level (2, 2) of each site of the top-left tile, and the white level."""
    black = np.array(raw.black_level_per_channel, np.float32)[raw.raw_colors_visible[:2, :2]]
    white = float(raw.white_level or raw.raw_image_visible.max())
    if white <= black.max():
        raise InputError(f"the RAW file's white level {white:.0f} is not above its black level {black.max():.0f}.")
    return black, white


def _camera(raw, noise: tuple[float, float] | None) -> Camera:
    return Camera(
        cfa="RGGB", linear=True, white_balance=_white_balance(raw), color_matrix=_color_matrix(raw), noise=noise
    )


def _white_balance(raw) -> tuple[float, float, float]:
    for gains in (raw.camera_whitebalance, raw.daylight_whitebalance):
        if gains is not None and min(gains[:3]) > 0 and np.isfinite(gains[:3]).all():
            return gains[0] / gains[1], 1.0, gains[2] / gains[1]
    return 1.0, 1.0, 1.0


def _color_matrix(raw) -> tuple[tuple[float, float, float], ...]:
    """White-balanced camera RGB → linear sRGB; the identity when the file and LibRaw's table know none."""
    matrix = np.array(raw.color_matrix, np.float64)[:, :3]
    if not np.abs(matrix).sum():
        to_camera = np.array(raw.rgb_xyz_matrix, np.float64)[:3]
        if not np.abs(to_camera).sum():
            matrix = np.eye(3)
        else:
            # White must stay white: each camera channel's response to sRGB white is scaled to one first.
            from_srgb = to_camera @ XYZ_FROM_SRGB
            matrix = np.linalg.inv(from_srgb / from_srgb.sum(1, keepdims=True))
    return tuple(tuple(float(value) for value in row / row.sum()) for row in matrix)  # type: ignore[return-value] (3×3)


def _noise(path: Path) -> tuple[float, float] | None:
    """(shot, read) from DNG's NoiseProfile, averaged over the channels."""
    values = np.array(_tiff_tags(path).get(NOISE_PROFILE, ()), np.float64).reshape(-1)
    if len(values) < 2 or len(values) % 2 or not np.isfinite(values).all() or values.min() < 0:
        return None
    return float(values[0::2].mean()), float(values[1::2].mean())


def _tiff_tags(path: Path) -> Image.Exif:
    """The first directory of a TIFF-based RAW (DNG, NEF, CR2, ARW, …); empty for the others."""
    exif = Image.Exif()
    if opening_bytes(path)[:4] not in TIFF_MAGIC:
        return exif
    try:
        with path.open("rb") as stream:
            exif.load_from_fp(stream)
            exif.get_ifd(EXIF_IFD)
    except Exception:  # metadata of a foreign file: unreadable means unknown
        return Image.Exif()
    return exif


def _metadata(path: Path, raw) -> SourceMetadata:
    known = replace(describe(_tiff_tags(path), bit_depth=16), orientation=ORIENTATIONS.get(raw.sizes.flip, 1))
    return _completed(known, raw) if known.exposure is None else known


def _completed(metadata: SourceMetadata, raw) -> SourceMetadata:
    """Exposure and time as LibRaw knows them, for RAW formats that are not TIFF (CR3, RAF, RW2)."""
    facts = getattr(raw, "other", None)  # older versions of rawpy do not have it
    if facts is None or facts.iso_speed <= 0:
        return metadata
    exif = Image.Exif()
    details = {EXPOSURE_TIME: facts.shutter_speed, F_NUMBER: facts.aperture, ISO: int(facts.iso_speed)}
    if facts.timestamp.year > 1970:
        details[TAKEN] = facts.timestamp.strftime("%Y:%m:%d %H:%M:%S")
    exif[EXIF_IFD] = {**details, FOCAL_LENGTH: facts.focal_length}
    known = describe(exif, bit_depth=16)
    return replace(known, orientation=metadata.orientation)


def _demosaicked(path: Path, raw, metadata: SourceMetadata) -> Frame:
    """LibRaw's own picture for X-Trans, linear DNG, four-colour and monochrome sensors; the RGB model's input."""
    import rawpy

    pixels = raw.postprocess(
        use_camera_wb=True,
        no_auto_bright=True,
        adjust_maximum_thr=0.0,  # else every frame is scaled by its own brightest pixel
        output_bps=16,
        gamma=(2.4, 12.92),
        output_color=rawpy.ColorSpace.sRGB,
    )
    if pixels.shape[2] == 1:
        pixels = np.repeat(pixels, 3, axis=2)
    note = "no Bayer mosaic, demosaicked by LibRaw to RGB"
    return Frame(np.ascontiguousarray(pixels), path.name, metadata, notes=(note,))
