"""The paper's RealBSR-RAW experiment (Table 1): 28.03 dB / 0.832 SSIM / 0.064 LPIPS in the paper.

burstmamba train paper-realbsr-raw --data realbsr-raw --out runs/paper-realbsr-raw
"""

from dataclasses import replace

from burstmamba.model.config import preset
from burstmamba.recipes.paper_synburst import RECIPE as PAPER
from burstmamba.training.recipe import BurstFolders

RECIPE = replace(PAPER, model=preset("paper-raw"), data=BurstFolders("realbsr-raw"))
