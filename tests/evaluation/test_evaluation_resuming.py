"""A second run: what is there is kept, what is missing is made, what does not belong together is refused."""

import csv
import json
import math
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from functools import partial

import pytest
import torch
from test_evaluation_run import HEADER, benchmark, evaluation, sample

from burstmamba.errors import InputError
from burstmamba.evaluation import evaluate as evaluating
from burstmamba.evaluation.alignment_cache import AlignmentCache
from burstmamba.evaluation.benchmark import Benchmark, Item
from burstmamba.evaluation.evaluate import Evaluation, load_chunks
from burstmamba.evaluation.reconstruct import Method
from burstmamba.evaluation.scores import Score, ScoreBook
from burstmamba.model.burstmamba import BurstMamba
from burstmamba.model.config import preset


def test_files_and_resuming(tmp_path):
    methods = [Method("bicubic"), Method("nearest")]
    evaluation(tmp_path, methods).run(HEADER)
    rows = list(csv.DictReader((tmp_path / "scores.csv").open()))
    assert len(rows) == 6 and {row["method"] for row in rows} == {"bicubic", "nearest"}
    stored = json.loads((tmp_path / "scores.json").read_text())
    assert stored["header"] == HEADER and len(stored["scores"]) == 6

    loads = []
    counted = Benchmark(
        "charts",
        tuple(
            Item(i.subset, i.name, i.protocols, i.centres, lambda i=i: loads.append(i.name) or i.load())
            for i in benchmark().items
        ),
    )
    Evaluation(counted, methods, tmp_path, workers=1).run(HEADER)
    assert loads == ["00"]  # everything is known already; one ground truth is looked at
    loads.clear()
    model = BurstMamba(preset("tiny")).eval()
    book = Evaluation(counted, [*methods, Method("network", 1)], tmp_path, model=model, workers=1).run(HEADER)
    assert set(loads) == {"00", "01", "02"} and len(book.scores) == 9


def test_scores_of_other_weights_are_not_mixed(tmp_path):
    evaluation(tmp_path, [Method("bicubic")]).run(HEADER)
    with pytest.raises(InputError, match="holds scores with weights_sha256 0, not 1; choose another folder"):
        evaluation(tmp_path, [Method("bicubic")]).run({**HEADER, "weights_sha256": "1"})


def test_broken_file_of_scores(tmp_path):
    (tmp_path / "scores.json").write_text("{")
    with pytest.raises(InputError, match="is not a file of scores"):
        evaluation(tmp_path, [Method("bicubic")]).run(HEADER)


def test_scores_of_other_bursts_are_not_mixed(tmp_path):
    """Plain folders of bursts all number them from 0000."""
    evaluation(tmp_path, [Method("bicubic")]).run(HEADER)
    others = tuple(
        replace(item, load=lambda seed=seed: sample(seed + 9)) for seed, item in enumerate(benchmark().items)
    )
    for methods in ([Method("bicubic")], [Method("nearest")]):
        with pytest.raises(InputError, match=r"holds scores of another still/00 .*; choose another folder"):
            Evaluation(Benchmark("charts", others), methods, tmp_path, workers=1).run(HEADER)


def test_scores_of_other_frames_are_not_mixed(tmp_path):
    """Other noise and other sizes of one scene; what changes by rounding alone is the same burst."""
    methods, first = [Method("bicubic")], benchmark(1)
    Evaluation(first, methods, tmp_path, workers=1).run(HEADER)
    noise = 0.01 * torch.randn(sample(0).frames.shape, generator=torch.Generator().manual_seed(0))
    noisy = replace(sample(0), frames=(sample(0).frames + noise).clamp(0, 1))
    rounded = replace(sample(0), frames=(sample(0).frames * 65535).round() / 65535)
    for load in (lambda: noisy, lambda: replace(sample(0), frames=sample(0).frames[:, :3], correspondence=None)):
        others = Benchmark("charts", (replace(first.items[0], load=load),))
        with pytest.raises(InputError, match=r"another still/00 \(the same ground truth, other frames\); choose"):
            Evaluation(others, methods, tmp_path, workers=1).run(HEADER)
    same = Benchmark("charts", (replace(first.items[0], load=lambda: rounded),))
    assert len(Evaluation(same, [*methods, Method("nearest")], tmp_path, workers=1).run(HEADER).scores) == 2


