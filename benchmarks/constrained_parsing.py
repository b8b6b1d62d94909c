"""Is every output of a parser a tree over exactly its input words, whatever the model and the words?

    python benchmarks/constrained_parsing.py --inputs 10000

Untrained models of several architectures and vocabularies, some of them biased towards END, towards brackets, or
against closing brackets, parse sentences of ordinary, unusual and unknown words with every kind of search. Each output
is checked by an independent parser of brackets. Prints a table and writes one JSON record.
"""

import json
import platform
import random
import re
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from functools import cache
from importlib.metadata import version
from itertools import product
from pathlib import Path
from typing import Annotated, Any

import torch
import typer

from dragoman.decoding.sampling_options import SamplingOptions
from dragoman.recipe import Recipe
from dragoman.recipe import TokenizerConfig as HowToCut
from dragoman.tasks.parse import Parser
from dragoman.tasks.registry import build_model
from dragoman.text.tokenizer import Tokenizer
from dragoman.tokens import END, RESERVED_TOKENS, UNKNOWN

LETTERS = "abcdefghijklmnop"
LABELS = ("TOP", "S", "NP", "VP", "PP", "ADJP", "-X-", "")
TAGS = ("DT", "NN", "VB", "IN", "-LRB-", "-RRB-", ".", ",", "''", "PRP$")
STRANGE = (
    "é", "e\u0301", "a\u0301\u0328\u0301", "ﬁ", "İ", "ß", "Ω", "\u1fef", "漢字", "한국어", "עברית", "हिन्दी", "😀",
    "👩\u200d👧", "\u200b", "\u200d", "\ufeff", "\u0301", "⁇", "⟨", "⟩", "Ġ", "Ċ", "<s>", "&amp;", "\\", '"', "''",
    "``", "1,000.50", "x\u00a0y", "\u2003x", "x\u3000", "x\u2028y", "\x00", "\x1b", "\x7f", "\ud800", "(", ")", "()",
    "a(b)c", "((", "[", "}", "%", "--", "-LRB-", "(TOP", ")TOP", "NN",
)  # fmt: skip
PARENTHESES = {"(": "-LRB-", ")": "-RRB-"}

PART = re.compile(r"\([^ ()]* [^ ()]+\)|\([^ ()]*|\)")

Words = list[str]


def ordinary(chance: random.Random) -> str:
    """Return a word like those that the vocabulary was made from."""
    return "".join(chance.choices(LETTERS, k=chance.randint(1, 6)))


def unknown(chance: random.Random) -> str:
    """Return letters that no training text had."""
    return "".join(chr(chance.choice((0x0416, 0x3042, 0x1F600, 0x10A0)) + chance.randint(0, 30)) for _ in range(3))


def anything(chance: random.Random) -> str:
    """Return a few characters from anywhere but the spaces that end a word."""
    letters = [chr(chance.randrange(0x21, chance.choice((0x7F, 0x250, 0x3000, 0x20000)))) for _ in range(4)]
    return "w" + "".join(letters)


SENTENCES: dict[str, Callable[[random.Random], Words]] = {
    "ordinary words": lambda chance: [ordinary(chance) for _ in range(chance.randint(2, 60))],
    "one word": lambda chance: [chance.choice((ordinary, unknown, anything))(chance)],
    "unknown words": lambda chance: [unknown(chance) for _ in range(chance.randint(1, 30))],
    "strange words": lambda chance: chance.choices(STRANGE, k=chance.randint(1, 30)),
    "any characters": lambda chance: [anything(chance) for _ in range(chance.randint(1, 30))],
    "brackets": lambda chance: chance.choices(("(", ")", "a(", ")b", "-LRB-", "[", "]"), k=chance.randint(1, 30)),
    "a mixture": lambda chance: [
        chance.choice((ordinary, unknown, anything, lambda _: chance.choice(STRANGE)))(chance)
        for _ in range(chance.randint(1, 60))
    ],
    "200 words": lambda chance: [ordinary(chance) for _ in range(200)],
}
SHARES = {"200 words": 0.02}  # the others come equally often

