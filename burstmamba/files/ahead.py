"""Work on the pieces of a file in threads, a few pieces ahead of where they are used."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")


def ahead(function: Callable[[Item], Result], items: Iterable[Item], most: int | None = None) -> Iterator[Result]:
    """`function` of every item, in the order of the items.

    Decoders, compressors and array operations run side by side, since they let other threads run meanwhile.

    Args:
        most: threads; None takes one a core. One item more than that is held at a time, begun or done.
    """
    threads = min(most or os.cpu_count() or 1, os.cpu_count() or 1)
    pool = ThreadPoolExecutor(threads)
    waiting: deque[Future[Result]] = deque()
    try:
        for item in items:
            waiting.append(pool.submit(function, item))
            if len(waiting) > threads:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
    finally:  # after an error or an interrupt what is waiting is not begun
        pool.shutdown(cancel_futures=True)
