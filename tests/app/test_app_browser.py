"""The page in a real browser: upload, run, slider, download, a bad upload, and no request to anywhere else.

With BURSTMAMBA_SCREENSHOT=docs/app.png (and BURSTMAMBA_APP_MODEL=light) the picture of the docs is taken on the way.
"""

import os
import shutil
import socket
import subprocess
import sys
import time
import urllib.request
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from PIL import Image

import burstmamba
from burstmamba.checkpoint import save_checkpoint
from burstmamba.model.burstmamba import BurstMamba
from burstmamba.model.config import preset

pytest.importorskip("gradio", reason="needs the extra `app` (gradio)")
playwright = pytest.importorskip("playwright.sync_api", reason="needs playwright")
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
EXAMPLE = Path(burstmamba.__file__).parent / "examples" / "fig"

pytestmark = [
    pytest.mark.skipif(CHROMIUM is None, reason="no Chromium on this machine: apt-get install chromium"),
    pytest.mark.slow,
]


@pytest.fixture(scope="module")
def address(tmp_path_factory):
    """A page with a small network, served by the command in a process of its own."""
    folder = tmp_path_factory.mktemp("app")
    model = os.environ.get("BURSTMAMBA_APP_MODEL") or small_network(folder / "tiny.safetensors")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    (folder / "tmp").mkdir()
    environment = os.environ | {"OMP_NUM_THREADS": "1", "TMPDIR": str(folder / "tmp")}
    call = [sys.executable, "-m", "burstmamba", "app", "--port", str(port), "--model", model]
    process = subprocess.Popen(call, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    try:
        wait_for(f"http://127.0.0.1:{port}", process)
        yield f"http://127.0.0.1:{port}"
    finally:
        process.terminate()
        process.communicate(timeout=60)
    assert process.returncode == 0 and not list((folder / "tmp").glob("burstmamba-*")), "temporary files were left"


def small_network(path):
    """A random network that is quick and, its learnt part scaled down, mostly interpolates."""
    torch.manual_seed(0)
    model = BurstMamba(replace(preset("tiny"), channels=8, blocks=(1,), head_channels=4, burst_channels=4))
    for parameter in model.keyframe.parameters():
        parameter.data *= 0.3
    save_checkpoint(path, model)
    return str(path)


def wait_for(url, process, seconds=120):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if process.poll() is not None:
            pytest.fail(f"the page ended: {process.stdout.read()[-500:]}")
        try:
            urllib.request.urlopen(url, timeout=2).close()
            return
        except OSError:  # not up yet
            time.sleep(0.3)
    pytest.fail("the page did not start")


@pytest.fixture(scope="module")
def browser():
    with playwright.sync_playwright() as engine:
        chromium = engine.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield chromium
        chromium.close()


@pytest.fixture
def page(browser, address):
    """A fresh visitor; every request is remembered."""
    context = browser.new_context(viewport={"width": 1280, "height": 860}, accept_downloads=True)
    visitor = context.new_page()
    visitor.set_default_timeout(120_000)
    visitor.asked = []
    visitor.on("request", lambda request: visitor.asked.append(request.url))
    visitor.goto(address)
    visitor.wait_for_selector("#run")
    yield visitor
    context.close()


def test_upload_run_compare_download(page, address, tmp_path):
    page.set_input_files("#drop input[type=file]", [str(path) for path in sorted(EXAMPLE.glob("*.png"))[:3]])
    page.wait_for_selector("#frames img")
    page.wait_for_function("document.querySelector('#status').innerText.includes('3 of 3 frame(s) of 160×120')")
    assert page.locator("#frames .caption-label").count() == 3

    page.locator("#frames .thumbnail-item").nth(1).click()
    page.wait_for_function("document.querySelector('#status').innerText.includes('01.png is selected')")
    page.get_by_role("button", name="Leave out / use again").click()
    page.wait_for_function("document.querySelector('#status').innerText.includes('2 of 3 frame(s)')")
    page.get_by_role("button", name="Make keyframe").click()
    page.wait_for_function("document.querySelector('#frames').innerText.includes('★ 01.png')")

    page.click("#run")
    page.wait_for_selector("#slider img")
    page.wait_for_function("document.querySelector('#status').innerText.includes('→ 640×480 pixels')")
    handle = page.locator("#slider .inner, #slider .outer").last
    box = handle.bounding_box()
    before = page.locator("#slider").screenshot()
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    page.mouse.down()
    page.mouse.move(box["x"] - 150, box["y"] + box["height"] / 2, steps=5)
    page.mouse.up()
    assert page.locator("#slider").screenshot() != before, "the slider did not move"
    assert handle.bounding_box()["x"] < box["x"] - 50

    with page.expect_download() as waiting:
        page.click("#download")
    waiting.value.save_as(tmp_path / "result.png")
    with Image.open(tmp_path / "result.png") as picture:
        picture.load()
        assert picture.size == (640, 480) and picture.format == "PNG"

    page.locator("#against").get_by_text("single image").click()
    page.wait_for_function("document.querySelector('#status').innerText.includes('Left: single image')")
    outside = [url for url in page.asked if not url.startswith((address, "data:", "blob:"))]
    assert not outside, outside


def test_an_example_is_one_click(page):
    page.get_by_role("button", name="Example: fig").click()
    page.wait_for_function("document.querySelector('#status').innerText.includes('14 of 14 frame(s)')")
    wanted = os.environ.get("BURSTMAMBA_SCREENSHOT")
    if wanted:
        page.click("#run")
        page.wait_for_selector("#slider img", timeout=600_000)
        page.wait_for_timeout(1500)
        page.screenshot(path=wanted)
        with Image.open(wanted) as picture:  # few colours make a file that a repository can hold
            small = picture.convert("RGB").quantize(256, dither=Image.Dither.NONE)
        small.save(wanted, optimize=True)


def test_the_second_result_is_shown_too(page):
    shown = []
    for example, size in (("fig", "640×480"), ("nuthatch", "640×480")):
        page.get_by_role("button", name=f"Example: {example}").click()
        page.wait_for_function("document.querySelector('#status').innerText.includes('14 of 14 frame(s)')")
        page.click("#run")
        page.wait_for_function(f"document.querySelector('#status').innerText.includes('→ {size} pixels')")
        page.wait_for_selector("#slider img")
        page.wait_for_timeout(500)
        shown.append(page.evaluate("[...document.querySelectorAll('#slider img')].map(image => image.src)"))
    assert len(shown[0]) >= 2 and not set(shown[0]) & set(shown[1])


def test_a_bad_upload_shows_a_sentence(page, tmp_path):
    (tmp_path / "letter.jpg").write_text("Dear page, this is not a picture.")
    page.set_input_files("#drop input[type=file]", str(tmp_path / "letter.jpg"))
    page.wait_for_function("document.querySelector('#status').innerText.includes('Not possible: letter.jpg')")
    assert page.locator("#run").is_disabled()


def test_a_removed_file_is_forgotten(page, tmp_path):
    """As the sentence about the odd file asks for."""
    Image.new("RGB", (24, 16)).save(tmp_path / "odd.png")
    page.set_input_files("#drop input[type=file]", [*map(str, sorted(EXAMPLE.glob("*.png"))[:2]), tmp_path / "odd.png"])
    page.wait_for_function("document.querySelector('#status').innerText.includes('odd.png is 24×16')")
    page.get_by_role("button", name="Remove this file").nth(2).click()
    page.wait_for_function("document.querySelector('#status').innerText.includes('2 of 2 frame(s)')")
    assert page.locator("#run").is_enabled()
    page.get_by_role("button", name="Example: nuthatch").click()
    page.wait_for_function("document.querySelector('#status').innerText.includes('14 of 14 frame(s)')")
    assert page.get_by_role("button", name="Remove this file").count() == 0, "files that are not used are listed"


def test_a_phone_sees_one_column(browser, address):
    context = browser.new_context(viewport={"width": 390, "height": 844}, is_mobile=True)
    phone = context.new_page()
    phone.goto(address)
    phone.wait_for_selector("#run", timeout=120_000)
    assert phone.evaluate("document.documentElement.scrollWidth") <= 390, "the page scrolls sideways"
    assert phone.locator("#slider").bounding_box()["y"] > phone.locator("#run").bounding_box()["y"]
    context.close()
