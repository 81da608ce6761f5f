"""How well the estimators find exact maps: `python benchmarks/bench_correspondence.py --photos FOLDER`.

Bursts of 14 frames of 160×160 with handheld motion up to ±8 pixels and ±1°, made from photographs; end-point errors in
LR pixels over the pixels that the frame sees. Writes results/correspondence.json; with `--raft FILE` RAFT small's rows
to correspondence-raft.json, with `--megapixels 12` the time on large frames to correspondence-time.json (no photographs
needed). The committed table is of photographs on which nothing was tuned.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import cv2
import numpy as np
import torch
import torch.nn.functional as F
from correspondence_scenes import Motion, Scene, end_point_error, procedural_photo, render
from measuring import write_results
from PIL import Image
from torch import Tensor

from burstmamba.burst import Burst
from burstmamba.correspondence import align_burst
from burstmamba.correspondence.estimate import estimate
from burstmamba.correspondence.homography import estimate_global_motion
from burstmamba.correspondence.luma import luma

NOISE = {"low": (1e-4, 1e-6), "strong": (1e-2, 1e-4)}
METHODS = ("homography", "dense", "auto")


def main() -> None:
    """Measure, print and write every row."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--photos", type=Path, help="folder of photographs (.avif, .jpg or .png)")
    parser.add_argument("--every", type=int, default=1, help="use every n-th photograph for the errors")
    parser.add_argument("--raft", type=Path, help="RAFT small's weights: measure it alone")
    parser.add_argument("--megapixels", type=float, default=0, help="measure only the time on frames of this size")
    parser.add_argument("--frames", type=int, default=14, help="of that size")
    options = parser.parse_args()
    if not options.photos and not options.megapixels:
        parser.error("give --photos FOLDER or --megapixels 12")
    rows: list[dict[str, object]] = []
    name = "correspondence"
    if options.megapixels:
        name += "-time"
        report(rows, large_frames(options.megapixels, options.frames))
    elif options.raft:
        name += "-raft"
        accuracy(rows, load_photos(options.photos)[:: options.every], ("raft-small",), options.raft)
    else:
        photos = load_photos(options.photos)
        chosen = photos[:: options.every]
        accuracy(rows, chosen, METHODS, None)
        for noise in NOISE:
            report(rows, {"case": "frames that must go", "noise": noise, **recognition(photos, NOISE[noise])})
        scenes = [render(p, seed=i, noise=(1e-3, 1e-5), cfa="RGGB") for i, p in enumerate(chosen)]
        case = {"method": "homography", "noise": "mosaic, shot 0.001", "motion": "camera"}
        report(rows, {**case, **errors(scenes, "homography", None)})
    write_results(name, torch.device("cpu"), rows)


def accuracy(rows: list[dict[str, object]], photos: list[Tensor], methods: tuple[str, ...], raft: Path | None) -> None:
    """Errors of each method by noise and by what moves."""
    for noise in NOISE:
        for kind, motion in (("camera", Motion()), ("camera and object", Motion(object_shift=6.0))):
            scenes = [render(p, seed=i, motion=motion, noise=NOISE[noise]) for i, p in enumerate(photos)]
            case: dict[str, object] = {"noise": noise, "motion": kind, "frames": sum(len(s.burst) - 1 for s in scenes)}
            if kind == "camera" and not raft:
                report(rows, {"method": "SIFT + RANSAC alone", **case, **sift_alone(scenes)})
                report(rows, {"method": "OpenCV's ECC", **case, **opencv_ecc(scenes)})
            for method in methods:
                report(rows, {"method": method, **case, **errors(scenes, method, raft)})


def load_photos(folder: Path) -> list[Tensor]:
    """Every photograph of a folder."""
    return [load_photo(p) for p in sorted(folder.iterdir()) if p.suffix in (".avif", ".jpg", ".png")]


