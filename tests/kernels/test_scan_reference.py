import math

import pytest
import torch

from burstmamba import InputError
from burstmamba.kernels.selective_scan import BACKENDS, PATHS, select_backend, selective_scan
from burstmamba.kernels.selective_scan.reference import deserialise, serialise


def random_inputs(b=1, p=2, i=3, j=2, d=3, n=2, paths=PATHS, dtype=torch.float64):
    torch.manual_seed(0)
    k = len(paths)
    return {
        "x": torch.randn(b, p, i, j, d, dtype=dtype),
        "delta": torch.randn(b, p, k, i, j, d, dtype=dtype),
        "A": -torch.rand(k, d, n, dtype=dtype) - 0.1,
        "B": torch.randn(b, p, k, i, j, n, dtype=dtype),
        "C": torch.randn(b, p, k, i, j, n, dtype=dtype),
        "D": torch.randn(k, d, dtype=dtype),
        "delta_bias": torch.randn(k, d, dtype=dtype),
    }


@pytest.mark.parametrize("path", PATHS)
def test_serialising_back_and_forth_is_the_identity(path):
    grid = torch.arange(2 * 3 * 4 * 5 * 2.0).view(2, 3, 4, 5, 2)
    assert torch.equal(deserialise(serialise(grid, path), path, 4, 5), grid)


def test_values_order_of_the_paths():
    grid = torch.tensor([[0.0, 1.0, 2.0], [3.0, 4.0, 5.0]]).view(1, 1, 2, 3, 1)
    order = {path: serialise(grid, path).flatten().int().tolist() for path in PATHS}
    assert order == {
        "rows": [0, 1, 2, 3, 4, 5],
        "columns": [0, 3, 1, 4, 2, 5],
        "rows reversed": [5, 4, 3, 2, 1, 0],
        "columns reversed": [5, 2, 4, 1, 3, 0],
    }


def test_values_by_hand():
    """One channel, one state, Δ = ln 2 after softplus(0): state ← 2^−1·state + ln 2·B·x."""
    x = torch.tensor([1.0, 2.0, 0.0]).view(1, 1, 3, 1, 1)
    one, zero = torch.ones(1, 1), torch.zeros(1, 1)
    ones = torch.ones(1, 1, 1, 3, 1, 1)
    y = selective_scan(x, 0 * ones, -one[None], ones, 3 * ones, 10 * one, zero, paths=("rows",))
    step = math.log(2)
    states = [step, step / 2 + 2 * step, step / 4 + step]
    expected = [3 * s + 10 * value for s, value in zip(states, (1, 2, 0), strict=True)]
    assert y.flatten().tolist() == pytest.approx(expected, rel=1e-6)


def test_paths_add_up():
    inputs = random_inputs()
    total = selective_scan(**inputs, paths=PATHS)
    alone = 0
    for k, path in enumerate(PATHS):
        one = {name: inputs[name][:, :, k : k + 1] for name in ("delta", "B", "C")}
        one |= {name: inputs[name][k : k + 1] for name in ("A", "D", "delta_bias")}
        alone = alone + selective_scan(inputs["x"], paths=(path,), **one)
    assert torch.allclose(total, alone)


def test_weight_zero_leaves_the_state_untouched():
    inputs = random_inputs(p=1, i=5, j=1, paths=("rows",))
    weight = torch.ones(1, 1, 5, 1, dtype=torch.float64)
    weight[:, :, 2] = 0
    y = selective_scan(**inputs, paths=("rows",), weight=weight, backend="reference")
    keep = [0, 1, 3, 4]
    kept = {n: t[:, :, keep] if n == "x" else t[:, :, :, keep] if t.ndim == 6 else t for n, t in inputs.items()}
    assert torch.allclose(y[:, :, keep], selective_scan(**kept, paths=("rows",), backend="reference"))


def test_gradients():
    inputs = random_inputs(p=1, i=2, j=2, d=2)
    names = list(inputs)
    tensors = tuple(tensor.requires_grad_() for tensor in inputs.values())

    def scan(*values):
        return selective_scan(**dict(zip(names, values, strict=True)), paths=PATHS, backend="reference")

    assert torch.autograd.gradcheck(scan, tensors)


def test_state_is_float32_for_half_inputs():
    inputs = {name: tensor.float() for name, tensor in random_inputs(i=64, j=1).items()}
    half = {name: tensor.bfloat16() for name, tensor in inputs.items()}
    exact = selective_scan(**{name: tensor.float() for name, tensor in half.items()}, paths=PATHS, backend="reference")
    y = selective_scan(**half, paths=PATHS, backend="reference")
    assert y.dtype == torch.bfloat16
    assert torch.equal(y, exact.bfloat16())


def test_selection_and_errors():
    inputs = random_inputs()
    assert BACKENDS[-1].name == "reference" and BACKENDS[-1].unavailable(inputs["x"]) is None
    assert select_backend(inputs["x"], "reference").name == "reference"
    with pytest.raises(InputError, match="unknown scan backend 'cuda'; known: .*reference"):
        selective_scan(**inputs, paths=PATHS, backend="cuda")
    with pytest.raises(InputError, match=r"scan argument B must be \(1, 2, 4, 3, 2, 2\)"):
        selective_scan(**{**inputs, "B": inputs["B"][..., :1]}, paths=PATHS)
    narrow = {**inputs, "delta": inputs["delta"][..., :1]}
    with pytest.raises(InputError, match=r"scan argument delta_weight must be \(4, 3, 1\)"):
        selective_scan(**narrow, delta_weight=torch.zeros(4, 2, 1), paths=PATHS)
    with pytest.raises(InputError, match="paths must be one to 8 of rows"):
        selective_scan(**inputs, paths=("diagonal",) * 4)
    with pytest.raises(InputError, match="paths must be one to 8 of rows"):
        selective_scan(**inputs, paths=("rows",) * 9)
    with pytest.raises(InputError, match=r"tokens must be \(b, p, i, j, d\)"):
        selective_scan(**{**inputs, "x": inputs["x"][0]}, paths=PATHS)
