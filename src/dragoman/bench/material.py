"""The text to measure with: the user's own, the run's, or the built-in phrasebook; and models of random weights."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path
from random import Random

import torch

from dragoman.bench.plan import Plan
from dragoman.corpora.phrasebook import phrasebook
from dragoman.data.arrays import TokenPairs, opened, prepare
from dragoman.data.corpus import Corpus
from dragoman.data.lines import read_lines
from dragoman.errors import UserError
from dragoman.model.architectures import build
from dragoman.model.weights import weights
from dragoman.recipe import Data, Recipe
from dragoman.run import Run, make_folder, write_weights, write_whole
from dragoman.tasks.preparation import Prepared
from dragoman.text.tokenizer import Tokenizer
from dragoman.tokens import END

Pairs = list[tuple[str, str]]
SYLLABLES = [consonant + vowel for consonant in "bdfgklmnprstvz" for vowel in "aeiou"]


@dataclass(frozen=True)
class Text:
    """Sentences, with their translations where there are any, and where they come from."""

    origin: str
    sources: list[str]
    references: list[str] | None


@dataclass(frozen=True)
class Material:
    """A text as a training reads it, on disk, so that every worker can open it."""

    origin: str
    folder: Path  # where the tokenizers are, as in a run directory
    arrays: Path
    joint: bool

    def tokenizers(self) -> tuple[Tokenizer, Tokenizer]:
        """Read the source's and the target's tokenizer."""
        return Run(self.folder).read_tokenizers(self.joint)

    def pairs(self) -> TokenPairs:
        """Map the pairs into memory."""
        return opened(self.arrays)

    def prepared(self) -> Prepared:
        """Return what a training is given; nothing is validated here, so the pairs stand for the validation too."""
        pairs = self.pairs()
        return Prepared(*self.tokenizers(), train=pairs, valid=pairs, examples=[], origin={})


def training_text(plan: Plan) -> Text:
    """Find sentence pairs: those of the run's recipe, those that were given, or the phrasebook's."""
    recorded = existing(Run(plan.run).read_recipe().data) if plan.run else None
    given = Corpus.of(plan.source, plan.target) if plan.source and plan.target else None
    corpus = recorded or given
    if corpus is None:
        drawn = [(each.source, each.target) for each in phrasebook("train", plan.effort.drawn)]
        return text_of("the built-in phrasebook", drawn)
    corpus.check_counts()
    usable = (pair for pair in corpus.pairs() if pair[0].strip() and pair[1].strip())
    return text_of(str(corpus), list(islice(usable, plan.effort.pairs)))


def existing(data: Data, part: str = "") -> Corpus | None:
    """Return the corpus that a recipe names, if its files are still where it says."""
    named = {name: getattr(data, part + name) for name in ("source", "target", "pairs")}
    paths = [path for path in named.values() if path is not None]
    return Corpus.of(**named) if paths and all(Path(path).is_file() for path in paths) else None


def text_of(origin: str, pairs: Pairs) -> Text:
    """Return pairs as a text; an empty one cannot be measured with."""
    if not pairs:
        raise UserError(f"{origin}: there is no pair with text on both sides to measure with.")
    sources, targets = zip(*pairs, strict=True)
    return Text(origin, list(sources), list(targets))


def decoding_text(plan: Plan) -> Text:
    """Find sentences to translate: those that were given, those the run was validated with, or those to train on."""
    if plan.source:
        sources = list(read_lines(plan.source))
        references = list(read_lines(plan.target)) if plan.target else None
        if references is not None and len(sources) != len(references):
            raise UserError(
                f"{plan.source} has {len(sources):,} lines but {plan.target} has {len(references):,}; line n of one "
                "must translate line n of the other."
            )
        return Text(plan.source, sources, references)
    valid = existing(Run(plan.run).read_recipe().data, "valid_") if plan.run else None
    return text_of(str(valid), list(valid.pairs())) if valid else training_text(plan)


def material(folder: Path, text: Text, recipe: Recipe, tokenizers: tuple[Tokenizer, Tokenizer]) -> Material:
    """Cut a text into pieces, as `dragoman train` does."""
    assert text.references is not None, "a training needs both sides"
    make_folder(folder)
    Run(folder).write_tokenizers(*tokenizers, recipe.tokenizer.joint)
    files = folder / "text.source", folder / "text.target"
    for file, lines in zip(files, (text.sources, text.references), strict=True):
        file.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8", newline="\n")
    pairs = prepare(Corpus.of(*files), *tokenizers, recipe.data.longest, cache_dir=folder / "arrays")
    return Material(text.origin, folder, pairs.folder, recipe.tokenizer.joint)


def learned(text: Text, recipe: Recipe) -> tuple[Tokenizer, Tokenizer]:
    """Learn one vocabulary for both sides, of its full size even from a small text."""
    lines = chain(text.sources, text.references or [], invented(recipe.tokenizer.size))
    both = Tokenizer.train(lines, recipe.tokenizer)
    return both, both


def invented(count: int) -> Iterator[str]:
    """Make up words that fill a vocabulary: the size of the output layer must not depend on how little text there is.

    They are rarer than what the text repeats, so its own words are learned first and are cut as they would be anyway.
    """
    drawn = Random(1)
    for _ in range(count):
        yield " ".join(["".join(drawn.choices(SYLLABLES, k=drawn.randint(2, 4)))] * 2)


def random_run(folder: Path, recipe: Recipe, tokenizers: tuple[Tokenizer, Tokenizer]) -> Run:
    """Write a run directory with random weights, which never end a sentence of themselves."""
    run = Run(folder)
    make_folder(folder)
    write_whole(run.recipe_file, recipe.to_toml().encode())
    run.write_tokenizers(*tokenizers, recipe.tokenizer.joint)
    torch.manual_seed(1)
    model = build(recipe.model, *map(len, tokenizers))
    with torch.no_grad():
        model.output[END] = 0.0  # its logit is 0, far below the best of thousands of random ones
    write_weights(run.weights_file, weights(model), {})
    return run
