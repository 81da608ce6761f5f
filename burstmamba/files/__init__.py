"""Reading bursts from files and writing images."""

from burstmamba.files.grouping import BurstGroup, group_bursts
from burstmamba.files.loading import LoadedBurst, load_burst, read_burst
from burstmamba.files.metadata import SourceMetadata
from burstmamba.files.raw import HeaderlessRaw
from burstmamba.files.saving import check_output, save_image

__all__ = [
    "BurstGroup",
    "HeaderlessRaw",
    "LoadedBurst",
    "SourceMetadata",
    "check_output",
    "group_bursts",
    "load_burst",
    "read_burst",
    "save_image",
]
