"""Maps in files, RAFT's weights, the report and the command."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from correspondence_scenes import end_point_error, procedural_photo, render
from PIL import Image

from burstmamba.burst import Burst, Camera
from burstmamba.correspondence import Correspondence, align_burst, estimate_correspondence, load_maps, save_maps
from burstmamba.correspondence.raft import load_raft, torchvision_keys
from burstmamba.correspondence.report import colour_wheel, flow_picture, pictures, write_report
from burstmamba.errors import InputError

RAFT_SMALL = Path(__file__).parents[3] / "shared/data/weights/raft-small.safetensors"


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "COLUMNS": "120"}
    command = [sys.executable, "-m", "burstmamba", "align", *arguments]
    return subprocess.run(command, capture_output=True, text=True, env=environment, timeout=300)


def test_maps_survive_a_file(tmp_path, still_scene):
    maps = Correspondence(
        still_scene.to_frame[None], still_scene.to_keyframe[None], torch.rand(1, 5, 1, *still_scene.burst.size)
    )
    path = tmp_path / "maps.safetensors"
    save_maps(path, maps)
    again = load_maps(path)
    assert torch.equal(again.to_frame, maps.to_frame)
    assert torch.equal(again.to_keyframe, maps.to_keyframe)
    assert torch.equal(again.confidence, maps.confidence)
    assert [p.name for p in tmp_path.iterdir()] == ["maps.safetensors"]
    given = estimate_correspondence(still_scene.burst, path)
    assert torch.equal(given.to_frame, maps.to_frame)


def test_map_file_errors(tmp_path, still_scene):
    with pytest.raises(InputError, match="no file of maps at"):
        load_maps(tmp_path / "none.safetensors")
    broken = tmp_path / "broken.safetensors"
    broken.write_bytes(b"not a tensor file")
    with pytest.raises(InputError, match="is not a readable safetensors file"):
        load_maps(broken)
    with pytest.raises(InputError, match=r"maps are written to a \.safetensors file, got 'maps\.npz'"):
        save_maps(tmp_path / "maps.npz", Correspondence.identity(still_scene.burst.frames[None]))
    from safetensors.torch import save_file

    save_file({"to_frame": torch.zeros(1, 2, 2, 4, 4)}, tmp_path / "half.safetensors")
    with pytest.raises(InputError, match="must hold to_frame and to_keyframe, to_keyframe is missing"):
        load_maps(tmp_path / "half.safetensors")


def test_raft_keys_of_the_authors():
    value = torch.zeros(1)
    names = {
        "module.fnet.conv1.weight": "feature_encoder.convnormrelu.0.weight",
        "module.cnet.norm1.running_var": "context_encoder.convnormrelu.1.running_var",
        "module.cnet.layer2.0.conv1.bias": "context_encoder.layer2.0.convnormrelu1.0.bias",
        "module.cnet.layer2.0.norm2.bias": "context_encoder.layer2.0.convnormrelu2.1.bias",
        "module.cnet.layer2.0.downsample.1.bias": "context_encoder.layer2.0.downsample.1.bias",
        "module.cnet.conv2.weight": "context_encoder.conv.weight",
        "module.update_block.encoder.convc2.bias": "update_block.motion_encoder.convcorr2.0.bias",
        "module.update_block.encoder.conv.bias": "update_block.motion_encoder.conv.0.bias",
        "module.update_block.gru.convz2.bias": "update_block.recurrent_block.convgru2.convz.bias",
        "module.update_block.gru.convq.bias": "update_block.recurrent_block.convgru1.convq.bias",
        "module.update_block.flow_head.conv1.bias": "update_block.flow_head.conv1.bias",
        "module.update_block.mask.2.weight": "mask_predictor.conv.weight",
    }
    duplicate = {"module.cnet.layer2.0.norm3.bias": value}
    assert set(torchvision_keys({**dict.fromkeys(names, value), **duplicate})) == set(names.values())
    assert set(torchvision_keys(dict.fromkeys(names.values(), value))) == set(names.values())


def test_raft_without_torchvision_says_so(monkeypatch):
    monkeypatch.setitem(sys.modules, "torchvision", None)
    monkeypatch.setitem(sys.modules, "torchvision.models", None)
    with pytest.raises(InputError, match=r'raft-small needs torchvision.*burstmamba\[flow\].*"dense"'):
        load_raft("raft-small")


def _torchvision_works() -> bool:
    try:
        from torchvision.models import optical_flow  # noqa: F401 (can it be imported?)
    except (ImportError, RuntimeError):  # absent, or built for another torch
        return False
    return True


@pytest.mark.skipif(not RAFT_SMALL.exists(), reason="RAFT small's weights are not at hand")
def test_raft_small(moving_scene, tmp_path):
    if not _torchvision_works():
        pytest.skip("torchvision cannot be imported beside this torch")
    found = estimate_correspondence(moving_scene.burst, "raft-small", raft_weights=RAFT_SMALL)
    error = end_point_error(found.to_frame[0], moving_scene.to_frame)
    seen = moving_scene.visible & ~moving_scene.moving
    assert error[1:][seen[1:]].median() < 0.25
    with pytest.raises(InputError, match="does not hold the weights of raft-large"):
        load_raft("raft-large", RAFT_SMALL)
    with pytest.raises(InputError, match="no file of RAFT weights at"):
        load_raft("raft-small", tmp_path / "none.pth")


def test_flow_picture_colours():
    flow = torch.zeros(2, 1, 4)
    flow[0, 0, 1], flow[0, 0, 2], flow[1, 0, 3] = 2.0, -2.0, 2.0
    picture = flow_picture(flow, 2.0)
    assert picture[0, 0].tolist() == [255, 255, 255]
    assert picture[0, 1].tolist() == [255, 0, 0]
    assert picture[0, 2].tolist() == [0, 255, 255]
    assert picture[0, 3].argmin() == 2 and picture[0, 3].argmax() == 1


def test_colour_wheel_is_the_key():
    wheel = colour_wheel(21, 31)
    assert wheel.shape == (21, 31, 3)
    assert wheel[10, 15].tolist() == wheel[0, 0].tolist() == [255, 255, 255]
    right = flow_picture(torch.tensor([9.0, 0.0]).view(2, 1, 1), 9.5)[0, 0]
    assert wheel[10, 24].tolist() == pytest.approx(right.tolist(), abs=16)
    assert wheel[10, 24].argmax() == 0 and wheel[10, 6].argmin() == 0


def test_report(tmp_path, moving_scene):
    alignment = align_burst(moving_scene.burst)
    files = write_report(alignment, tmp_path / "report")
    assert sorted(p.name for p in files) == sorted(
        ["motion.png", "flow.png", "residual.png", "confidence.png", "before.webp", "after.webp", "report.json"]
    )
    assert sorted(p.name for p in (tmp_path / "report").iterdir()) == sorted(p.name for p in files)
    data = json.loads((tmp_path / "report/report.json").read_text())
    assert [f["name"] for f in data["frames"]] == list(moving_scene.burst.names)
    assert data["frames"][1]["motion"] == pytest.approx(list(alignment.frames[1].motion))
    films = {}
    for name in ("before", "after"):
        with Image.open(tmp_path / f"report/{name}.webp") as film:
            assert film.n_frames == 4
            stack = []
            for i in range(4):
                film.seek(i)
                stack.append(np.array(film.convert("RGB"), dtype=np.float32))
            films[name] = np.abs(np.stack(stack[1:]) - stack[0]).mean()
    assert films["after"] < 0.5 * films["before"]


def test_pictures_of_a_mosaic_are_grey():
    burst = Burst(torch.rand(2, 1, 30, 40), Camera(cfa="RGGB", linear=True))
    shown = pictures(burst)
    assert shown.shape == (2, 3, 30, 40)
    assert torch.equal(shown[:, 0], shown[:, 2])


def test_command(tmp_path, still_scene):
    folder = tmp_path / "burst"
    folder.mkdir()
    for i, frame in enumerate(still_scene.burst.frames[:3]):
        Image.fromarray((frame * 255).round().byte().permute(1, 2, 0).numpy()).save(folder / f"{i}.png")
    maps = tmp_path / "maps.safetensors"
    done = run(str(folder), "-o", str(tmp_path / "report"), "--method", "homography", "--save-maps", str(maps))
    assert done.returncode == 0, done.stderr
    assert "1.png" in done.stdout and "homography" in done.stdout and "keyframe" in done.stdout
    assert (tmp_path / "report/report.json").exists()
    error = end_point_error(load_maps(maps).to_frame[0], still_scene.to_frame[:3])
    assert error.median() < 0.05


def test_saved_maps_fit_the_burst_they_came_from(tmp_path, still_scene):
    """Also when a frame was left out: it is left out again."""
    folder, maps = tmp_path / "burst", tmp_path / "maps.safetensors"
    folder.mkdir()
    stranger = render(procedural_photo(560, 77), seed=1, frames=1, size=112).burst.frames[0]
    for i, frame in enumerate((*still_scene.burst.frames[:2], stranger, still_scene.burst.frames[2])):
        Image.fromarray((frame * 255).round().byte().permute(1, 2, 0).numpy()).save(folder / f"{i}.png")
    first = run(str(folder), "--save-maps", str(maps))
    assert first.returncode == 0, first.stderr
    assert "2.png is left out: it does not show the keyframe's scene" in first.stdout
    assert load_maps(maps).to_frame.shape == (1, 4, 2, 112, 112)
    assert load_maps(maps).confidence[0, 2].max() == 0
    second = run(str(folder), "--method", str(maps), "-o", str(tmp_path / "report"))
    assert second.returncode == 0, second.stderr
    frames = json.loads((tmp_path / "report/report.json").read_text())["frames"]
    assert [f["kept"] for f in frames] == [True, True, False, True]
    assert all(f["model"] == "given" for f in frames)


def test_command_errors(tmp_path):
    folder = tmp_path / "burst"
    folder.mkdir()
    for i in range(2):
        Image.new("RGB", (32, 32), (i, 0, 0)).save(folder / f"{i}.png")
    done = run(str(folder), "--method", "magic")
    assert done.returncode == 2
    assert done.stderr.strip().splitlines()[-1].startswith("error: unknown correspondence method 'magic'")
    assert "Traceback" not in done.stderr


def test_maps_of_another_keyframe_are_refused(tmp_path, still_scene):
    burst, path = still_scene.burst, tmp_path / "maps.safetensors"
    named = Burst(burst.frames, burst.camera, tuple(f"{i}.png" for i in range(len(burst))))
    save_maps(path, Correspondence(still_scene.to_frame[None], still_scene.to_keyframe[None]), named.names)
    assert estimate_correspondence(named, path).to_frame.shape[1] == len(burst)
    with pytest.raises(InputError, match=r"with 0.png as keyframe, or in another order; here 1.png is the first"):
        estimate_correspondence(named.select([1, 0, *range(2, len(burst))]), path)


def test_places_that_cannot_be_written_are_said_first(tmp_path):
    """Before anything is read: the burst does not even exist."""
    (tmp_path / "file").write_text("")
    for options, sentence in (
        (("--save-maps", str(tmp_path / "none/maps.safetensors")), "none does not exist or cannot be written to"),
        (("-o", str(tmp_path / "file")), "file: it is a file; choose another folder"),
    ):
        result = run(str(tmp_path / "burst"), *options)
        assert result.returncode == 2 and sentence in result.stderr and "Traceback" not in result.stderr


def test_the_table_shows_names_as_they_are(tmp_path):
    for name, seed in (("a [draft].png", 0), ("b :smile:.png", 1)):
        picture = np.random.default_rng(seed).integers(0, 256, (24, 32, 3), dtype=np.uint8)
        Image.fromarray(picture).save(tmp_path / name)
    shown = run(str(tmp_path), "--method", "identity", "--keyframe", "0").stdout
    assert "a [draft].png" in shown and "b :smile:.png" in shown
    assert "Traceback" not in run(str(tmp_path), "--keyframe", "²").stderr
