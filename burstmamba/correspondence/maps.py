"""Correspondence in a file: one safetensors file with both maps and the confidence."""

from __future__ import annotations

import os
from pathlib import Path

from safetensors import SafetensorError
from safetensors.torch import load_file, save_file

from burstmamba.correspondence.field import Correspondence
from burstmamba.errors import InputError


def save_maps(path: str | Path, correspondence: Correspondence) -> None:
    """Write a correspondence to `path` (.safetensors), replacing the file only when it is complete."""
    path = Path(path)
    if path.suffix != ".safetensors":
        raise InputError(f"maps are written to a .safetensors file, got {path.name!r}; rename it.")
    tensors = {"to_frame": correspondence.to_frame, "to_keyframe": correspondence.to_keyframe}
    if correspondence.confidence is not None:
        tensors["confidence"] = correspondence.confidence
    temporary = path.with_name(path.name + ".part")
    save_file({k: v.detach().cpu().clone().contiguous() for k, v in tensors.items()}, temporary)
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
