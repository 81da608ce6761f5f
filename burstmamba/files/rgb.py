"""Developed pictures: JPEG, PNG, TIFF, WebP, AVIF, HEIC and whatever else Pillow reads."""

from __future__ import annotations

import io
import logging
import warnings
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from threading import Lock

import cv2
import numpy as np
import tifffile
from PIL import Image, ImageCms, UnidentifiedImageError

from burstmamba.errors import InputError
from burstmamba.files.frame import MAX_PIXELS, Frame, check_pixels
from burstmamba.files.metadata import SourceMetadata, describe
from burstmamba.files.mosaic import upright

RGB_SUFFIXES = (".jpg", ".jpeg", ".png", ".tif", ".tiff", ".webp", ".avif", ".heic", ".heif", ".bmp", ".gif", ".jp2")
HEIF_SUFFIXES, HEIF_BRANDS = (".heic", ".heif"), (b"ftypheic", b"ftypheix", b"ftypmif1")
TIFF_MAGIC = (b"II*\0", b"MM\0*", b"II+\0", b"MM\0+")
PLAIN = (tifffile.PHOTOMETRIC.RGB, tifffile.PHOTOMETRIC.MINISBLACK)
"""Colours of a TIFF that its samples are, as they stand."""
# A damaged file is reported once, by us; with a handler of its own tifffile does not fall back to standard error.
logging.getLogger("tifffile").addHandler(logging.NullHandler())
GREY = "grey turned into RGB"
_DAMAGED = "is cut off or damaged ({}); copy it again or leave it out."


def read_rgb(path: Path, max_pixels: int = MAX_PIXELS) -> Frame:
    """Read one picture upright as 8- or 16-bit RGB; the notes say what was converted."""
    return _guarded(path, _read, max_pixels)


def peek_rgb(path: Path, max_pixels: int = MAX_PIXELS) -> tuple[tuple[int, int], SourceMetadata]:
    """The upright (h, w) and the metadata of a picture, from its header alone."""
    return _guarded(path, _peek, max_pixels)


def _guarded(path: Path, reader, max_pixels: int):
    """Run a reader; whatever a decoder raises on a foreign file becomes one sentence that names the file."""
    magic = opening_bytes(path)
    if path.suffix.lower() in HEIF_SUFFIXES or magic[4:12] in HEIF_BRANDS:  # phones call such files .jpg, too
        _register_heif(path.name)
    try:
        with _without_warnings():
            return reader(path, magic, max_pixels)
    except (InputError, MemoryError):
        raise
    except UnidentifiedImageError as error:
        if magic[4:12] == b"ftypavif":
            raise InputError(f"{path.name} {_DAMAGED.format('its header ends early')}") from error
        raise InputError(f"{path.name} is not a picture in a format that is read here; leave it out.") from None
    except Image.DecompressionBombError:
        raise InputError(f"{path.name} claims far more pixels than a photograph has; leave it out.") from None
    except Exception as error:  # decoders raise everything from SyntaxError to struct.error on damaged files
        raise InputError(f"{path.name} {_DAMAGED.format(_short(error))}") from error


_quiet, _quiet_lock = ExitStack(), Lock()
_readers = 0


@contextmanager
def _without_warnings() -> Iterator[None]:
    """Pillow's warnings off while any thread reads: filters belong to the process, not to a thread."""
    global _readers
    with _quiet_lock:
        if _readers == 0:
            _quiet.enter_context(warnings.catch_warnings())
            warnings.simplefilter("ignore")  # broken EXIF and the like: what matters is checked by us
        _readers += 1
    try:
        yield
    finally:
        with _quiet_lock:
            _readers -= 1
            if _readers == 0:
                _quiet.close()


