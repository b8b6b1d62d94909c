"""At which step should a word alignment be read from cross-attention?

Aligns given translations by each method and each layer, and compares the alignments with gold links in Pharaoh format
(punctuation marks count as words). Prints the alignment error rates and writes one JSON record.

    python benchmarks/alignment_error.py runs/quickstart --source runs/quickstart/corpus/test.en \
        --target runs/quickstart/corpus/test.de --links runs/quickstart/corpus/test.links --sentences 150
"""

import argparse
import json
from collections import defaultdict
from itertools import islice
from pathlib import Path

import dragoman
from dragoman.viewer.alignment import link_words, weights_when_read, weights_when_written
from dragoman.viewer.record import AttentionRecord, AttentionWeights


def alignment_methods(record: AttentionRecord) -> dict[str, AttentionWeights]:
    """Return the weights of every method by name."""
    found = {"mean of all, when written": weights_when_written(record.cross.mean((0, 1)))}
    found["mean of all, one step late"] = weights_when_read(record.cross.mean((0, 1)))
    for number, layer in enumerate(record.cross, 1):
        found[f"layer {number}, when written"] = weights_when_written(layer.mean(0))
        found[f"layer {number}, one step late"] = weights_when_read(layer.mean(0))
    return found


def main() -> None:
    """Read the arguments, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run")
    for name in ("source", "target", "links"):
        parser.add_argument(f"--{name}", type=Path, required=True)
    parser.add_argument("--sentences", type=int, default=500)
    parser.add_argument("--output", type=Path, default=Path("alignment_error.json"))
    asked = parser.parse_args()
    model = dragoman.load(asked.run)
    files = [path.read_text(encoding="utf-8").split("\n") for path in (asked.source, asked.target, asked.links)]
    common, total = defaultdict[str, int](int), defaultdict[str, int](int)
    for source, target, gold in islice(zip(*files, strict=True), asked.sentences):
        if not source.strip():
            continue
        record, right = model.inspect(source, target=target), set(gold.split())
        for name, weights in alignment_methods(record).items():
            ours = {f"{link.source}-{link.target}" for link in link_words(record, weights)}
            common[name] += 2 * len(ours & right)
            total[name] += len(ours) + len(right)
    rates = {name: round(1 - common[name] / total[name], 4) for name in total}
    for name, rate in sorted(rates.items(), key=lambda item: item[1]):
        print(f"{rate:.3f}  {name}")
    asked.output.write_text(json.dumps({**vars(asked), "error_rates": rates}, default=str, indent=1) + "\n")


if __name__ == "__main__":
    main()