def test_a_burst_that_is_another_now_is_not_added(tmp_path):
    """The first burst may be the same one; the others are looked at when they are read."""
    evaluation(tmp_path, [Method("bicubic")]).run(HEADER)
    first, second, third = benchmark().items
    changed = Benchmark("charts", (first, replace(second, load=lambda: sample(9)), third))
    with pytest.raises(InputError, match="holds scores of another still/01"):
        Evaluation(changed, [Method("bicubic"), Method("nearest")], tmp_path, workers=1).run(HEADER)


def test_books_from_before_frames_were_kept_go_on(tmp_path):
    evaluation(tmp_path, [Method("bicubic")]).run(HEADER)
    path = tmp_path / "scores.json"
    content = json.loads(path.read_text())
    kept = content.pop("frames")
    path.write_text(json.dumps(content))
    book = evaluation(tmp_path, [Method("bicubic"), Method("nearest")]).run(HEADER)
    assert len(book.scores) == 6 and book.frames == kept == json.loads(path.read_text())["frames"]


def test_books_that_cannot_be_read(tmp_path):
    with pytest.raises(InputError, match=r"missing\.json cannot be read \(No such file or directory\)"):
        ScoreBook.load(tmp_path / "missing.json")
    for content in ("[]", '{"scores": []}', '{"header": {}, "scores": [{"psnr": 1}]}'):
        (tmp_path / "x.json").write_text(content)
        with pytest.raises(InputError, match="is not a file of scores"):
            ScoreBook.load(tmp_path / "x.json")


def test_pictures_asked_for_later_are_written(tmp_path):
    evaluation(tmp_path, [Method("bicubic")]).run(HEADER)
    evaluation(tmp_path, [Method("bicubic")], images=tmp_path / "pictures").run(HEADER)
    assert sorted(path.name for path in (tmp_path / "pictures/bicubic/still").iterdir()) == [
        "00.png", "01.png", "02.png",
    ]  # fmt: skip


def test_lpips_asked_for_later_is_added_and_stays(tmp_path, monkeypatch):
    first = evaluation(tmp_path, [Method("bicubic")]).run(HEADER)

    def scored(*arguments, score=evaluating.score, lpips=None, **options):
        perceptual = {} if lpips is None else {"lpips": torch.full((3,), lpips)}
        return {**score(*arguments, **options), **perceptual}

    monkeypatch.setattr(evaluating, "score", scored)
    second = evaluation(tmp_path, [Method("bicubic")], lpips=0.25).run(HEADER)
    assert set(second.values("still", "bicubic", "openburst", "lpips").values()) == {0.25}
    assert second.mean("still", "bicubic", "openburst") == pytest.approx(first.mean("still", "bicubic", "openburst"))
    third = evaluation(tmp_path, [Method("bicubic")], images=tmp_path / "pictures").run(HEADER)
    assert set(third.values("still", "bicubic", "openburst", "lpips").values()) == {0.25}


def test_maps_of_what_is_scored_are_not_needed(tmp_path, monkeypatch):
    """A baseline that is added later does not estimate maps again, should they be gone."""
    classical = Method("classical", 2, "homography")
    evaluation(tmp_path / "out", [classical], cache=AlignmentCache(tmp_path / "maps")).run(HEADER)
    monkeypatch.setattr(AlignmentCache, "get", lambda *_: pytest.fail("maps were asked for"))
    book = evaluation(tmp_path / "out", [classical, Method("nearest")]).run(HEADER)
    assert len(book.values("still", "nearest", "openburst")) == 3


def test_batch_means_do_not_depend_on_the_order_of_scoring():
    """FBANet's mean is over batches of 16 in the data set's order; a resumed run scores in another one."""
    means = []
    for order in (range(20), reversed(range(20))):
        book = ScoreBook()
        for index in order:
            book.add(Score("x", f"{index:03d}", "peer", "realbsr-rgb-fbanet", float(index), 0.9))
        means.append(book.mean("x", "peer", "realbsr-rgb-fbanet"))
    assert means[0] == means[1] == (7.5 + 17.5) / 2


