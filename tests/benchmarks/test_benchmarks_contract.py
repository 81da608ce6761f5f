"""What every benchmark promises: help, a table, JSON with commit and spread, and no speed of a kernel that is off."""

import importlib
import json
import sys
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

import pytest
import torch

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "benchmarks"))

import checking  # noqa: E402 (found by the path above)
import scan_agreement  # noqa: E402 (found by the path above)

import burstmamba.kernels.selective_scan as kernels  # noqa: E402 (after the path above)
from burstmamba.kernels.cpu.library import library  # noqa: E402 (after the path above)
from burstmamba.model.config import preset  # noqa: E402 (after the path above)

NAMES = sorted(path.stem for path in (ROOT / "benchmarks").glob("bench_*.py"))
NETWORK = ("bench_scan", "bench_cpu_block", "bench_train_step", "bench_restore", "bench_growth", "bench_evaluation")
built = pytest.mark.skipif(library() is None, reason="the package was built without a C++ compiler")


@pytest.fixture
def command(tmp_path, monkeypatch):
    """Runs a benchmark's `main` with arguments; its results land in the folder `command.folder`."""
    monkeypatch.setenv("BENCH_RESULTS", str(tmp_path))

    def run(name, *arguments):
        monkeypatch.setattr(sys, "argv", [f"{name}.py", *arguments])
        importlib.import_module(name).main()

    run.folder = tmp_path
    return run


@pytest.mark.parametrize("name", NAMES)
def test_help_measures_nothing(name, command, capsys):
    with pytest.raises(SystemExit) as stop:
        command(name, "--help")
    assert stop.value.code == 0 and capsys.readouterr().out.startswith(f"usage: {name}.py")
    assert not list(command.folder.iterdir())


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU to time it on")
def test_a_training_step_needs_a_gpu(command, capsys):
    with pytest.raises(SystemExit) as stop:
        command("bench_train_step")
    assert stop.value.code == 2 and "are timed on a CUDA GPU, and there is none" in capsys.readouterr().err


@pytest.mark.parametrize("name", NETWORK)
def test_nothing_is_timed_before_the_kernels_are_checked(name, command, monkeypatch):
    """A check that fails ends the run, and nothing is written."""

    def refuse(device, meanwhile=()):
        raise SystemExit("off")

    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(importlib.import_module(name), "check_all", refuse)
    device = () if name in ("bench_train_step", "bench_cpu_block") else ("--device", "cpu")
    with pytest.raises(SystemExit, match="off"):
        command(name, *device)
    assert not list(command.folder.iterdir())


@built
@pytest.mark.parametrize("operator", checking.CASES)
def test_kernels_pass_their_check(operator):
    indices = checking.served(operator, "cpp")
    found = [checking.check(operator, "cpp", "cpu", index) for index in indices[:3]]
    assert len(indices) >= 3 and all(0 <= share <= 1 for _, share in found)
    checking.judge(f"{operator}, cpp", found)


@built
@pytest.mark.parametrize("spoil", [lambda y: y * 1.0001, lambda y: y * torch.nan], ids=["off", "NaN"])
def test_a_kernel_that_is_off_is_not_timed(spoil, monkeypatch):
    """By the tests' own tolerance: a ten-thousandth is too much for float32."""
    spoilt = [
        replace(backend, run=lambda *args, run=backend.run: spoil(run(*args))) if backend.name == "cpp" else backend
        for backend in kernels.BACKENDS
    ]
    monkeypatch.setattr(kernels, "BACKENDS", tuple(spoilt))
    what, share = checking.check("scan", "cpp", "cpu", 0)
    assert share > 1 and str(scan_agreement.SMALL[0]) in what
    with pytest.raises(SystemExit, match=r"scan, cpp: .* is off by \S+ times the tolerance; not timed\."):
        checking.judge("scan, cpp", [("y of something", 0.5), (what, share)])


@built
@pytest.mark.slow
def test_scan_on_a_cpu(command, monkeypatch, capsys):
    """Both regimes with bytes, operations, ceilings and ratios; then the scan's share of a block, loop and threads."""
    import bench_scan

    monkeypatch.setattr(bench_scan, "check_all", lambda device, meanwhile: None)
    monkeypatch.setattr(bench_scan.time_case, "__defaults__", (kernels.selective_scan, bench_scan.timed_briefly))
    command("bench_scan", "--device", "cpu")
    printed = capsys.readouterr().out
    content = json.loads((command.folder / "scan_cpu.json").read_text())
    assert content["provenance"]["commit"] and content["provenance"]["device"] and content["provenance"]["torch"]
    ceilings, long, short = content["rows"]
    assert ceilings["copy_bytes_per_s"] > 0 and ceilings["matrix_flops_per_s"] > 0
    assert long["case"] == "paper tile, 48×48" and "14 frames" in short["case"]
    for row in (long, short):
        assert row["forward"].keys() >= {"median_ms", "q1_ms", "q3_ms"} and row["case"] in printed
        floor = 1000 * (row["bytes_forward"] + row["bytes_backward"]) / ceilings["copy_bytes_per_s"]
        assert row["floor_over_time"] == pytest.approx(floor / row["forward_backward"]["median_ms"], abs=1e-3)
        assert row["operations_over_matrix_rate"] > 0
    block = json.loads((command.folder / "scan_cpu_block.json").read_text())["rows"]
    ratios = {row["what"]: row["ratio"] for row in block if "ratio" in row}
    assert ratios["reference loop / scan"] > 1 and ratios["scan / rest of the block"] > 0
    assert "scan / rest of the block" in printed and "to reach: at most 0.5" in printed


@pytest.mark.skipif(find_spec("triton") is None, reason="Triton is not installed")
def test_the_peer_that_is_never_cut(monkeypatch):
    """No path, however long, is cut into chunks; ours is."""
    import bench_scan

    from burstmamba.kernels.selective_scan import triton_launch

    monkeypatch.setattr(triton_launch, "multiprocessors", lambda device: 132)
    monkeypatch.setattr(triton_launch, "TUNING", triton_launch.TUNING)
    tile = next(case for case in bench_scan.CASES if case.tokens >= triton_launch.LONG)
    like = torch.empty(1, 1, tile.i, tile.j, tile.d, device="meta")
    problem = triton_launch.Problem(like, *(like,) * 6, None, (0, 1, 2, 3))
    chunks = {}
    for name in ("default", "never cut"):
        bench_scan.tune(name)
        programs = [value for field, value in vars(triton_launch.TUNING).items() if field.endswith("programs")]
        assert len(programs) == 3
        chunks[name] = {triton_launch.cut_into_chunks(problem, 3, 10_000, count)[0] for count in programs}
    assert chunks["never cut"] == {1} and min(chunks["default"]) > 1


def test_operations_of_a_training_step():
    """README: `paper` at 48×48 takes 63.24 G, a multiply-add counted once; here twice, and all of it thrice."""
    from bench_train_step import Case

    scan = 36 * 4 * 48 * 48 * 2 * preset("paper").channels * (9 * 16 + 1)
    expected = 3 * 20 * (2 * (63.24e9 - scan) + scan)
    assert Case("paper", "paper", 20, 48, 1).operations == pytest.approx(expected, rel=1e-3)
