"""Photographs decoded by several processes: Pillow holds Python's lock while it decodes AVIF, so threads do not help.

Run as a program this file imports nothing of the package, so that a process is ready in a tenth of a second.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import IO, BinaryIO, NamedTuple, Sequence

import numpy as np

BLOCK = 32
"""Side in pixels of the blocks whose detail is measured."""
PHOTOGRAPHS_A_PROCESS = 4
"""Fewer are not worth starting a process for."""
CRASHED = "its decoder crashed"


class Decoded(NamedTuple):
    """One photograph."""

    pixels: np.ndarray
    """(h, w, 3) uint8 sRGB, upright."""
    detail: np.ndarray
    """(h // BLOCK, w // BLOCK) float32: mean absolute gradient of each block's green, in [0, 1]."""


def decode(path: Path | str) -> Decoded:
    """Decode and measure one photograph; raises OSError, ValueError or SyntaxError, as Pillow does."""
    pixels = read_pixels(path)
    return Decoded(pixels, block_detail(pixels))


def read_pixels(path: Path | str) -> np.ndarray:
    """(h, w, 3) uint8 sRGB, upright."""
    from PIL import Image, ImageOps

    try:
        with Image.open(path) as image:
            if image.mode.startswith("I;16") or image.mode in ("I", "F"):  # PIL would clip it at 255
                return _deep_grey(np.asarray(image, dtype=np.float32), white=1.0 if image.mode == "F" else 65535.0)
            return np.array(ImageOps.exif_transpose(image).convert("RGB"))
    except Image.DecompressionBombError as error:
        raise ValueError("it has more pixels than Pillow decodes, 179 million; make it smaller") from error


def _deep_grey(grey: np.ndarray, white: float) -> np.ndarray:
    """(h, w, 3) uint8 of 16-bit or float grey; floats are not clipped, because beyond 1 nobody knows their white."""
    if white == 1.0:
        if not (grey.min() >= 0 and grey.max() <= 1):
            raise ValueError("its float samples are not in [0, 1]")
        grey = 65535 * grey
    values = np.clip(grey / 257.0 + 0.5, 0, 255).astype(np.uint8)
    return np.repeat(values[..., None], 3, axis=-1)


def block_detail(pixels: np.ndarray) -> np.ndarray:
    """How much there is to see in each block; see `Decoded.detail`."""
    h, w = (side // BLOCK * BLOCK for side in pixels.shape[:2])
    green = pixels[:h, :w, 1].astype(np.float32) / 255
    gradient = np.abs(np.diff(green, axis=0, append=green[-1:])) + np.abs(np.diff(green, axis=1, append=green[:, -1:]))
    return gradient.reshape(h // BLOCK, BLOCK, w // BLOCK, BLOCK).mean(axis=(1, 3))


def decode_all(paths: Sequence[Path | str], processes: int | None = None) -> list[Decoded | str]:
    """Decode many photographs with one process a core.

    Args:
        paths: the files.
        processes: how many; by default as many as there are cores and work for. One or none decode in this process.

    Returns:
        For each file the photograph, or why it could not be read.
    """
    if processes is None:
        processes = min(own_cores(), len(paths) // PHOTOGRAPHS_A_PROCESS)
    if processes <= 1:
        return [_decode_or_reason(path) for path in paths]
    results: list[Decoded | str] = [CRASHED] * len(paths)
    waiting: SimpleQueue[int] = SimpleQueue()
    for number in range(len(paths)):
        waiting.put(number)

    def work() -> None:
        worker = Worker()
        try:
            while True:
                number = waiting.get_nowait()
                results[number] = worker.decode(paths[number])
        except Empty:  # all photographs are taken
            worker.close()

    # Daemons: a run that is stopped does not wait for photographs that nobody needs any more.
    threads = [threading.Thread(target=work, daemon=True) for _ in range(processes)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return results


def own_cores() -> int:
    """Cores this process may use, its part of the machine's when torchrun started several."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, cores // int(os.environ.get("LOCAL_WORLD_SIZE", "1")))


class Worker:
    """This file as a process: a path in, a photograph out; started again should a file crash it."""

    def __init__(self) -> None:
        self.process = self._start()

    @staticmethod
    def _start() -> subprocess.Popen[bytes]:
        # Ctrl-C is for the program, which then closes the pipes; a group of its own keeps the signal away from here.
        return subprocess.Popen(
            [sys.executable, "-P", __file__], stdin=subprocess.PIPE, stdout=subprocess.PIPE, process_group=0
        )

    def decode(self, path: Path | str) -> Decoded | str:
        """The photograph, or why it could not be read."""
        assert self.process.stdin is not None and self.process.stdout is not None
        try:
            self.process.stdin.write(json.dumps(os.fspath(path)).encode() + b"\n")
            self.process.stdin.flush()
            head = json.loads(self.process.stdout.readline())
            if "error" in head:
                return head["error"]
            pixels = _read_array(self.process.stdout, tuple(head["pixels"]), np.uint8)
            return Decoded(pixels, _read_array(self.process.stdout, tuple(head["detail"]), np.float32))
        except (OSError, ValueError):  # a closed pipe, an answer cut short
            self.process.kill()
            self.close()
            self.process = self._start()
            return CRASHED

    def close(self) -> None:
        """End the process."""
        try:
            self.process.communicate()
        except (OSError, ValueError):  # its pipe is gone already
            self.process.wait()


def _read_array(stream: IO[bytes], shape: tuple[int, ...], kind: type) -> np.ndarray:
    array = np.empty(shape, kind)
    if array.size and stream.readinto(memoryview(array).cast("B")) != array.nbytes:  # type: ignore[attr-defined] (pipes have it)
        raise ValueError("the answer is cut short")
    return array


def _decode_or_reason(path: Path | str) -> Decoded | str:
    try:
        return decode(path)
    except (OSError, ValueError, SyntaxError) as error:  # the parent names the file and goes on
        return str(error)


def serve(requests: BinaryIO, answers: BinaryIO) -> None:
    """Answer requests, one path a line, until there are no more."""
    from PIL import AvifImagePlugin

    AvifImagePlugin.DEFAULT_MAX_THREADS = 1  # every core has its process
    for line in requests:
        result = _decode_or_reason(json.loads(line))
        if isinstance(result, str):
            answers.write(json.dumps({"error": result}).encode() + b"\n")
        else:
            shapes = {"pixels": result.pixels.shape, "detail": result.detail.shape}
            answers.write(json.dumps(shapes).encode() + b"\n")
            answers.write(np.ascontiguousarray(result.pixels).data)
            answers.write(np.ascontiguousarray(result.detail).data)
        answers.flush()


if __name__ == "__main__":
    try:
        serve(sys.stdin.buffer, sys.stdout.buffer)
    except BrokenPipeError:  # the program was stopped; closing the pipe once more would complain
        os._exit(0)
