"""Photographs decoded by several processes: the same pixels, in order, whatever happens to a process."""

import io
import json
import subprocess
import sys

import numpy as np
import pytest
from PIL import Image

from burstmamba.data import decoding
from burstmamba.data.decoding import BLOCK, CRASHED, Decoded, Worker, decode, decode_all, serve


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("album with spaces ä")
    rng = np.random.default_rng(0)
    paths = [folder / f"{i}.{suffix}" for i, suffix in enumerate(("png", "jpg", "avif", "webp", "png"))]
    for i, path in enumerate(paths):
        Image.fromarray(rng.integers(0, 256, (70 + i, 99, 3), dtype=np.uint8)).save(path)
    return paths


def test_processes_decode_what_one_decodes(files):
    alone, together = decode_all(files, 1), decode_all(files, 3)
    for path, one, other in zip(files, alone, together, strict=True):
        expected = decode(path)
        for decoded in (one, other):
            assert isinstance(decoded, Decoded)
            assert np.array_equal(decoded.pixels, expected.pixels) and decoded.pixels.dtype == np.uint8
            assert np.array_equal(decoded.detail, expected.detail) and decoded.detail.shape == (2, 3)


def test_values_of_detail():
    pixels = np.zeros((2 * BLOCK + 5, 2 * BLOCK, 3), np.uint8)
    pixels[:BLOCK, : BLOCK // 2, 1] = 255
    detail = decoding.block_detail(pixels)
    # One step in each row of the first block, and one below each bright column.
    assert detail[0, 0] == pytest.approx((BLOCK + BLOCK // 2) / BLOCK**2)
    assert detail.shape == (2, 2) and not detail[0, 1] and not detail[1].any()


def test_bad_files_are_named_and_the_rest_is_read(files, tmp_path):
    bad = tmp_path / "bad.jpg"
    bad.write_bytes(b"not a photograph")
    results = decode_all([files[0], bad, tmp_path / "nothing.png", files[1]], 2)
    assert isinstance(results[0], Decoded) and isinstance(results[3], Decoded)
    assert "cannot identify image file" in results[1] and "No such file" in results[2]


def test_crashed_process_is_started_again(files):
    worker = Worker()
    worker.process.kill()
    assert worker.decode(files[0]) == CRASHED
    assert np.array_equal(worker.decode(files[0]).pixels, decode(files[0]).pixels)
    worker.close()
    assert worker.process.returncode == 0


def test_worker_needs_nothing_of_the_package():
    """It starts quickly because it imports neither torch nor burstmamba."""
    code = f"import runpy, sys; runpy.run_path({decoding.__file__!r}); print(*(n in sys.modules for n in sys.argv[1:]))"
    result = subprocess.run([sys.executable, "-c", code, "torch", "burstmamba"], capture_output=True, text=True)
    assert result.stdout.split() == ["False", "False"], result.stderr


def test_answers_of_the_worker(files):
    answers = io.BytesIO()
    serve(io.BytesIO(json.dumps(str(files[0])).encode() + b"\n" + b'"nowhere.png"\n'), answers)
    head, rest = answers.getvalue().split(b"\n", 1)
    shapes = json.loads(head)
    pixels, last = rest[: np.prod(shapes["pixels"])], rest[np.prod(shapes["pixels"]) + 4 * np.prod(shapes["detail"]) :]
    assert pixels == decode(files[0]).pixels.tobytes()
    assert "nowhere.png" in json.loads(last)["error"]


def test_cores_are_shared_by_the_processes_of_a_run(monkeypatch):
    monkeypatch.setattr(decoding.os, "sched_getaffinity", lambda _: set(range(16)), raising=False)
    assert decoding.own_cores() == 16
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "8")
    assert decoding.own_cores() == 2


@pytest.mark.skipif(sys.platform == "win32", reason="pipes there break otherwise")
def test_a_worker_whose_program_is_gone_ends_without_a_word(tmp_path):
    Image.new("RGB", (600, 600)).save(tmp_path / "a.png")
    worker = subprocess.Popen(
        [sys.executable, "-P", decoding.__file__], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert worker.stdin and worker.stdout and worker.stderr
    worker.stdout.close()
    worker.stdin.write(json.dumps(str(tmp_path / "a.png")).encode() + b"\n")
    worker.stdin.close()
    assert worker.wait(timeout=60) == 0 and worker.stderr.read() == b""
    worker.stderr.close()
