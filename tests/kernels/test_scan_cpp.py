"""The C++ scan against the reference."""

import shutil
import subprocess
import sys

import pytest
import torch
from scan_agreement import BURST, LARGE, SMALL, Scan, errors, make_inputs, results, too_far

from burstmamba.errors import InputError
from burstmamba.kernels.cpu import library as cpu_library
from burstmamba.kernels.selective_scan import select_backend, selective_scan

pytestmark = pytest.mark.skipif(cpu_library.library() is None, reason="the package was built without a C++ compiler")


@pytest.mark.parametrize("scan", SMALL, ids=str)
def test_values_and_gradients(scan, lanes):
    assert not too_far(scan, errors(scan, "cpp"))


@pytest.mark.parametrize("scan", LARGE, ids=str)
def test_values_and_gradients_of_long_scans(scan):
    assert not too_far(scan, errors(scan, "cpp"))


@pytest.mark.parametrize("scan", SMALL, ids=str)
def test_fresh_memory_does_not_leak(scan, lanes, fresh_memory_is_nan):
    assert not too_far(scan, errors(scan, "cpp"))


@pytest.mark.parametrize("scan", [Scan(12, 13, d=40, n=16, paths=("rows", "columns reversed")), SMALL[3]], ids=str)
@pytest.mark.parametrize("threads", [1, 2, 3])
def test_runs_agree_bit_for_bit(scan, threads):
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        inputs, weight = make_inputs(scan)
        first, second = (results(inputs, weight, scan, "cpp") for _ in range(2))
    finally:
        torch.set_num_threads(before)
    assert all(torch.equal(a, b) for a, b in zip(first, second, strict=True))


@pytest.mark.parametrize("threads", [1, 2, 5])
def test_values_and_gradients_of_several_threads(threads):
    """One sequence, whose channels they share, and more sequences than threads."""
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        for scan in (SMALL[8], Scan(12, 13, d=90, n=16, paths=BURST), *LARGE[1:]):
            assert not too_far(scan, errors(scan, "cpp")), str(scan)
    finally:
        torch.set_num_threads(before)


def test_threads_change_no_output():
    """Only sums over sequences may be grouped by threads; the output has none."""
    scan = Scan(12, 13, d=40, n=16, paths=("rows", "columns reversed"))
    inputs, weight = make_inputs(scan)
    before = torch.get_num_threads()
    outputs = []
    for threads in (1, 2, 5):
        torch.set_num_threads(threads)
        outputs.append(selective_scan(*inputs, paths=scan.paths, weight=weight, backend="cpp"))
    torch.set_num_threads(before)
    assert torch.equal(outputs[0], outputs[1]) and torch.equal(outputs[0], outputs[2])


def test_weight_zero_leaves_the_state_untouched(lanes):
    """A frame of weight 0 changes no other frame's output, not by a bit: 2^0 is 1."""
    scan = Scan(6, d=7, n=8, paths=BURST, p=2)
    inputs, _ = make_inputs(scan)
    weight = torch.ones(1, 2, 6, 1)
    weight[:, :, 3] = 0
    others = [0, 1, 2, 4, 5]
    full = selective_scan(*inputs, paths=BURST, weight=weight, backend="cpp")[:, :, others]
    kept = [t[:, :, others] if t.ndim == 5 else t[:, :, :, others] if t.ndim == 6 else t for t in inputs]
    without = selective_scan(*kept, paths=BURST, weight=weight[:, :, others], backend="cpp")
    assert torch.equal(full, without)


