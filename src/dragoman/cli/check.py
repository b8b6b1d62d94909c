"""`dragoman check`: validate training data: parallel text, or recordings with their texts."""

from typing import TYPE_CHECKING, Annotated

import typer

from dragoman.cli.options import (
    ColumnsOption,
    PairsOption,
    SetOption,
    SourceOption,
    TargetOption,
    ValidFileOption,
    ValidPairsOption,
    ValidSourceOption,
    ValidTargetOption,
    parse_columns,
)
from dragoman.cli.progress import print_report, status_spinner
from dragoman.errors import UserError
from dragoman.presets import DEFAULT_TASK
from dragoman.recipe import Recipe

if TYPE_CHECKING:
    from dragoman.data.corpus_check import DataReport


def check(
    source: SourceOption = None,
    target: TargetOption = None,
    pairs: PairsOption = None,
    valid_source: ValidSourceOption = None,
    valid_target: ValidTargetOption = None,
    valid_pairs: ValidPairsOption = None,
    columns: ColumnsOption = None,
    task: Annotated[str | None, typer.Option(help="Task: translate (default) or transcribe.")] = None,
    file: Annotated[str | None, typer.Option(help="Recordings with their texts: a manifest or a folder.")] = None,
    valid_file: ValidFileOption = None,
    overrides: SetOption = None,
) -> None:
    """Check a parallel corpus for unequal line counts, empty lines, duplicates, unusual lengths, encoding errors, and
    sides that are swapped in the validation text.

    With --task transcribe and --file, check recordings and their texts for missing and damaged files, silence,
    clipping, sampling rates, unusual lengths, duplicates, and speakers in both sets."""
    languages = parse_columns(columns)
    if languages and not (pairs or valid_pairs):
        raise UserError("--columns is for a file of --pairs; remove it.")
    if task in (None, DEFAULT_TASK) and not (file or valid_file or overrides):
        report = _check_parallel_text(
            (source, target, pairs), (valid_source, valid_target, valid_pairs), languages=languages
        )
    else:
        from dragoman.cli.train import build_recipe

        report = _check_task_data(
            build_recipe(
                None, None, overrides, task=task, source=source, target=target, pairs=pairs, languages=languages,
                valid_source=valid_source, valid_target=valid_target, valid_pairs=valid_pairs,
                file=file, valid_file=valid_file,
            )
        )  # fmt: skip
    print_report(report)
    print_report(report.verdict)
    raise typer.Exit(2 if report.has_errors else 0)


def _check_parallel_text(
    training: tuple[str | None, ...], validation: tuple[str | None, ...], *, languages: tuple[str, str] | None
) -> "DataReport":
    """Check files of pairs, without importing what trainings need."""
    from dragoman.data.corpus import ParallelCorpus
    from dragoman.data.corpus_check import check_corpus

    corpus = ParallelCorpus.from_files(*training, languages=languages)
    valid = ParallelCorpus.from_files(*validation, languages=languages) if any(validation) else None
    with status_spinner("Reading"):
        return check_corpus(corpus, valid)


def _check_task_data(recipe: Recipe) -> "DataReport":
    """Check the files of a recipe as its task does."""
    from dragoman.cli.display import TerminalDisplay
    from dragoman.tasks.events import ProgressUpdate
    from dragoman.tasks.registry import task_for

    reader = task_for(recipe)
    corpora = reader.open_corpora(recipe.data)
    with TerminalDisplay() as display:
        return reader.report_data(
            *corpora, lambda done, total: display(ProgressUpdate(f"Reading {reader.unit}s", done, total))
        )
