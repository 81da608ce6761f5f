"""Ablation row: burst stream with GAS, selectivity from the content instead of wavelets.

    burstmamba train ablation-gas --data "photos/train-*" --val photos/val --out runs/ablation-gas

In the paper, on RealBSR-RGB: 33.080 dB (Tables 2 and 3).
"""

from dataclasses import replace

from burstmamba.recipes.ablation_psi import RECIPE as WHOLE

RECIPE = replace(WHOLE, model=replace(WHOLE.model, selectivity="content"))
