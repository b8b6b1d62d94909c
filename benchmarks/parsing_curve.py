"""How good is a parser after how many trees?

    for trees in 1791 3582 7163; do
        zcat data/genia/train.clean.trees.gz | head -n $trees > genia-$trees.trees
        dragoman train recipes/genia-parse.toml --set data.file=genia-$trees.trees --run runs/genia-$trees
    done
    python benchmarks/parsing_curve.py runs/genia-* --reference data/genia/dev.clean.trees.gz

Parses the words of the reference with every run, counts the training trees of each, prints a table, plots the curve
beside results of the literature, and writes one JSON record.
"""

import json
from importlib.metadata import version
from pathlib import Path
from typing import Annotated

import typer
from rich.progress import track

import dragoman
from dragoman.evaluation.brackets import COLLINS
from dragoman.lab.plots import COLOURS, label_axes, save_picture, subplots
from dragoman.tasks.parse import ParsingTask

# Section 23 of the Wall Street Journal, trained on its sections 02-21 alone: the paper's table 4.
LITERATURE = {
    "Transformer, 4 layers (the paper)": (40_000, 91.3),
    "recurrent with attention (Vinyals et al. 2014)": (40_000, 88.3),
}


def score_run(run: Path, reference: str) -> dict[str, object]:
    """Parse the words of the reference with a run and score the trees."""
    model = dragoman.load(run)
    task = ParsingTask()
    corpus, _ = task.open_corpora(model.recipe.data)
    examples = task.read_examples(None, reference, typer.echo)
    found = task.score(examples, model.predict([example.source for example in examples])).overall
    return {
        "run": str(run), "trees": corpus.count_pairs(), "f1": found.f1, "precision": found.precision,
        "recall": found.recall, "exact": found.exact_match, "tags": found.tagging_accuracy, "scored": found.scored,
        "sentences": found.sentences, "steps": model.recipe.training.steps, "beam": model.recipe.decoding.beam,
    }  # fmt: skip


def plot_curve(rows: list[dict[str, object]], path: Path) -> None:
    """Draw F1 over the number of trees."""
    figure, (axes,) = subplots()
    points = sorted((float(str(row["trees"])), float(str(row["f1"]))) for row in rows)
    axes.plot(*zip(*points, strict=True), marker="o", color=COLOURS[0], label="ours")
    for number, (name, point) in enumerate(LITERATURE.items(), start=1):
        axes.plot(*point, marker="D", linestyle="", color=COLOURS[number], label=name)
    axes.set_xscale("log")
    label_axes(axes, title="Bracket F1 and the number of training trees", x_label="training trees", y_label="F1")
    axes.legend(fontsize=8)
    save_picture(figure, path, "")


def main(
    runs: list[Path],
    reference: Annotated[str, typer.Option(help="A file of trees that no run was trained on.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="The picture; the record stands beside it.")] = Path(
        "parsing-curve.png"
    ),
) -> None:
    """Score every run, print a table, draw the curve."""
    rows = [score_run(run, reference) for run in track(runs, "Parsing")]
    rows.sort(key=lambda row: int(str(row["trees"])))
    columns = ("f1", "precision", "recall", "exact", "tags")
    print(f"{'trees':>7}  {'  '.join(f'{name:>9}' for name in columns)}  scored        run")
    for row in rows:
        numbers = "  ".join(f"{row[name]:>9.2f}" for name in columns)
        print(f"{row['trees']:>7,}  {numbers}  {row['scored']} of {row['sentences']}  {row['run']}")
    plot_curve(rows, output)
    record = {"rows": rows, "reference": reference, "rules": str(COLLINS), "versions": {"torch": version("torch")}}
    output.with_suffix(".json").write_text(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    typer.run(main)
