"""A visitor's burst without the page around it."""

import shutil
import zipfile
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn

import burstmamba
from burstmamba.app.session import Cancelled, Session
from burstmamba.app.uploads import UploadLimits
from burstmamba.errors import InputError
from burstmamba.model.config import ModelConfig

EXAMPLE = sorted(str(path) for path in (Path(burstmamba.__file__).parent / "examples" / "fig").glob("*.png"))[:4]


class Counting(nn.Module):
    """Says how many frames it was given by the grey it returns."""

    def __init__(self):
        super().__init__()
        self.config = ModelConfig(scale=2)

    def forward(self, frames, maps):
        b, l, _, h, w = frames.shape
        return torch.full((b, 3, 2 * h, 2 * w), l / 10)


@pytest.fixture
def session():
    held = Session()
    yield held
    held.close()
    assert not held.folder.exists()


def test_frames_are_described_and_chosen(session):
    session.upload(EXAMPLE, UploadLimits(), limit=30)
    session.align("homography")
    lines = [line for _, line in session.thumbnails()]
    assert lines[0] == "★ 00.png · keyframe"
    assert lines[1].startswith("01.png · moved 3.") and "sharp" in lines[1] and "sure" in lines[1]
    assert max(session.thumbnails()[0][0].shape) == 240
    session.keyframe = 2
    session.align("homography")
    lines = [line for _, line in session.thumbnails()]
    assert lines[2] == "★ 02.png · keyframe" and lines[0].startswith("00.png · moved 3.")


def test_left_out_frames_do_not_reach_the_network(session):
    session.upload(EXAMPLE, UploadLimits(), limit=30)
    session.restore(Counting(), "homography", length=14)
    assert session.result is not None and session.result.mean().item() == pytest.approx(0.4)
    session.dropped = {1}
    session.restore(Counting(), "homography", length=14)
    assert session.result.mean().item() == pytest.approx(0.3)
    assert "left out by you" in session.thumbnails()[1][1]
    session.restore(Counting(), "homography", length=2)
    assert session.result.mean().item() == pytest.approx(0.2)
    assert session.single().mean().item() == pytest.approx(0.1)


def test_the_interpolated_keyframe_and_the_files(session):
    session.upload(EXAMPLE[:1], UploadLimits(), limit=30)
    session.restore(Counting(), "auto", length=14)
    path = session.picture("bicubic", session.interpolated())
    got = np.asarray(Image.open(path)).astype(float)
    expected = np.asarray(Image.open(EXAMPLE[0]).resize((320, 240), Image.Resampling.BICUBIC)).astype(float)
    assert got.shape == (240, 320, 3) and np.abs(got - expected).mean() < 3
    assert Path(path).parent.parent == session.folder
    session.restore(Counting(), "auto", length=14)
    assert session.picture("bicubic", session.interpolated()) != path, "a browser would show the old picture"


def test_cancel_stops_the_network(session):
    session.upload(EXAMPLE[:2], UploadLimits(), limit=30)
    session.align("identity")
    with pytest.raises(Cancelled):
        session.restore(Counting(), "identity", 14, progress=lambda *step: session.cancel.set())
    assert session.result is None
    session.restore(Counting(), "identity", 14)  # a new run starts afresh
    assert session.result is not None


def test_errors(session, tmp_path):
    bad = tmp_path / "bad.jpg"
    bad.write_text("no picture")
    with pytest.raises(InputError, match=r"bad.jpg"):
        session.upload([str(bad)], UploadLimits(), limit=30)
    assert session.loaded is None
    with pytest.raises(InputError, match="more than the 0 megapixels that are read"):
        session.upload(EXAMPLE, UploadLimits(megapixels=0.01), limit=30)


def test_examples_are_those_that_a_model_reads():
    from burstmamba.app.page import Page

    limits = UploadLimits()
    assert Page(["light", "light-raw"], "cpu", limits).examples() == ["dogs-raw", "fig", "nuthatch"]
    assert Page(["models/mine.safetensors"], "cpu", limits).examples() == ["fig", "nuthatch"]


def test_an_earlier_zip_file_is_forgotten(session, tmp_path):
    for count in (3, 2):
        with zipfile.ZipFile(tmp_path / "frames.zip", "w") as archive:
            for path in EXAMPLE[:count]:
                archive.write(path, Path(path).name)
        session.upload([str(tmp_path / "frames.zip")], UploadLimits(), limit=30)
        assert session.burst.names == tuple(Path(path).name for path in EXAMPLE[:count])
        assert len(list((session.folder / "frames").rglob("*.png"))) == count


def test_a_failing_job_leaves_a_page_that_works(session, monkeypatch):
    from burstmamba.app.page import Page

    def broken(name):
        raise RuntimeError("no memory left")

    page = Page(["light"], "cpu", UploadLimits())
    page.load = broken
    session.upload(EXAMPLE[:2], UploadLimits(), limit=30)
    _, last = page.run("light", "identity", 14, session, progress=lambda *step, **more: None)
    assert "no memory left" in last[2] and last[3].interactive and not last[4].interactive


