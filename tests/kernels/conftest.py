"""What the kernels' tests share."""

import pytest
import torch

from burstmamba.kernels.cpu import library as cpu_library


@pytest.fixture(params=[16, 8, 4], ids=["AVX-512", "AVX2", "baseline"])
def lanes(request, monkeypatch):
    """Every instruction set that this processor has."""
    if cpu_library.library().scan_lanes(request.param) != request.param:
        pytest.skip("this processor has no such instructions")
    monkeypatch.setattr(cpu_library, "LANES", request.param)


@pytest.fixture
def fresh_memory_is_nan():
    """Whatever a kernel leaves unwritten, or reads before it is written, shows."""
    torch.use_deterministic_algorithms(True)
    assert torch.utils.deterministic.fill_uninitialized_memory and torch.empty(1).isnan().all()
    yield
    torch.use_deterministic_algorithms(False)
