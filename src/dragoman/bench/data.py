"""The text to measure with: the user's own, the run's, or the built-in phrasebook; and models of random weights."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path
from random import Random

import torch

from dragoman.bench.config import BenchmarkConfig
from dragoman.corpora.phrasebook import phrasebook
from dragoman.data.arrays import TokenPairs, open_arrays, tokenize_corpus
from dragoman.data.corpus import ParallelCorpus
from dragoman.data.lines import read_lines
from dragoman.errors import UserError
from dragoman.models.architectures import build_model
from dragoman.models.weights import named_weights
from dragoman.recipe import DataConfig, Recipe
from dragoman.run import Run, make_directory, write_atomically, write_weights
from dragoman.tasks.task import ValidationData
from dragoman.text.tokenizer import Tokenizer
from dragoman.tokens import END
from dragoman.training.prepare import PreparedData

_SYLLABLES = [consonant + vowel for consonant in "bdfgklmnprstvz" for vowel in "aeiou"]


@dataclass(frozen=True)
class BenchmarkText:
    """Sentences, with their translations where there are any, and where they come from."""

    origin: str
    sources: list[str]
    references: list[str] | None


@dataclass(frozen=True)
class BenchmarkCorpus:
    """A text as a training reads it, on disk, so that every worker can open it."""

    origin: str
    folder: Path  # where the tokenizers are, as in a run directory
    arrays: Path
    joint: bool

    def read_tokenizers(self) -> tuple[Tokenizer, Tokenizer]:
        """Read the source's and the target's tokenizer."""
        return Run(self.folder).read_tokenizers(self.joint)

    def open_pairs(self) -> TokenPairs:
        """Map the pairs into memory."""
        return open_arrays(self.arrays)

    def prepared_data(self) -> PreparedData:
        """Return what a training is given; nothing is validated here, so the pairs stand for the validation too."""
        pairs = self.open_pairs()
        return PreparedData(*self.read_tokenizers(), train_pairs=pairs, validation=ValidationData([], pairs), origin={})


def load_training_text(config: BenchmarkConfig) -> BenchmarkText:
    """Find sentence pairs: those of the run's recipe, those that were given, or the phrasebook's."""
    recorded = _existing_corpus(Run(config.run).read_recipe().data) if config.run else None
    given = ParallelCorpus.from_files(config.source, config.target) if config.source and config.target else None
    corpus = recorded or given
    if corpus is None:
        drawn = [(each.source, each.target) for each in phrasebook("train", config.workload.phrasebook_pairs)]
        return _text_from_pairs("the built-in phrasebook", drawn)
    corpus.count_pairs()
    usable = (pair for pair in corpus.pairs() if pair[0].strip() and pair[1].strip())
    return _text_from_pairs(str(corpus), list(islice(usable, config.workload.max_pairs)))


def _existing_corpus(data: DataConfig, prefix: str = "") -> ParallelCorpus | None:
    """Return the corpus that a recipe names, if its files are still where it says."""
    named = {name: getattr(data, prefix + name) for name in ("source", "target", "pairs")}
    paths = [path for path in named.values() if path is not None]
    return ParallelCorpus.from_files(**named) if paths and all(Path(path).is_file() for path in paths) else None


def _text_from_pairs(origin: str, pairs: list[tuple[str, str]]) -> BenchmarkText:
    """Return pairs as a text; an empty one cannot be measured with."""
    if not pairs:
        raise UserError(f"{origin}: there is no pair with text on both sides to measure with.")
    sources, targets = zip(*pairs, strict=True)
    return BenchmarkText(origin, list(sources), list(targets))


def load_decoding_text(config: BenchmarkConfig) -> BenchmarkText:
    """Find sentences to translate: those that were given, those the run was validated with, or those to train on."""
    if config.source:
        sources = list(read_lines(config.source))
        references = list(read_lines(config.target)) if config.target else None
        if references is not None and len(sources) != len(references):
            raise UserError(
                f"{config.source} has {len(sources):,} lines but {config.target} has {len(references):,}; line n of "
                "one "
                "must translate line n of the other."
            )
        return BenchmarkText(config.source, sources, references)
    valid = _existing_corpus(Run(config.run).read_recipe().data, "valid_") if config.run else None
    return _text_from_pairs(str(valid), list(valid.pairs())) if valid else load_training_text(config)


def tokenize_text(
    folder: Path, text: BenchmarkText, recipe: Recipe, tokenizers: tuple[Tokenizer, Tokenizer]
) -> BenchmarkCorpus:
    """Cut a text into pieces, as `dragoman train` does."""
    assert text.references is not None, "a training needs both sides"
    make_directory(folder)
    Run(folder).write_tokenizers(*tokenizers, recipe.tokenizer.joint)
    files = folder / "text.source", folder / "text.target"
    for file, lines in zip(files, (text.sources, text.references), strict=True):
        file.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8", newline="\n")
    pairs = tokenize_corpus(
        ParallelCorpus.from_files(*files), *tokenizers, recipe.data.longest, cache_dir=folder / "arrays"
    )
    return BenchmarkCorpus(text.origin, folder, pairs.folder, recipe.tokenizer.joint)


def learn_tokenizers(text: BenchmarkText, recipe: Recipe) -> tuple[Tokenizer, Tokenizer]:
    """Learn one vocabulary for both sides, of its full size even from a small text."""
    lines = chain(text.sources, text.references or [], _filler_words(recipe.tokenizer.size))
    both = Tokenizer.train(lines, recipe.tokenizer)
    return both, both


def _filler_words(count: int) -> Iterator[str]:
    """Make up words that fill a vocabulary: the size of the output layer must not depend on how little text there is.

    They are rarer than what the text repeats, so its own words are learned first and are cut as they would be anyway.
    """
    drawn = Random(1)
    for _ in range(count):
        yield " ".join(["".join(drawn.choices(_SYLLABLES, k=drawn.randint(2, 4)))] * 2)


def write_random_run(folder: Path, recipe: Recipe, tokenizers: tuple[Tokenizer, Tokenizer]) -> Run:
    """Write a run directory with random weights, which never end a sentence of themselves."""
    run = Run(folder)
    make_directory(folder)
    write_atomically(run.recipe_file, recipe.to_toml().encode())
    run.write_tokenizers(*tokenizers, recipe.tokenizer.joint)
    torch.manual_seed(1)
    model = build_model(recipe.model, *map(len, tokenizers))
    with torch.no_grad():
        model.output_weight[END] = 0.0  # its logit is 0, far below the best of thousands of random ones
    write_weights(run.weights_file, named_weights(model), {})
    return run
