"""The README stays true: its commands exist with these options, and its Python runs."""

import re
import shlex
from pathlib import Path

import pytest
from typer.main import get_command

from burstmamba.cli import build_app

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()
BLOCKS = re.findall(r"```(\w*)\n(.*?)```", README, flags=re.DOTALL)
COMMANDS = [
    line.split("#")[0].strip() for _, block in BLOCKS for line in block.splitlines() if line.startswith("burstmamba ")
]


def test_there_are_commands():
    assert len(COMMANDS) >= 8


@pytest.mark.parametrize("line", COMMANDS)
def test_commands_exist_with_their_options(line):
    name, *words = shlex.split(line)[1:]
    command = get_command(build_app()).commands[name]
    known = {option for parameter in command.params for option in (*parameter.opts, *parameter.secondary_opts)}
    used = {word.split("=")[0] for word in words if word.startswith("-")}
    assert used <= known, f"{name} has no {used - known}"


def test_links_lead_somewhere():
    for target in re.findall(r"\]\(([^)#]+)\)", README):
        assert (ROOT / target).exists(), target


@pytest.mark.slow
def test_the_python_example_runs(tmp_path, monkeypatch):
    code = next(block for language, block in BLOCKS if language == "python")
    monkeypatch.chdir(tmp_path)
    exec(code.replace("burstmamba/examples", str(ROOT / "burstmamba" / "examples")), {})
    assert (tmp_path / "photo.png").stat().st_size > 100_000


def test_reading_path_is_about_a_thousand_lines():
    starred = re.findall(r"\]\((burstmamba/[\w/]+\.py)\)", README)
    assert len(starred) == 8
    lines = sum(len((ROOT / file).read_text().splitlines()) for file in starred) + len(README.splitlines())
    assert 800 <= lines <= 1200
