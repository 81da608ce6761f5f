"""Ablation row: GAS with maps rounded to whole pixels.

    burstmamba train ablation-integer --data "photos/train-*" --val photos/val --out runs/ablation-integer

In the paper, on RealBSR-RGB: 32.434 dB (Table 3).
"""

from dataclasses import replace

from burstmamba.recipes.ablation_gas import RECIPE as GAS

RECIPE = replace(GAS, data=replace(GAS.data, maps="rounded"))
