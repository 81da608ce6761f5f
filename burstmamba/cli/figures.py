"""`burstmamba figures`: one picture from one command."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

if TYPE_CHECKING:
    from burstmamba.burst import Burst
    from burstmamba.correspondence.field import Correspondence
    from burstmamba.data.sample import Sample

KINDS = {
    "comparison": "pictures of several methods with a magnified inset; SOURCE is the folder of evaluate --images",
    "strip": "half before, half after; SOURCE is the same folder",
    "length": "PSNR against burst length; SOURCE is a scores.json",
    "tradeoff": "PSNR against GFLOPs, the paper's teaser; SOURCE is a scores.json or `paper`",
    "maps": "flow, Gather and Scatter of one frame; SOURCE is a burst",
    "contribution": "what the burst adds at each stage; SOURCE is a burst, --weights a model",
}


def figures(
    kind: Annotated[str, typer.Argument(help="; ".join(f"{name}: {text}" for name, text in KINDS.items()))],
    source: Annotated[str, typer.Argument(help="Where the picture's contents come from; see KIND.")],
    out: Annotated[Path, typer.Option("--out", "-o", help="The PNG to write.")] = Path("figure.png"),
    image: Annotated[str, typer.Option(help="SUBSET/NAME of the burst to show, for comparison and strip.")] = "",
    methods: Annotated[str, typer.Option(help="Methods to show, comma-separated; all by default.")] = "",
    benchmark: Annotated[
        Path | None, typer.Option(help="The benchmark, for the ground truth and the camera of RAW bursts.")
    ] = None,
    box: Annotated[str, typer.Option(help="LEFT,TOP,WIDTH,HEIGHT of the inset; found if not given.")] = "",
    zoom: Annotated[int, typer.Option(min=1, help="Magnification of the insets.")] = 3,
    weights: Annotated[str, typer.Option(help="Model for `contribution`.")] = "light",
    preset: Annotated[str, typer.Option(help="Network whose cost `tradeoff` draws; by default the scored one.")] = "",
    peers: Annotated[Path | None, typer.Option(help="CSV with name, gflops, psnr for `tradeoff`.")] = None,
    frame: Annotated[int, typer.Option(min=1, help="Frame that `maps` shows.")] = 1,
    correspondence: Annotated[str, typer.Option(help="Estimator for `maps` and `contribution`.")] = "auto",
) -> None:
    """Draw one figure as a PNG."""
    from burstmamba.errors import InputError

    if kind not in KINDS:
        raise InputError(f"unknown figure {kind!r}; the known ones are {', '.join(KINDS)}.")
    if kind in ("comparison", "strip"):
        draw_panel(kind, Path(source), out, image, methods, benchmark, box, zoom)
    elif kind in ("length", "tradeoff"):
        draw_curve(kind, source, out, preset, peers)
    else:
        draw_inside(kind, Path(source), out, weights, frame, correspondence)
    Console(soft_wrap=True).print(f"{kind}: {out}", highlight=False)


def draw_panel(
    kind: str, folder: Path, out: Path, image: str, methods: str, benchmark: Path | None, box: str, zoom: int
) -> None:
    """Panels of pictures that `evaluate --images` kept, METHOD/SUBSET/NAME.png."""
    from burstmamba.burst import Camera
    from burstmamba.cli.evaluate import names
    from burstmamba.errors import InputError
    from burstmamba.evaluation.figures.panels import Box, comparison, developer, strip
    from burstmamba.evaluation.outputs import LINEAR_WHITE, read_picture

    found = find_pictures(folder, image)
    chosen = [name.replace(",", "").replace(" ", "-") for name in names(methods)] or list(found)
    missing = [name for name in chosen if name not in found]
    if missing:
        raise InputError(f"no picture of {image or 'any burst'} by {missing[0]!r}; there are {', '.join(found)}.")
    pictures = {name: read_picture(found[name], white=LINEAR_WHITE) for name in chosen}
    sample = find_sample(benchmark, image) if benchmark else None
    camera = sample.burst().camera if sample else Camera("RGGB", linear=True)
    # The pictures are linear where they have 16 bits.
    linear = has_16_bits(found[chosen[0]])
    show = developer(camera, list(pictures.values())[-1]) if linear else lambda picture: picture
    if kind == "strip":
        if len(pictures) != 2:
            raise InputError(f"a strip needs two --methods, before and after; got {len(pictures)}.")
        (before, first), (after, second) = pictures.items()
        save(strip(show(first), show(second), (before, after)), out)
        return
    truth = sample.target[0] if sample else None
    save(comparison(pictures, truth, Box.parse(box) if box else None, zoom=zoom, show=show), out)


def draw_curve(kind: str, source: str, out: Path, preset: str, peers: Path | None) -> None:
    """Curves over scores."""
    from burstmamba.evaluation.figures.curves import plot_length, plot_tradeoff
    from burstmamba.evaluation.scores import ScoreBook

    book = None if source == "paper" and kind == "tradeoff" else ScoreBook.load(Path(source))
    if kind == "length":
        assert book is not None
        plot_length(book, out)
    else:
        plot_tradeoff(out, peers, book, preset)


def draw_inside(kind: str, source: Path, out: Path, weights: str, frame: int, correspondence: str) -> None:
    """What happens to one burst."""
    from burstmamba.evaluation.figures.burst_pictures import contribution_picture, maps_picture

    burst, maps = aligned_burst(source, correspondence)
    if kind == "maps":
        save(maps_picture(burst, maps, frame), out)
        return
    from burstmamba.checkpoint import load_model

    save(contribution_picture(load_model(weights), burst, maps), out)


def aligned_burst(source: Path, correspondence: str) -> tuple[Burst, Correspondence]:
    """The usable frames of a burst and their maps."""
    from burstmamba.correspondence import align_burst
    from burstmamba.files import load_burst

    alignment = align_burst(load_burst(source), method=correspondence)
    return alignment.burst, alignment.correspondence


def find_pictures(folder: Path, image: str) -> dict[str, Path]:
    """Each method's picture of one burst; `image` is SUBSET/NAME."""
    from burstmamba.errors import InputError

    found = sorted(folder.glob(f"*/{image}.png")) if image else sorted(folder.glob("*/*/*.png"))
    if not found:
        raise InputError(
            f"no pictures METHOD/{image or 'SUBSET/NAME'}.png in {folder}; make them with evaluate --images."
        )
    if not image:
        first = found[0].relative_to(found[0].parents[1])
        raise InputError(f"which burst? Say it with --image, for example --image {first.with_suffix('')}.")
    pictures = {path.relative_to(folder).parts[0]: path for path in found}
    return dict(sorted(pictures.items(), key=lambda entry: reading_order(entry[0])))


def reading_order(method: str) -> tuple[int, int, str]:
    """Interpolation first, other methods, then the network by its number of frames."""
    import re

    if match := re.match(r"L=(\d+)", method):
        return 2, int(match.group(1)), method
    return (0 if method in ("nearest", "bicubic") else 1), 0, method


def find_sample(benchmark: Path, image: str) -> Sample:
    """The burst SUBSET/NAME with its ground truth."""
    from burstmamba.errors import InputError
    from burstmamba.evaluation.catalogue import open_benchmark

    for item in open_benchmark(benchmark, mosaics=None).items:
        if f"{item.subset}/{item.name}" == image:
            return item.load()
    raise InputError(f"{benchmark} has no burst {image}.")


def has_16_bits(path: Path) -> bool:
    """Whether a PNG does, as `evaluate --images` writes linear pictures: byte 24 of the file says so."""
    with open(path, "rb") as file:
        return file.read(25)[-1:] == bytes([16])


def save(picture, path: Path) -> None:
    """Write a PNG atomically."""
    import io

    from burstmamba.checkpoint import write_atomically

    content = io.BytesIO()
    picture.save(content, format="PNG")
    write_atomically(path, content.getvalue())
