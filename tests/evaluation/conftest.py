"""What several tests of the commands evaluate: small photographs and untrained weights."""

import numpy as np
import pytest
import torch

from burstmamba.checkpoint import save_checkpoint
from burstmamba.model.burstmamba import BurstMamba
from burstmamba.model.config import preset

PIXELS = 192


@pytest.fixture(scope="session")
def photographs(tmp_path_factory):
    """Two photographs of rectangles, as a folder."""
    from PIL import Image

    folder = tmp_path_factory.mktemp("photographs")
    for number in (1, 2):
        random = np.random.default_rng(number)
        image = np.full((PIXELS, PIXELS, 3), 128, np.uint8)
        for _ in range(80):
            top, left, height, width = random.integers((0, 0, 4, 4), (PIXELS, PIXELS, 40, 40))
            image[top : top + height, left : left + width] = random.integers(0, 256, 3)
        Image.fromarray(image).save(folder / f"{number:04d}.png")
    return folder


@pytest.fixture(scope="session")
def weights(tmp_path_factory):
    torch.manual_seed(0)
    path = tmp_path_factory.mktemp("weights") / "tiny.safetensors"
    save_checkpoint(path, BurstMamba(preset("tiny")), notes={"steps": "0"})
    return path
