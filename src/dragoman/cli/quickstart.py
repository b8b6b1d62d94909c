"""`dragoman quickstart`: train, score and inspect a small model in a few minutes, on data that the program makes."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from dragoman.cli.progress import print_report, print_stderr, progress_bar
from dragoman.cli.train import train_with_display
from dragoman.recipe import Recipe
from dragoman.run import Run
from dragoman.storage import write_atomically

if TYPE_CHECKING:
    from dragoman.tasks.translate import Translator

_CORPUS_SIZES = {"train": 20_000, "valid": 500, "test": 500}
_STEPS = 650
SHOWN_SENTENCES = 5
_ATTENTION_SENTENCE = "The lamp is old, but it works."


def quickstart(
    task: Annotated[
        Literal["translate", "transcribe"],
        typer.Argument(help="translate: English to German; transcribe: Morse code from sound."),
    ] = "translate",
    run: Annotated[
        Path | None, typer.Option(help="Run directory to write; default: runs/quickstart, or runs/quickstart-TASK.")
    ] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Train again even if the run is complete.")] = False,
) -> None:
    """Train a small English–German model on the built-in phrasebook, translate unseen sentences, score them, and write
    an attention page; or, with "transcribe", learn to copy Morse code from synthesised recordings.

    A second call reuses the trained model; an interrupted training run is resumed."""
    if task == "transcribe":
        from dragoman.cli.morse_quickstart import transcribe_morse

        transcribe_morse(run or Path("runs/quickstart-transcribe"), overwrite=overwrite)
    else:
        _translate_phrasebook(run or Path("runs/quickstart"), overwrite=overwrite)


def train_unless_done(recipe: Recipe, *, overwrite: bool) -> None:
    """Train, or resume an interrupted training; a finished run is kept unless `overwrite` says otherwise."""
    run = Run(recipe.run)
    if overwrite or not run.card_file.exists():
        train_with_display(
            recipe,
            resume=run.exists and not overwrite,
            overwrite=overwrite,
            resume_hint="Run the same command to continue.",
        )
    else:
        print_stderr(f"{run} is already trained; use --overwrite to train it again.")


def _translate_phrasebook(run: Path, *, overwrite: bool) -> None:
    """Train a translator on the phrasebook and show what it does."""
    from dragoman.tasks.translate import Translator

    corpus = run / "corpus"
    Run(run).check_files()
    if overwrite or not (corpus / "test.de").exists():
        _write_corpus(corpus)
    train_unless_done(_quickstart_recipe(run, corpus), overwrite=overwrite)
    model = Translator.load(run)
    _print_translations(model, corpus)
    page = run / "attention.html"
    _write_attention_page(model, page)
    print_stderr("\nDone. What to try next:")
    print_stderr(f'  dragoman translate {run} "The woman who reads the book is not tired."')
    print_stderr(f"  open {page} in a browser: the attention of every head for “{_ATTENTION_SENTENCE}”")
    print_stderr(f"  dragoman evaluate {run} --source {corpus}/test.en --reference {corpus}/test.de --worst 5")
    print_stderr("  dragoman train --source your.en --target your.de --run runs/yours")


def _write_corpus(folder: Path) -> None:
    """Write the phrasebook as plain text files."""
    from dragoman.corpora.phrasebook import write_phrasebook

    print_stderr(f"Writing {sum(_CORPUS_SIZES.values()):,} sentence pairs of the built-in phrasebook to {folder}.")
    write_phrasebook(folder, _CORPUS_SIZES)


def _quickstart_recipe(run: Path, corpus: Path) -> Recipe:
    """Return the recipe: a small pre-norm model with a short warm-up."""
    return Recipe.from_table(
        {
            "run": str(run),
            "data": {
                "source": str(corpus / "train.en"),
                "target": str(corpus / "train.de"),
                "valid_source": str(corpus / "valid.en"),
                "valid_target": str(corpus / "valid.de"),
            },
            "tokenizer": {"size": 3000},
            "model": {"layers": 2, "width": 128, "inner_width": 256, "heads": 4, "dropout": 0.1, "norm": "pre"},
            "training": {
                "steps": _STEPS, "batch_tokens": 2048, "schedule": "linear", "rate": 0.005, "warmup": 100, "clip": 1.0,
                "validate_every": 200, "checkpoint_every": 100, "average": 2, "patience": 0,
            },
        }
    )  # fmt: skip


def _print_translations(model: "Translator", corpus: Path) -> None:
    """Translate and score the test set; print the first translations and BLEU."""
    from dragoman.data.lines import read_lines
    from dragoman.evaluation.scores import score_translations

    sources, references = (list(read_lines(corpus / f"test.{side}")) for side in ("en", "de"))
    with progress_bar("Translating the test set", len(sources)) as progress:
        translations = model.translate(sources, progress=progress)
    for source, translation, reference in list(zip(sources, translations, references, strict=True))[:SHOWN_SENTENCES]:
        right = "" if translation == reference else f"\n     expected: {reference}"
        print_report(f"{source}\n  → {translation}{right}")
    print_report(f"Test set: {score_translations(translations, references, intervals=False).bleu}")


def _write_attention_page(model: "Translator", page: Path) -> None:
    """Write the attention page of a sentence with a pronoun."""
    from dragoman.cli.display import TerminalDisplay
    from dragoman.tasks.events import FailureNotices
    from dragoman.viewer.page import render_page

    with FailureNotices(TerminalDisplay()).report(page):
        write_atomically(page, render_page(model.inspect(_ATTENTION_SENTENCE)).encode())