def opening_bytes(path: Path) -> bytes:
    """The first 32 bytes of a file that must exist and not be empty."""
    try:
        with path.open("rb") as stream:
            magic = stream.read(32)
    except FileNotFoundError:
        raise InputError(f"{path} does not exist; check the name.") from None
    except OSError as error:
        raise InputError(f"{path} cannot be read ({error.strerror}).") from None
    if not magic:
        raise InputError(f"{path.name} is empty (0 bytes); copy it again or leave it out.")
    return magic


def _register_heif(name: str) -> None:
    try:
        import pillow_heif  # type: ignore[import-not-found] (the extra `heif`)
    except ImportError:
        raise InputError(f"{name} is HEIC, which needs pillow-heif: pip install 'burstmamba[heif]'.") from None
    pillow_heif.register_heif_opener()


def _read(path: Path, magic: bytes, max_pixels: int) -> Frame:
    if magic[:4] in TIFF_MAGIC:
        return _read_tiff(path, max_pixels)
    with Image.open(path) as picture:
        check_pixels(path.name, *picture.size, max_pixels)
        metadata = describe(_exif(picture), picture.info.get("icc_profile"), _png_depth(magic))
        if metadata.bit_depth == 16:
            picture.verify()  # OpenCV would return what it has of a truncated file
            pixels, notes = _from_opencv(path)
            notes += [GREY] if magic[25] == 4 else []  # grey with alpha, which OpenCV spreads
        else:
            pixels, notes, changed_profile = _from_pillow(picture, path.name)
            metadata = _without_profile(metadata) if changed_profile else metadata
    return _upright_frame(path, pixels, metadata, notes)


def _upright_frame(
    path: Path, pixels: np.ndarray, metadata: SourceMetadata, notes: list[str], *, turned: bool = False
) -> Frame:
    """`turned`: whether the pixels are upright already."""
    if GREY in notes:
        metadata = _without_profile(metadata)  # a grey profile does not describe RGB
    if metadata.orientation != 1:
        notes = [*notes, "turned upright by its EXIF orientation"]
    pixels = pixels if turned else upright(pixels, metadata.orientation)
    return Frame(pixels, path.name, metadata, notes=tuple(notes))


def _peek(path: Path, magic: bytes, max_pixels: int) -> tuple[tuple[int, int], SourceMetadata]:
    if magic[:4] in TIFF_MAGIC:
        with tifffile.TiffFile(path) as file:
            page = file.pages.first
            width, height = page.imagewidth, page.imagelength
        metadata = describe(_tiff_exif(path))
    else:
        with Image.open(path) as picture:
            width, height = picture.size
            metadata = describe(_exif(picture), bit_depth=_png_depth(magic))
    check_pixels(path.name, width, height, max_pixels)
    return ((width, height) if metadata.orientation >= 5 else (height, width)), metadata


def _exif(picture: Image.Image) -> Image.Exif:
    """EXIF from the header: asked for what a PNG's header lacks, Pillow would decode the whole picture."""
    if picture.format == "PNG" and not {"exif", "Raw profile type exif"} & picture.info.keys():
        return Image.Exif()
    return picture.getexif()


def _png_depth(magic: bytes) -> int:
    return magic[24] if magic[:8] == b"\x89PNG\r\n\x1a\n" and magic[24] == 16 else 8


