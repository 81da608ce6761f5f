"""`burstmamba evaluate` as a user runs it."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from burstmamba import hub
from burstmamba.checkpoint import save_checkpoint
from burstmamba.cli.evaluate import evaluate
from burstmamba.errors import InputError
from burstmamba.evaluation import charts
from burstmamba.evaluation.folder_lock import folder_lock
from burstmamba.evaluation.reconstruct import Method
from burstmamba.model.burstmamba import BurstMamba
from burstmamba.model.config import preset


def burstmamba(*arguments):
    command = [sys.executable, "-m", "burstmamba", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=300)


def test_evaluate(photographs, weights, tmp_path):
    done = burstmamba(
        "evaluate", weights, photographs, "-o", tmp_path, "--subset", "still,noisy", "--burst-length", "1,3",
        "--correspondence", "exact,identity", "--treatment", "none,copies", "--baselines", "bicubic", "--no-lpips",
        "--device", "cpu", "--images", tmp_path / "pictures",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    stored = json.loads((tmp_path / "scores.json").read_text())
    methods = {row["method"] for row in stored["scores"]}
    assert methods == {"bicubic", "L=1", "L=3 exact", "L=3 identity", "L=3 copies"}
    assert len(stored["scores"]) == 5 * 2 * 2
    header = stored["header"]
    assert header["benchmark"] == "openburst-like" and header["weights_steps"] == "0"
    assert {"commit", "hardware", "date", "weights_sha256"} <= set(header)
    assert "bicubic" in done.stdout
    assert len(list((tmp_path / "pictures").rglob("*.png"))) == 20

    # The kept pictures score the same when they are read back as another method's outputs.
    outputs = tmp_path / "pictures" / "L=3-exact"
    again = burstmamba(
        "evaluate", "none", photographs, "-o", tmp_path / "again", "--subset", "still,noisy", "--baselines", "none",
        "--outputs", outputs, "--no-lpips", "--device", "cpu",
    )  # fmt: skip
    assert again.returncode == 0, again.stderr
    scores = json.loads((tmp_path / "again" / "scores.json").read_text())["scores"]
    first = {(r["subset"], r["image"]): r["psnr"] for r in stored["scores"] if r["method"] == "L=3 exact"}
    assert {(r["subset"], r["image"]): r["psnr"] for r in scores} == pytest.approx(first, abs=1e-4)

    # One picture missing: the rest is scored, the missing one named, the exit code says so.
    (outputs / "still" / "0002.png").unlink()
    partial = burstmamba(
        "evaluate", "none", photographs, "-o", tmp_path / "partial", "--subset", "still", "--baselines", "none",
        "--outputs", outputs, "--no-lpips", "--device", "cpu",
    )  # fmt: skip
    assert partial.returncode == 1
    assert "not scored: L=3-exact: still/0002: no picture" in partial.stderr
    assert len(json.loads((tmp_path / "partial" / "scores.json").read_text())["scores"]) == 1


@pytest.mark.parametrize(
    ("dataset", "options", "message"),
    [
        (None, {"baselines": "none"}, "nothing to score: give weights, --baselines or --outputs"),
        (None, {"baselines": "lanczos"}, "--baselines knows bicubic, nearest and classical, got 'lanczos'"),
        (None, {"burst_length": "many"}, "--burst-length expects numbers such as 1,2,5,10,14, got 'many'"),
        (None, {"subset": "dark"}, "no subset 'dark'; it has still, noisy, moving, badframe"),
        (None, {"treatment": "blur", "burst_length": "2"}, "unknown treatment 'blur'"),
        (None, {"outputs": [Path("nowhere")]}, "--outputs expects a folder of pictures, nowhere is none"),
        ("missing-folder", {}, "missing-folder is not a folder"),
    ],
)
def test_mistakes(photographs, weights, tmp_path, dataset, options, message):
    name = str(weights) if "treatment" in options else "none"
    with pytest.raises(InputError, match=message):
        evaluate(name, dataset or str(photographs), out=tmp_path, lpips=False, device="cpu", **options)


def test_mistakes_are_said_before_anything_is_scored(photographs, weights, tmp_path):
    with pytest.raises(InputError, match="unknown protocol 'psnr'; the known ones are synburst-linear"):
        evaluate(str(weights), str(photographs), out=tmp_path, lpips=False, device="cpu", protocol="psnr")
    with pytest.raises(InputError, match="device must be auto, cpu, cuda or cuda:N, got 'gpu'"):
        evaluate(str(weights), str(photographs), out=tmp_path, lpips=False, device="gpu")
    with pytest.raises(InputError, match="charts are rendered here, so --outputs has no pictures of them"):
        evaluate("none", "charts", out=tmp_path, device="cpu", outputs=[photographs])
    with pytest.raises(InputError, match="charts are taken as RGB bursts, and this network takes mosaics"):
        evaluate("light-raw", "charts", out=tmp_path, device="cpu")
    with pytest.raises(InputError, match="takes RGB frames and the subset raw holds RAW mosaics; leave it out"):
        evaluate(str(weights), str(photographs), out=tmp_path, lpips=False, device="cpu", subset="still,raw")
    assert not list(tmp_path.iterdir())


def test_places_that_cannot_be_written_to(photographs, tmp_path):
    """One sentence, before anything is scored."""
    (tmp_path / "file").write_text("")
    for options in (
        {"out": tmp_path / "file"},
        {"out": tmp_path / "out", "images": tmp_path / "file"},
        {"out": tmp_path / "out", "images": tmp_path / "file/pictures"},
    ):
        with pytest.raises(InputError, match="cannot write to .*file.*: (it is a file|Not a directory); choose"):
            evaluate("none", str(photographs), lpips=False, device="cpu", **options)
    with pytest.raises(InputError, match="file: it is a file; choose another folder"):
        evaluate("none", "charts", out=tmp_path / "file", device="cpu")
    (tmp_path / "taken").mkdir()
    (tmp_path / "taken/bicubic").write_text("")
    with pytest.raises(InputError, match="taken/bicubic/still: Not a directory; choose another folder"):
        options = {"lpips": False, "device": "cpu", "subset": "still", "limit": 1}
        evaluate("none", str(photographs), out=tmp_path / "out", images=tmp_path / "taken", **options)


def test_a_folder_that_cannot_be_locked(tmp_path):
    (tmp_path / ".lock").mkdir()
    with (
        pytest.raises(InputError, match=r"cannot write to .*: Is a directory; choose another folder"),
        folder_lock(tmp_path, wait=False),
    ):
        pass


def test_a_single_image_network_is_scored_once(photographs, tmp_path, capsys):
    """It sees one frame whatever is asked for, and that is said."""
    save_checkpoint(tmp_path / "single.safetensors", BurstMamba(preset("tiny").single()), notes={"steps": "0"})
    evaluate(
        str(tmp_path / "single.safetensors"), str(photographs), out=tmp_path, lpips=False, device="cpu", subset="still"
    )
    assert "only L=1 is scored, further frames would change nothing" in capsys.readouterr().err
    scores = json.loads((tmp_path / "scores.json").read_text())["scores"]
    assert {row["method"] for row in scores} == {"bicubic", "L=1"}


def test_weights_of_a_repository(photographs, weights, tmp_path, monkeypatch):
    """They are scored like a file, with its hash beside the scores."""
    monkeypatch.setattr(hub, "download", {"someone/tiny": weights}.__getitem__)
    evaluate(
        "someone/tiny", str(photographs), out=tmp_path, burst_length="1", lpips=False, device="cpu", subset="still"
    )
    header = json.loads((tmp_path / "scores.json").read_text())["header"]
    assert header["weights"] == weights.name and len(header["weights_sha256"]) == 16


def test_one_process_scores_in_a_folder(photographs, tmp_path):
    with folder_lock(tmp_path, wait=False):
        held = burstmamba("evaluate", "none", photographs, "-o", tmp_path, "--subset", "still", "--no-lpips")
    assert held.returncode == 2 and f"another process is scoring in {tmp_path}" in held.stderr


def test_rows_need_names_of_their_own(photographs, tmp_path):
    for name in ("a/peer", "b/peer", "bicubic"):
        (tmp_path / name).mkdir(parents=True)
    for outputs in ([tmp_path / "a/peer", tmp_path / "b/peer"], [tmp_path / "bicubic"]):
        with pytest.raises(InputError, match=f"two rows would be called '{outputs[0].name}'; rename the folder"):
            evaluate("none", str(photographs), out=tmp_path / "out", lpips=False, device="cpu", outputs=outputs)


def test_mistake_is_one_line(tmp_path):
    done = burstmamba("evaluate", "none", "missing-folder", "-o", tmp_path)
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1 and "missing-folder is not a folder" in done.stderr


def test_charts(tmp_path):
    """Interpolation resolves less than a solver with all frames, and that less than the chart itself."""
    methods = [Method("bicubic"), Method("classical", 5, "exact")]
    results = charts.measure_charts(methods, cache=tmp_path, seeds=(1,), size=192)
    limits = {result.method: result.star_limit for result in results}
    ideal = charts.ideal_charts(192)
    assert limits["bicubic"] < limits["classical L=5 exact"] < ideal.star_limit
    assert 0 < results[0].mtf50 < results[1].mtf50 <= ideal.mtf50
