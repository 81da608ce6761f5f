"""Ablation row: frames warped to the keyframe before the network instead of GAS.

    burstmamba train ablation-prealign --data "photos/train-*" --val photos/val --out runs/ablation-prealign

In the paper, on RealBSR-RGB: 32.965 dB (Table 3).
"""

from dataclasses import replace

from burstmamba.recipes.ablation_gas import RECIPE as GAS

RECIPE = replace(GAS, data=replace(GAS.data, maps="prealigned"))
