"""Finding recipes by name or path, and changing their settings from the command line."""

from __future__ import annotations

import difflib
import importlib
import importlib.util
import pkgutil
from dataclasses import replace
from pathlib import Path
from types import ModuleType

from burstmamba.errors import InputError
from burstmamba.settings import change, split_setting
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
        recipe = _set(recipe, *split_setting(setting))
    return recipe


def _set(recipe: Recipe, key: str, text: str) -> Recipe:
    first, _, rest = key.partition(".")
    names = [phase.name for phase in recipe.phases]
    if first == "phases" or first in names:
        if not rest:
            raise InputError(f"{key} is a phase; set one of its settings, such as {key}.batch=16.")
        chosen = names if first == "phases" else [first]
        phases = (change(phase, rest, text, whole=key) if phase.name in chosen else phase for phase in recipe.phases)
        return replace(recipe, phases=tuple(phases))
    return change(recipe, key, text, also=["phases", *names])
