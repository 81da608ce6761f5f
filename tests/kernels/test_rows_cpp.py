"""Norms, gates, residual sums and sampling in C++ against plain PyTorch."""

import normalization_agreement
import pytest
import sampling_agreement
import torch
from agreement import relative_error
from normalization_agreement import TOKENS, Tokens
from sampling_agreement import SAMPLINGS

from burstmamba.errors import InputError
from burstmamba.kernels import normalization, sampling
from burstmamba.kernels.cpu import library as cpu_library
from burstmamba.kernels.normalization import reference
from burstmamba.kernels.sampling import sample_bilinear

pytestmark = pytest.mark.skipif(cpu_library.library() is None, reason="the package was built without a C++ compiler")


SINGLE = [tokens for tokens in TOKENS if tokens.dtype == torch.float32] + [Tokens(2, 20, 19, 33)]


@pytest.mark.parametrize("tokens", SINGLE, ids=str)
def test_norms_and_residual_sums(tokens, lanes, fresh_memory_is_nan):
    for name, error in normalization_agreement.errors(tokens).items():
        assert error <= normalization_agreement.TOLERANCE[torch.float32], name


def test_gates_far_from_zero(lanes):
    """Neither overflows; what is no number stays none."""
    norm, ones = torch.nn.LayerNorm(20), torch.arange(20.0)
    gate = torch.tensor([-1e4, -100.0, -1.0, 0.0, 1.0, 100.0, 1e4, torch.nan]).repeat(3)[:20]
    with torch.no_grad():
        found = normalization.normalize(ones[None], norm, gate[None])
        expected = reference.normalize(ones.double()[None], norm.double(), gate.double()[None], None)
    assert torch.equal(found.isnan(), gate.isnan()[None])
    assert torch.allclose(found.double(), expected, rtol=1e-5, atol=1e-6, equal_nan=True)


def test_where_gradients_are_kept_plain_pytorch_serves():
    tokens = torch.randn(1, 2, 2, 8)
    assert normalization.serving(tokens) is reference
    with torch.no_grad():
        assert normalization.serving(tokens) is normalization.cpu_backend
        assert normalization.serving(tokens.double()) is reference
        assert normalization.normalize(tokens, torch.nn.LayerNorm(8), tokens.double()).dtype == torch.float64


@pytest.mark.parametrize("case", [case for case in SAMPLINGS if case.dtype == torch.float32], ids=str)
@pytest.mark.parametrize("transposed", [False, True])
def test_sampling(case, transposed, lanes, fresh_memory_is_nan):
    found = sampling_agreement.errors(case, "cpp", transposed=transposed)
    assert found["values"] <= sampling_agreement.TOLERANCE[torch.float32]


def test_sampling_nowhere_reads_a_pixel():
    features, nowhere = torch.randn(1, 3, 4, 5), torch.full((1, 2, 4, 5), torch.nan)
    with torch.no_grad():
        assert torch.equal(sample_bilinear(features, nowhere, backend="cpp"), features[:, :, :1, :1].expand(1, 3, 4, 5))


def test_sampling_is_chosen_without_gradients():
    features, still = torch.randn(1, 3, 4, 5), torch.zeros(1, 2, 4, 5)
    assert sampling.select_backend(features).name == "reference"
    with pytest.raises(InputError, match="sampling backend 'cpp' cannot run here: it has no gradients"):
        sample_bilinear(features, still, backend="cpp")
    with torch.no_grad():
        assert sampling.select_backend(features).name == "cpp"
        assert sampling.select_backend(features.double()).name == "reference"
        assert torch.equal(sample_bilinear(features, still), features)


@pytest.mark.parametrize("threads", [1, 2, 5])
def test_threads_change_nothing(threads):
    torch.manual_seed(0)
    tokens, gate, norm = torch.randn(3, 30, 31, 24), torch.randn(3, 30, 31, 24), torch.nn.LayerNorm(24)
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        with torch.no_grad():
            found = normalization.normalize(tokens, norm, gate)
            moved = sample_bilinear(tokens.permute(0, 3, 1, 2), torch.full((3, 2, 30, 31), 0.25))
    finally:
        torch.set_num_threads(before)
    assert torch.allclose(found, reference.normalize(tokens, norm, gate, None), atol=1e-5)
    assert (
        relative_error(
            moved, sampling.sample_bilinear_reference(tokens.permute(0, 3, 1, 2), torch.full((3, 2, 30, 31), 0.25))
        )
        < 1e-5
    )
