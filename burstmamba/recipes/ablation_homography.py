"""Ablation row: GAS with maps of a homography, which sees no moving object.

    burstmamba train ablation-homography --data "photos/train-*" --val photos/val --out runs/ablation-homography

In the paper, on RealBSR-RGB: 33.000 dB (Table 3).
"""

from dataclasses import replace

from burstmamba.recipes.ablation_gas import RECIPE as GAS

RECIPE = replace(
    GAS, data=replace(GAS.data, synthesis=replace(GAS.data.synthesis, object_missed=1.0, local_map_error=0.0))
)
