"""A folder for one process at a time; the lock ends with the process that holds it, however that ends."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from burstmamba.errors import InputError
from burstmamba.folders import make_folder

PAUSE = 0.2
"""Seconds between two attempts."""


@contextmanager
def folder_lock(folder: Path, *, wait: bool) -> Iterator[bool]:
    """Hold a folder while inside; without `wait`, False is given when another process holds it."""
    make_folder(folder)
    try:
        lock = open(folder / ".lock", "ab")  # noqa: SIM115 (closed below)
    except OSError as error:
        raise InputError(f"cannot write to {folder}: {error.strerror}; choose another folder.") from error
    with lock as file:
        while not (held := _try(file)) and wait:
            time.sleep(PAUSE)
        yield held


def _try(file: IO[bytes]) -> bool:
    try:
        if sys.platform == "win32":
            import msvcrt

            msvcrt.locking(file.fileno(), msvcrt.LK_NBLCK, 1)
        else:
            import fcntl

            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:  # another process holds it
        return False
    return True