OPENING, CLOSING, ENDING, TAGGING = "opening brackets", "closing brackets", "END", "tags"
WANTED: dict[str, tuple[str, float]] = {  # what a rigged model wants, and how much
    "nothing special": (ENDING, 0.0),
    "always END": (ENDING, 1e30),
    "never END": (ENDING, -torch.inf),
    "only opening brackets": (OPENING, 100.0),
    "only closing brackets": (CLOSING, torch.inf),
    "never closing brackets": (CLOSING, -1e38),
    "only tags": (TAGGING, 1e4),
    "never tags": (TAGGING, -torch.inf),
    "unknown tokens": ("unknown", 3e38),
}
SEARCHES: dict[str, dict[str, Any]] = {
    "greedy": {"beam": 1},
    "beam 4": {"beam": 4},
    "beam 21, four best": {"beam": 21, "n_best": 4, "length_penalty": 0.3},
    "drawn": {"sampling": SamplingOptions(temperature=1.5), "n_best": 2},
}
COMPILED = "Transformer, compiled"  # which cannot be rigged
_LAYERS = {"layers": 1, "width": 16, "share_embeddings": False, "share_output": False}
_SELF_ATTENTION = {**_LAYERS, "inner_width": 32, "heads": 2, "norm": "pre", "rotary": False}
_TRANSFORMER = {"architecture": "transformer", **_SELF_ATTENTION, "next_word": False}
MODELS: dict[str, dict[str, Any]] = {
    "Transformer": _TRANSFORMER,
    COMPILED: {**_TRANSFORMER, "width": 32, "heads": 1},
    "Transformer with next-word feature": {**_TRANSFORMER, "next_word": True, "rotary": True},
    "recurrent": {"architecture": "recurrent", **_LAYERS, "score": "dot"},
    "convolutional": {"architecture": "convs2s", **_LAYERS},
    "decoder-only": {"architecture": "decoder_only", **_SELF_ATTENTION},
}
TOGETHER = 100  # sentences that are parsed in one call
KINDS = ("bpe", "wordpiece", "words", "characters", "bytes")


@dataclass
class Tally:
    """What became of the inputs of one kind."""

    inputs: int = 0
    outputs: int = 0
    wrong: list[str] = field(default_factory=list)


def sentence(chance: random.Random) -> tuple[str, Words]:
    """Draw a kind of sentence, and one of that kind."""
    names = list(SENTENCES)
    name = chance.choices(names, weights=[SHARES.get(name, 1.0) for name in names])[0]
    return name, SENTENCES[name](chance)


@cache
def cutter(kind: str) -> Tokenizer:
    """Learn a vocabulary for sentences."""
    chance = random.Random(1)
    lines = [" ".join(ordinary(chance) for _ in range(8)) for _ in range(100)]
    return Tokenizer.train(lines, HowToCut(kind=kind, size=400))  # type: ignore[arg-type]


@cache
def tree_pieces() -> Tokenizer:
    """Return the vocabulary of trees."""
    brackets = " ".join(f"({label} ){label}" for label in LABELS)
    return Tokenizer.train([f"{brackets} {' '.join(TAGS)}"], HowToCut(kind="words", size=400))


def parser(kind: str, model: str, wanted: str, seed: int, extra: int) -> Parser:
    """Return an untrained parser."""
    recipe = Recipe.from_table(
        {
            "task": "parse", "data": {"file": "none"}, "model": MODELS[model],
            "tokenizer": {"kind": kind, "target_kind": "words", "joint": False},
            "decoding": {"extra_length": extra, "batch_tokens": 40_000},
        }
    )  # fmt: skip
    torch.manual_seed(seed)
    source, target = cutter(kind), tree_pieces()
    network = build_model(recipe, source, target)
    rig(network, target, *WANTED[wanted])
    return Parser(recipe, network.eval(), source, target, torch.device("cpu"))


def rig(network: Any, target: Tokenizer, what: str, strength: float) -> None:
    """Let a network want some tokens more, or less, than it would."""
    pieces = target.spellings
    chosen = {
        ENDING: [END],
        OPENING: [token for token, piece in enumerate(pieces) if piece.startswith("(")],
        CLOSING: [token for token, piece in enumerate(pieces) if piece.startswith(")")],
        TAGGING: [token for token, piece in enumerate(pieces) if token >= RESERVED_TOKENS and piece[0] not in "()"],
        "unknown": [UNKNOWN],
    }[what]
    with torch.no_grad():
        network.output_weight.mul_(6)  # or it would hardly want anything
    plain = network.step

    def step(*given: Any) -> tuple[torch.Tensor, Any]:
        logits, state = plain(*given)
        logits[..., chosen] += strength
        return logits, state

    if strength:
        network.step = step


def expected_words(words: Words) -> Words:
    """Return the words that a tree must have, as treebanks write them."""
    plain = [re.sub("[\ud800-\udfff]", "\ufffd", word) for word in words]
    return ["".join(PARENTHESES.get(letter, letter) for letter in word) for word in plain]


