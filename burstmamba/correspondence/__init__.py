"""Correspondence between the keyframe and every frame: estimated, given or exact, with a confidence.

The estimators bring OpenCV along, so they are imported when first asked for: the network needs `field` alone.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from burstmamba.correspondence.field import Correspondence, sample_at

if TYPE_CHECKING:
    from burstmamba.correspondence.align import Alignment, FrameReport, align_burst
    from burstmamba.correspondence.estimate import METHODS, estimate_correspondence
    from burstmamba.correspondence.maps import load_maps, save_maps

_WHERE = {
    "Alignment": "align",
    "FrameReport": "align",
    "align_burst": "align",
    "METHODS": "estimate",
    "estimate_correspondence": "estimate",
    "load_maps": "maps",
    "save_maps": "maps",
}

__all__ = [
    "METHODS",
    "Alignment",
    "Correspondence",
    "FrameReport",
    "align_burst",
    "estimate_correspondence",
    "load_maps",
    "sample_at",
    "save_maps",
]


def __getattr__(name: str) -> Any:
    if name in _WHERE:
        return getattr(importlib.import_module(f"burstmamba.correspondence.{_WHERE[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
