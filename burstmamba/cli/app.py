"""`burstmamba app`: the web page on this machine."""

from __future__ import annotations

from typing import Annotated

import typer


def app(
    model: Annotated[
        list[str] | None, typer.Option(help="Model to offer, by name or file; repeatable. Default: all shipped.")
    ] = None,
    host: Annotated[str, typer.Option(help="Address to listen on; 0.0.0.0 lets other machines in.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=1, max=65535)] = 7860,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda or cuda:N.")] = "auto",
    browser: Annotated[bool, typer.Option("--browser", help="Open the page in a browser.")] = False,
    max_upload: Annotated[int, typer.Option(min=1, help="Largest upload in MB.")] = 300,
    max_megapixels: Annotated[float, typer.Option(min=0.1, help="Largest frame.")] = 24.0,
) -> None:
    """Serve a page on which bursts are dropped, restored and compared."""
    from burstmamba.app.serve import serve
    from burstmamba.app.uploads import UploadLimits
    from burstmamba.device import pick_device

    limits = UploadLimits(megabytes=max_upload, megapixels=max_megapixels)
    serve(models=model, device=str(pick_device(device)), host=host, port=port, open_browser=browser, limits=limits)
