"""The compiled library: where it lies, why it may be missing, and the C structures it takes."""

from __future__ import annotations

import ctypes
from functools import cache
from pathlib import Path

import torch
from torch import Tensor

LANES = 0
"""Most lanes of a vector to use; 0 leaves the choice to the processor. Tests set it."""
FOLDER = Path(__file__).parent
"""Where the installation puts the library."""
NOT_BUILT = "the package was installed without a C++ compiler; install one (g++ or clang++) and reinstall"
NOT_OURS = "the C++ library is of another version of the package or of another machine; reinstall"


class Problem(ctypes.Structure):
    """What a kernel is to do; tensors that it points to must live as long as it is used."""

    threads: int
    lanes: int

    def point(self, name: str, tensor: Tensor, strides: tuple[int, ...] = ()) -> None:
        """Hand over a tensor, with its strides where the kernel needs them."""
        setattr(self, name, tensor.data_ptr())
        if strides:
            setattr(self, f"{name}_strides", (ctypes.c_int64 * len(strides))(*strides))


def integers(*names: str) -> list[tuple[str, type]]:
    """Fields that hold a number each."""
    return [(name, ctypes.c_int64) for name in names]


def pointers(*names: str) -> list[tuple[str, type]]:
    """Fields that point to floats."""
    return [(name, ctypes.c_void_p) for name in names]


def strides(**counts: int) -> list[tuple[str, type]]:
    """Fields that hold so many strides each."""
    return [(f"{name}_strides", ctypes.c_int64 * count) for name, count in counts.items()]


class ScanProblem(Problem):
    """Mirrors `ScanProblem` in kernels.cpp."""

    _fields_ = [
        *integers("b", "p", "k", "rows", "columns", "d", "n", "rank", "threads", "lanes"),
        ("codes", ctypes.c_int64 * 8),
        *strides(x=3, delta=4, B=4, C=4, weight=3, out=3, dy=3, dx=3, ddelta=4),
        *pointers("x", "delta", "delta_weight", "A", "B", "C", "D", "bias", "weight", "dy"),
        *pointers("out", "dx", "ddelta", "dA", "dB", "dC", "dD", "dbias"),
    ]


class RowsProblem(Problem):
    """Mirrors `RowsProblem` in kernels.cpp."""

    _fields_ = [
        *integers("rows", "c", "rows_per_image", "threads", "lanes", "x_stride", "update_stride", "gate_stride"),
        ("epsilon", ctypes.c_float),
        *pointers("x", "skip", "update", "gates", "weight", "bias", "gate", "sum", "normal"),
    ]


class SampleProblem(Problem):
    """Mirrors `SampleProblem` in kernels.cpp."""

    _fields_ = [
        *integers("images", "c", "h", "w", "rows", "columns", "threads", "lanes"),
        *strides(features=3, place=4),
        *pointers("features", "place", "out"),
    ]


FUNCTIONS = {
    "scan_forward": ScanProblem,
    "scan_backward": ScanProblem,
    "normalize_rows": RowsProblem,
    "sample_bilinear": SampleProblem,
}
SIZES = {"scan_problem_size": ScanProblem, "rows_problem_size": RowsProblem, "sample_problem_size": SampleProblem}


def built_files() -> list[Path]:
    """What installations have left here."""
    return [path for path in sorted(FOLDER.glob("_kernels_cpu*")) if path.suffix in (".so", ".pyd", ".dylib")]


@cache
def library() -> ctypes.CDLL | None:
    """The shared library that the installation has built, or None."""
    for path in built_files():
        try:
            loaded = ctypes.CDLL(str(path))
        except OSError:  # built for another machine or another C library
            continue
        sizes = {name: getattr(loaded, name, lambda: 0)() for name in SIZES}
        if sizes != {name: ctypes.sizeof(problem) for name, problem in SIZES.items()}:  # left behind by another version
            continue
        for name, problem in FUNCTIONS.items():
            function = getattr(loaded, name)
            function.argtypes, function.restype = [ctypes.POINTER(problem)], None
        loaded.scan_lanes.argtypes, loaded.scan_lanes.restype = [ctypes.c_int64], ctypes.c_int64
        loaded.scan_has_threads.argtypes, loaded.scan_has_threads.restype = [], ctypes.c_int64
        return loaded
    return None


def absent() -> str | None:
    """Why there is no library to call; None where there is one."""
    if library() is not None:
        return None
    return NOT_OURS if built_files() else NOT_BUILT


# What `torch.compiler.assume_constant_result` does, which imports the compiler: no tracing into the search for a file.
absent._dynamo_marked_constant = True  # type: ignore[attr-defined] (functions take any)


def call(kernel: str, problem: Problem) -> None:
    """Run a kernel of the library, which is there: whoever calls has asked before."""
    loaded = library()
    assert loaded is not None
    problem.threads, problem.lanes = torch.get_num_threads(), LANES
    getattr(loaded, kernel)(ctypes.byref(problem))


def abilities() -> str:
    """Which instructions the kernels use on this processor, and whether it was built for several threads."""
    loaded = library()
    if loaded is None:
        return "none"
    instructions = {16: "AVX-512", 8: "AVX2", 4: "baseline instructions"}[loaded.scan_lanes(0)]
    return f"{instructions}, {'several threads' if loaded.scan_has_threads() else 'one thread: built without OpenMP'}"
