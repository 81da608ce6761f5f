"""Ablation row: the keyframe stream alone, on the batches of every other row; it looks at their keyframes only.

    burstmamba train ablation-single --data "photos/train-*" --val photos/val --out runs/ablation-single

In the paper, on RealBSR-RGB: 31.668 dB (Table 2).
"""

from dataclasses import replace

from burstmamba.recipes.ablation_psi import RECIPE as WHOLE

RECIPE = replace(WHOLE, model=WHOLE.model.single())
