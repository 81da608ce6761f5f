"""`light-raw`, shipped: an RGGB mosaic to linear RGB, with noise up to a dim room's.

    burstmamba train open-raw --data "photos/train-*" --val photos/val --minutes 30 --out runs/open-raw

Made for one H200; the schedule is laid over the minutes that there are. What it reached is in docs/training.md.
"""

from dataclasses import replace

from burstmamba.model.config import preset
from burstmamba.recipes.open_rgb import RECIPE as OPEN_RGB
from burstmamba.synthesis import synthesis_preset
from burstmamba.training.recipe import Photographs

SYNTHESIS = replace(synthesis_preset("handheld-raw"), aliased=0.25)  # so that SyntheticBurst is not new to it

RECIPE = replace(OPEN_RGB, model=preset("light-raw"), data=Photographs(SYNTHESIS))
