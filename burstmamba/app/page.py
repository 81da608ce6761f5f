"""What the page's controls do; everything about a visitor's burst lives in a Session."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path

import gradio as gr

from burstmamba.app.session import Cancelled, Session
from burstmamba.app.uploads import UploadLimits
from burstmamba.checkpoint import load_model
from burstmamba.errors import InputError
from burstmamba.files.shots import pictures_in
from burstmamba.restoration.restore import Progress

log = logging.getLogger(__name__)

EXAMPLES = Path(__file__).parent.parent / "examples"
HINT = "Drop frames, or click an example."
BICUBIC, SINGLE = "bicubic enlargement", "single image, same network"
PROGRESS = gr.Progress()


class Page:
    """Handlers of the page's controls."""

    def __init__(self, models: list[str], device: str, limits: UploadLimits, most_frames: int = 30) -> None:
        self.models, self.device, self.limits, self.most_frames = models, device, limits, most_frames
        self.load = lru_cache(maxsize=2)(lambda name: load_model(name, device))
        self.working: dict[str | None, Session] = {}
        """Sessions whose burst is being restored, by the visitor's tab."""

    def examples(self) -> list[str]:
        """Names of the shipped bursts that one of the models reads."""
        raw = any(Path(name).stem.endswith("-raw") for name in self.models)
        names = sorted(path.name for path in EXAMPLES.iterdir() if path.is_dir())
        return [name for name in names if raw or not name.endswith("-raw")]

    def model_for(self, session: Session, name: str):
        """The chosen model; its RAW or RGB twin where the frames need that one."""
        twin = f"{name.removesuffix('-raw')}-raw" if session.burst.camera.cfa else name.removesuffix("-raw")
        return self.load(twin if twin in self.models else name)

    def upload(
        self, files: list[str] | None, estimator: str, session: Session | None, progress: gr.Progress = PROGRESS
    ):
        """Files were dropped or removed: read, align, tell. Returns session, gallery, status, run button."""
        session = session or Session()
        if not files:
            session.forget()
            return session, [], HINT, gr.Button(interactive=False)
        try:
            progress(0.1, "reading the frames")
            session.upload(files, self.limits, self.most_frames)
            session.align(estimator, teller(progress))
        except InputError as error:  # said on the page
            return session, [], sorry(error), gr.Button(interactive=False)
        return session, session.thumbnails(), found(session), gr.Button(interactive=True)

    def example(self, name: str, estimator: str, session: Session | None, progress: gr.Progress = PROGRESS):
        """An example was clicked. Returns what `upload` does, and an empty list of dropped files."""
        files = [str(path) for path in pictures_in(EXAMPLES / name)]
        return *self.upload(files, estimator, session, progress), None

    def choose_keyframe(self, estimator: str, session: Session | None, progress: gr.Progress = PROGRESS):
        """The selected frame becomes the one that is reconstructed. Returns gallery, status."""
        if session is None or session.loaded is None or session.selected is None:
            return gr.skip(), "Click a frame first."
        session.keyframe = session.selected
        session.dropped.discard(session.keyframe)
        return self.realign(estimator, session, progress)

    def realign(self, estimator: str, session: Session | None, progress: gr.Progress = PROGRESS):
        """Keyframe or estimator changed. Returns gallery, status."""
        if session is None or session.loaded is None:
            return gr.skip(), gr.skip()
        try:
            session.align(estimator, teller(progress))
        except InputError as error:  # said on the page
            return session.thumbnails(), sorry(error)
        return session.thumbnails(), found(session)

    def toggle(self, session: Session | None):
        """Leave the selected frame out, or use it again. Returns gallery, status."""
        if session is None or session.loaded is None or session.selected is None:
            return gr.skip(), "Click a frame first."
        if session.selected == session.keyframe:
            return gr.skip(), "The keyframe is the picture itself and cannot be left out."
        if reason := session.left_out(session.selected):
            name = session.burst.names[session.selected]
            return gr.skip(), f"{name} is not used: {reason}."
        session.dropped ^= {session.selected}
        return session.thumbnails(), found(session)

    def run(
        self,
        model: str,
        estimator: str,
        length: float,
        session: Session | None,
        progress: gr.Progress = PROGRESS,
        request: gr.Request | None = None,
    ) -> Iterator[tuple]:
        """Restore. Yields slider, download, status, run button, cancel button, comparison choice."""
        if session is None or session.loaded is None:
            yield gr.skip(), gr.skip(), "Drop some frames first.", gr.skip(), gr.skip(), gr.skip()
            return
        idle = gr.Button(interactive=True), gr.Button(interactive=False)
        yield gr.skip(), gr.skip(), "Working …", gr.Button(interactive=False), gr.Button(interactive=True), gr.skip()
        tab = None if request is None else request.session_hash
        self.working[tab] = session
        try:
            done = session.restore(self.model_for(session, model), estimator, int(length), teller(progress))
            assert session.result is not None
            before = session.picture("bicubic", session.interpolated())
            after = session.picture("burstmamba", session.result)
        except Cancelled:  # by the visitor
            yield gr.skip(), gr.skip(), "Cancelled.", *idle, gr.skip()
            return
        except InputError as error:  # said on the page
            yield gr.skip(), gr.skip(), sorry(error), *idle, gr.skip()
            return
        except Exception as error:  # such as no memory left: the page must stay usable
            log.exception("a job failed")
            yield gr.skip(), gr.skip(), f"**That failed:** {type(error).__name__}: {error}", *idle, gr.skip()
            return
        finally:
            self.working.pop(tab, None)
        height, width = done.size
        seconds = sum(done.report.seconds.values())
        status = f"{len(done.burst)} frame(s) → {width}×{height} pixels in {seconds:.1f} s."
        yield (before, after), gr.DownloadButton(value=after, interactive=True), status, *idle, BICUBIC

    def leave(self, request: gr.Request) -> None:
        """A tab was closed or loaded again: nobody waits for its result, but others may wait for their turn."""
        stop(self.working.get(request.session_hash))

    def compare(self, what: str, session: Session | None, progress: gr.Progress = PROGRESS):
        """Show the result against something else. Returns slider, status."""
        if session is None or session.result is None:
            return gr.skip(), gr.skip()
        try:
            if what == BICUBIC:
                image, name = session.interpolated(), "bicubic"
            else:
                image, name = session.single(teller(progress)), "single"
            return (session.picture(name, image), session.picture("burstmamba", session.result)), f"Left: {what}."
        except InputError as error:  # said on the page
            return gr.skip(), sorry(error)