def find_error(output: str, words: Words) -> str | None:
    """Read an output with a stack; say what is wrong with it."""
    found: Words = []
    contents: list[int] = []  # for each open bracket, what is in it
    if PART.sub("", output).strip(" "):
        return "text beside the brackets"
    for part in PART.findall(output):
        if not contents and found:
            return "something behind the tree"
        if part == ")":
            if not contents or contents.pop() == 0:
                return "an empty bracket, or one that was never opened"
        else:
            if contents:
                contents[-1] += 1
            if part.endswith(")"):
                if not contents:
                    return "a word outside of all brackets"
                found.append(part[1:-1].split(" ")[1])
            else:
                contents.append(0)
    if contents:
        return "not closed"
    return None if found == words else f"other words: {found[:5]} for {words[:5]}"


def trials(inputs: int, seed: int) -> Iterator[tuple[tuple[str, ...], str, Words, list[str]]]:
    """Yield how each input was parsed, of which kind it was, its words, and what came out."""
    chance = random.Random(seed)
    ways = [
        way for way in product(KINDS, MODELS, WANTED, SEARCHES) if way[1] != COMPILED or way[2] == "nothing special"
    ]
    chance.shuffle(ways)
    done = 0
    for number in range(inputs):
        way = ways[number % len(ways)]
        batch = [sentence(chance) for _ in range(min(TOGETHER, inputs - done))]
        if not batch:
            return
        done += len(batch)
        kind, model, wanted, search = way
        extra = chance.choice((3, 5, 20, 40, 300 if search == "greedy" else 60))
        parse = parser(kind, model, wanted, seed + number, extra)
        with torch.inference_mode():
            found = parse.search([" ".join(words) for _, words in batch], **SEARCHES[search])
        for (name, words), row in zip(batch, found, strict=True):
            yield way, name, expected_words(words), [one.text for one in row]


def run_trials(inputs: int, seed: int, tell: Callable[[int], None] = lambda _: None) -> dict[str, dict[str, Tally]]:
    """Count inputs, outputs and what is wrong with them, by everything that was varied."""
    groups = ("kind of word pieces", "model", "wants", "search", "sentences")
    tallies: dict[str, dict[str, Tally]] = {group: {} for group in groups}
    for number, (way, name, words, outputs) in enumerate(trials(inputs, seed), start=1):
        wrong = [why for output in outputs if (why := find_error(output, words))]
        for group, value in zip(groups, (*way, name), strict=True):
            tally = tallies[group].setdefault(value, Tally())
            tally.inputs += 1
            tally.outputs += len(outputs)
            tally.wrong += [f"{way}: {why}" for why in wrong]
        tell(number)
    return tallies


def table(tallies: dict[str, dict[str, Tally]]) -> str:
    """Return the tallies as a table to read."""
    lines = [f"{'':<28} {'inputs':>8} {'outputs':>8} {'no trees':>9}"]
    for group, rows in tallies.items():
        lines.append(group)
        for name, one in sorted(rows.items()):
            lines.append(f"  {name:<26} {one.inputs:>8,} {one.outputs:>8,} {len(one.wrong):>9,}")
    return "\n".join(lines)


def main(
    inputs: Annotated[int, typer.Option(min=1, help="Sentences to parse.")] = 10_000,
    seed: int = 1,
    record: Annotated[Path, typer.Option(help="Where to write the JSON record.")] = Path("constrained_parsing.json"),
) -> None:
    """Parse INPUTS sentences and see that every output is a tree over its words."""

    def tell(number: int) -> None:
        if number % 500 == 0:
            typer.echo(f"{number:,} of {inputs:,}", err=True)

    tallies = run_trials(inputs, seed, tell)
    print(table(tallies))
    by_model = tallies["model"].values()
    facts = {
        "inputs": sum(one.inputs for one in by_model), "outputs": sum(one.outputs for one in by_model),
        "wrong": [why for one in by_model for why in one.wrong], "seed": seed, "python": platform.python_version(),
        **{package: version(package) for package in ("dragoman", "torch", "tokenizers")},
    }  # fmt: skip
    rows = {group: {name: asdict(one) for name, one in found.items()} for group, found in tallies.items()}
    record.write_text(json.dumps({**facts, "tallies": rows}, ensure_ascii=False, indent=2) + "\n", encoding="utf-8")
    if facts["wrong"]:
        raise typer.Exit(1)


if __name__ == "__main__":
    typer.run(main)
