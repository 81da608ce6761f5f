"""Ablation row: burst stream without GAS (nothing is aligned) and without ψS6.

    burstmamba train ablation-burst --data "photos/train-*" --val photos/val --out runs/ablation-burst

In the paper, on RealBSR-RGB: 32.881 dB (Table 2).
"""

from dataclasses import replace

from burstmamba.recipes.ablation_gas import RECIPE as GAS

RECIPE = replace(GAS, data=replace(GAS.data, maps="identity"))
