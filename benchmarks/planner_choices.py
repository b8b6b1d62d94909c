"""Print what the planner chooses for each task, amount of data and budget, at one speed, as a Markdown table.

    python benchmarks/planner_choices.py --speed 7000

Nothing is trained or measured: the planner is a pure function. A wider model is taken to be slower in proportion to its
parameters; a real plan measures its speed.
"""

import argparse
from dataclasses import dataclass

from dragoman.lab.laboratory import count_parameters
from dragoman.recipe import Recipe
from dragoman.training.planner import (
    Budget,
    CorpusFacts,
    TextFacts,
    candidate_recipes,
    plan_tokenizer,
    plan_training,
)


@dataclass(frozen=True)
class Corpus:
    """The amount of data of a corpus, by its README."""

    task: str
    name: str
    pairs: int
    tokens: float  # per pair, on the longer side
    characters: int = 0  # of running text


CORPORA = (
    Corpus("translate", "Tatoeba en–fr, 500 pairs", 500, 14),
    Corpus("translate", "Tatoeba en–fr, 5,000 pairs", 4500, 13),
    Corpus("translate", "Tatoeba en–fr, 20,000 pairs", 19_000, 12),
    Corpus("translate", "Multi30k, 29,000 pairs", 29_000, 17),
    Corpus("translate", "Tatoeba en–de, 160,000 pairs", 159_809, 11),
    Corpus("translate", "WMT 2014 en–de, 4.5 million pairs", 4_500_000, 30),
    Corpus("pronounce", "SIGMORPHON 2021 medium, 8,000 words", 8000, 10),
    Corpus("pronounce", "CMUdict, 116,000 words", 115_884, 9),
    Corpus("inflect", "SIGMORPHON 2018, 10,000 forms", 10_000, 16),
    Corpus("parse", "Penn Treebank sample, 3,183 trees", 3183, 70),
    Corpus("parse", "GENIA, 14,326 trees", 14_326, 80),
    Corpus("generate", "a book of 200,000 characters", 780, 256, 200_000),
    Corpus("generate", "tinyshakespeare, 1 million characters", 3920, 256, 1_003_857),
    Corpus("generate", "Brown, 6 million characters", 5900, 256, 6_000_000),
)
BUDGETS = (("none", None), ("4 min", 240.0), ("15 min", 900.0), ("60 min", 3600.0))


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--speed", type=float, default=7000.0, help="tokens per second of the smallest size")
    speed = parser.parse_args().speed
    print("| data | budget | vocabulary | layers | width | dropout | batch | steps | epochs |")
    print("| --- | --- | --- | --- | --- | --- | --- | --- | --- |")
    for corpus in CORPORA:
        for name, seconds in BUDGETS:
            print(f"| {corpus.name} | {name} | {' | '.join(choices(corpus, seconds, speed))} |")


def choices(corpus: Corpus, seconds: float | None, speed: float) -> list[str]:
    """Return the cells of a row."""
    text = TextFacts(corpus.pairs, corpus.characters or int(corpus.pairs * corpus.tokens * 8), 100)
    recipe = plan_tokenizer(Recipe(task=corpus.task), text)
    valid = min(1000, corpus.pairs // 10)
    facts = CorpusFacts(corpus.pairs, int(corpus.pairs * corpus.tokens), int(valid * corpus.tokens), valid)
    vocabulary = recipe.tokenizer.size if recipe.tokenizer.kind == "bpe" else 100
    sizes = [count_parameters(each.model, vocabulary, vocabulary) for each in candidate_recipes(recipe, facts)]
    planned = plan_training(recipe, facts, [speed * sizes[0] / size for size in sizes], Budget(seconds=seconds)).recipe
    model, training, tokenizer = planned.model, planned.training, planned.tokenizer
    epochs = training.steps * training.batch_tokens / facts.tokens
    return [
        f"{tokenizer.size:,}" if tokenizer.kind == "bpe" else tokenizer.kind,
        str(model.layers) if model.decoder_depth == model.layers else f"{model.layers} + {model.decoder_depth}",
        str(model.width), f"{model.dropout:g}", f"{training.batch_tokens:,}", f"{training.steps:,}", f"{epochs:.1f}",
    ]  # fmt: skip


if __name__ == "__main__":
    main()
