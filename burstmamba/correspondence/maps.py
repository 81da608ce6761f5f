"""Correspondence in a file: one safetensors file with both maps and the confidence."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path

from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file, save_file

from burstmamba.correspondence.field import Correspondence
from burstmamba.errors import InputError


def check_maps_file(path: str | Path) -> Path:
    """Refuse a file that maps could not be written to, before they are estimated."""
    path = Path(path)
    if path.suffix != ".safetensors":
        raise InputError(f"maps are written to a .safetensors file, got {path.name!r}; rename it.")
    if not os.access(path.parent, os.W_OK):
        raise InputError(f"the folder {path.parent} does not exist or cannot be written to; choose another one.")
    return path


def save_maps(path: str | Path, correspondence: Correspondence, names: Sequence[str] = ()) -> None:
    """Write a correspondence to `path` (.safetensors), replacing the file only when it is complete.

    Args:
        path: the file.
        correspondence: the maps.
        names: of the frames they belong to, keyframe first.
    """
    path = check_maps_file(path)
    tensors = {"to_frame": correspondence.to_frame, "to_keyframe": correspondence.to_keyframe}
    if correspondence.confidence is not None:
        tensors["confidence"] = correspondence.confidence
    temporary = path.with_name(path.name + ".part")
    contents = {k: v.detach().cpu().clone().contiguous() for k, v in tensors.items()}
    save_file(contents, temporary, metadata={"frames": json.dumps(list(names))})
    os.replace(temporary, path)


def load_maps(path: str | Path) -> Correspondence:
    """Read a correspondence that `save_maps` wrote."""
    path = Path(path)
    if not path.is_file():
        raise InputError(f"no file of maps at {path}: write one with save_maps or `burstmamba align --save-maps`.")
    try:
        tensors = load_file(path)
    except SafetensorError as error:
        raise InputError(
            f"{path} is not a readable safetensors file ({error}); write it again with save_maps."
        ) from None
    missing = [key for key in ("to_frame", "to_keyframe") if key not in tensors]
    if missing:
        raise InputError(f"{path} must hold to_frame and to_keyframe, {' and '.join(missing)} is missing.")
    return Correspondence(tensors["to_frame"].float(), tensors["to_keyframe"].float(), tensors.get("confidence"))


def mapped_frames(path: str | Path) -> list[str]:
    """Names of the frames that a file of maps belongs to, keyframe first; empty where it does not say."""
    with safe_open(path, framework="pt") as file:
        return json.loads((file.metadata() or {}).get("frames", "[]"))
