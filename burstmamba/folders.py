"""Folders to write to."""

from __future__ import annotations

import tempfile
from pathlib import Path

from burstmamba.errors import InputError


def make_folder(folder: Path) -> None:
    """Make a folder unless it is there; a place that cannot be written to is said before any work is done."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=folder).close()  # some folders can be read and not written to
    except OSError as error:
        reason = "it is a file" if folder.is_file() else error.strerror
        raise InputError(f"cannot write to {folder}: {reason}; choose another folder.") from error
