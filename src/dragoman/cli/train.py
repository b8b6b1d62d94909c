"""`dragoman train`: from text files to a model in a run directory."""

import os
from contextlib import nullcontext
from pathlib import Path
from typing import Annotated, Any

import typer

from dragoman.cli.check import (
    PairsOption,
    SourceOption,
    TargetOption,
    ValidPairsOption,
    ValidSourceOption,
    ValidTargetOption,
)
from dragoman.cli.options import PresetOption, SetOption
from dragoman.cli.watch import DEFAULT_PORT, watch_in_background
from dragoman.errors import UserError
from dragoman.presets import default_preset
from dragoman.recipe import Recipe, merge_tables, preset_settings
from dragoman.toml import read_toml


def train(
    recipe: Annotated[Path | None, typer.Argument(help="A recipe; `dragoman init translate` prints one.")] = None,
    source: SourceOption = None,
    target: TargetOption = None,
    pairs: PairsOption = None,
    valid_source: ValidSourceOption = None,
    valid_target: ValidTargetOption = None,
    valid_pairs: ValidPairsOption = None,
    task: Annotated[
        str | None, typer.Option(help="What to learn: translate, pronounce, inflect, parse or generate.")
    ] = None,
    file: Annotated[str | None, typer.Option(help="Instead: the lexicon, treebank or text of another task.")] = None,
    valid_file: Annotated[str | None, typer.Option(help="The same, to validate with.")] = None,
    run: Annotated[str | None, typer.Option(help="The directory to train into.")] = None,
    preset: PresetOption = None,
    steps: Annotated[int | None, typer.Option(min=1, help="Updates of the parameters, at most.")] = None,
    minutes: Annotated[float | None, typer.Option(min=0, help="Minutes of training, at most.")] = None,
    seed: Annotated[int | None, typer.Option(min=0, help="Same seed, same machine, same result.")] = None,
    overrides: SetOption = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on exactly where a run stopped.")] = False,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace a run that is there.")] = False,
    watch: Annotated[bool, typer.Option("--watch", help="Show the training on a live page meanwhile.")] = False,
    watch_port: Annotated[
        int, typer.Option(min=0, max=65535, help="The port of that page; 0 takes any that is free.")
    ] = DEFAULT_PORT,
) -> None:
    """Train a model as RECIPE says, or on --source and --target (or --task and --file) with no recipe at all."""
    files = {
        "source": source, "target": target, "pairs": pairs,
        "valid_source": valid_source, "valid_target": valid_target, "valid_pairs": valid_pairs,
        "file": file, "valid_file": valid_file,
    }  # fmt: skip
    settings = {"steps": steps, "minutes": minutes, "seed": seed}
    given = {
        "task": task,
        "run": run,
        "data": {name: path for name, path in files.items() if path is not None},
        "training": {name: value for name, value in settings.items() if value is not None},
    }
    how = build_recipe(recipe, given, preset, overrides or [])
    first = os.environ.get("RANK", "0") == "0"  # of several processes, one shows them all
    with watch_in_background(how.run, watch_port) if watch and first else nullcontext():
        train_with_display(how, resume=resume, overwrite=overwrite)


def build_recipe(recipe: Path | None, given: dict[str, Any], preset: str | None, overrides: list[str]) -> Recipe:
    """Lay a preset that was asked for over the recipe file, the options over both, and what --set says over all."""
    if recipe is None and not given["data"]:
        raise UserError(
            "There is nothing to train on: name a recipe (`dragoman init translate > recipe.toml` writes one to edit), "
            "or give --source and --target, or --task and --file."
        )
    table = read_toml(recipe) if recipe else {"preset": default_preset(given["task"] or "translate")}
    options = {name: value for name, value in given.items() if value}
    table = merge_tables(merge_tables(table, preset_settings(preset, "--preset")), options)
    return Recipe.from_table(table, overrides, origin=str(recipe or "options"))


def train_with_display(recipe: Recipe, *, resume: bool = False, overwrite: bool = False) -> None:
    """Train with a live display; Ctrl-C and SIGTERM save first."""
    import dragoman
    from dragoman.cli.display import TerminalDisplay
    from dragoman.cli.signals import stop_on_signals

    with stop_on_signals() as stop, TerminalDisplay() as display:
        dragoman.train(recipe, resume=resume, overwrite=overwrite, on_event=display, stop=stop)
