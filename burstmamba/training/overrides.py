"""Finding recipes by name or path, and changing their settings from the command line."""

from __future__ import annotations

import ast
import difflib
import importlib
import importlib.util
import pkgutil
from dataclasses import fields, is_dataclass, replace
from pathlib import Path
from types import ModuleType
from typing import Any

from burstmamba.errors import InputError
from burstmamba.training.recipe import Recipe


def recipe_names() -> list[str]:
    """Names of the recipes in the package, as given to `train`."""
    import burstmamba.recipes

    return sorted(module.name.replace("_", "-") for module in pkgutil.iter_modules(burstmamba.recipes.__path__))


def load_recipe(name: str) -> Recipe:
    """The recipe of that name, or the `RECIPE` of a Python file."""
    if name.endswith(".py"):
        module = _import_file(Path(name))
    elif name in recipe_names():
        module = importlib.import_module(f"burstmamba.recipes.{name.replace('-', '_')}")
    else:
        raise InputError(f"no recipe {name!r}; known: {', '.join(recipe_names())}, or a .py file.{_hint(name)}")
    recipe = getattr(module, "RECIPE", None)
    if not isinstance(recipe, Recipe):
        raise InputError(f"{name} must define RECIPE, a burstmamba.training.recipe.Recipe.")
    return recipe


def _hint(name: str) -> str:
    close = difflib.get_close_matches(name, recipe_names(), n=1)
    return f" Did you mean {close[0]!r}?" if close else ""


def _import_file(path: Path) -> ModuleType:
    if not path.is_file():
        raise InputError(f"no recipe file {path}.")
    spec = importlib.util.spec_from_file_location(f"recipe_{path.stem.replace('-', '_')}", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def override(recipe: Recipe, settings: list[str]) -> Recipe:
    """The recipe with `key=value` settings applied.

    A key is a path of names: `seed`, `model.selectivity`, `data.synthesis.shot`, `phases.batch` (every phase) or
    `PHASE.batch` (the phase of that name). Values are Python literals; anything else is a string.
    """
    for setting in settings:
        key, separator, text = setting.partition("=")
        if not separator:
            raise InputError(f"expected key=value, got {setting!r}.")
        recipe = _set(recipe, key.strip(), text.strip())
    return recipe


def _set(recipe: Recipe, key: str, text: str) -> Recipe:
    first, _, rest = key.partition(".")
    names = [phase.name for phase in recipe.phases]
    if first == "phases" or first in names:
        if not rest:
            raise InputError(f"{key} is a phase; set one of its settings, such as {key}.batch=16.")
        chosen = names if first == "phases" else [first]
        phases = tuple(_replace(phase, rest, text, key) if phase.name in chosen else phase for phase in recipe.phases)
        return replace(recipe, phases=phases)
    return _replace(recipe, key, text, key, also=["phases", *names])


def _replace(target: Any, path: str, text: str, whole: str, also: list[str] | None = None) -> Any:
    first, _, rest = path.partition(".")
    known = [field.name for field in fields(target)]
    if first not in known:
        close = difflib.get_close_matches(first, known + (also or []), n=1, cutoff=0.4)
        hint = f" Did you mean {whole[: len(whole) - len(path)]}{close[0]}?" if close else ""
        raise InputError(f"unknown setting {whole!r}.{hint} Known here: {', '.join(known)}.")
    old = getattr(target, first)
    if rest:
        if not is_dataclass(old):
            raise InputError(f"unknown setting {whole!r}: {first} has no settings of its own.")
        return replace(target, **{first: _replace(old, rest, text, whole)})
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