@pytest.mark.parametrize("rank", [1, 3, 6, 31])
@pytest.mark.parametrize("scan", [SMALL[3], Scan(7, 9, d=37, n=16, paths=("columns", "rows reversed"))], ids=str)
def test_projection_of_delta_inside_the_scan(scan, rank, lanes):
    """Without gradients it never lies in memory; values are those of the product, and so are the gradients."""
    (x, delta, *others), weight = make_inputs(scan)
    delta = torch.randn(*delta.shape[:-1], rank).to(delta.dtype) - 1
    delta_weight = torch.randn(len(scan.paths), x.shape[-1], rank) / rank
    whole = torch.einsum("bpkijr,kdr->bpkijd", delta, delta_weight)
    expected = selective_scan(x, whole, *others, paths=scan.paths, weight=weight, backend="reference")
    arguments = {"paths": scan.paths, "weight": weight, "backend": "cpp"}
    with torch.no_grad(), torch.utils.flop_counter.FlopCounterMode(display=False) as counter:
        found = selective_scan(x, delta, *others, delta_weight=delta_weight, **arguments)
    assert torch.allclose(found, expected, rtol=2e-5, atol=2e-5 * expected.abs().max().item())
    assert counter.get_total_flops() == whole.numel() * (2 * rank + 9 * scan.n + 1)
    leaf = delta_weight.requires_grad_()
    (gradient,) = torch.autograd.grad(selective_scan(x, delta, *others, delta_weight=leaf, **arguments).sum(), leaf)
    whole = torch.einsum("bpkijr,kdr->bpkijd", delta, leaf)
    (same,) = torch.autograd.grad(selective_scan(x, whole, *others, **arguments).sum(), leaf)
    assert torch.equal(gradient, same)


def test_no_sequences_have_gradients_of_zero(fresh_memory_is_nan):
    inputs, _ = make_inputs(Scan(3, d=20, n=8))
    empty = [tensor[:0] if tensor.ndim > 4 else tensor for tensor in inputs]
    found = results(empty, None, Scan(3, d=20, n=8), "cpp")
    assert not any(tensor.any() for tensor in found)


def test_not_a_number_is_not_hidden(lanes):
    inputs, _ = make_inputs(Scan(5, d=20, n=4))
    inputs[1][0, 0, 0, 2, 0, 3] = torch.nan
    y = selective_scan(*inputs, paths=("rows",), backend="cpp")
    assert y[..., 2:, :, 3].isnan().all() and not y[..., :2, :, :].isnan().any()
    assert not y[..., [0, 1, 2, 4, 19]].isnan().any()


def test_operator_is_known_to_pytorch():
    inputs, weight = make_inputs(SMALL[3])
    leaves = [tensor.detach().requires_grad_() for tensor in inputs]
    torch.library.opcheck(torch.ops.burstmamba.scan_cpu.default, (*leaves, weight, [0, 2]))
    x, delta, *others = inputs
    narrow = (x, delta[..., :2], *others, weight, [0, 2], torch.randn(2, x.shape[-1], 2))
    torch.library.opcheck(torch.ops.burstmamba.scan_cpu.default, narrow)


@pytest.mark.parametrize("mode", [torch.enable_grad, torch.no_grad, torch.inference_mode])
def test_compiles(mode):
    """As one graph, forward and gradients."""
    scan = Scan(6, 8, d=20, n=8, paths=BURST)
    inputs, weight = make_inputs(scan)
    torch.compiler.reset()
    compiled = torch.compile(selective_scan, fullgraph=True, backend="aot_eager")
    leaves = [tensor.detach().requires_grad_() for tensor in inputs]
    with mode():
        y = compiled(*leaves, paths=BURST)
        assert torch.equal(y, selective_scan(*inputs, paths=BURST, backend="cpp"))
    if mode is torch.enable_grad:
        upstream = torch.sin(torch.arange(y.numel()).view(y.shape)).to(y.dtype)
        expected = results(inputs, weight, scan, "cpp")[1:]
        assert all(torch.equal(*pair) for pair in zip(torch.autograd.grad(y, leaves, upstream), expected, strict=True))


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("c++") is None, reason="the compiler of PyTorch needs one for C++")
def test_compiles_to_machine_code():
    """By PyTorch's own compiler, which fuses what is around the scan."""
    scan = Scan(6, 8, d=20, n=8, paths=BURST)
    inputs, _ = make_inputs(scan)
    torch.compiler.reset()
    compiled = torch.compile(lambda *tensors: torch.sin(selective_scan(*tensors, paths=BURST)) + 1, fullgraph=True)
    leaves = [tensor.detach().requires_grad_() for tensor in inputs]
    y = compiled(*leaves)
    expected = torch.sin(selective_scan(*leaves, paths=BURST)) + 1
    torch.testing.assert_close(y, expected)
    for pair in zip(*(torch.autograd.grad(output.sum(), leaves) for output in (y, expected)), strict=True):
        torch.testing.assert_close(*pair)


