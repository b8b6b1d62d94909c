"""Is the cost proportional to the work? An epoch over twice the text, and ten times as many sentences.

    python benchmarks/scaling.py runs/multi30k-en-de --source train.en --target train.de

Each measurement runs in its own process, because of its peak memory. Prints a table and writes one JSON record.
"""

import json
import subprocess
import sys
import time
from itertools import islice
from pathlib import Path
from statistics import median
from typing import Annotated, Any

import typer

import dragoman
from dragoman.bench.workers import peak_memory_bytes
from dragoman.data.lines import read_lines
from dragoman.recipe import Recipe
from dragoman.run import Run
from dragoman.training.events import ignore_event
from dragoman.training.prepare import open_corpora, prepare_data
from dragoman.training.trainer import Trainer


def main(
    run: Annotated[Path, typer.Argument(help="A run directory: whose model decodes, and whose recipe trains.")],
    source: Annotated[str, typer.Option(help="The source side of a parallel text.")],
    target: Annotated[str, typer.Option(help="Its target side.")],
    output: Annotated[Path, typer.Option(help="Where to write the record.")] = Path("scaling.json"),
    one: Annotated[str, typer.Option(help="Used by this script itself: one measurement.")] = "",
) -> None:
    """Measure four times and compare."""
    if one:
        what, size = one.split(":")
        print(json.dumps({"epoch": epoch, "decode": decode}[what](run, source, target, int(size))))
        return
    rows = {}
    pairs = sum(1 for _ in read_lines(source))
    for name in (f"epoch:{pairs // 2}", f"epoch:{pairs}", "decode:1000", "decode:10000"):
        command = [sys.executable, __file__, str(run), "--source", source, "--target", target, "--one", name]
        rows[name] = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
        print(f"{name:>16}  {rows[name]['seconds']:8.1f} s  {rows[name]['memory'] / 1e6:8.0f} MB", flush=True)
    output.write_text(json.dumps(rows, indent=2) + "\n", encoding="utf-8")


def epoch(run: Path, source: str, target: str, size: int) -> dict[str, Any]:
    """Train once through the first pairs."""
    folder = Path(f"{run}-scaling")
    folder.mkdir(exist_ok=True)
    for side, path in (("source", source), ("target", target)):
        lines = [line for line, _ in zip(read_lines(path), range(size), strict=False)]
        (folder / side).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    own = Run(run).read_recipe()
    data = {"source": str(folder / "source"), "target": str(folder / "target")}
    recipe = Recipe.from_table(own.model_dump() | {"data": own.data.model_dump() | data, "run": str(run)})
    texts = prepare_data(Run(run), recipe, *open_corpora(recipe), ignore_event)
    trainer = Trainer(Run(run), recipe, texts)
    steps = trainer.order.updates_per_epoch
    began_at = time.perf_counter()
    tokens = sum(step.tokens for step in islice(trainer.steps(), steps))
    return {"seconds": time.perf_counter() - began_at, "memory": peak_memory_bytes(), "steps": steps, "tokens": tokens}


def decode(run: Path, source: str, _target: str, size: int) -> dict[str, Any]:
    """Translate the first sentences, three times; the time is the median."""
    lines = [line for line, _ in zip(read_lines(source), range(size), strict=False)]
    translator = dragoman.load(run)
    translator.translate(lines[:64])
    seconds = []
    for _ in range(3):
        began_at = time.perf_counter()
        translator.translate(lines)
        seconds.append(time.perf_counter() - began_at)
    return {"seconds": median(seconds), "turns": seconds, "memory": peak_memory_bytes(), "sentences": len(lines)}


if __name__ == "__main__":
    typer.run(main)
