"""MambaIR's released ×4 weights as keyframe-stream weights: the two networks are one, under other names."""

from __future__ import annotations

import re
from collections.abc import Mapping

from torch import Tensor

from burstmamba.errors import InputError

# MambaIR's name (a pattern) -> ours, inside `keyframe.`; g is the stage, i the block.
KEY_MAP = (
    (r"conv_first\.(\w+)", r"shallow_convolution.\1"),
    (r"patch_embed\.norm\.(\w+)", r"shallow_norm.\1"),
    (r"norm\.(\w+)", r"norm.\1"),
    (r"conv_after_body\.(\w+)", r"convolution.\1"),
    (r"conv_before_upsample\.0\.(\w+)", r"upsampler.enter.\1"),
    (r"upsample\.0\.(\w+)", r"upsampler.steps.0.\1"),
    (r"upsample\.2\.(\w+)", r"upsampler.steps.1.\1"),
    (r"conv_last\.(\w+)", r"upsampler.leave.\1"),
    (r"layers\.(\d+)\.conv\.(\w+)", r"stages.\1.convolution.\2"),
    (r"layers\.(\d+)\.residual_group\.blocks\.(\d+)\.(.+)", r"stages.\1.blocks.\2.\3"),
)
BLOCK_MAP = (
    (r"ln_1\.(\w+)", r"scan_norm.\1"),
    (r"ln_2\.(\w+)", r"attention_norm.\1"),
    (r"skip_scale", r"scan_skip"),
    (r"skip_scale2", r"attention_skip"),
    (r"self_attention\.in_proj\.(\w+)", r"scan.in_proj.\1"),
    (r"self_attention\.conv2d\.(\w+)", r"scan.depthwise.\1"),
    (r"self_attention\.x_proj_weight", r"scan.condition"),
    (r"self_attention\.dt_projs_weight", r"scan.delta_weight"),
    (r"self_attention\.dt_projs_bias", r"scan.delta_bias"),
    (r"self_attention\.A_logs", r"scan.A_log"),
    (r"self_attention\.Ds", r"scan.D"),
    (r"self_attention\.out_norm\.(\w+)", r"scan.norm.\1"),
    (r"self_attention\.out_proj\.(\w+)", r"scan.out_proj.\1"),
    (r"conv_blk\.cab\.0\.(\w+)", r"attention.reduce.\1"),
    (r"conv_blk\.cab\.2\.(\w+)", r"attention.expand.\1"),
    (r"conv_blk\.cab\.3\.attention\.1\.(\w+)", r"attention.attention.reduce.\1"),
    (r"conv_blk\.cab\.3\.attention\.3\.(\w+)", r"attention.attention.expand.\1"),
)


def rename(name: str) -> str:
    """Our name, inside `keyframe.`, of a MambaIR weight."""
    for pattern, ours in KEY_MAP:
        if re.fullmatch(pattern, name):
            renamed = re.sub(pattern, ours, name)
            head, _, tail = renamed.partition(".blocks.")
            if not tail:
                return renamed
            index, _, inner = tail.partition(".")
            for block_pattern, block_ours in BLOCK_MAP:
                if re.fullmatch(block_pattern, inner):
                    return f"{head}.blocks.{index}.{re.sub(block_pattern, block_ours, inner)}"
    raise InputError(f"{name!r} is not a weight of MambaIR's classical ×4 network.")


def from_mambair(state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Translate a MambaIR state dict into `keyframe.*` weights of the `paper` preset.

    Args:
        state: MambaIR's names to tensors; the four directions of A_logs and Ds may be stacked in one axis.
    """
    translated = {}
    for name, tensor in state.items():
        ours = rename(name)
        if ours.endswith(".A_log"):
            tensor = tensor.reshape(4, -1, tensor.shape[-1])
        elif ours.endswith(".scan.D"):
            tensor = tensor.reshape(4, -1)
        translated[f"keyframe.{ours}"] = tensor
    return translated
