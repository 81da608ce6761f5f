"""Ablation row: GAS with maps of a homography, which sees no moving object.

    burstmamba train ablation-homography --data "photos/train-*" --val photos/val --out runs/ablation-homography

In the paper, on RealBSR-RGB: 33.000 dB (Table 3).
"""

from dataclasses import replace

from burstmamba.recipes.ablation_gas import RECIPE as GAS
from burstmamba.synthesis import synthesis_preset
from burstmamba.training.recipe import Photographs

SYNTHESIS = replace(synthesis_preset("handheld-rgb"), object_missed=1.0, local_map_error=0.0)

RECIPE = replace(GAS, data=Photographs(SYNTHESIS))
