"""Write docs/commands.md: the `--help` of every command and the commented recipe, as the program prints them.

Run it with `make docs`; tests/test_docs.py fails if the page is out of date.
"""

import contextlib
import io
from pathlib import Path
from typing import Any

import typer

from dragoman.cli.init import init
from dragoman.cli.main import app
from dragoman.model_config import DEFAULT_ARCHITECTURE, MODEL_CONFIGS
from dragoman.recipe import AudioConfig, section_lines

PAGE = Path(__file__).with_name("commands.md")
COLUMNS = 100

OPENING = """\
# Commands

<!-- Written by docs/generate_commands.py from the program itself; change the program and run `make docs`. -->

The output of `dragoman COMMAND --help` for every command, and the recipe with all settings. `python -m dragoman` is
the same program. Results are written to standard output, everything else to standard error.
"""
RECIPE = """\
## The recipe

The output of `dragoman init translate`: every setting with its default (here those of the preset `tiny`) and its
description. `--set section.key=value` changes a setting for one training.
"""
AUDIO = """\
### [audio] of task transcribe

Recipes of other tasks do not have this section.
"""
ARCHITECTURES = """\
### [model] of the other architectures

Each architecture has its own settings; others are refused.
"""


def page() -> str:
    """Return the current page."""
    program: Any = typer.main.get_command(app)
    verbs = [part(f"dragoman {name}", command) for name, command in program.commands.items()]
    return "\n".join(
        [
            OPENING,
            part("dragoman", program),
            *verbs,
            RECIPE,
            fenced("toml", recipe()),
            AUDIO,
            fenced("toml", "\n".join(section_lines("audio", AudioConfig(), comments=True))),
            ARCHITECTURES,
            fenced("toml", models()),
        ]
    )


def part(name: str, command: Any) -> str:
    """Return the heading of a command and its help."""
    return f"## {name}\n\n{fenced('text', help_of(name, command))}"


def help_of(name: str, command: Any) -> str:
    """Return what `--help` prints in a window of COLUMNS columns."""
    context = command.context_class(command, info_name=name, terminal_width=COLUMNS, max_content_width=COLUMNS)
    return "\n".join(line.rstrip() for line in command.get_help(context).splitlines())


def recipe() -> str:
    """Return what `dragoman init translate` prints."""
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        init("translate", "tiny")
    return printed.getvalue().rstrip("\n")


def models() -> str:
    """Return the [model] sections of all architectures but the Transformer."""
    configs = [config() for name, config in MODEL_CONFIGS.items() if name != DEFAULT_ARCHITECTURE]
    return "\n\n".join("\n".join(section_lines("model", config, comments=True)) for config in configs)


def fenced(language: str, text: str) -> str:
    """Return text as a code block."""
    return f"```{language}\n{text}\n```\n"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