def _from_pillow(picture: Image.Image, name: str) -> tuple[np.ndarray, list[str], bool]:
    """(h, w, 3) uint8, what was converted, and whether the colour profile no longer describes the pixels."""
    notes = []
    if getattr(picture, "is_animated", False) and picture.format != "MPO":  # MPO: a photograph with its depth map
        notes.append(f"animated, only the first of its {getattr(picture, 'n_frames', 0)} frames is used")
    if picture.mode == "RGB" and "transparency" not in picture.info:
        return _pixels(picture), notes, False
    if picture.mode == "CMYK":
        return np.array(_from_cmyk(picture)), [*notes, "CMYK converted to sRGB"], True
    if picture.mode == "LAB":
        return np.array(_to_srgb(picture, ImageCms.createProfile("LAB"))), [*notes, "LAB converted to sRGB"], True
    if picture.mode in ("RGBA", "LA", "PA", "La", "RGBa") or "transparency" in picture.info:
        rgba = picture.convert("RGBA")
        if np.asarray(rgba)[..., 3].min() < 255:
            notes.append("transparency laid over white")
            rgba = Image.alpha_composite(Image.new("RGBA", rgba.size, "white"), rgba)
        else:
            notes.append("opaque alpha dropped")
        return np.array(rgba.convert("RGB")), notes, picture.mode in ("LA", "La")
    if picture.mode.startswith("I;16") or picture.mode in ("I", "F"):
        raise InputError(f"{name} holds {picture.mode} samples; save it as 8- or 16-bit RGB.")
    names = {"L": "grey", "1": "black and white", "P": "palette"}
    notes.append(f"{names.get(picture.mode, picture.mode)} turned into RGB")
    return np.array(picture.convert("RGB")), notes, picture.mode in ("L", "1")


def _pixels(picture: Image.Image) -> np.ndarray:
    """(h, w, 3) uint8, a few rows at a time: Pillow makes a copy of all that is asked for, with other threads held."""
    width, height = picture.size
    pixels = np.empty((height, width, 3), np.uint8)
    for top in range(0, height, 64):
        bottom = min(top + 64, height)
        pixels[top:bottom] = np.asarray(picture.crop((0, top, width, bottom)))
    return pixels


def _from_cmyk(picture: Image.Image) -> Image.Image:
    profile = picture.info.get("icc_profile")
    if profile and profile[16:20] == b"CMYK":  # some programs leave the profile of what the picture was before
        return _to_srgb(picture, ImageCms.ImageCmsProfile(io.BytesIO(profile)))
    return picture.convert("RGB")


def _to_srgb(picture: Image.Image, profile) -> Image.Image:
    converted = ImageCms.profileToProfile(picture, profile, ImageCms.createProfile("sRGB"), outputMode="RGB")
    assert converted is not None  # it is when asked to convert in place
    return converted


def _from_opencv(path: Path, page: tifffile.TiffPage | None = None) -> tuple[np.ndarray, list[str]]:
    """(h, w, 3) uint8 or uint16 through OpenCV, which keeps 16 bits; orientation is left to the caller."""
    # Through memory, because OpenCV's own file access does not take every name on every system.
    content = np.fromfile(path, np.uint8)
    if page is not None and 274 in page.tags:  # OpenCV would turn the picture itself
        place = page.tags[274].valueoffset
        content[place : place + 2] = np.frombuffer(np.array(1, f"{page.parent.byteorder}u2").tobytes(), np.uint8)
    pixels = cv2.imdecode(content, cv2.IMREAD_UNCHANGED)
    if pixels is None:
        raise ValueError("the decoder gave up")
    extra = tuple(page.extrasamples) if page is not None else ()
    return _as_rgb(path.name, pixels[..., [2, 1, 0, 3][: pixels.shape[2]]] if pixels.ndim == 3 else pixels, extra)


def _as_rgb(name: str, pixels: np.ndarray, extra: tuple[int, ...] = ()) -> tuple[np.ndarray, list[str]]:
    """`extra`: what a TIFF says about the channels after its colours."""
    if pixels.dtype not in (np.uint8, np.uint16):
        raise InputError(f"{name} holds {pixels.dtype} samples; save it as 8 or 16 bit.")
    if pixels.ndim == 2 or pixels.shape[2] == 1:
        return np.repeat(pixels.reshape(*pixels.shape[:2], 1), 3, axis=2), [GREY]
    if pixels.shape[2] == 3:
        return pixels, []
    if pixels.shape[2] != 4:
        raise InputError(f"{name} has {pixels.shape[2]} channels; grey, RGB and RGB with alpha are read.")
    if extra and extra[0] == tifffile.EXTRASAMPLE.UNSPECIFIED:
        return np.ascontiguousarray(pixels[..., :3]), ["a channel without a meaning dropped"]
    white = np.iinfo(pixels.dtype).max
    alpha = pixels[..., 3:].astype(np.float32) / white
    if alpha.min() == 1:
        return np.ascontiguousarray(pixels[..., :3]), ["opaque alpha dropped"]
    colour = pixels[..., :3] * (1 if extra and extra[0] == tifffile.EXTRASAMPLE.ASSOCALPHA else alpha)
    laid = (colour + white * (1 - alpha)).clip(0, white)
    return np.rint(laid).astype(pixels.dtype), ["transparency laid over white"]


