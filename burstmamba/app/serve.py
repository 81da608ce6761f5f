"""Serving the page on this machine: offline, without analytics, with its temporary files removed."""

from __future__ import annotations

import os
import shutil
import signal
import sys
import tempfile
from pathlib import Path

from burstmamba.app.uploads import UploadLimits
from burstmamba.errors import InputError

STYLE = Path(__file__).with_name("style.css")


def serve(
    *,
    models: list[str] | None = None,
    device: str = "cpu",
    host: str = "127.0.0.1",
    port: int = 7860,
    open_browser: bool = False,
    limits: UploadLimits | None = None,
) -> None:
    """Serve until interrupted."""
    limits = limits or UploadLimits()
    temporary = tempfile.mkdtemp(prefix="burstmamba-gradio-")
    # Gradio reads these when it is imported.
    os.environ |= {"GRADIO_ANALYTICS_ENABLED": "False", "HF_HUB_DISABLE_TELEMETRY": "1", "GRADIO_TEMP_DIR": temporary}
    tempfile.tempdir = temporary  # visitors' frames go there too, so that all of it goes in the end
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(0))  # so that the files below are removed then too
    try:
        try:
            from gradio.themes import Soft
        except ImportError:
            raise InputError("the page needs gradio; install it with: pip install 'burstmamba[app]'.") from None
        from burstmamba.app.layout import build_page

        page = build_page(models, device, limits)
        page.launch(
            server_name=host,
            server_port=port,
            inbrowser=open_browser,
            share=False,
            ssr_mode=False,
            max_file_size=limits.megabytes * 1_000_000,
            footer_links=[],
            theme=Soft(font=["system-ui", "sans-serif"], font_mono=["ui-monospace", "monospace"]),
            css_paths=[STYLE],
            quiet=True,
            prevent_thread_lock=True,
        )
        print(f"BurstMamba is at http://{host}:{port} (stop with Ctrl-C)", flush=True)
        page.block_thread()
    except OSError as error:
        raise InputError(
            f"the page could not be served at {host}:{port} ({error}); choose another --port or --host."
        ) from None
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
