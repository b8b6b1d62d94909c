"""`dragoman quickstart`: from nothing to a translator, its score and a look inside, in a few minutes."""

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

import dragoman
from dragoman.cli.progress import counting, duration, say
from dragoman.cli.train import train_and_show
from dragoman.recipe import Recipe

if TYPE_CHECKING:
    from dragoman.tasks.translator import Translator

SIZES = {"train": 20_000, "valid": 500, "test": 500}
STEPS = 650
SHOWN = 5
LOOKED_AT = "The lamp is old, but it works."


def quickstart(
    run: Annotated[Path, typer.Option(help="The directory to train into.")] = Path("runs/quickstart"),
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Train again, even if it was done before.")] = False,
) -> None:
    """Train a small English–German model on the built-in phrasebook, try it on sentences it never saw, look inside.

    The second time it shows the same model at once; an interrupted one goes on where it stopped."""
    began_at = time.monotonic()
    corpus = run / "corpus"
    if overwrite or not (corpus / "test.de").exists():
        write_corpus(corpus)
    if overwrite or not (run / "README.md").exists():
        train_and_show(recipe(run, corpus), resume=not overwrite, overwrite=overwrite)
    else:
        say(f"{run} is trained already; --overwrite trains it again.")
    model = dragoman.load(run)
    show(model, corpus)
    page = run / "attention.html"
    write_page(model, page)
    say(f"\nAll this took {duration(time.monotonic() - began_at)}. What to try next:")
    say(f'  dragoman translate {run} "The woman who reads the book is not tired."')
    say(f"  open {page} in a browser: every head of every layer, reading “{LOOKED_AT}”")
    say(f"  dragoman evaluate {run} --source {corpus}/test.en --reference {corpus}/test.de --worst 5")
    say("  dragoman train --source your.en --target your.de --run runs/yours")


def write_corpus(folder: Path) -> None:
    """Write the phrasebook as plain text files, as a user's own would be."""
    from dragoman.corpora.phrasebook import write_phrasebook

    say(f"Writing {sum(SIZES.values()):,} sentence pairs of the built-in phrasebook to {folder}.")
    write_phrasebook(folder, SIZES)


def recipe(run: Path, corpus: Path) -> Recipe:
    """Return the recipe of the quick start: a small model, norm first, with a short warm-up."""
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
                "steps": STEPS, "batch_tokens": 2048, "schedule": "linear", "rate": 0.005, "warmup": 100, "clip": 1.0,
                "validate_every": 200, "checkpoint_every": 100, "average": 2,
            },
        }
    )  # fmt: skip


def show(model: "Translator", corpus: Path) -> None:
    """Score the test sentences, and print some with their translations."""
    from dragoman.data.lines import read_lines
    from dragoman.evaluation.scores import score

    sources, references = (list(read_lines(corpus / f"test.{side}")) for side in ("en", "de"))
    with counting("Translating sentences it never saw", len(sources)) as progress:
        found = model.translate(sources, progress=progress)
    for source, translation, reference in list(zip(sources, found, references, strict=True))[:SHOWN]:
        right = "" if translation == reference else f"\n     expected: {reference}"
        print(f"{source}\n  → {translation}{right}")
    print(score(found, references, intervals=False).bleu)


def write_page(model: "Translator", page: Path) -> None:
    """Write the attention page of a sentence with a pronoun to resolve."""
    from dragoman.viewer.page import page as drawn

    page.write_text(drawn(model.look(LOOKED_AT)), encoding="utf-8")