def test_a_picture_that_cannot_be_written_leaves_a_page_that_works(session, monkeypatch):
    from burstmamba.app.page import BICUBIC, Page

    page = Page(["light"], "cpu", UploadLimits())
    page.load = lambda name: Counting()
    session.upload(EXAMPLE[:2], UploadLimits(), limit=30)
    shutil.rmtree(session.folder)  # as the system does with old temporary folders
    quiet = {"progress": lambda *step, **more: None}
    _, last = page.run("light", "identity", 14, session, **quiet)
    assert "2 frame(s) →" in last[2]

    def full(*place, **options):
        raise InputError("the disk is full")

    monkeypatch.setattr("burstmamba.app.session.save_image", full)
    _, last = page.run("light", "identity", 14, session, **quiet)
    assert "the disk is full" in last[2] and last[3].interactive and not last[4].interactive
    assert "the disk is full" in page.compare(BICUBIC, session, **quiet)[1]


def test_a_failed_alignment_leaves_the_one_before(session, monkeypatch):
    session.upload(EXAMPLE, UploadLimits(), limit=30)
    session.align("homography")
    before = [line for _, line in session.thumbnails()]

    def broken(*burst):
        raise MemoryError

    monkeypatch.setattr("burstmamba.app.session.align", broken)
    session.keyframe = 2
    with pytest.raises(MemoryError):
        session.align("homography")
    session.keyframe = 0
    session.align("homography")
    assert [line for _, line in session.thumbnails()] == before


def test_the_page_knows_its_models_and_has_one_queue():
    from burstmamba.app.layout import build_page

    with pytest.raises(InputError, match="no model 'nonsense'"):
        build_page(["nonsense"])
    page = build_page(["light"])
    computing = [function for function in page.fns.values() if function.queue and function.name != "leave"]
    assert len(computing) > 5 and {function.concurrency_id for function in computing} == {"work"}
    assert {function.concurrency_limit for function in computing} == {1}


def test_the_file_tells_of_its_own_keyframe(session, tmp_path):
    frames = []
    for number, path in enumerate(EXAMPLE[:3]):
        exif = Image.Exif()
        exif[0x010E] = f"frame {number}"
        frames.append(str(tmp_path / f"{number}.png"))
        Image.open(path).save(frames[-1], exif=exif)
    session.upload(frames, UploadLimits(), limit=30)
    session.keyframe = 2
    session.restore(Counting(), "identity", 14)
    session.keyframe = 1  # chosen, not yet restored
    with Image.open(session.picture("result", session.result)) as picture:
        assert picture.getexif()[0x010E] == "frame 2"


def test_a_cancelled_run_leaves_result_and_comparison_together(session):
    session.upload(EXAMPLE[:2], UploadLimits(), limit=30)
    session.restore(Counting(), "identity", 14)
    before = session.interpolated()
    session.keyframe = 1
    session.align("identity")
    with pytest.raises(Cancelled):
        session.restore(Counting(), "identity", 14, progress=lambda *step: session.cancel.set())
    assert torch.equal(session.interpolated(), before)


def test_frames_that_cannot_be_used_are_not_switched(session, tmp_path):
    from burstmamba.app.page import Page, found

    noise = np.random.default_rng(0).integers(0, 256, (120, 160, 3), dtype=np.uint8)
    Image.fromarray(noise).save(tmp_path / "99.png")
    frames = [shutil.copy(path, tmp_path) for path in EXAMPLE[:3]]
    session.upload([*frames, str(tmp_path / "99.png")], UploadLimits(), limit=30)
    session.align("homography")
    assert found(session).startswith("3 of 4 frame(s)")
    session.selected = 3
    _, status = Page(["light"], "cpu", UploadLimits()).toggle(session)
    assert status.startswith("99.png is not used: ") and not session.dropped
    assert found(session).startswith("3 of 4 frame(s)")


def test_a_job_ends_with_its_tab(session):
    """Jobs run one after the other: nobody should wait for a picture that nobody sees."""
    from burstmamba.app.page import Page

    page, tab = Page(["light"], "cpu", UploadLimits()), SimpleNamespace(session_hash="tab")
    page.load = lambda name: Leaving()
    session.upload(EXAMPLE[:2], UploadLimits(), limit=30)

    class Leaving(Counting):
        def forward(self, frames, maps):
            page.leave(SimpleNamespace(session_hash="another"))
            assert not session.cancel.is_set()
            page.leave(tab)
            return super().forward(frames, maps)

    _, last = page.run("light", "identity", 14, session, lambda *step, **more: None, tab)
    assert last[2] == "Cancelled." and session.result is None and not page.working


def test_a_zip_file_with_a_broken_name(session, tmp_path):
    with zipfile.ZipFile(tmp_path / "frames.zip", "w") as archive:
        archive.write(EXAMPLE[0], "ü.png")
    content = (tmp_path / "frames.zip").read_bytes().replace("ü".encode(), b"\xff\xfe")
    (tmp_path / "frames.zip").write_bytes(content)
    with pytest.raises(InputError, match="frames.zip cannot be unpacked"):
        session.upload([str(tmp_path / "frames.zip")], UploadLimits(), limit=30)
