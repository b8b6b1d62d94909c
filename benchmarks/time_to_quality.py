"""How good is a translator after how many minutes? Train by a recipe, then score every checkpoint on a test set.

    python benchmarks/time_to_quality.py recipes/multi30k-en-de-fast.toml --source test.en --reference test.de

The time starts with the process and an empty cache, so it includes compiling, learning the vocabulary, tokenizing and
validations. The test set is used only afterwards. Run it on an otherwise idle machine.
"""

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Annotated, Any

import typer

from dragoman.checkpoints import WEIGHTS_FILE, checkpoint_dirs, read_progress
from dragoman.data.lines import read_lines
from dragoman.evaluation.scores import corpus_bleu
from dragoman.model_files import copy_weights, read_tensors
from dragoman.tasks.translate import Translator


def main(
    recipe: Annotated[str, typer.Argument(help="What to train.")],
    source: Annotated[str, typer.Option(help="A test text.")],
    reference: Annotated[str, typer.Option(help="What it should become, line by line.")],
    run: Annotated[Path, typer.Option(help="Where to train; what is there is overwritten.")] = Path(
        "runs/time-to-quality"
    ),
    change: Annotated[
        list[str] | None, typer.Option("--set", metavar="PART.KEY=VALUE", help="Change a setting.")
    ] = None,
    output: Annotated[Path, typer.Option(help="Where to write the record.")] = Path("time_to_quality.json"),
) -> None:
    """Train, score, print a table and write a record."""
    began_at = train(recipe, run, ["training.keep=1000", *(change or [])])
    translator = Translator.load(run)
    sources, references = (list(read_lines(path)) for path in (source, reference))
    rows: list[dict[str, Any]] = []
    for place in sorted(checkpoint_dirs(run / "checkpoints")):
        copy_weights(read_tensors(place / WEIGHTS_FILE)[0], dict(translator.model.named_parameters()), place)
        minutes = ((place / WEIGHTS_FILE).stat().st_mtime - began_at) / 60
        scores = {f"beam {beam}": corpus_bleu(translator.translate(sources, beam=beam), references) for beam in (1, 4)}
        rows.append({"step": read_progress(place).step, "minutes": round(minutes, 2), **scores})
        print("  ".join(f"{name} {value:,.2f}" for name, value in rows[-1].items()), flush=True)
    record = {"recipe": recipe, "changes": change, "source": source, "rows": rows}
    output.write_text(json.dumps(record, indent=2) + "\n", encoding="utf-8")


def train(recipe: str, run: Path, changes: list[str]) -> float:
    """Train in a process of its own with an empty cache; return when it began."""
    options = [part for change in changes for part in ("--set", change)]
    with tempfile.TemporaryDirectory() as cache:
        began_at = time.time()
        subprocess.run(
            [sys.executable, "-m", "dragoman", "train", recipe, "--run", str(run), "--overwrite", *options],
            check=True,
            env=os.environ | {"DRAGOMAN_CACHE": cache},
        )
    return began_at


if __name__ == "__main__":
    typer.run(main)
