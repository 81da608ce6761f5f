"""docs/results.md says what the committed files say."""

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from burstmamba.errors import InputError
from burstmamba.evaluation.ablation import ablation_table
from burstmamba.evaluation.ablation_report import RowResult, TableResult, save_results
from burstmamba.evaluation.results import results_page
from burstmamba.evaluation.scores import Score, ScoreBook

ROOT = Path(__file__).resolve().parents[2]
HEADER = {
    "benchmark": "openburst", "weights": "light.safetensors", "weights_sha256": "abcd", "weights_steps": "9000",
    "commit": "1234567890", "hardware": "H200", "date": "2026-01-01 00:00 UTC",
}  # fmt: skip


def scores(path):
    book = ScoreBook(dict(HEADER))
    for image in range(3):
        for length, gain in ((1, 0.0), (14, 0.75)):
            value = 30.0 + image + gain
            book.add(Score("still", str(image), f"L={length}", "openburst", value, 0.9, 0.1, 0.02, length))
    book.save(path)


def test_page(tmp_path):
    scores(tmp_path / "light.json")
    charts = [{"method": "L=14", "mtf50": 0.21, "star_limit": 0.3}]
    (tmp_path / "charts.json").write_text(json.dumps({"header": HEADER, "charts": charts}))
    row = RowResult("single", {"a": 30.0, "b": 31.0}, {"a": 0.9, "b": 0.9}, "8000", "12.5", "c0ffee", "H200", "monday")
    later = replace(row, label="burst + GAS", date="tuesday")
    rows = {"single": row, "burst + GAS": later}
    save_results(tmp_path / "components.json", [TableResult("components", "still", 0, rows)])
    (tmp_path / "scan.json").write_text('[{"another": "benchmark"}]')
    page = results_page(tmp_path)
    assert "| still | openburst | L=14 | 3 | 31.75 [30.75, 32.75] | 0.9000 | 0.1000 | 0.020 | 14.0 |" in page
    assert "| still | L=14 − L=1 | +0.750 [+0.750, +0.750] |" in page
    assert "commit 1234567890; H200; 2026-01-01 00:00 UTC; weights sha256 abcd…; trained: steps 9000" in page
    assert "| L=14 | 0.210 | 0.300 |" in page
    assert ablation_table("components").title in page
    assert "| single | 31.668 / 0.900 | 30.50 [30.00, 31.00] | 0.9000 | 2 | 8000 | 12.5 |" in page
    assert "commit c0ffee; H200; monday to tuesday; `components.json`." in page
    assert "cannot be compared with" in page


def test_empty_and_missing(tmp_path):
    assert "No results are committed yet." in results_page(tmp_path)
    with pytest.raises(InputError, match="is not a folder of result files"):
        results_page(tmp_path / "missing")
    (tmp_path / "broken.json").write_text("{")
    with pytest.raises(InputError, match=r"broken\.json is not JSON \(.*\); mend or remove it"):
        results_page(tmp_path)


def test_command(tmp_path):
    scores(tmp_path / "light.json")
    command = [sys.executable, "-m", "burstmamba.evaluation.results", tmp_path, "-o", tmp_path / "results.md"]
    subprocess.run(list(map(str, command)), check=True)
    assert (tmp_path / "results.md").read_text() == results_page(tmp_path)


def test_committed_page_is_current():
    """The page in docs/ is what the committed result files give."""
    folder, page = ROOT / "benchmarks" / "results", ROOT / "docs" / "results.md"
    assert page.read_text() == results_page(folder)
