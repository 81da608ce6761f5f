"""Ablation row: the same compute, split evenly between the two streams.

    burstmamba train ablation-balanced --data "photos/train-*" --val photos/val --out runs/ablation-balanced

In the paper, on RealBSR-RGB: 30.32 dB (50/50 split).
"""

from dataclasses import replace

from burstmamba.model.config import preset
from burstmamba.recipes.ablation_psi import RECIPE as WHOLE

RECIPE = replace(WHOLE, model=replace(preset("light-balanced"), reach=0.0))
