"""Other people's pickles, read without running anything that stands in them."""

from __future__ import annotations

import collections
import io
import pickle
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch._utils import _rebuild_tensor_v2

from burstmamba.errors import InputError


class ExifTag:
    """Stands for exifread's IfdTag: only its values are kept."""

    values: Any = ()

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.values = state.get("values", ())


class Ratio:
    """Stands for exifread's Ratio, old (num and den as state) and new (a Fraction's arguments)."""

    num: int
    den: int

    def __init__(self, *arguments: Any) -> None:
        value = Fraction(*arguments) if arguments else Fraction(0)
        self.num, self.den = value.numerator, value.denominator

    def __setstate__(self, state: dict[str, int]) -> None:
        self.num, self.den = state["num"], state["den"]

    def __float__(self) -> float:
        return self.num / self.den


def _storage(data: bytes) -> Any:
    """The bytes of a tensor inside a plain pickle, through torch's own restricted reader."""
    return torch.load(io.BytesIO(data), weights_only=True)


def _known_types() -> dict[tuple[str, str], Any]:
    """What meta_info files of the burst benchmarks are made of: numbers, arrays, tensors, EXIF values."""
    known: dict[tuple[str, str], Any] = {
        ("collections", "OrderedDict"): collections.OrderedDict,
        ("numpy", "ndarray"): np.ndarray,
        ("numpy", "dtype"): np.dtype,
        ("torch", "Size"): torch.Size,
        ("torch._utils", "_rebuild_tensor_v2"): _rebuild_tensor_v2,
        ("torch.storage", "_load_from_bytes"): _storage,
        ("exifread.classes", "IfdTag"): ExifTag,
        ("exifread.utils", "Ratio"): Ratio,
    }
    for module in ("numpy.core.multiarray", "numpy._core.multiarray"):
        known[module, "_reconstruct"] = np.zeros(1).__reduce__()[0]
        known[module, "scalar"] = np.float64(0).__reduce__()[0]
    for module in ("numpy.core.numeric", "numpy._core.numeric"):
        known[module, "_frombuffer"] = _frombuffer
    return known


def _frombuffer(buffer: Any, dtype: np.dtype, shape: Any, order: str) -> np.ndarray:
    """Arrays pickled by protocol 5."""
    return np.frombuffer(buffer, dtype=dtype).reshape(shape, order=order)  # type: ignore[call-overload] (order)


class _Reader(pickle.Unpickler):
    known = _known_types()

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) == ("_codecs", "encode"):  # how protocol 2 writes bytes
            return lambda text, encoding: text.encode("latin1" if encoding == "latin1" else "ascii")
        if (module, name) not in self.known:
            raise pickle.UnpicklingError(f"{module}.{name}")
        return self.known[module, name]


def read_pickle(path: Path | str) -> dict[str, Any]:
    """A meta_info dictionary; refuses every type but the known ones, and runs no code.

    Args:
        path: a .pkl file of SyntheticBurst, RealBSR or BurstSR.
    """
    try:
        with open(path, "rb") as stream:
            content = _Reader(stream).load()
    except FileNotFoundError:
        raise InputError(f"{path} is missing; unpack the data set again.") from None
    except pickle.UnpicklingError as error:
        raise InputError(
            f"{path} holds {error}, which is not a plain number, array or EXIF value; it was not read. "
            "Do not use files from a source you do not trust."
        ) from error
    except Exception as error:  # a damaged pickle can raise almost anything
        raise InputError(f"{path} is not a readable pickle ({type(error).__name__}: {error}); replace it.") from error
    if not isinstance(content, dict):
        raise InputError(f"{path} should hold a dictionary, got {type(content).__name__}.")
    return content
