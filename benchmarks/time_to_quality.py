"""How good is a translator after how many minutes? Train by a recipe, then score every checkpoint on a test set.

The clock starts with the process: reading the text, learning the vocabulary and validations count. The test set is
only looked at afterwards. Run it from the repository's folder, on an otherwise idle machine.
"""

import argparse
import json
import subprocess
import sys
import time
from pathlib import Path

from dragoman.data.lines import read_lines
from dragoman.evaluation.scores import bleu
from dragoman.run import fit, read_tensors
from dragoman.tasks.translator import load
from dragoman.training.checkpoints import WEIGHTS, places, read_progress


def main() -> None:
    """Train, score, print a table and write a record."""
    arguments = parsed()
    began_at = time.time()
    command = ["train", arguments.recipe, "--run", arguments.run, "--overwrite", "--set", "training.keep=1000"]
    subprocess.run([sys.executable, "-m", "dragoman", *command], check=True)
    translator = load(arguments.run)
    sources, references = (list(read_lines(path)) for path in (arguments.source, arguments.reference))
    rows = []
    for place in sorted(places(Path(arguments.run) / "checkpoints")):
        fit(read_tensors(place / WEIGHTS)[0], dict(translator.model.named_parameters()), place)
        minutes = ((place / WEIGHTS).stat().st_mtime - began_at) / 60
        scores = {f"beam {beam}": bleu(translator.translate(sources, beam=beam), references) for beam in (1, 4)}
        rows.append({"step": read_progress(place).step, "minutes": round(minutes, 2), **scores})
        print("  ".join(f"{name} {value:,.2f}" for name, value in rows[-1].items()), flush=True)
    record = {"recipe": arguments.recipe, "source": arguments.source, "rows": rows}
    Path(arguments.output).write_text(json.dumps(record, indent=2) + "\n", encoding="utf-8")


def parsed() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("recipe")
    parser.add_argument("--run", default="runs/time-to-quality")
    parser.add_argument("--source", default="../shared/data/multi30k/test_2016_flickr.en.gz")
    parser.add_argument("--reference", default="../shared/data/multi30k/test_2016_flickr.de.gz")
    parser.add_argument("--output", default="time_to_quality.json")
    return parser.parse_args()


if __name__ == "__main__":
    main()
