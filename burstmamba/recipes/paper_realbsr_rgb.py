"""The paper's RealBSR-RGB experiment (Table 1): 33.29 dB / 0.929 SSIM / 0.045 LPIPS in the paper.

burstmamba train paper-realbsr-rgb --data realbsr-rgb --out runs/paper-realbsr-rgb
"""

from dataclasses import replace

from burstmamba.model.config import preset
from burstmamba.recipes.paper_synburst import RECIPE as PAPER
from burstmamba.training.recipe import BurstFolders

RECIPE = replace(PAPER, model=preset("paper"), data=BurstFolders("realbsr-rgb"))