def test_compiles_once_for_all_sizes():
    graphs = []

    def count(graph, _):
        graphs.append(graph)
        return graph

    torch.compiler.reset()
    compiled = torch.compile(selective_scan, fullgraph=True, dynamic=True, backend=count)
    for rows in (6, 9, 11):
        inputs, _ = make_inputs(Scan(rows, 8, d=20, n=8, paths=BURST))
        assert torch.equal(compiled(*inputs, paths=BURST), selective_scan(*inputs, paths=BURST))
    assert len(graphs) == 1


def test_autocast_keeps_float32():
    inputs, _ = make_inputs(SMALL[6])
    plain = selective_scan(*inputs, paths=SMALL[6].paths)
    with torch.autocast("cpu", torch.bfloat16):
        assert torch.equal(selective_scan(*inputs, paths=SMALL[6].paths), plain)


@pytest.mark.parametrize("mode", [torch.enable_grad, torch.no_grad, torch.inference_mode])
def test_flops(mode):
    inputs, _ = make_inputs(Scan(6, 4, d=5, n=4, paths=BURST))
    with mode(), torch.utils.flop_counter.FlopCounterMode(display=False) as counter:
        selective_scan(*inputs, paths=BURST, backend="cpp")
    assert counter.get_total_flops() == 2 * 24 * 5 * (9 * 4 + 1)


def test_flops_of_the_gradients():
    scan = Scan(6, 4, d=5, n=4, paths=BURST)
    inputs, _ = make_inputs(scan)
    with torch.utils.flop_counter.FlopCounterMode(display=False) as counter:
        results(inputs, None, scan, "cpp")
    assert counter.get_total_flops() == 3 * 2 * 24 * 5 * (9 * 4 + 1)


def test_selection_prefers_it_on_the_cpu():
    assert select_backend(torch.zeros(1)).name == "cpp"
    assert select_backend(torch.zeros(1, dtype=torch.float64)).name == "reference"


def test_errors(library_folder):
    with pytest.raises(InputError, match="scan backend 'cpp' cannot run here: it takes float32, .* not float64"):
        select_backend(torch.zeros(1, dtype=torch.float64), "cpp")
    with pytest.raises(InputError, match="installed without a C\\+\\+ compiler"):
        select_backend(torch.zeros(1), "cpp")
    assert select_backend(torch.zeros(1)).name == "reference"
    (library_folder / "_kernels_cpu.so").write_bytes(b"of another machine")
    with pytest.raises(InputError, match="is of another version of the package or of another machine"):
        select_backend(torch.zeros(1), "cpp")


def test_processes_do_not_collide():
    """Two processes load and run the library at the same time and find the same numbers."""
    code = (
        "import torch, sys; from burstmamba.kernels.selective_scan import selective_scan; torch.manual_seed(0); "
        "g = torch.randn; y = selective_scan(g(1,1,8,8,20), g(1,1,1,8,8,20), -torch.rand(1,20,8), g(1,1,1,8,8,8), "
        "g(1,1,1,8,8,8), g(1,20), g(1,20), paths=('rows',), backend='cpp'); print(y.double().sum().item())"
    )
    runs = [subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) for _ in range(2)]
    first, second = (run.communicate()[0] for run in runs)
    assert first == second and float(first) != 0
