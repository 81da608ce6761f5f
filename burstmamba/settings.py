"""Settings of frozen dataclasses changed from the command line: `--set key=value`."""

from __future__ import annotations

import ast
import difflib
from collections.abc import Sequence
from dataclasses import fields, is_dataclass, replace
from typing import Any

from burstmamba.errors import InputError


def split_setting(setting: str) -> tuple[str, str]:
    """Key and value of `key=value`."""
    key, separator, text = setting.partition("=")
    if not separator:
        raise InputError(f"expected key=value, got {setting!r}.")
    return key.strip(), text.strip()


def change(target: Any, path: str, text: str, *, whole: str | None = None, also: Sequence[str] = ()) -> Any:
    """A copy of a frozen dataclass with one setting changed.

    Args:
        target: the dataclass.
        path: name of the setting; `group.name` for one of an inner dataclass.
        text: a Python literal of the same kind as the old value; anything for a string.
        whole: the path as the user wrote it, where `path` is a part of it.
        also: further names that a mistyped one may have meant.
    """
    whole = whole or path
    first, _, rest = path.partition(".")
    known = [field.name for field in fields(target)]
    if first not in known:
        close = difflib.get_close_matches(first, [*known, *also], n=1, cutoff=0.4)
        hint = f" Did you mean {whole[: len(whole) - len(path)]}{close[0]}?" if close else ""
        raise InputError(f"unknown setting {whole!r}.{hint} Known here: {', '.join(known)}.")
    old = getattr(target, first)
    if rest:
        if not is_dataclass(old):
            raise InputError(f"unknown setting {whole!r}: {first} has no settings of its own.")
        return replace(target, **{first: change(old, rest, text, whole=whole)})
    if is_dataclass(old):
        inner = ", ".join(field.name for field in fields(old))
        raise InputError(f"{whole} is a group of settings; set one of: {inner}.")
    (setting,) = (field for field in fields(target) if field.name == first)
    return replace(target, **{first: _parse(text, old, whole, repeats=str(setting.type).endswith("...]"))})


def _parse(text: str, old: object, key: str, *, repeats: bool) -> object:
    """Read a value of the same kind as the one that it replaces; `repeats`: a tuple of any length."""
    if isinstance(old, str):
        return text
    try:
        return _alike(ast.literal_eval(text), old, repeats=repeats)
    except (ValueError, SyntaxError) as error:
        raise InputError(f"{key} expects a value like {old!r}, got {text!r}.") from error


def _alike(value: object, old: object, *, repeats: bool = False) -> object:
    """The value as one of the kind of `old`, down to the items of tuples. Raises ValueError if it is of another."""
    if isinstance(old, float) and type(value) is int:
        return float(value)
    if isinstance(old, tuple) and isinstance(value, (tuple, list)):
        kinds = (old[:1] or ("",)) * len(value) if repeats else old  # an empty one is of names
        return tuple(_alike(item, kind) for item, kind in zip(value, kinds, strict=True))
    if type(value) is not type(old):
        raise ValueError(f"{value!r} is not a {type(old).__name__}")
    return value
