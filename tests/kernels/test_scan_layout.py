"""Which tensors a scan reads in place."""

from dataclasses import replace

import pytest
import torch
from scan_agreement import Scan, make_inputs

from burstmamba.correspondence.field import Correspondence
from burstmamba.kernels.cpu.library import library
from burstmamba.kernels.selective_scan import PATHS, cpu_op
from burstmamba.kernels.selective_scan.layout import empty_in_order, flat, strides
from burstmamba.model.burstmamba import BurstMamba
from burstmamba.model.config import preset


@pytest.mark.parametrize(("layout", "in_place"), [("contiguous", True), ("network", True), ("strided", False)])
def test_copies_only_where_strides_do_not_do(layout, in_place):
    (x, delta, _, B, C, _, _), _ = make_inputs(Scan(5, 7, d=6, n=4, paths=PATHS, b=2, p=3, layout=layout))
    for tensor, rows in ((x, 2), (delta, 3), (B, 3), (C, 3)):
        taken = flat(tensor, rows)
        assert (taken is tensor) == in_place and torch.equal(taken, tensor)
        tokens = taken.flatten(rows, rows + 1)
        assert strides(taken, rows) == tokens.stride()[: rows + 1] and taken.stride(-1) == 1


def test_a_transposed_grid_is_copied():
    tensor = torch.randn(2, 3, 5, 7, 4).transpose(2, 3)
    assert flat(tensor, 2) is not tensor and torch.equal(flat(tensor, 2), tensor)


def test_results_lie_in_memory_as_their_inputs():
    (x, delta, *_), _ = make_inputs(Scan(5, 7, d=6, n=4, paths=PATHS, b=2, layout="network"))
    assert empty_in_order(x).is_contiguous()
    paths_next_to_channels = delta.contiguous().movedim(2, -2).contiguous().movedim(-2, 2)
    assert empty_in_order(delta).stride() == paths_next_to_channels.stride()


@pytest.mark.skipif(library() is None, reason="the package was built without a C++ compiler")
@pytest.mark.parametrize("frames", [1, 3])
@pytest.mark.parametrize("name", ["light", "paper"])
def test_the_network_makes_no_view_that_is_copied(name, frames, monkeypatch):
    """Decision 0020: forward and gradients read what the products and convolutions around them have written."""
    taken = []

    def watched(tensor, rows):
        taken.append(flat(tensor, rows) is tensor)
        return flat(tensor, rows)

    monkeypatch.setattr(cpu_op, "flat", watched)
    config = replace(preset(name), blocks=(1,))
    burst = torch.rand(1, frames, config.in_channels, 10, 12)
    BurstMamba(config)(burst, Correspondence.identity(burst)).sum().backward()
    assert len(taken) >= 9 and all(taken)
