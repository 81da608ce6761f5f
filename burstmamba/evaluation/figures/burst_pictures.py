"""What happens inside: maps as colours, Gather and Scatter step by step, and what the burst adds at each stage."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from PIL import Image
from torch import Tensor

from burstmamba.burst import Burst
from burstmamba.correspondence.field import Correspondence
from burstmamba.correspondence.report import flow_picture
from burstmamba.errors import InputError
from burstmamba.evaluation.figures.panels import developer, grid
from burstmamba.evaluation.reconstruct import batch_size
from burstmamba.model.base_image import demosaic_bilinear
from burstmamba.model.burstmamba import BurstMamba


def burst_priors(model: BurstMamba, frames: Tensor, maps: Correspondence | None) -> list[Tensor]:
    """What the burst stream adds to the keyframe stream after each stage: (b, c, h, w) each.

    Args:
        model: with a burst stream.
        frames: (b, l, c, h, w) with at least two frames.
        maps: of all frames.
    """
    if model.burst is None or frames.shape[1] < 2:
        raise InputError("the burst adds nothing here: a network with a burst stream and two frames are needed.")
    priors: list[Tensor] = []
    handles = [
        projection.register_forward_hook(lambda _module, _inputs, output: priors.append(output.detach().float()))
        for projection in model.burst.projections
    ]
    try:
        with torch.inference_mode():
            model(frames, maps)
    finally:
        for handle in handles:
            handle.remove()
    return priors


def contribution_maps(priors: list[Tensor]) -> list[Tensor]:
    """Root mean square over channels of each stage's prior, its mean removed: (b, h, w) each."""
    return [(p - p.mean(dim=(2, 3), keepdim=True)).square().mean(dim=1).sqrt() for p in priors]


def edge_correlation(contribution: Tensor, keyframe: Tensor) -> float:
    """Correlation of a contribution (h, w) with the keyframe's (3, h, w) gradient: high where it follows edges."""
    grey = F.pad(keyframe.mean(dim=0)[None, None], (1, 1, 1, 1), mode="replicate")[0, 0]
    gradient = ((grey[1:-1, 2:] - grey[1:-1, :-2]).square() + (grey[2:, 1:-1] - grey[:-2, 1:-1]).square()).sqrt()
    pair = torch.stack((contribution.flatten(), gradient.flatten()))
    return torch.corrcoef(pair)[0, 1].item()


def contribution_picture(model: BurstMamba, burst: Burst, maps: Correspondence) -> Image.Image:
    """The keyframe and the burst's contribution at every stage, each scaled to its own largest value."""
    device = next(model.parameters()).device
    if batch_size(model, (1, *burst.frames.shape)) == 0:
        h, w = burst.size
        raise InputError(f"{len(burst)} frames of {w}×{h} do not fit in memory at once; cut a part out of them first.")
    frames = burst.frames[None].to(device)
    contributions = contribution_maps(burst_priors(model, frames, maps.to(device)))
    keyframe = _shown(burst)[0]
    pictures = [("keyframe", keyframe)]
    for index, stage in enumerate(contributions):
        picture = stage[0].cpu()
        largest = picture.quantile(0.995)
        added = f"follows edges {edge_correlation(picture, keyframe):+.2f}" if largest > 0 else "adds nothing"
        scaled = (picture / largest.clamp_min(1e-12)).clamp(0, 1)
        pictures.append((f"stage {index + 1}: {added}", scaled.expand(3, -1, -1)))
    return grid(pictures, zoom=_zoom(burst))


def maps_picture(burst: Burst, maps: Correspondence, frame: int = 1) -> Image.Image:
    """Maps of one frame as colours, its confidence, and what Gather and Scatter make of it."""
    if not 0 < frame < len(burst):
        raise InputError(f"frame must be between 1 and {len(burst) - 1}, got {frame}.")
    images = _shown(burst)  # (l, 3, h, w)
    pair = maps.select([0, frame])
    views = torch.stack((images[0], images[frame]))[None]
    gathered = pair.gather(views)[0, 1]
    scattered = pair.scatter(pair.gather(views))[0, 1]
    forward, back = pair.to_frame[0, 1], pair.to_keyframe[0, 1]
    largest = max(forward.norm(dim=0).max().item(), 1e-6)
    difference = 0.5 + 2 * (gathered - images[0])
    pictures = [
        ("keyframe", images[0]),
        (f"frame {frame}", images[frame]),
        ("gathered: frame in the keyframe's view", gathered),
        ("scattered back", scattered),
        (f"keyframe to frame, up to {largest:.1f} px", _colours(forward, largest)),
        ("frame to keyframe", _colours(back, largest)),
        ("gathered - keyframe, times 2", difference),
    ]
    if pair.confidence is not None:
        pictures.append(("confidence", pair.confidence[0, 1].expand(3, -1, -1)))
    return grid(pictures, zoom=_zoom(burst))


def _shown(burst: Burst) -> Tensor:
    """The frames as displayable RGB (l, 3, h, w); mosaics are demosaicked and developed."""
    if not burst.camera.cfa:
        return burst.frames.float()
    show = developer(burst.camera, demosaic_bilinear(burst.frames[:1].float())[0])
    return torch.stack([show(frame) for frame in demosaic_bilinear(burst.frames.float())])


def _colours(displacement: Tensor, largest: float) -> Tensor:
    """Displacements (2, h, w) as colours (3, h, w): direction is hue, length is saturation, white is no motion."""
    return torch.from_numpy(flow_picture(displacement.float(), largest)).permute(2, 0, 1) / 255


def _zoom(burst: Burst) -> int:
    """Small frames are magnified so that their captions fit."""
    return max(1, round(320 / burst.size[1]))
