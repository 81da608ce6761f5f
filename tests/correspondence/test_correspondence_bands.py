"""Large frames are worked on by bands of rows: the result is that of the whole frame."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from burstmamba.burst import Camera
from burstmamba.correspondence.bands import PIXELS, bands
from burstmamba.correspondence.confidence import in_view, thin
from burstmamba.correspondence.field import pixel_grid
from burstmamba.correspondence.homography import GlobalMotion, axes, project
from burstmamba.correspondence.light import brighten, decode_srgb, encode_srgb
from burstmamba.correspondence.luma import enlarge, reduce_plane

SIZE = (703, 611)
CAMERAS = {"srgb": Camera(), "linear": Camera(linear=True), "mosaic": Camera(cfa="GBRG", linear=True)}


@pytest.mark.parametrize("multiple", [1, 2, 5])
@pytest.mark.parametrize("size", [SIZE, (1, 1), (7, 3 * PIXELS), (100_000, 1)])
def test_bands_cover_every_row_once(size, multiple):
    found = list(bands(*size, multiple))
    assert [row for rows in found for row in range(*rows.indices(size[0]))] == list(range(size[0]))
    assert all((rows.stop - rows.start) % multiple == 0 for rows in found[:-1])


def whole_frame(frame: torch.Tensor, gain: torch.Tensor, camera: Camera) -> torch.Tensor:
    """`brighten` as it is defined, for gains (3, h, w)."""
    if camera.cfa:
        y, x = (axis.long() % 2 for axis in reversed(axes(SIZE)))
        colour = torch.tensor(["RGB".index(c) for c in camera.cfa])[2 * y + x]
        return (frame * gain.gather(0, colour[None])).clamp(max=1)
    light = frame if camera.linear else decode_srgb(frame)
    return (light * gain if camera.linear else encode_srgb(light * gain)).clamp(max=1)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
@pytest.mark.parametrize("local", [False, True])
@pytest.mark.parametrize("camera", CAMERAS.values(), ids=CAMERAS)
def test_brightened_frames(camera, local, dtype):
    generator = torch.Generator().manual_seed(0)
    frame = torch.rand(1 if camera.cfa else 3, *SIZE, generator=generator).to(dtype)
    gain = torch.tensor([0.7, 1.0, 1.4])
    everywhere = gain[:, None, None].expand(3, *SIZE)
    if local:
        gain = everywhere = everywhere * (0.5 + torch.rand(3, *SIZE, generator=generator))
    expected = whole_frame(frame.float(), everywhere, camera).to(dtype)
    found = brighten(frame, gain, camera)
    assert found.dtype == dtype
    step = 2e-7 if dtype == torch.float32 else 5e-4  # a last digit may be rounded the other way
    torch.testing.assert_close(found, expected, atol=step, rtol=0)


@pytest.mark.parametrize("factor", [1, 2, 3, 15])
def test_reduced_planes_of_either_precision(factor):
    plane = torch.rand(*SIZE, generator=torch.Generator().manual_seed(1)).half()
    expected = torch.nn.functional.avg_pool2d(plane.float()[None, None], factor)[0, 0]
    for given in (plane, plane.float()):
        torch.testing.assert_close(reduce_plane(given, factor), expected, atol=1e-6, rtol=0)


@pytest.mark.parametrize("factor", [2, 3, 4])
def test_enlarged_planes(factor):
    small = torch.rand(2, 1, *(side // factor for side in SIZE), generator=torch.Generator().manual_seed(2))
    whole = torch.nn.functional.interpolate(small, scale_factor=factor, mode="bilinear")
    rest = (0, SIZE[1] - whole.shape[-1], 0, SIZE[0] - whole.shape[-2])
    expected = torch.nn.functional.pad(whole, rest, mode="replicate")
    found = list(enlarge(small, factor, SIZE))
    assert len(found) > 2 and all(rows.start % factor == 0 for rows, _ in found)
    assert [row for rows, _ in found for row in range(rows.start, rows.stop)] == list(range(SIZE[0]))
    torch.testing.assert_close(torch.cat([band for _, band in found], -2), expected, atol=2e-5, rtol=0)


def test_views_and_displacements():
    matrix = np.array([[1.01, 0.02, -30], [-0.01, 0.99, 12], [1e-6, -2e-6, 1]])
    there = GlobalMotion(matrix, "homography").displacement(SIZE)
    torch.testing.assert_close(there, project(matrix, *axes(SIZE)), atol=1e-4, rtol=0)
    x, y = pixel_grid(there)[0] + there
    h, w = SIZE
    expected = (x >= -0.5) & (x <= w - 0.5) & (y >= -0.5) & (y <= h - 0.5)
    assert torch.equal(in_view(there), expected) and 0 < expected.float().mean() < 1
    assert torch.equal(in_view(there, 5), thin(expected, 5))
    assert torch.equal(GlobalMotion(matrix, "homography").displacement(SIZE, out=there.half()), there.half())
    assert not GlobalMotion(np.eye(3), "identity").displacement(SIZE).any()
