"""The before/after picture."""

import numpy as np
import torch
from PIL import Image, ImageCms

from burstmamba.restoration.comparison import GAP, WIDTH, compare, find_details, save_comparison


def test_details_are_where_the_structure_is_and_apart():
    picture = torch.full((3, 600, 800), 0.5)
    generator = torch.Generator().manual_seed(0)
    picture[:, 40:160, 600:720] = torch.rand(3, 120, 120, generator=generator)
    picture[:, 400:520, 60:180] = torch.rand(3, 120, 120, generator=generator)
    details = find_details(picture)
    assert len(details) == 3
    (y0, x0, side), (y1, x1, _) = details[:2]
    assert side == 122
    found = sorted([(y0, x0), (y1, x1)])
    assert abs(found[0][0] - 40) < 12 and abs(found[0][1] - 600) < 12
    assert abs(found[1][0] - 400) < 12 and abs(found[1][1] - 60) < 12


def test_before_and_after_stand_side_by_side():
    before, after = torch.zeros(3, 30, 40), torch.ones(3, 120, 160)
    sheet = compare(before, after)
    assert sheet.dtype == np.uint8 and sheet.shape[1] == 2 * WIDTH + 3 * GAP
    left, right = sheet[200, GAP + 300], sheet[200, 2 * GAP + WIDTH + 700]
    assert left.max() < 30 and right.min() > 250


def test_small_and_narrow_pictures():
    for h, w in ((1, 1), (2, 300), (300, 2)):
        assert compare(torch.rand(3, h, w), torch.rand(3, 4 * h, 4 * w)).ndim == 3


def test_a_colour_profile_stays(tmp_path):
    profile = ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB")).tobytes()
    save_comparison(tmp_path / "a.png", torch.rand(3, 8, 8), torch.rand(3, 32, 32), icc_profile=profile)
    with Image.open(tmp_path / "a.png") as picture:
        assert picture.info["icc_profile"] == profile