def report(rows: list[dict[str, object]], row: dict[str, object]) -> None:
    """Keep and print a row."""
    rows.append(row)
    print("  ".join(f"{k} {v:.4g}" if isinstance(v, float) else f"{k} {v}" for k, v in row.items()), flush=True)


def load_photo(path: Path) -> Tensor:
    """(3, h, w) in [0, 1]."""
    return torch.from_numpy(np.array(Image.open(path).convert("RGB"))).permute(2, 0, 1).float() / 255


def errors(scenes: list[Scene], method: str, raft: Path | None) -> dict[str, object]:
    """End-point errors, what the confidence knows about them, and seconds a frame."""
    background, moving, scores, wrong = [], [], [], []
    start = time.perf_counter()
    maps = [estimate(scene.burst, method, raft_weights=raft).correspondence for scene in scenes]
    seconds = (time.perf_counter() - start) / sum(len(s.burst) - 1 for s in scenes)
    for scene, found in zip(scenes, maps, strict=True):
        assert found.confidence is not None
        error, visible = end_point_error(found.to_frame[0], scene.to_frame)[1:], scene.visible[1:]
        on_object = scene.moving.expand_as(error)
        background.append(error[visible & ~on_object])
        moving.append(error[visible & on_object])
        # A pixel that the frame does not see has no match: whatever is given for it is wrong.
        bad, good = (error > 1) | ~visible, (error < 0.2) & visible
        scores.append(found.confidence[0, 1:, 0][bad | good])
        wrong.append(bad[bad | good])
    score, bad = torch.cat(scores), torch.cat(wrong)
    row: dict[str, object] = {"median": _quantile(background, 0.5), "95%": _quantile(background, 0.95)}
    if sum(len(m) for m in moving):
        row |= {"object median": _quantile(moving, 0.5), "object 95%": _quantile(moving, 0.95)}
        row |= {"confidence AUC": roc_auc(score, ~bad)}
        row |= {"confidence right": float(score[~bad].mean()), "confidence wrong": float(score[bad].mean())}
    return {**row, "seconds a frame": seconds}


def roc_auc(score: Tensor, positive: Tensor) -> float:
    """Chance that a positive scores above a negative, ties counted half."""
    values, inverse, counts = score.unique(return_inverse=True, return_counts=True)
    rank = (counts.cumsum(0).double() - (counts.double() - 1) / 2)[inverse]
    n, m = int(positive.sum()), int((~positive).sum())
    return float((rank[positive].sum() - n * (n + 1) / 2) / (n * m)) if n and m and len(values) else float("nan")


def sift_alone(scenes: list[Scene]) -> dict[str, object]:
    """The paper's homography without refinement, with OpenCV's usual settings."""

    def one(keyframe: np.ndarray, frame: np.ndarray) -> np.ndarray | None:
        sift = cv2.SIFT_create()
        (a, da), (b, db) = sift.detectAndCompute(keyframe, None), sift.detectAndCompute(frame, None)
        if da is None or db is None or min(len(a), len(b)) < 4:
            return None
        pairs = cv2.FlannBasedMatcher({"algorithm": 1, "trees": 5}, {"checks": 50}).knnMatch(da, db, k=2)
        good = [p[0] for p in pairs if len(p) == 2 and p[0].distance < 0.7 * p[1].distance]
        if len(good) < 4:
            return None
        points = [
            np.float32([k[i].pt for i in ids])
            for k, ids in ((a, [m.queryIdx for m in good]), (b, [m.trainIdx for m in good]))
        ]
        return cv2.findHomography(points[0], points[1], cv2.RANSAC, 3.0)[0]

    return _baseline(scenes, one)