def teller(progress: gr.Progress) -> Progress:
    """Stages of the work on Gradio's progress bar."""
    names = {"align": "aligning the frames", "restore": "restoring"}

    def tell(stage: str, done: int, total: int) -> None:
        progress((done, max(total, 1)), desc=names.get(stage, stage), unit="steps")

    return tell


def sorry(error: InputError) -> str:
    """A sentence about what went wrong."""
    return f"**Not possible:** {error}"


def found(session: Session) -> str:
    """What is known about the burst."""
    assert session.loaded is not None and session.alignment is not None
    height, width = session.burst.size
    dropped = [i for i in session.dropped - {session.keyframe} if not session.left_out(i)]
    used = sum(r.kept for r in session.alignment.frames) - len(dropped)
    notes = "".join(f"\n- {note}" for note in (*session.loaded.notes, *session.alignment.notes))
    return f"{used} of {len(session.burst)} frame(s) of {width}×{height} pixels can be used.{notes}"


def select(session: Session | None, event: gr.SelectData) -> str:
    """A thumbnail was clicked. Returns status."""
    if session is None or session.loaded is None:
        return ""
    session.selected = int(event.index)
    return f"{session.burst.names[session.selected]} is selected: make it the keyframe or leave it out."


def stop(session: Session | None) -> str:
    """Cancel was pressed."""
    if session is not None:
        session.cancel.set()
    return "Stopping …"