def test_infinite_scores_are_kept_as_json(tmp_path):
    """A perfect picture has an infinite PSNR, which JSON cannot say as a number."""

    def refuse(name):
        raise AssertionError(f"{name} is not JSON")

    book = ScoreBook()
    book.add(Score("x", "0", "peer", "openburst", math.inf, 1.0, 0.0))
    book.save(tmp_path / "scores.json")
    json.loads((tmp_path / "scores.json").read_text(), parse_constant=refuse)
    assert ScoreBook.load(tmp_path / "scores.json").scores == book.scores


def test_progress_and_saving_after_each_batch(tmp_path, monkeypatch):
    """A run that is cut off has kept what it had scored, and has said how far it was."""
    monkeypatch.setattr(evaluating, "SAVE_EVERY", 0.0)
    seen, kept = [], []

    def watch(stage, done, total):
        path = tmp_path / "scores.json"
        seen.append((stage, done, total))
        kept.append(len(json.loads(path.read_text())["scores"]) if path.is_file() else 0)

    evaluation(tmp_path, [Method("bicubic"), Method("nearest")], progress=watch).run(HEADER)
    assert seen == [("score", 3, 6), ("score", 6, 6)] and kept == [0, 3]


def test_a_picture_that_cannot_be_scored(tmp_path, monkeypatch):
    """It is listed, the rest is scored."""

    def spoilt(*arguments, reconstruct=evaluating.reconstruct, **options):
        pictures = reconstruct(*arguments, **options)
        pictures[1, 0, 5, 5] = math.nan
        return pictures

    monkeypatch.setattr(evaluating, "reconstruct", spoilt)
    book = evaluation(tmp_path, [Method("bicubic")]).run(HEADER)
    assert sorted(book.values("still", "bicubic", "openburst")) == ["00", "02"]
    assert book.problems == {"bicubic: still/01": "its picture has NaN or infinite values."}


def test_reading_ahead_ends_with_the_run():
    """Bursts that nobody will use are not read."""
    read = []
    items = list(benchmark(12).items)
    chunks = load_chunks(items, lambda item: time.sleep(0.05) or read.append(item.name), 6, 1)
    next(chunks)
    chunks.close()
    assert len(read) <= 7


def _slow_burst(trace):
    trace.touch()
    time.sleep(0.1)
    return sample(0).burst()


def test_an_interrupted_estimation_does_not_go_on(tmp_path):
    def stop():
        raise KeyboardInterrupt

    bursts = [partial(_slow_burst, tmp_path / f"{index}.read") for index in range(40)]
    with pytest.raises(KeyboardInterrupt):
        AlignmentCache(tmp_path / "maps").fill(bursts, "homography", 2, stop)
    assert 0 < len(list(tmp_path.glob("*.read"))) < 20


@pytest.mark.skipif(sys.platform == "win32", reason="a process group is interrupted by POSIX signals here")
def test_the_command_goes_on_after_an_interrupt(photographs, weights, tmp_path):
    """Ctrl-C in the middle: exit code 130, one word, and the scores so far; the same command ends the rest."""
    command = [
        sys.executable, "-m", "burstmamba", "evaluate", str(weights), str(photographs), "-o", str(tmp_path),
        "--burst-length", "1,3,5,7", "--correspondence", "identity,exact", "--no-lpips", "--device", "cpu",
    ]  # fmt: skip
    pictures = ["--images", str(tmp_path / "pictures")]
    process = subprocess.Popen([*command, *pictures], stderr=subprocess.PIPE, text=True, start_new_session=True)
    deadline = time.monotonic() + 120
    while not (tmp_path / "pictures/L=3-identity").is_dir() and time.monotonic() < deadline:
        time.sleep(0.01)
    os.killpg(process.pid, signal.SIGINT)
    _, said = process.communicate(timeout=120)
    assert process.returncode == 130 and "interrupted" in said and "Traceback" not in said, said
    kept = json.loads((tmp_path / "scores.json").read_text())["scores"]
    assert 0 < len(kept) < 64
    again = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert again.returncode == 0, again.stderr
    scores = json.loads((tmp_path / "scores.json").read_text())["scores"]
    assert len(scores) == 64 and all(row in scores for row in kept)
