"""Photographs: found, decoded, cropped."""

import numpy as np
import pytest
import torch
from PIL import Image

from burstmamba.data.photographs import PhotographBank, find_photographs, photograph_tensor, read_photograph
from burstmamba.data.source import BurstSource
from burstmamba.errors import InputError
from burstmamba.synthesis import synthesis_preset


@pytest.fixture
def album(tmp_path):
    """Pictures whose colours say where a pixel comes from: red = row, green = column, blue = picture."""
    for i, (h, w, name) in enumerate(((80, 120, "a.png"), (100, 90, "sub/b.tiff"), (96, 97, "sub/c.PNG"))):
        y, x = np.mgrid[:h, :w]
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        Image.fromarray(np.stack((y, x, np.full_like(y, 10 * i)), -1).astype(np.uint8)).save(path)
    return tmp_path


def test_crops_come_from_one_place(album):
    bank = PhotographBank(album)
    crops = (bank.sample(50, 32, torch.Generator().manual_seed(0), turn=False) * 255).round()
    rows, columns, picture = crops.unbind(1)
    assert torch.equal(rows.diff(dim=1), torch.ones(50, 31, 32)) and torch.equal(
        columns.diff(dim=2), torch.ones(50, 32, 31)
    )
    assert set(picture.flatten().tolist()) == {0.0, 10.0, 20.0}
    assert rows.min() >= 0 and rows.max() <= 99
    assert torch.equal(picture.amin((1, 2)), picture.amax((1, 2)))


def test_turns_are_the_eight(album):
    crops = (PhotographBank(album).sample(200, 16, torch.Generator().manual_seed(1)) * 255).round()
    kinds = set()
    for rows, columns, _ in crops:
        step = (
            rows[1, 0] - rows[0, 0],
            rows[0, 1] - rows[0, 0],
            columns[1, 0] - columns[0, 0],
            columns[0, 1] - columns[0, 0],
        )
        kinds.add(tuple(int(s) for s in step))
    assert len(kinds) == 8


def test_detail_is_preferred(tmp_path):
    pixels = np.full((128, 256, 3), 128, np.uint8)
    pixels[:, 128:] = np.random.default_rng(0).integers(0, 256, (128, 128, 3))
    Image.fromarray(pixels).save(tmp_path / "half.png")

    def busy(detail):
        crops = PhotographBank(tmp_path, detail=detail).sample(300, 32, torch.Generator().manual_seed(0))
        return (crops.std((1, 2, 3)) > 0.1).float().mean()

    assert 0.35 < busy(0.0) < 0.65 and busy(1.0) > 0.9


def test_seeds_reproduce(album):
    bank = PhotographBank(album)
    first, second = (bank.sample(4, 20, torch.Generator().manual_seed(5)) for _ in range(2))
    assert torch.equal(first, second)
    assert bank.photograph(1).shape == (3, 100, 90)
    assert torch.equal(bank.photograph(2), photograph_tensor(album / "sub/c.PNG"))


@pytest.mark.parametrize(("suffix", "tolerance"), [("avif", 12), ("jpg", 12), ("png", 0), ("tiff", 0), ("webp", 25)])
def test_formats(tmp_path, suffix, tolerance):
    y, x = np.mgrid[:64, :64]
    pixels = np.stack((2 * y, 2 * x, y + x), -1).astype(np.uint8)
    Image.fromarray(pixels).save(tmp_path / f"p.{suffix}", quality=95)
    assert np.abs(read_photograph(tmp_path / f"p.{suffix}").astype(int) - pixels).max() <= tolerance


def test_deep_grey_keeps_its_tones(tmp_path):
    Image.fromarray(np.full((70, 70), 32896, np.uint16)).save(tmp_path / "grey.png")
    assert read_photograph(tmp_path / "grey.png").tolist()[0][0] == [128, 128, 128]


def test_float_grey_keeps_its_tones(tmp_path):
    Image.fromarray(np.linspace(0, 1, 4900, dtype=np.float32).reshape(70, 70)).save(tmp_path / "grey.tif")
    pixels = read_photograph(tmp_path / "grey.tif")
    assert (pixels.min(), pixels.max()) == (0, 255) and abs(pixels.mean() - 127.5) < 1
    Image.fromarray(np.full((70, 70), 900.0, dtype=np.float32)).save(tmp_path / "grey.tif")
    with pytest.raises(InputError, match=r"grey.tif cannot be read .*\(its float samples are not in \[0, 1\]\)"):
        read_photograph(tmp_path / "grey.tif")


@pytest.mark.filterwarnings("ignore::PIL.Image.DecompressionBombWarning")  # half the limit warns, which is not asked
def test_photographs_too_large_to_decode_are_unreadable(album, monkeypatch):
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 4700)  # Pillow refuses twice as many: the first of the three
    with pytest.raises(InputError, match=r"a.png cannot be read .*\(it has more pixels than Pillow decodes"):
        read_photograph(album / "a.png")
    assert [path.name for path in PhotographBank(album, skip_bad=True).paths] == ["b.tiff", "c.PNG"]


def test_orientation_is_honoured(tmp_path):
    image = Image.new("RGB", (80, 70))
    exif = image.getexif()
    exif[274] = 6
    image.save(tmp_path / "turned.jpg", exif=exif)
    assert read_photograph(tmp_path / "turned.jpg").shape == (80, 70, 3)


def test_errors(album, tmp_path_factory):
    with pytest.raises(InputError, match="is not a folder of photographs"):
        find_photographs(album / "nowhere")
    with pytest.raises(InputError, match=r"no photographs \(.avif, .jpg"):
        find_photographs(tmp_path_factory.mktemp("empty"))
    with pytest.raises(InputError, match=r"crops of 99×99 do not fit the smallest photograph \(80 px\)"):
        PhotographBank(album).sample(1, 99)
    with pytest.raises(InputError, match="no usable photograph of at least 500×500"):
        PhotographBank(album, smallest=500)
    (album / "broken.jpg").write_bytes(b"no picture")
    with pytest.raises(InputError, match="broken.jpg cannot be read as a photograph"):
        PhotographBank(album)
    assert len(PhotographBank(album, skip_bad=True)) == 3


def test_source_makes_batches_and_resumes(tmp_path):
    Image.fromarray(np.random.default_rng(0).integers(0, 256, (200, 200, 3), dtype=np.uint8)).save(tmp_path / "p.png")
    config = synthesis_preset("handheld-rgb")
    source = BurstSource(PhotographBank(tmp_path), config, batch=2, size=8, seed=3)
    first = next(source)
    state = source.state()
    second = next(source)
    assert first.frames.shape == (2, 14, 3, 8, 8) and not torch.equal(first.frames, second.frames)
    source.resume(state)
    assert torch.equal(next(iter(source)).frames, second.frames)
    with pytest.raises(InputError, match="graph=True needs photographs on a GPU"):
        BurstSource(PhotographBank(tmp_path), config, batch=2, size=8, graph=True)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU")
def test_graph_replays_what_kernels_compute(album):
    Image.fromarray(np.random.default_rng(0).integers(0, 256, (400, 400, 3), dtype=np.uint8)).save(album / "p.png")
    bank = PhotographBank(album, "cuda", smallest=300)
    sources = [BurstSource(bank, synthesis_preset("handheld-rgb"), batch=3, size=16, graph=g) for g in (True, False)]
    for _ in range(3):
        replayed, launched = (next(source) for source in sources)
        assert torch.allclose(replayed.frames, launched.frames, atol=1e-4)
        assert torch.allclose(replayed.correspondence.to_frame, launched.correspondence.to_frame, atol=1e-4)
