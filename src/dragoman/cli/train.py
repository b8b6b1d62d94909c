"""`dragoman train`: train a model from text files into a run directory. `dragoman plan`: print its recipe instead."""

import os
import sys
import time
from collections.abc import Mapping
from contextlib import nullcontext
from pathlib import Path
from typing import Annotated, Any

import typer

from dragoman.cli.options import (
    ColumnsOption,
    FileOption,
    MinutesOption,
    PairsOption,
    PresetOption,
    RecipeArgument,
    RunOption,
    SeedOption,
    SetOption,
    SourceOption,
    StepsOption,
    TargetOption,
    TaskOption,
    ValidFileOption,
    ValidPairsOption,
    ValidSourceOption,
    ValidTargetOption,
    check_task,
    parse_columns,
)
from dragoman.cli.progress import print_stderr
from dragoman.cli.watch import DEFAULT_PORT, watch_in_background
from dragoman.errors import TrainingStopped, UserError
from dragoman.presets import TASKS
from dragoman.recipe import DataConfig, Recipe, TrainingConfig, apply_preset, merge_tables
from dragoman.run import Run
from dragoman.toml import read_toml

_STARTED_AT = time.monotonic()  # of the command: this module is imported when the program starts


def train(
    recipe: RecipeArgument = None,
    source: SourceOption = None,
    target: TargetOption = None,
    pairs: PairsOption = None,
    valid_source: ValidSourceOption = None,
    valid_target: ValidTargetOption = None,
    valid_pairs: ValidPairsOption = None,
    columns: ColumnsOption = None,
    task: TaskOption = None,
    file: FileOption = None,
    valid_file: ValidFileOption = None,
    run: RunOption = None,
    preset: PresetOption = None,
    steps: StepsOption = None,
    minutes: MinutesOption = None,
    seed: SeedOption = None,
    overrides: SetOption = None,
    resume: Annotated[bool, typer.Option("--resume", help="Resume a stopped run exactly where it stopped.")] = False,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace an existing run.")] = False,
    watch: Annotated[bool, typer.Option("--watch", help="Serve a live web page that shows the training.")] = False,
    watch_port: Annotated[
        int, typer.Option(min=0, max=65535, help="Port of the live page; 0 picks a free one.")
    ] = DEFAULT_PORT,
) -> None:
    """Train a model from RECIPE, or without a recipe from --source and --target, --pairs, or --task and --file.

    Settings that neither the recipe nor an option gives are planned from the data, the speed of this machine and
    --minutes or --steps."""
    if resume and recipe is None and run is not None and not (source or pairs or file):
        Run(run).check_files()
        recipe = Run(run).recipe_file  # `--run RUN --resume` is enough to continue
    merged = build_recipe(
        recipe, preset, overrides, task=task, run=run, steps=steps, minutes=minutes, seed=seed,
        source=source, target=target, pairs=pairs, languages=parse_columns(columns), valid_source=valid_source,
        valid_target=valid_target, valid_pairs=valid_pairs, file=file, valid_file=valid_file,
    )  # fmt: skip
    first = os.environ.get("RANK", "0") == "0"  # of several processes, one shows them all
    with watch_in_background(merged.run, watch_port) if watch and first else nullcontext():
        train_with_display(merged, resume=resume, overwrite=overwrite)


