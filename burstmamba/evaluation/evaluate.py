"""Score methods on a benchmark: batched where sizes agree, resumable, complaints collected instead of raised."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import torch
from torch import Tensor

from burstmamba.correspondence.field import Correspondence
from burstmamba.data.sample import Sample, collate_maps
from burstmamba.errors import InputError
from burstmamba.evaluation.alignment_cache import AlignedBurst, AlignmentCache, default_workers
from burstmamba.evaluation.benchmark import Benchmark, Item
from burstmamba.evaluation.color_alignment import base_frame
from burstmamba.evaluation.fingerprint import TRUTH_TOLERANCE, fingerprint, mean_value, same_frames
from burstmamba.evaluation.lpips import Lpips
from burstmamba.evaluation.outputs import LINEAR_WHITE, read_output
from burstmamba.evaluation.protocol import protocol, score
from burstmamba.evaluation.reconstruct import Method, batch_size, frames_and_maps, reconstruct
from burstmamba.evaluation.scores import Score, ScoreBook
from burstmamba.folders import make_folder
from burstmamba.model.burstmamba import BurstMamba

CHUNK = 32
"""Bursts held in memory at once."""
SAVE_EVERY = 20.0
"""Seconds of scores that a run which is cut off may lose, and a batch."""

Progress = Callable[[str, int, int], None]
"""Called as (stage, done, total)."""


@dataclass(frozen=True)
class Loaded:
    """One burst in memory."""

    item: Item
    sample: Sample
    aligned: dict[str, AlignedBurst]
    """Its maps by the estimators that are asked for."""


@dataclass
class Evaluation:
    """Everything one evaluation needs."""

    benchmark: Benchmark
    methods: Sequence[Method]
    folder: Path
    """Where scores.json, scores.csv and the estimated maps are kept."""
    model: BurstMamba | None = None
    lpips: Lpips | None = None
    device: str = "cpu"
    workers: int = field(default_factory=default_workers)
    cache: AlignmentCache | None = None
    """Estimated maps that are shared with other evaluations."""
    swapped_outputs: bool = False
    """Whether other methods' files have red and blue exchanged."""
    images: Path | None = None
    """Where to keep the pictures of every method; None keeps none."""
    progress: Progress = lambda stage, done, total: None

    def run(self, header: dict[str, str]) -> ScoreBook:
        """Score what is not scored yet.

        Args:
            header: what is being evaluated; an existing folder must have been made with the same weights.

        Returns:
            The book, also written to the folder.
        """
        book = open_book(self.folder / "scores.json", header)
        self._check_first(book)
        book.problems.clear()
        outputs = [method.label for method in self.methods if method.kind == "outputs"]
        book.forget(outputs)  # the pictures may be others by now, and are quickly scored again
        missing = [[m for m in self.methods if not self._is_done(book, item, m)] for item in self.benchmark.items]
        todo = [item for item, methods in zip(self.benchmark.items, missing, strict=True) if methods]
        if todo:
            book.header.update(header)  # what made the scores that are added now
        cache = self.cache or AlignmentCache(self.folder / "maps")
        self._estimate(todo, book, cache)
        done, total, saved = 0, sum(map(len, missing)), time.monotonic()
        threads = torch.get_num_threads()
        if self.device.startswith("cuda"):
            torch.set_num_threads(1)  # the CPU only reads bursts then, with one thread of Python for each core
        try:
            for chunk in load_chunks(todo, partial(self._load, cache, book), CHUNK, self.workers):
                for loaded in chunk:
                    self._check_same(book, loaded.item, loaded.sample)
                for method in self.methods:
                    bursts = [loaded for loaded in chunk if not self._is_done(book, loaded.item, method)]
                    for count in self._run_method(method, bursts, book):
                        done += count
                        self.progress("score", done, total)
                        if time.monotonic() - saved > SAVE_EVERY:
                            book.save(self.folder / "scores.json")
                            saved = time.monotonic()
        finally:
            torch.set_num_threads(threads)
            book.save(self.folder / "scores.json")
            book.save_csv(self.folder / "scores.csv")
        return book

    def _is_done(self, book: ScoreBook, item: Item, method: Method) -> bool:
        """Whether all that is asked for is there: a score by every protocol, its LPIPS, the picture."""
        if self.images is not None and method.kind != "outputs" and not self._picture_path(method, item).is_file():
            return False
        scores = [book.scores.get((item.subset, item.name, method.label, name)) for name in item.protocols]
        return all(score is not None and (self.lpips is None or score.lpips is not None) for score in scores)

    def _check_first(self, book: ScoreBook) -> None:
        """Refuse scores of other bursts that have the same names, by the first burst that both have."""
        item = next((item for item in self.benchmark.items if _name(item) in book.truths), None)
        if item is not None:
            self._check_same(book, item, item.load())

    def _check_same(self, book: ScoreBook, item: Item, sample: Sample) -> None:
        """Refuse a burst that is not the one scored under its name; a new one is remembered."""
        name, here, frames = _name(item), mean_value(sample.target), fingerprint(sample)
        there, reason = book.truths.setdefault(name, here), ""
        if abs(here - there) > TRUTH_TOLERANCE:
            reason = f"its ground truth has the mean {there}, here it is {here}"
        elif not same_frames(book.frames.setdefault(name, frames), frames):
            reason = "the same ground truth, other frames"
        if reason:
            raise InputError(f"{self.folder} holds scores of another {name} ({reason}); choose another folder.")

    def _load(self, cache: AlignmentCache, book: ScoreBook, item: Item) -> Loaded:
        """Read a burst and the maps that are still needed; every method and burst length shares them."""
        sample = item.load()
        users = [m for m in self.methods if m.needs_estimate and not self._is_done(book, item, m)]
        names = dict.fromkeys(method.correspondence for method in users)
        return Loaded(item, sample, {name: cache.get(sample.burst(), name) for name in names})

    def _estimate(self, items: list[Item], book: ScoreBook, cache: AlignmentCache) -> None:
        """Fill the cache for every estimator that is asked for."""
        names = dict.fromkeys(method.correspondence for method in self.methods if method.needs_estimate)
        for name in names:
            users = [method for method in self.methods if method.needs_estimate and method.correspondence == name]
            wanted = [item for item in items if any(not self._is_done(book, item, method) for method in users)]
            wanted = [item for item in wanted if (name, item.subset, item.name) not in cache.filled]
            done = [0]

            def advance(done: list[int] = done, wanted: list[Item] = wanted, name: str = name) -> None:
                done[0] += 1
                self.progress(f"align ({name})", done[0], len(wanted))

            cache.fill([item.load_burst for item in wanted], name, min(self.workers, max(1, len(wanted) // 2)), advance)
            cache.filled.update((name, item.subset, item.name) for item in wanted)

    def _run_method(self, method: Method, bursts: list[Loaded], book: ScoreBook) -> Iterator[int]:
        """Score a method; gives after each batch how many bursts are dealt with by it."""
        if method.kind == "outputs":
            for burst in bursts:
                self._score_output(method, burst.item, burst.sample, book)
                yield 1
            return
        prepared = []
        for burst in bursts:
            item, sample = burst.item, burst.sample
            if method.kind in ("network", "classical") and method.frames > sample.frames.shape[1]:
                book.problems[f"{method.label}: {item.subset}"] = self._too_short(item, sample.frames.shape[1])
                yield 1
                continue
            prepared.append((item, sample, *frames_and_maps(sample, method, burst.aligned.__getitem__)))
        for group in same_shape(prepared):
            model = self.model if method.kind == "network" else None
            step = max(1, batch_size(model, group[0][2].shape))
            for start in range(0, len(group), step):
                self._run_batch(method, group[start : start + step], book)
                yield len(group[start : start + step])

    def _too_short(self, item: Item, there: int) -> str:
        """What to do about bursts with fewer frames than asked for; only OpenBurst's can be made longer."""
        if self.benchmark.name.startswith("openburst") and item.subset != "raw-synburst":
            return f"its bursts have {there} frames; longer ones: burstmamba openburst --frames."
        return f"its bursts have {there} frames; choose a --burst-length of at most that."

    def _run_batch(
        self, method: Method, group: list[tuple[Item, Sample, Tensor, Correspondence | None]], book: ScoreBook
    ) -> None:
        item, sample, _, _ = group[0]
        frames = torch.cat([entry[2] for entry in group]).to(self.device)
        together = collate_maps([entry[3] for entry in group])
        maps = None if together is None else together.to(self.device)
        start = time.perf_counter()
        pictures = reconstruct(
            method, frames, maps, model=self.model, scale=sample.scale, centres=item.centres,
            linear=sample.burst().camera.linear,
        )  # fmt: skip
        if pictures.is_cuda:
            torch.cuda.synchronize()
        seconds = (time.perf_counter() - start) / len(group)
        usable = [i for i, finite in enumerate(pictures.isfinite().flatten(1).all(dim=1).tolist()) if finite]
        for index in set(range(len(group))) - set(usable):  # listed at the end, the rest is scored
            book.problems[f"{method.label}: {_name(group[index][0])}"] = "its picture has NaN or infinite values."
        if usable:
            pairs = [group[index][:2] for index in usable]
            self._score(method, pairs, pictures[usable], book, seconds=seconds, frames=frames.shape[1])

    def _score_output(self, method: Method, item: Item, sample: Sample, book: ScoreBook) -> None:
        assert method.folder is not None
        try:
            h, w = sample.target.shape[-2:]
            linear = sample.burst().camera.linear
            picture = read_output(
                method.folder, item.subset, item.name, (h, w), linear=linear, swapped=self.swapped_outputs
            )
            self._score(method, [(item, sample)], picture[None], book)
        except InputError as error:  # listed at the end, the rest is scored
            book.problems[f"{method.label}: {_name(item)}"] = str(error)

    def _score(
        self,
        method: Method,
        pairs: list[tuple[Item, Sample]],
        pictures: Tensor,
        book: ScoreBook,
        *,
        seconds: float | None = None,
        frames: int | None = None,
    ) -> None:
        """Score pictures (b, 3, h, w) of bursts that share shape and protocols."""
        cameras = [sample.burst().camera for _, sample in pairs]
        target = torch.cat([sample.target for _, sample in pairs]).to(self.device)
        keyframe = torch.cat([sample.frames[:, 0] for _, sample in pairs]).to(self.device)
        keyframe = base_frame(keyframe) if keyframe.shape[1] == 1 else keyframe
        for name in pairs[0][0].protocols:
            values = score(
                pictures.to(self.device), target, protocol(name), lpips=self.lpips,
                white_balance=[camera.white_balance for camera in cameras], keyframe=keyframe,
            )  # fmt: skip
            columns = {metric: value.tolist() for metric, value in values.items()}
            for index, (item, _) in enumerate(pairs):
                numbers = {metric: column[index] for metric, column in columns.items()}
                book.add(Score(item.subset, item.name, method.label, name, **numbers, seconds=seconds, frames=frames))
        if self.images is not None and method.kind != "outputs":
            for (item, _), picture, camera in zip(pairs, pictures, cameras, strict=True):
                self._keep(method, item, picture, linear=camera.linear)

    def _keep(self, method: Method, item: Item, picture: Tensor, *, linear: bool) -> None:
        """Write a picture as `read_output` reads it."""
        from burstmamba.files import save_image

        path = self._picture_path(method, item)
        make_folder(path.parent)
        picture = picture.float().clamp(0, 1).cpu() * (LINEAR_WHITE / 65535 if linear else 1)
        save_image(path, picture, bits=16 if linear else 8, force=True)

    def _picture_path(self, method: Method, item: Item) -> Path:
        assert self.images is not None
        return self.images / method.folder_name / item.subset / f"{item.name}.png"


def open_book(path: Path, header: dict[str, str]) -> ScoreBook:
    """The book at `path`, or a new one; scores of other weights are not mixed with these."""
    if not path.is_file():
        return ScoreBook(dict(header))
    book = ScoreBook.load(path)
    for name in ("weights_sha256", "benchmark"):
        if book.header.get(name) != header.get(name):
            raise InputError(
                f"{path} holds scores with {name} {book.header.get(name)}, not {header.get(name)}; "
                "choose another folder."
            )
    return book


def load_chunks(items: list[Item], load: Callable[[Item], Loaded], size: int, threads: int) -> Iterator[list[Loaded]]:
    """Bursts in groups of `size`, the next group being read while this one is used."""
    groups = [items[start : start + size] for start in range(0, len(items), size)]

    def read(group: list[Item], pool: ThreadPoolExecutor) -> list[Future[Loaded]]:
        return [pool.submit(load, item) for item in group]

    with ThreadPoolExecutor(threads) as pool:
        try:
            waiting = read(groups[0], pool) if groups else []
            for following in [*groups[1:], []]:
                current, waiting = waiting, read(following, pool)
                yield [future.result() for future in current]
        finally:
            pool.shutdown(wait=False, cancel_futures=True)  # who stops early does not wait for what nobody will use


def same_shape(prepared: list) -> list[list]:
    """Group (item, sample, frames, maps) entries that can share a batch."""
    groups: dict[tuple, list] = {}
    for entry in prepared:
        item, sample, frames, maps = entry
        confident = maps is not None and maps.confidence is not None
        camera = sample.burst().camera
        key = (tuple(frames.shape[1:]), maps is None, confident, item.centres, item.protocols, camera.linear)
        groups.setdefault(key, []).append(entry)
    return list(groups.values())


def _name(item: Item) -> str:
    return f"{item.subset}/{item.name}"
