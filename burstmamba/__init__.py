"""BurstMamba: a handheld burst of low-resolution frames in, one sharp ×4 photograph out."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

from burstmamba.errors import InputError

if TYPE_CHECKING:
    from burstmamba.burst import Burst, Camera
    from burstmamba.checkpoint import load_model
    from burstmamba.correspondence.field import Correspondence
    from burstmamba.files import load_burst, save_image
    from burstmamba.model.burstmamba import BurstMamba
    from burstmamba.restoration.restore import restore_burst

__version__ = "0.1.0"

__all__ = [
    "Burst",
    "BurstMamba",
    "Camera",
    "Correspondence",
    "InputError",
    "load_burst",
    "load_model",
    "restore_burst",
    "save_image",
]

# Imported at first use, so that `import burstmamba` stays light and the command answers to Ctrl-C from the start.
_LAZY = {
    "Burst": "burstmamba.burst",
    "BurstMamba": "burstmamba.model.burstmamba",
    "Camera": "burstmamba.burst",
    "Correspondence": "burstmamba.correspondence.field",
    "load_burst": "burstmamba.files",
    "load_model": "burstmamba.checkpoint",
    "restore_burst": "burstmamba.restoration.restore",
    "save_image": "burstmamba.files",
}


def __getattr__(name: str) -> object:
    if name not in _LAZY:
        raise AttributeError(f"module 'burstmamba' has no attribute {name!r}")
    return getattr(importlib.import_module(_LAZY[name]), name)
