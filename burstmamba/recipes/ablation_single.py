"""Ablation row: the keyframe stream alone.

    burstmamba train ablation-single --data "photos/train-*" --val photos/val --out runs/ablation-single

In the paper, on RealBSR-RGB: 31.668 dB (Table 2).
"""

from dataclasses import replace

from burstmamba.recipes.ablation_psi import RECIPE as WHOLE

RECIPE = replace(
    WHOLE, model=WHOLE.model.single(), phases=tuple(replace(phase, frames=((1, 1.0),)) for phase in WHOLE.phases)
)
