"""Launching a walk, compiled without Triton's coalescing pass.

The pass looks for a layout in which neighbouring lanes read neighbouring numbers, by following the data of every load
through the whole kernel. A walk begins with such a layout, its instructions come out the same, and the search takes up
to 98 % of the compilation: 17 s instead of 3, for the longest kernels minutes instead of 4 s.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from triton._C import libtriton


@contextmanager
def without_coalescing() -> Iterator[None]:
    """Leave the pass out of what is compiled meanwhile; another version of Triton may not let us, and takes longer."""
    passes = getattr(getattr(libtriton, "passes", None), "ttgpuir", None)
    coalesce = getattr(passes, "add_coalesce", None)
    if coalesce is None:
        yield
        return
    passes.add_coalesce = lambda manager: None
    try:
        yield
    finally:
        passes.add_coalesce = coalesce


def launch(kernel, programs: int, *arguments, **constants) -> None:
    """Run a walk with one warp a program."""
    with without_coalescing():
        kernel[(programs,)](*arguments, **constants, num_warps=1, enable_fp_fusion=True)
