"""BurstMamba: a handheld burst of low-resolution frames in, one sharp ×4 photograph out."""

from burstmamba.burst import Burst, Camera
from burstmamba.correspondence.field import Correspondence
from burstmamba.errors import InputError

__version__ = "0.1.0"

__all__ = ["Burst", "Camera", "Correspondence", "InputError"]
