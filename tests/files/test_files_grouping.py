"""Folders of bursts: by subfolder, by time, by name."""

from __future__ import annotations

import sys

import pytest
from PIL import Image

from burstmamba.errors import InputError
from burstmamba.files import group_bursts


@pytest.fixture
def save(photo):
    """A function that writes a picture, dated if a time is given."""

    def write(path, time: str | None = None, fraction: str = "", size: tuple[int, int] = (8, 10)) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        exif = Image.Exif()
        if time:
            exif[0x8769] = {0x9003: f"2026:11:15 {time}", 0x9291: fraction}
        Image.fromarray(photo(*size)).save(path, exif=exif)

    return write


def names(groups) -> dict[str, list[str]]:
    """Group name → file names."""
    return {group.name: [path.name for path in group.paths] for group in groups}


def test_subfolders(tmp_path, save):
    for name in ("b/2.png", "b/10.png", "a/x/1.png", "a/x/2.png", ".hidden/1.png"):
        save(tmp_path / name)
    (tmp_path / "empty").mkdir()
    assert names(group_bursts(tmp_path)) == {"a/x": ["1.png", "2.png"], "b": ["2.png", "10.png"]}


def test_times(tmp_path, save):
    """A pause starts another burst, even between neighbouring numbers; whole seconds are precise enough."""
    times = {"IMG_1": "10:00:00", "IMG_2": "10:00:00", "IMG_3": "10:00:01", "IMG_9": "10:00:04", "IMG_10": "10:00:05"}
    for name, time in times.items():
        save(tmp_path / f"{name}.jpg", time)
    groups = names(group_bursts(tmp_path))
    assert groups == {"IMG_1": ["IMG_1.jpg", "IMG_2.jpg", "IMG_3.jpg"], "IMG_9": ["IMG_9.jpg", "IMG_10.jpg"]}
    assert len(group_bursts(tmp_path, gap=10)) == 1
    assert len(group_bursts(tmp_path, gap=0.5)) == 4


def test_fractions_of_seconds(tmp_path, save):
    save(tmp_path / "a.jpg", "10:00:00", "10")
    save(tmp_path / "b.jpg", "10:00:00", "35")
    assert len(group_bursts(tmp_path, gap=0.3)) == 1
    assert len(group_bursts(tmp_path, gap=0.2)) == 2


def test_names(tmp_path, save):
    for name in ("cat_01", "cat_02", "dog_01", "dog_02", "dog_10"):
        save(tmp_path / f"{name}.png")
    groups = names(group_bursts(tmp_path))
    assert groups == {"cat_01": ["cat_01.png", "cat_02.png"], "dog_01": ["dog_01.png", "dog_02.png", "dog_10.png"]}


def test_sizes_and_kinds_do_not_mix(tmp_path, save):
    save(tmp_path / "a1.png")
    save(tmp_path / "a2.png", size=(8, 12))
    (tmp_path / "a3.mp4").write_bytes(b"clip")
    assert names(group_bursts(tmp_path)) == {"a1": ["a1.png"], "a2": ["a2.png"], "a3": ["a3.mp4"]}


def test_bad_files_stay_visible(tmp_path, save):
    """A broken file becomes a burst of its own, which then fails with its sentence, beside the good ones."""
    save(tmp_path / "a1.png")
    save(tmp_path / "a2.png")
    (tmp_path / "a3.png").write_text("broken")
    assert names(group_bursts(tmp_path)) == {"a1": ["a1.png", "a2.png"], "a3": ["a3.png"]}


def test_names_are_unique(tmp_path, save):
    save(tmp_path / "a.png")
    save(tmp_path / "a.jpg", size=(8, 12))
    assert set(names(group_bursts(tmp_path))) == {"a.png", "a.jpg"}


def test_names_of_files_and_folders_differ(tmp_path, save):
    """Two bursts of one name would be written to one file, the second taken for done."""
    for name in ("a.png", "a/1.png", "a/2.png", "b/c/1.png", "d.png"):
        save(tmp_path / name)
    (tmp_path / "b" / "c.mp4").write_bytes(b"clip")
    groups = names(group_bursts(tmp_path))
    assert groups == {
        "a.png": ["a.png"], "d": ["d.png"], "a": ["1.png", "2.png"], "b/c.mp4": ["c.mp4"], "b/c": ["1.png"],
    }  # fmt: skip


def test_errors(tmp_path):
    with pytest.raises(InputError, match="holds no picture, RAW file or clip; expected at least one burst"):
        group_bursts(tmp_path)
    with pytest.raises(InputError, match="is not a folder; expected a folder of bursts"):
        group_bursts(tmp_path / "nowhere")


@pytest.mark.skipif(sys.platform == "win32", reason="links need rights there")
def test_links_to_folders_are_followed_once(tmp_path, photo):
    for name in ("away/0.png", "away/1.png", "bursts/own/0.png"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(photo()).save(tmp_path / name)
    (tmp_path / "bursts/linked").symlink_to(tmp_path / "away")
    (tmp_path / "bursts/own/back").symlink_to(tmp_path / "bursts")
    groups = group_bursts(tmp_path / "bursts")
    assert [(group.name, len(group.paths)) for group in groups] == [("linked", 2), ("own", 1)]
