"""`dragoman train`: train a model from text files into a run directory."""

import os
from contextlib import nullcontext
from pathlib import Path
from typing import Annotated, Any

import typer

from dragoman.cli.options import (
    ColumnsOption,
    PairsOption,
    PresetOption,
    SetOption,
    SourceOption,
    TargetOption,
    ValidPairsOption,
    ValidSourceOption,
    ValidTargetOption,
    check_task,
    parse_columns,
)
from dragoman.cli.progress import print_stderr
from dragoman.cli.watch import DEFAULT_PORT, watch_in_background
from dragoman.errors import TrainingStopped, UserError
from dragoman.presets import default_preset
from dragoman.recipe import Recipe, apply_preset, merge_tables
from dragoman.run import Run
from dragoman.toml import read_toml


def train(
    recipe: Annotated[Path | None, typer.Argument(help="Recipe file; `dragoman init translate` prints one.")] = None,
    source: SourceOption = None,
    target: TargetOption = None,
    pairs: PairsOption = None,
    valid_source: ValidSourceOption = None,
    valid_target: ValidTargetOption = None,
    valid_pairs: ValidPairsOption = None,
    columns: ColumnsOption = None,
    task: Annotated[str | None, typer.Option(help="Task: translate, pronounce, inflect, parse or generate.")] = None,
    file: Annotated[str | None, typer.Option(help="Lexicon, treebank or text, for tasks other than translate.")] = None,
    valid_file: Annotated[str | None, typer.Option(help="Validation file for --file.")] = None,
    run: Annotated[str | None, typer.Option(help="Run directory to write.")] = None,
    preset: PresetOption = None,
    steps: Annotated[int | None, typer.Option(min=1, help="Maximum number of updates.")] = None,
    minutes: Annotated[float | None, typer.Option(min=0, help="Maximum training time in minutes.")] = None,
    seed: Annotated[
        int | None, typer.Option(min=0, help="Random seed; the same seed on the same machine gives the same result.")
    ] = None,
    overrides: SetOption = None,
    resume: Annotated[bool, typer.Option("--resume", help="Resume a stopped run exactly where it stopped.")] = False,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace an existing run.")] = False,
    watch: Annotated[bool, typer.Option("--watch", help="Serve a live web page that shows the training.")] = False,
    watch_port: Annotated[
        int, typer.Option(min=0, max=65535, help="Port of the live page; 0 picks a free one.")
    ] = DEFAULT_PORT,
) -> None:
    """Train a model from RECIPE, or without a recipe from --source and --target, --pairs, or --task and --file."""
    if task is not None:
        check_task(task)
    files = {
        "source": source, "target": target, "pairs": pairs, "languages": parse_columns(columns),
        "valid_source": valid_source, "valid_target": valid_target, "valid_pairs": valid_pairs,
        "file": file, "valid_file": valid_file,
    }  # fmt: skip
    settings = {"steps": steps, "minutes": minutes, "seed": seed}
    options = {
        "task": task,
        "run": run,
        "data": {name: path for name, path in files.items() if path is not None},
        "training": {name: value for name, value in settings.items() if value is not None},
    }
    merged = build_recipe(recipe, options, preset, overrides or [])
    first = os.environ.get("RANK", "0") == "0"  # of several processes, one shows them all
    with watch_in_background(merged.run, watch_port) if watch and first else nullcontext():
        train_with_display(merged, resume=resume, overwrite=overwrite)


def build_recipe(recipe: Path | None, given: dict[str, Any], preset: str | None, overrides: list[str]) -> Recipe:
    """Merge the recipe file, --preset, the options and --set; later ones override earlier ones."""
    if recipe is None and not given["data"]:
        raise UserError(
            "No training data: give a recipe (`dragoman init translate > recipe.toml` writes one to edit), "
            "--source and --target, --pairs, or --task and --file."
        )
    table = read_toml(recipe) if recipe else {"preset": default_preset(given["task"] or "translate")}
    options = {name: value for name, value in given.items() if value}
    table = merge_tables(apply_preset(table, preset, "--preset"), options)
    return Recipe.from_table(table, overrides, origin=str(recipe or "options"))


def train_with_display(
    recipe: Recipe, *, resume: bool = False, overwrite: bool = False, resume_hint: str = "Continue with --resume."
) -> None:
    """Train and show progress on the terminal; Ctrl-C and SIGTERM save a checkpoint and stop."""
    try:
        import dragoman
        from dragoman.cli.display import TerminalDisplay
        from dragoman.cli.signals import stop_on_signals

        with stop_on_signals() as stop, TerminalDisplay(resume_hint) as display:
            dragoman.train(recipe, resume=resume, overwrite=overwrite, on_event=display, stop=stop)
    except TrainingStopped as stopped:
        raise TrainingStopped(f"{stopped} {resume_hint}") from None
    except KeyboardInterrupt:  # before the first step, or for the second time
        steps = Run(recipe.run).complete_checkpoints()
        kept = f"The newest checkpoint is at step {steps[-1]:,}. {resume_hint}" if steps else "Nothing was saved yet."
        print_stderr(f"Interrupted. {kept}")
        raise typer.Exit(130) from None