def _read_tiff(path: Path, max_pixels: int) -> Frame:
    with tifffile.TiffFile(path) as file:
        page = file.pages.first
        check_pixels(path.name, page.imagewidth, page.imagelength, max_pixels)
        pages, bits, dtype, photometric = len(file.pages), page.bitspersample, page.dtype, page.photometric
        icc = page.tags[34675].value if 34675 in page.tags else None
        ends = [offset + count for offset, count in zip(page.dataoffsets, page.databytecounts, strict=True)]
    if max(ends, default=0) > path.stat().st_size:
        raise ValueError("its pixels end before the picture does")
    metadata = describe(_tiff_exif(path), icc, 16 if bits > 8 else 8)
    notes = [f"only the first of its {pages} pages is used"] if pages > 1 else []
    if dtype is None or dtype.kind == "f":
        raise InputError(f"{path.name} holds floating-point samples; save it as 8 or 16 bit.")
    if bits < 8 or (bits == 8 and photometric not in PLAIN):
        # From a stream: Pillow turns a TIFF itself, and one that it maps into memory by its name wrongly.
        with path.open("rb") as stream, Image.open(stream) as picture:
            picture.load()
            pixels, more, changed_profile = _from_pillow(picture, path.name)
        metadata = _without_profile(metadata) if changed_profile else metadata
        return _upright_frame(path, pixels, metadata, more, turned=True)
    pixels, more = _decode_tiff(path, page)
    if photometric == tifffile.PHOTOMETRIC.MINISWHITE:
        pixels = np.iinfo(pixels.dtype).max - pixels
    elif photometric not in PLAIN:
        colours = getattr(photometric, "name", photometric)
        raise InputError(f"{path.name} holds {bits}-bit {colours} colours; save it as 8- or 16-bit RGB.")
    return _upright_frame(path, pixels, metadata, [*notes, *more])


def _decode_tiff(path: Path, page: tifffile.TiffPage) -> tuple[np.ndarray, list[str]]:
    """Through tifffile, and through OpenCV for the compressions that tifffile leaves to a further package."""
    try:
        pixels = tifffile.imread(path, key=0)
    except (ValueError, KeyError, ImportError, RuntimeError):  # a compression that tifffile lacks
        return _from_opencv(path, page)
    if pixels.ndim == 3 and pixels.shape[0] in (3, 4) and pixels.shape[2] not in (3, 4):
        pixels = pixels.transpose(1, 2, 0)  # planes stored one after the other
    return _as_rgb(path.name, pixels, tuple(page.extrasamples))


def _tiff_exif(path: Path) -> Image.Exif:
    """The EXIF of a TIFF, which Pillow can read even where it cannot read the pixels."""
    exif = Image.Exif()
    try:
        with path.open("rb") as stream:
            exif.load_from_fp(stream)
            for directory in (0x8769, 0x8825):
                if directory in exif:
                    exif.get_ifd(directory)  # now, while the file is open
    except Exception:  # a BigTIFF, or damaged metadata: unreadable means unknown
        return Image.Exif()
    return exif


def _without_profile(metadata: SourceMetadata) -> SourceMetadata:
    return replace(metadata, icc_profile=None)


def _short(error: Exception) -> str:
    text = "part of it is missing" if isinstance(error, LookupError) else " ".join(str(error).split())
    text = text or type(error).__name__
    return text if len(text) <= 120 else text[:117] + "..."
