"""The speed tables say what the committed result files say; a peer's time is bounded."""

import json
import sys
import time
from pathlib import Path

import pytest
import torch

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "benchmarks"))

import measuring  # noqa: E402 (found by the path above)
import table  # noqa: E402 (found by the path above)

H200 = {"commit": "abc1234", "device": "NVIDIA H200", "torch": "2.11"}


def write(folder, name, **content):
    (folder / f"{name}.json").write_text(json.dumps({"provenance": H200, **content}))


def ms(value):
    return {"median_ms": value, "q1_ms": value, "q3_ms": value}


@pytest.mark.parametrize("page", table.PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_committed_tables_are_current(page):
    assert table.block(table.PAGES[page]) in page.read_text(), "run python benchmarks/table.py --write"


def test_readme_table_is_short():
    assert len([row for row in table.ROWS if row.short]) <= 10


def test_values(tmp_path):
    case = "paper training, 20×40×40"
    rows = [
        {"copy_bytes_per_s": 1e12},
        {"case": case, "backend": "triton", "tuning": "default", "forward": ms(0.5), "forward_backward": ms(2.0)},
        {"case": case, "backend": "triton", "tuning": "workers 16", "forward": ms(9.0), "forward_backward": ms(9.0)},
        {"case": case, "backend": "triton, never cut", "forward": ms(1.0), "forward_backward": ms(5.0)},
        {"case": case, "backend": "reference", "forward": ms(900.0)},
        {"case": case, "backend": "reference, compiled", "forward": ms(1.5)},
    ]
    write(tmp_path, "scan_cuda", rows=rows)
    steps = {"case": "light complete", "launched": ms(183.3), "captured": ms(36.66), "memory_gib": 8.57}
    write(tmp_path, "train_step_light_complete", rows=[steps])
    text = table.table(tmp_path, short=True)
    peers = "2.5 × the loop as a kernel, 3.0 × the loop compiled, in the forward"
    assert f"`paper`, {case[-8:]} | 2.00 ms | 2.2 ms | {peers} |" in text
    assert "14 frames | 36.7 ms, 9 GiB | 30 ms | 5.0 × the same step in eager PyTorch |" in text
    assert text.count("\n|") == 3, "rows that are not in the files are left out"
    assert text.endswith(
        "- NVIDIA H200, torch 2.11, commit abc1234: `scan_cuda.json`, `train_step_light_complete.json`\n"
    )


def test_every_row_reads_its_file(tmp_path):
    window = {"side": 48, "length": 14, "window": ms(16.1)}
    straight = {"straight_in_length": 0.959, "straight_in_area": 0.9999}
    write(tmp_path, "train_step", rows=[window, straight])
    seconds = {"load": 0.5, "network": 6.5, "save": 1.0}
    write(
        tmp_path,
        "restore_paper_cuda",
        entries=[
            {"megapixels": 1.0, "frames": 14, "seconds": seconds, "total_s": sum(seconds.values()), "peak_gpu_mb": 8192}
        ],
    )
    scored = {"preset": "light", "size": 48, "bursts_per_second": 155.9, "metrics_share": 0.038}
    write(tmp_path, "evaluation", rows=[scored])
    made = [{"preset": "handheld-rgb", "cuda_graph": graph, **ms(time)} for graph, time in ((True, 2.5), (False, 10.0))]
    write(tmp_path, "synthesis_cuda", rows=made)
    ratios = {"scan / rest of the block": 0.46, "one thread / 2 threads": 1.74, "reference loop / scan": 20.04}
    write(tmp_path, "scan_cpu_block", rows=[{"what": what, "ratio": value} for what, value in ratios.items()])
    text = table.table(tmp_path, short=False)
    assert "| 16.1 ms | 12 ms |  |" in text and "| R² 0.959 and 0.9999 |" in text
    assert "| 6.5 s, 8 GiB; 8.0 s from files to picture |" in text
    assert "| 156 a second, metrics 4 % |" in text and "| 2.50 ms | 4 ms | 4.0 × launched |" in text
    assert "| 0.46 × | 0.5 ×, 7 × the loop, 1.7 × one thread | 20.0 × the loop in PyTorch, 1.7 × one thread |" in text


def test_without_results(tmp_path):
    assert table.table(tmp_path, short=True) == ""


def test_write_replaces_what_is_between_the_marks(tmp_path, monkeypatch):
    page = tmp_path / "README.md"
    page.write_text(f"before\n{table.MARKS[0]}old\n{table.MARKS[1]}after\n")
    monkeypatch.setattr(table, "PAGES", {page: True})
    monkeypatch.setattr(sys, "argv", ["table.py", "--write"])
    table.main()
    assert page.read_text() == f"before\n{table.block(True)}after\n"


def test_quartiles_of_few_times():
    assert measuring.summary([3.0]) == {"median_ms": 3.0, "q1_ms": 3.0, "q3_ms": 3.0}
    assert measuring.summary([1.0, 9.0]) == {"median_ms": 5.0, "q1_ms": 3.0, "q3_ms": 7.0}


def test_a_slow_peer_is_timed_by_one_call(monkeypatch):
    calls = []
    run = lambda: (calls.append(1), time.sleep(0.02))  # noqa: E731 (a call for each time)
    assert measuring.timed_briefly(run, torch.device("cpu"))["calls"] == 3 and len(calls) == 4
    monkeypatch.setattr(measuring, "PATIENCE_S", 0.01)
    once = measuring.timed_briefly(run, torch.device("cpu"))
    assert once["calls"] == 1 and once["median_ms"] >= 20 and len(calls) == 5


def test_results_are_written_row_by_row(tmp_path, monkeypatch):
    monkeypatch.setenv("BENCH_RESULTS", str(tmp_path))
    for rows in ([{"a": 1}], [{"a": 1}, {"b": 2}]):
        path = measuring.write_results("some", torch.device("cpu"), rows)
        content = json.loads(path.read_text())
        assert content["rows"] == rows and content["provenance"].keys() >= {"commit", "device", "load_before", "torch"}
    assert [path.name for path in tmp_path.iterdir()] == ["some.json"]