def opencv_ecc(scenes: list[Scene]) -> dict[str, object]:
    """OpenCV's ECC for homographies, from a phase-correlated start."""

    def one(keyframe: np.ndarray, frame: np.ndarray) -> np.ndarray | None:
        window = cv2.createHanningWindow(keyframe.shape[::-1], cv2.CV_64F)
        (dx, dy), _ = cv2.phaseCorrelate(keyframe.astype(np.float64), frame.astype(np.float64), window)
        start = np.array([[1, 0, dx], [0, 1, dy], [0, 0, 1]], np.float32)
        criteria = (cv2.TERM_CRITERIA_EPS | cv2.TERM_CRITERIA_COUNT, 100, 1e-6)
        try:
            return cv2.findTransformECC(keyframe, frame, start, cv2.MOTION_HOMOGRAPHY, criteria, None, 5)[1]
        except cv2.error:  # it did not converge: counted as a failure
            return None

    return _baseline(scenes, one)


def _baseline(scenes: list[Scene], one) -> dict[str, object]:
    found, failed = [], 0
    for scene in scenes:
        grey = [(f.mean(0) * 255).round().byte().numpy() for f in scene.burst.frames]
        for i in range(1, len(grey)):
            matrix = one(grey[0], grey[i])
            failed += matrix is None
            matrix = np.eye(3) if matrix is None else matrix.astype(np.float64)
            h, w = scene.burst.size
            y, x = np.mgrid[:h, :w].astype(np.float64)
            u, v, d = np.tensordot(matrix, np.stack((x, y, np.ones_like(x))), 1)
            estimated = torch.from_numpy(np.stack((u / d - x, v / d - y))).float()
            found.append(end_point_error(estimated, scene.to_frame[i])[scene.visible[i]])
    return {"median": _quantile(found, 0.5), "95%": _quantile(found, 0.95), "failed": failed}


def recognition(photos: list[Tensor], noise: tuple[float, float]) -> dict[str, object]:
    """Bursts of a keyframe, four good frames, an unrelated and a badly blurred one: what is left out."""
    unrelated = blurred = dropped = good = 0
    for i, photo in enumerate(photos):
        scene = render(photo, seed=1000 + i, frames=7, noise=noise, blurred=6)
        other = render(photos[(i + 7) % len(photos)], seed=2000 + i, frames=2, noise=noise)
        frames = scene.burst.frames.clone()
        frames[5] = other.burst.frames[1]
        kept = [r.kept for r in align_burst(Burst(frames, scene.burst.camera)).frames]
        unrelated += not kept[5]
        blurred += not kept[6]
        dropped += sum(not k for k in kept[1:5])
        good += 4
    n = len(photos)
    return {
        "unrelated found": unrelated / n,
        "blurred found": blurred / n,
        "good left out": dropped / good,
        "bursts": n,
    }


def large_frames(megapixels: float, frames: int) -> dict[str, object]:
    """Seconds for each frame but the keyframe: finding the homography, and everything with maps and confidence."""
    w = int((megapixels * 1e6 * 4 / 3) ** 0.5)
    h = w * 3 // 4
    photo = F.interpolate(procedural_photo(1000, 0)[None], size=(h + 20, w + 20), mode="bicubic")[0].clamp(0, 1)
    rng = np.random.default_rng(0)
    generator = torch.Generator().manual_seed(0)
    stack = torch.empty(frames, 3, h, w)
    for frame, (x, y) in zip(stack, rng.integers(0, 20, (frames, 2)), strict=True):
        frame.normal_(0, 0.01, generator=generator).add_(photo[:, y : y + h, x : x + w]).clamp_(0, 1)
    burst = Burst(stack)
    row: dict[str, object] = {"case": f"{frames} frames of {w}×{h}"}
    for name, run in (
        ("homography", lambda: estimate_global_motion(luma(burst))),
        ("homography with maps and confidence", lambda: estimate(burst, "homography")),
        ("auto with maps and confidence", lambda: estimate(burst, "auto")),
    ):
        start = time.perf_counter()
        run()
        row[f"{name}, seconds a frame"] = (time.perf_counter() - start) / (frames - 1)
    return row


def _quantile(values: list[Tensor], q: float) -> float:
    joined = torch.cat(values)
    return float(np.quantile(joined.numpy(), q)) if len(joined) else float("nan")


if __name__ == "__main__":
    main()
