"""Run in a process of its own with TRITON_INTERPRET=1: compares the Triton kernels on the CPU and prints JSON."""

from __future__ import annotations

import json
from dataclasses import replace

import torch
from agreement import relative_error
from normalization_agreement import TOKENS, errors_under_autocast
from normalization_agreement import errors as normalization_errors
from sampling_agreement import SAMPLINGS
from sampling_agreement import errors as sampling_errors
from scan_agreement import TINY, Scan, errors, make_inputs, results

from burstmamba.kernels.selective_scan import select_backend, selective_scan, triton_launch


def tuned(**changes: int) -> None:
    triton_launch.TUNING = replace(triton_launch.Tuning(), **changes)


def main() -> None:
    torch.set_num_threads(1)
    found = {"scan": {}, "sampling": {}}
    assert select_backend(torch.zeros(1)).name == "triton"
    for scan in TINY:
        # Forward in blocks of all groups of channels, backward group by group (short paths: two groups together), four
        # tokens to a segment, so that few tokens make several chunks.
        blocks = {"elements": 96 * scan.n, "backward_elements": 32 * scan.n, "short_backward_elements": 64 * scan.n}
        tuned(**blocks, registers=4 * scan.n, short_registers=8 * scan.n)
        found["scan"][str(scan)] = errors(scan, "triton")
    tuned()
    found["scan"]["default tuning"] = errors(TINY[2], "triton")
    triton_launch.LONG = 1  # forward alone, as over a long path
    inputs, weight = make_inputs(TINY[4])
    exact = (tensor.double() for tensor in inputs)
    truth = selective_scan(*exact, paths=TINY[4].paths, weight=weight, backend="reference")
    found["scan"]["long"] = {"y": relative_error(selective_scan(*inputs, paths=TINY[4].paths, weight=weight), truth)}
    torch.use_deterministic_algorithms(True)  # fresh memory is NaN
    assert torch.empty(1).isnan().all()
    found["scan"]["fresh memory"] = errors(TINY[4], "triton")
    torch.use_deterministic_algorithms(False)
    for sampling in SAMPLINGS:
        found["sampling"][str(sampling)] = sampling_errors(sampling, "triton")
    found["normalization"] = {str(tokens): normalization_errors(tokens) for tokens in TOKENS}
    found["autocast"] = errors_under_autocast()

    scan = Scan(2, 9, paths=("rows", "columns reversed"), weighted=True)
    inputs, weight = make_inputs(scan)
    leaves = [tensor.detach().requires_grad_() for tensor in inputs]
    torch.library.opcheck(torch.ops.burstmamba.scan_triton.default, (*leaves, weight, [0, 3], True))
    features = torch.randn(2, 3, 4, 5, requires_grad=True)
    torch.library.opcheck(torch.ops.burstmamba.sample_triton.default, (features, torch.randn(2, 2, 4, 5)))
    with torch.utils.flop_counter.FlopCounterMode(display=False) as counter:
        results(inputs, weight, scan, "triton")
    found["flops"] = counter.get_total_flops()
    first, second = (results(inputs, weight, scan, "triton") for _ in range(2))
    found["repeats"] = all(torch.equal(a, b) for a, b in zip(first, second, strict=True))
    print(json.dumps(found))


if __name__ == "__main__":
    main()
