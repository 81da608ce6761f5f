import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from burstmamba import Correspondence, InputError
from burstmamba.correspondence.field import sample_at


def shift(x, y, h=8, w=9, frames=2):
    """A correspondence whose further frames are displaced by (x, y) pixels."""
    to_frame = torch.zeros(1, frames, 2, h, w)
    to_frame[:, 1:, 0], to_frame[:, 1:, 1] = x, y
    return Correspondence(to_frame, -to_frame)


def test_values_bilinear_between_pixels():
    features = torch.arange(12.0).view(1, 1, 3, 4)  # value = 4y + x
    displacement = torch.zeros(1, 2, 3, 4)
    displacement[:, 0], displacement[:, 1] = 0.25, 0.5
    assert sample_at(features, displacement)[0, 0, 1, 2] == pytest.approx(4 * 1.5 + 2.25)


def test_values_borders_are_replicated():
    features = torch.arange(12.0).view(1, 1, 3, 4)
    far = torch.full((1, 2, 3, 4), 100.0)
    assert torch.equal(sample_at(features, far), torch.full((1, 1, 3, 4), 11.0))


def test_single_pixel_image():
    assert sample_at(torch.ones(1, 2, 1, 1), torch.full((1, 2, 1, 1), 0.7)).flatten().tolist() == [1.0, 1.0]


@given(x=st.integers(-3, 3), y=st.integers(-3, 3))
@settings(max_examples=20, deadline=None)
def test_scatter_undoes_gather_for_whole_pixel_shifts(x, y):
    torch.manual_seed(0)
    features, maps = torch.randn(1, 2, 3, 8, 9), shift(x, y)
    back = maps.scatter(maps.gather(features))
    inside = (..., slice(max(y, 0), 8 + min(y, 0)), slice(max(x, 0), 9 + min(x, 0)))
    assert torch.allclose(back[inside], features[inside], atol=1e-5)


@pytest.mark.parametrize("axis", [-1, -2])
def test_flips_commute_with_gather_and_scatter(axis):
    torch.manual_seed(1)
    features, maps = torch.randn(1, 2, 3, 6, 7), torch.randn(1, 2, 2, 6, 7)
    sign = torch.tensor([-1.0, 1.0] if axis == -1 else [1.0, -1.0]).view(2, 1, 1)
    plain, flipped = Correspondence(maps, -maps), Correspondence(maps.flip(axis) * sign, -maps.flip(axis) * sign)
    for operation in ("gather", "scatter"):
        expected = getattr(plain, operation)(features).flip(axis)
        assert torch.allclose(getattr(flipped, operation)(features.flip(axis)), expected, atol=1e-5)


def test_crops_commute_with_gather_away_from_borders():
    torch.manual_seed(2)
    features, maps = torch.randn(1, 2, 3, 12, 14), 0.9 * torch.rand(1, 2, 2, 12, 14)
    whole = Correspondence(maps, -maps)
    window = whole.crop(2, 3, 8, 9)
    cut = features[..., 2:10, 3:12]
    assert torch.allclose(window.gather(cut)[..., :-1, :-1], whole.gather(features)[..., 2:9, 3:11], atol=1e-5)


def test_gradients_reach_the_features():
    features = torch.randn(1, 2, 4, 5, dtype=torch.float64, requires_grad=True)
    displacement = 0.3 * torch.randn(1, 2, 4, 5, dtype=torch.float64)
    sample_at(features, displacement).sum().backward()
    assert features.grad.sum() == pytest.approx(2 * 4 * 5, rel=1e-5)  # bilinear weights sum to 1


def test_errors():
    with pytest.raises(InputError, match=r"must be \(b, l, 2, h, w\), got \(1, 2, 3, 4\)"):
        Correspondence(torch.zeros(1, 2, 3, 4), torch.zeros(1, 2, 3, 4))
    with pytest.raises(InputError, match="both maps must have one shape"):
        Correspondence(torch.zeros(1, 2, 2, 4, 4), torch.zeros(1, 2, 2, 4, 5))
    with pytest.raises(InputError, match="confidence must be"):
        Correspondence(*[torch.zeros(1, 2, 2, 4, 4)] * 2, confidence=torch.zeros(1, 2, 4, 4))
    with pytest.raises(InputError, match="sample_at expects"):
        sample_at(torch.zeros(1, 2, 3, 3), torch.zeros(1, 3, 3, 3))
