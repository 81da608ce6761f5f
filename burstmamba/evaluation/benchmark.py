"""A set of bursts to score on: what is in it, and by which protocols it is scored."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace

from burstmamba.burst import Burst
from burstmamba.data.sample import Sample
from burstmamba.errors import InputError
from burstmamba.evaluation.protocol import protocol


@dataclass(frozen=True)
class Item:
    """One burst with its ground truth, loaded when it is needed."""

    subset: str
    name: str
    protocols: tuple[str, ...]
    """Names of the protocols it is scored by."""
    centres: str
    """`half-pixel` or `corner`: how the target's grid lies on the keyframe's."""
    load: Callable[[], Sample]
    """Gives a sample with b = 1; can be sent to another process."""

    def load_burst(self) -> Burst:
        """The burst without its ground truth."""
        return self.load().burst()


@dataclass(frozen=True)
class Benchmark:
    """Bursts in a fixed order."""

    name: str
    items: tuple[Item, ...]

    @property
    def subsets(self) -> list[str]:
        """Names of the subsets, in order."""
        return list(dict.fromkeys(item.subset for item in self.items))

    def select(self, subsets: list[str] | None = None, limit: int | None = None) -> Benchmark:
        """Only these subsets, and only the first `limit` bursts of each."""
        unknown = [name for name in subsets or [] if name not in self.subsets]
        if unknown:
            raise InputError(f"{self.name} has no subset {unknown[0]!r}; it has {', '.join(self.subsets)}.")
        kept: list[Item] = []
        for name in subsets or self.subsets:
            kept += [item for item in self.items if item.subset == name][:limit]
        return replace(self, items=tuple(kept))

    def readable(self, report: Callable[[str], None], threads: int) -> Benchmark:
        """Without the bursts that cannot be read, whose reasons are reported; every burst is read once for this."""

        def reason(item: Item) -> str:
            try:
                item.load()
            except InputError as error:  # the reason is what is asked for
                return str(error)
            return ""

        with ThreadPoolExecutor(threads) as pool:
            reasons = list(pool.map(reason, self.items))
        for text in filter(None, reasons):
            report(text)
        kept = tuple(item for item, text in zip(self.items, reasons, strict=True) if not text)
        if not kept:
            raise InputError(f"not one of the {len(reasons)} bursts of {self.name} can be read.")
        return replace(self, items=kept)

    def moved(self, centres: str) -> list[str]:
        """Subsets whose targets lie on another grid than a network with these `centres` writes: it is resampled."""
        return list(dict.fromkeys(item.subset for item in self.items if item.centres != centres))

    def with_protocols(self, names: list[str]) -> Benchmark:
        """The same bursts under other protocols; an unknown one is refused."""
        for name in names:
            protocol(name)
        return replace(self, items=tuple(replace(item, protocols=tuple(names)) for item in self.items))
