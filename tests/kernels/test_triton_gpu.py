"""The Triton kernels on a real GPU: `pytest -m gpu`."""

import pytest
import torch
from agreement import relative_error
from normalization_agreement import TOKENS, errors_under_autocast
from normalization_agreement import TOLERANCE as NORMALIZATION_TOLERANCE
from normalization_agreement import errors as normalization_errors
from sampling_agreement import SAMPLINGS
from sampling_agreement import TOLERANCE as SAMPLING_TOLERANCE
from sampling_agreement import errors as sampling_errors
from scan_agreement import BURST, FLOOR, LARGE, SMALL, TOLERANCE, Scan, errors, make_inputs, results, too_far

from burstmamba.kernels.selective_scan import PATHS, select_backend, selective_scan

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA GPU")]
LARGER = (
    Scan(40, 41, d=360, n=16, paths=PATHS, b=2, layout="network", dtype=torch.bfloat16),
    Scan(32, 32, d=96, n=8, paths=PATHS, b=3, layout="network"),
    Scan(1, 32, d=96, n=8, paths=BURST, b=3, p=32, layout="columns", dtype=torch.bfloat16, mixed=True),
    Scan(14, d=90, n=16, paths=BURST, b=2, p=900, layout="network", dtype=torch.bfloat16),
    Scan(14, d=48, n=8, paths=BURST, b=2, p=900, layout="network", weighted=True),
    Scan(3, 21, d=33, n=24, paths=("columns",)),
)


def same(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Two ways to run one kernel."""
    return relative_error(a, b.double(), FLOOR) <= TOLERANCE[torch.float32]


@pytest.mark.parametrize("scan", SMALL + LARGE + LARGER, ids=str)
def test_scan_values_and_gradients(scan):
    assert not too_far(scan, errors(scan, "triton", "cuda"))


@pytest.mark.parametrize("scan", [SMALL[3], LARGE[0], LARGER[0]], ids=str)
def test_scan_in_fresh_memory_and_again(scan, fresh_memory_is_nan):
    """No sum depends on who comes first."""
    assert torch.empty(1, device="cuda").isnan().all()
    assert not too_far(scan, errors(scan, "triton", "cuda"))
    inputs, weight = make_inputs(scan, "cuda")
    first, second = (results(inputs, weight, scan, "triton") for _ in range(2))
    assert all(torch.equal(a, b) for a, b in zip(first, second, strict=True))


@pytest.mark.parametrize("sampling", SAMPLINGS, ids=str)
def test_sampling_values_and_gradients(sampling):
    for name, error in sampling_errors(sampling, "triton", "cuda").items():
        assert error <= SAMPLING_TOLERANCE[sampling.dtype], name


def test_selection_prefers_it_on_the_gpu():
    assert select_backend(torch.zeros(1, device="cuda")).name == "triton"


def test_scan_can_be_captured():
    """As a CUDA graph, which a launch that waits for the GPU would refuse."""
    inputs, weight = make_inputs(LARGER[1], "cuda")
    expected = results(inputs, weight, LARGER[1], "triton")
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        captured = results(inputs, weight, LARGER[1], "triton")
    graph.replay()
    assert all(same(a, b) for a, b in zip(captured, expected, strict=True))


def test_scan_compiles():
    inputs, _ = make_inputs(Scan(6, 8, d=20, n=8, paths=PATHS), "cuda")
    run = torch.compile(lambda *tensors: 2 * selective_scan(*tensors, paths=PATHS), fullgraph=True)
    assert same(run(*inputs), 2 * selective_scan(*inputs, paths=PATHS))


def test_autocast_keeps_the_state_in_float32():
    inputs, _ = make_inputs(Scan(30, 30, d=20, n=8, paths=PATHS), "cuda")
    plain = selective_scan(*inputs, paths=PATHS)
    with torch.autocast("cuda", torch.bfloat16):
        assert same(selective_scan(*inputs, paths=PATHS), plain)


@pytest.mark.parametrize("tokens", TOKENS, ids=str)
def test_norms_and_residual_sums(tokens):
    for name, error in normalization_errors(tokens, "cuda").items():
        assert error <= NORMALIZATION_TOLERANCE[tokens.dtype if name == "gated" else torch.float32], name


def test_norms_under_autocast():
    found = errors_under_autocast("cuda")
    assert found["sum"] < 1e-6 and found["norm"] < 0.02
