"""The page's layout: what stands where, and which control calls which handler."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import gradio as gr

from burstmamba.app.page import BICUBIC, HINT, SINGLE, Page, select, stop
from burstmamba.app.uploads import UploadLimits
from burstmamba.checkpoint import shipped_models
from burstmamba.correspondence import METHODS
from burstmamba.errors import InputError
from burstmamba.files.raw import RAW_SUFFIXES
from burstmamba.files.rgb import RGB_SUFFIXES
from burstmamba.files.video import VIDEO_SUFFIXES

# RAFT needs weights that are not shipped.
ESTIMATORS = [name for name in METHODS if not name.startswith("raft")]
DAY = 24 * 3600
"""Seconds that a visitor's frames and pictures are kept; a long burst takes hours on a CPU."""
INTRO = """# BurstMamba
Drop a handheld burst of one scene and get one sharp picture of four times the size. Nothing leaves this machine."""


@dataclass(frozen=True)
class InputPart:
    """Controls of the left column."""

    files: gr.File
    examples: dict[str, gr.Button]
    frames: gr.Gallery
    as_keyframe: gr.Button
    leave_out: gr.Button
    model: gr.Dropdown
    length: gr.Slider
    estimator: gr.Dropdown
    run: gr.Button
    cancel: gr.Button


@dataclass(frozen=True)
class ResultPart:
    """Controls of the right column."""

    status: gr.Markdown
    slider: gr.ImageSlider
    against: gr.Radio
    download: gr.DownloadButton


def build_page(models: list[str] | None = None, device: str = "cpu", limits: UploadLimits | None = None) -> gr.Blocks:
    """The Gradio page; one job runs at a time, others wait."""
    models, limits = models or shipped_models(), limits or UploadLimits()
    if not models:
        raise InputError("no model is shipped with this package; give one with --model FILE.safetensors.")
    page = Page(models, device, limits)
    for name in models:
        page.load(name)  # a wrong name is said now, not to a visitor who has waited for the alignment
    with gr.Blocks(title="BurstMamba", analytics_enabled=False, delete_cache=(3600, DAY)) as blocks:
        session = gr.State(None, time_to_live=DAY, delete_callback=lambda held: held and held.close())
        gr.Markdown(INTRO)
        with gr.Row(equal_height=False):
            with gr.Column(scale=2, min_width=300):
                given = input_part(page)
            with gr.Column(scale=3, min_width=320):
                shown = result_part()
        connect(page, session, given, shown)
        blocks.unload(page.leave)
    return blocks.queue(max_size=16, default_concurrency_limit=1)


def input_part(page: Page) -> InputPart:
    """Frames in, and how they are restored."""
    kinds = sorted({*RGB_SUFFIXES, *RAW_SUFFIXES, *VIDEO_SUFFIXES, ".zip"})
    files = gr.File(
        label="Frames, a zip file or a clip", file_count="multiple", file_types=kinds, height=170, elem_id="drop"
    )
    with gr.Row():
        examples = {name: gr.Button(f"Example: {name}", size="sm", min_width=100) for name in page.examples()}
    frames = gr.Gallery(
        label="Frames",
        show_label=False,
        columns=3,
        height=330,
        allow_preview=False,
        buttons=[],
        interactive=False,
        object_fit="cover",
        elem_id="frames",
    )
    with gr.Row(elem_id="choose"):
        as_keyframe = gr.Button("Make keyframe", size="sm", min_width=100)
        leave_out = gr.Button("Leave out / use again", size="sm", min_width=100)
    with gr.Accordion("Settings", open=False):
        hint = "paper draws finer detail and takes several times as long." if "paper" in page.models else None
        model = gr.Dropdown(page.models, value=page.models[0], label="Model", info=hint)
        length = gr.Slider(1, page.most_frames, value=14, step=1, label="Burst length: use at most")
        estimator = gr.Dropdown(ESTIMATORS, value="auto", label="Motion estimator")
    with gr.Row():
        run = gr.Button("Restore", variant="primary", interactive=False, min_width=120, elem_id="run")
        cancel = gr.Button("Cancel", interactive=False, min_width=120, elem_id="cancel")
    return InputPart(files, examples, frames, as_keyframe, leave_out, model, length, estimator, run, cancel)


def result_part() -> ResultPart:
    """What came out, against what there was."""
    status = gr.Markdown(HINT, elem_id="status")
    slider = gr.ImageSlider(
        label="Before / after",
        type="filepath",
        format="png",
        interactive=False,
        max_height=640,
        buttons=["fullscreen"],
        elem_id="slider",
    )
    against = gr.Radio([BICUBIC, SINGLE], value=BICUBIC, label="Compare with", elem_id="against")
    download = gr.DownloadButton("Download PNG", interactive=False, elem_id="download")
    return ResultPart(status, slider, against, download)


def connect(page: Page, session: gr.State, given: InputPart, shown: ResultPart) -> None:
    """Which control calls which handler; everything that computes shares one place in the queue."""
    work = {"concurrency_id": "work", "concurrency_limit": 1}
    looking, running = {**work, "show_progress_on": given.frames}, {**work, "show_progress_on": shown.slider}
    choice, looked = [given.estimator, session], [session, given.frames, shown.status, given.run]
    for change in (given.files.upload, given.files.delete, given.files.clear):  # by the visitor, not by an example
        change(page.upload, [given.files, *choice], looked, **looking)
    for name, button in given.examples.items():
        button.click(partial(page.example, name), choice, [*looked, given.files], **looking)
    given.as_keyframe.click(page.choose_keyframe, choice, [given.frames, shown.status], **looking)
    given.estimator.change(page.realign, choice, [given.frames, shown.status], **looking)
    given.frames.select(select, [session], [shown.status], queue=False)
    given.leave_out.click(page.toggle, [session], [given.frames, shown.status], queue=False)
    settings = [given.model, given.estimator, given.length, session]
    results = [shown.slider, shown.download, shown.status, given.run, given.cancel, shown.against]
    given.run.click(page.run, settings, results, **running)
    given.cancel.click(stop, [session], [shown.status], queue=False)
    shown.against.input(page.compare, [shown.against, session], [shown.slider, shown.status], **running)
