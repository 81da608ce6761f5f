"""`burstmamba openburst`: write the OpenBurst benchmark to disk."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def openburst(
    photos: Annotated[Path, typer.Argument(help="The benchmark's photographs, or any others.")],
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder for the bursts; must be empty or new.")],
    subsets: Annotated[str, typer.Option(help="Comma-separated, or all.")] = "all",
    limit: Annotated[int | None, typer.Option(min=1, help="Only the first so many photographs.")] = None,
    frames: Annotated[
        int, typer.Option(min=14, help="More than the benchmark's 14: the same ones and further ones.")
    ] = 14,
    maps: Annotated[bool, typer.Option(help="Also write the exact maps (7 MB a burst).")] = False,
    device: Annotated[str, typer.Option(help="cpu or cuda: where frames are rendered.")] = "cpu",
    force: Annotated[bool, typer.Option("--force", help="Write into a folder that is not empty.")] = False,
) -> None:
    """Make the OpenBurst benchmark: still, noisy, moving, badframe, raw, raw-synburst."""
    import json
    from concurrent.futures import ThreadPoolExecutor

    import torch
    from rich.console import Console
    from rich.progress import track

    from burstmamba.data.decoding import own_cores
    from burstmamba.data.folders import write_burst
    from burstmamba.data.openburst import FRAMES, SUBSETS, OpenBurst
    from burstmamba.data.pictures import write_whole
    from burstmamba.data.writing import prepare_folder
    from burstmamba.device import pick_device
    from burstmamba.errors import InputError

    known = SUBSETS if frames == FRAMES else SUBSETS[:-1]  # raw-synburst has 14
    wanted = known if subsets == "all" else tuple(name.strip() for name in subsets.split(","))
    for name in wanted:
        if name not in SUBSETS:
            raise InputError(f"OpenBurst has no subset {name!r}; choose from {', '.join(SUBSETS)}.")
    place = pick_device(device)
    bench = OpenBurst.open(photos)
    prepare_folder(out, force=force)
    reasons = bench.unofficial()
    console = Console(stderr=True, soft_wrap=True)
    if reasons:
        first, *others = reasons
        more = f" (and {len(others)} more)" if others else ""
        console.print(f"not the published photographs: {first}{more}", markup=False, highlight=False)
    names = bench.names[:limit]
    (out / "openburst.json").unlink(missing_ok=True)  # of an earlier set, which this one replaces
    jobs = [(index, subset) for subset in wanted for index in range(len(names))]

    def write(job: tuple[int, str]) -> None:
        index, subset = job
        sample = bench.load(index, subset, place, frames=frames)
        write_burst(out / subset, names[index], sample, maps=maps, notes={"photograph": bench.photographs[index].name})

    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # one burst a core instead
    with ThreadPoolExecutor(own_cores()) as pool:
        for _ in track(pool.map(write, jobs), "rendering", total=len(jobs), console=console):
            pass
    torch.set_num_threads(threads)
    content = {"benchmark": "openburst", "published": not reasons and limit is None, "frames": frames}
    content |= {"subsets": wanted, "names": names}
    write_whole(out / "openburst.json", (json.dumps(content, indent=2) + "\n").encode())
    Console(soft_wrap=True).print(f"{len(jobs)} bursts in {out}", highlight=False)
