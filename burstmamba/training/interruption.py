"""SIGTERM and Ctrl-C as a wish to stop: granted between two steps, or at once where nothing would be lost."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType, TracebackType


class StoppedEarly(BaseException):
    """A signal came while nothing would be lost; no `except Exception` on the way holds it up."""


class Interruption:
    """While it is entered, the first signal is remembered in `signal`; a second Ctrl-C interrupts at once."""

    SIGNALS = (signal.SIGTERM, signal.SIGINT)

    def __init__(self) -> None:
        self.signal: int | None = None
        self._waiting = True
        self._before: dict[int, object] = {}

    def __enter__(self) -> Interruption:
        if threading.current_thread() is threading.main_thread():
            for number in self.SIGNALS:
                self._before[number] = signal.signal(number, self._remember)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)  # pyright: ignore[reportArgumentType] (what signal gave)

    @contextmanager
    def at_once(self) -> Iterator[None]:
        """Raise `StoppedEarly` from whatever runs in here, which may take minutes, instead of waiting for its end."""
        self._waiting = False
        try:
            if self.signal is not None:
                raise StoppedEarly
            yield
        except BaseException as error:
            if self.signal is None or isinstance(error, StoppedEarly):
                raise
            raise StoppedEarly from error  # what was cut off found other words for it
        finally:
            self._waiting = True

    def _remember(self, number: int, frame: FrameType | None) -> None:
        if self.signal == number == signal.SIGINT:
            raise KeyboardInterrupt
        self.signal = number
        if not self._waiting:
            self._waiting = True
            raise StoppedEarly
