"""What may be uploaded."""

import zipfile

import pytest
from PIL import Image

from burstmamba.app.uploads import UploadLimits, collect
from burstmamba.errors import InputError


def zipped(path, members):
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as file:
        for name, content in members.items():
            file.writestr(name, content)
    return str(path)


def test_a_zip_gives_its_pictures_and_nothing_else(tmp_path):
    members = {
        "burst/b10.png": b"x", "burst/b9.png": b"y", "../../escape.png": b"z", "notes.txt": b"no",
        "__MACOSX/burst/._b9.png": b"no", "burst/.hidden.png": b"no",
    }  # fmt: skip
    archive = zipped(tmp_path / "frames.zip", members)
    found = collect([archive], tmp_path / "work", UploadLimits())
    assert [path.name for path in found] == ["b9.png", "b10.png", "escape.png"]
    assert all(path.is_relative_to(tmp_path / "work") for path in found)
    assert sorted(path.name for path in (tmp_path / "work").rglob("*.png")) == ["b10.png", "b9.png", "escape.png"]


def test_equal_names_in_a_zip_are_kept_apart(tmp_path):
    archive = zipped(tmp_path / "frames.zip", {"a/1.png": b"x", "b/1.png": b"y"})
    found = collect([archive], tmp_path / "work", UploadLimits())
    assert {path.read_bytes() for path in found} == {b"x", b"y"}


def test_errors(tmp_path):
    small = UploadLimits(megabytes=1, files=2)
    text = tmp_path / "letter.docx"
    text.write_text("hello")
    with pytest.raises(InputError, match=r"letter.docx is no picture, RAW file, clip or zip file"):
        collect([str(text)], tmp_path, small)
    with pytest.raises(InputError, match="drop the frames of one burst"):
        collect([], tmp_path, small)
    pictures = []
    for i in range(3):
        pictures.append(str(tmp_path / f"{i}.png"))
        Image.new("RGB", (4, 4)).save(pictures[-1])
    with pytest.raises(InputError, match="3 files are more than the 2 that this page takes"):
        collect(pictures, tmp_path, small)
    large = tmp_path / "large.jpg"
    large.write_bytes(b"0" * 1_500_000)
    with pytest.raises(InputError, match=r"large.jpg has 2 MB, more than the 1 MB"):
        collect([str(large)], tmp_path, small)
    bomb = zipped(tmp_path / "bomb.zip", {"a.png": b"0" * 5_000_000})
    with pytest.raises(InputError, match=r"bomb.zip, unpacked, has 5 MB, more than the 1 MB"):
        collect([bomb], tmp_path, small)
    with pytest.raises(InputError, match=r"many.zip holds 3 files, more than 2"):
        collect([zipped(tmp_path / "many.zip", {f"{i}.png": b"" for i in range(3)})], tmp_path, small)
    with pytest.raises(InputError, match=r"none.zip holds no picture"):
        collect([zipped(tmp_path / "none.zip", {"a.txt": b""})], tmp_path, small)
    broken = tmp_path / "broken.zip"
    broken.write_bytes(b"PK nothing")
    with pytest.raises(InputError, match=r"broken.zip cannot be unpacked"):
        collect([str(broken)], tmp_path, small)
    damaged = bytearray((tmp_path / "bomb.zip").read_bytes())
    damaged[40:60] = bytes(range(200, 220))
    broken.write_bytes(damaged)
    with pytest.raises(InputError, match=r"broken.zip cannot be unpacked \(.*; zip the frames again"):
        collect([str(broken)], tmp_path, UploadLimits())
    with pytest.raises(InputError, match=r"long.zip cannot be unpacked \(File name too long\)"):
        collect([zipped(tmp_path / "long.zip", {f"{'a' * 300}.png": b""})], tmp_path, small)
    with pytest.raises(InputError, match="5 files are more than the 2 that this page takes"):
        collect([str(tmp_path / "none.zip")] * 5, tmp_path, small)
