"""The compiled CPU scan: where it lies, why it may be missing, and the C structure it takes."""

from __future__ import annotations

import ctypes
from functools import cache
from pathlib import Path

from torch import Tensor

STRIDES = {
    "x_strides": 3,
    "delta_strides": 4,
    "B_strides": 4,
    "C_strides": 4,
    "weight_strides": 3,
    "out_strides": 3,
    "dy_strides": 3,
    "dx_strides": 3,
    "ddelta_strides": 4,
}
SIZES = ("b", "p", "k", "rows", "columns", "d", "n", "rank", "threads", "lanes")
TENSORS = ("x", "delta", "delta_weight", "A", "B", "C", "D", "bias", "weight", "dy")
RESULTS = ("out", "dx", "ddelta", "dA", "dB", "dC", "dD", "dbias")


class Arguments(ctypes.Structure):
    """Mirrors `ScanProblem` in scan_cpu.cpp."""

    _fields_ = [
        *((name, ctypes.c_int64) for name in SIZES),
        ("codes", ctypes.c_int64 * 8),
        *((name, ctypes.c_int64 * count) for name, count in STRIDES.items()),
        *((name, ctypes.c_void_p) for name in (*TENSORS, *RESULTS)),
    ]

    def point(self, name: str, tensor: Tensor, strides: tuple[int, ...] = ()) -> None:
        """Hand over a tensor, with its strides where the kernel needs them."""
        setattr(self, name, tensor.data_ptr())
        if strides:
            setattr(self, f"{name}_strides", (ctypes.c_int64 * len(strides))(*strides))


@cache
def library() -> ctypes.CDLL | None:
    """The shared library that the installation has built, or None."""
    for path in sorted(Path(__file__).parent.glob("_scan_cpu*")):
        if path.suffix not in (".so", ".pyd", ".dylib"):
            continue
        try:
            loaded = ctypes.CDLL(str(path))
        except OSError:  # built for another machine or another C library
            continue
        size = getattr(loaded, "scan_problem_size", lambda: 0)()
        if size != ctypes.sizeof(Arguments):  # left behind by another version
            continue
        for function in (loaded.scan_forward, loaded.scan_backward):
            function.argtypes, function.restype = [ctypes.POINTER(Arguments)], None
        loaded.scan_lanes.argtypes, loaded.scan_lanes.restype = [ctypes.c_int64], ctypes.c_int64
        loaded.scan_has_threads.argtypes, loaded.scan_has_threads.restype = [], ctypes.c_int64
        return loaded
    return None


def abilities() -> str:
    """Which instructions the scan uses on this processor, and whether it was built for several threads."""
    loaded = library()
    if loaded is None:
        return "none"
    instructions = {16: "AVX-512", 8: "AVX2", 4: "baseline instructions"}[loaded.scan_lanes(0)]
    return f"{instructions}, {'several threads' if loaded.scan_has_threads() else 'one thread: built without OpenMP'}"
