"""The paper's SyntheticSR experiment (Table 1): 44.51 dB / 0.978 SSIM / 0.037 LPIPS in the paper.

    burstmamba train paper-synburst --data zurich/train/canon --val zurich/test/canon --out runs/paper-synburst

The data is the Zurich RAW-to-RGB set's Canon photographs. Both stages and their settings are the paper's. It does not
name AdamW's betas (the usual ones here), weight decay (none), clipping (norm 1) and averaging of weights (0.999).
"""

from dataclasses import replace

from burstmamba.model.config import preset
from burstmamba.synthesis import synthesis_preset
from burstmamba.training.recipe import Phase, Photographs, Recipe

KEYFRAME = Phase("keyframe", 150_000, batch=20, patch=40, frames=((1, 1.0),), schedule="constant", warmup=0)
COMPLETE = Phase("complete", 250_000, batch=20, patch=30, frames=((14, 1.0),), schedule="constant", warmup=0)

RECIPE = Recipe(
    model=replace(preset("paper-raw"), centres="corner"),
    data=Photographs(replace(synthesis_preset("synburst"), maps="exact")),
    phases=(KEYFRAME, COMPLETE),
    betas=(0.9, 0.999),
)