def plan(
    recipe: RecipeArgument = None,
    source: SourceOption = None,
    target: TargetOption = None,
    pairs: PairsOption = None,
    valid_source: ValidSourceOption = None,
    valid_target: ValidTargetOption = None,
    valid_pairs: ValidPairsOption = None,
    columns: ColumnsOption = None,
    task: TaskOption = None,
    file: FileOption = None,
    valid_file: ValidFileOption = None,
    run: RunOption = None,
    preset: PresetOption = None,
    steps: StepsOption = None,
    minutes: MinutesOption = None,
    seed: SeedOption = None,
    overrides: SetOption = None,
) -> None:
    """Print the recipe that `dragoman train` would plan with the same options, with comments, and do not train:
    dragoman plan --source train.en --target train.de --minutes 45 > recipe.toml"""
    merged = build_recipe(
        recipe, preset, overrides, task=task, run=run, steps=steps, minutes=minutes, seed=seed,
        source=source, target=target, pairs=pairs, languages=parse_columns(columns), valid_source=valid_source,
        valid_target=valid_target, valid_pairs=valid_pairs, file=file, valid_file=valid_file,
    )  # fmt: skip
    import dragoman
    from dragoman.cli.display import TerminalDisplay
    from dragoman.training.events import RecipePlanned, TrainingEvent

    summary: list[str] = []

    def on_event(event: TrainingEvent) -> None:
        if isinstance(event, RecipePlanned):
            summary.extend(event.plan.summary)
        if not isinstance(event, RecipePlanned) or not sys.stdout.isatty():  # the comments of the recipe show it too
            display(event)

    with TerminalDisplay() as display:
        planned = dragoman.plan(merged, on_event=on_event, started_at=_STARTED_AT)
    print("".join(f"# {line}\n" for line in summary) + planned.to_toml(comments=True), end="")


def build_recipe(recipe: Path | None, preset: str | None, overrides: list[str] | None, **options: Any) -> Recipe:
    """Merge the recipe file, --preset, the options that are given and --set; later ones override earlier ones."""
    given = {name: value for name, value in options.items() if value is not None}
    if "task" in given:
        check_task(given["task"])
    elif recipe is None and not any(override.startswith("task=") for override in overrides or ()):
        _check_pairs_are_given(given)
    table: dict[str, Any] = {name: given[name] for name in ("task", "run") if name in given}
    for section, names in (("data", DataConfig.model_fields), ("training", TrainingConfig.model_fields)):
        settings = {name: value for name, value in given.items() if name in names}
        if settings:
            table[section] = settings
    if recipe is None and "data" not in table:
        raise UserError(
            "No training data: give a recipe (`dragoman init translate > recipe.toml` writes one to edit), "
            "--source and --target, --pairs, or --task and --file."
        )
    below = apply_preset(read_toml(recipe) if recipe else {}, preset, "--preset")
    return Recipe.from_table(merge_tables(below, table), overrides or (), origin=str(recipe or "options"))


def _check_pairs_are_given(options: Mapping[str, Any]) -> None:
    """Raise a UserError for a file that the default task, whose data are pairs, does not read."""
    given = next((name for name in ("file", "valid_file") if name in options), None)
    if given:
        *others, last = (name for name, spec in TASKS.items() if "file" in spec.data_keys)
        option = f"--{given.replace('_', '-')}"
        raise UserError(
            f"{option} needs --task: {', '.join(others)} or {last}; a file of sentence pairs is "
            f"{option.replace('file', 'pairs')}."
        )


def train_with_display(
    recipe: Recipe, *, resume: bool = False, overwrite: bool = False, resume_hint: str = "Continue with --resume."
) -> None:
    """Train and show progress on the terminal; Ctrl-C and SIGTERM save a checkpoint and stop."""
    try:
        import dragoman
        from dragoman.cli.display import TerminalDisplay
        from dragoman.cli.signals import stop_on_signals

        with stop_on_signals() as stop, TerminalDisplay(resume_hint) as display:
            dragoman.train(
                recipe, resume=resume, overwrite=overwrite, on_event=display, stop=stop, started_at=_STARTED_AT
            )
    except TrainingStopped as stopped:
        raise TrainingStopped(f"{stopped} {resume_hint}") from None
    except KeyboardInterrupt:  # before the first step, or for the second time
        steps = Run(recipe.run).complete_checkpoints()
        kept = f"The newest checkpoint is at step {steps[-1]:,}. {resume_hint}" if steps else "Nothing was saved yet."
        print_stderr(f"Interrupted. {kept}")
        raise typer.Exit(130) from None
