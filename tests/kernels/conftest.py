"""What the C++ kernels' tests share."""

import pytest

from burstmamba.kernels.cpu import library as cpu_library


@pytest.fixture(params=[16, 8, 4], ids=["AVX-512", "AVX2", "baseline"])
def lanes(request, monkeypatch):
    """Every instruction set that this processor has."""
    if cpu_library.library().scan_lanes(request.param) != request.param:
        pytest.skip("this processor has no such instructions")
    monkeypatch.setattr(cpu_library, "LANES", request.param)
