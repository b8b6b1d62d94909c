"""The text of a benchmark (given files, those of the run, or the phrasebook), and runs with random weights."""

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from itertools import chain, islice
from pathlib import Path
from random import Random
from typing import Any, Literal

import torch

from dragoman.bench.config import BenchmarkConfig
from dragoman.corpora.phrasebook import phrasebook
from dragoman.data.arrays import TokenPairs, open_arrays, tokenize_corpus
from dragoman.data.corpus import AnyParallelCorpus, ParallelCorpus
from dragoman.data.lines import read_lines
from dragoman.errors import UserError, format_count
from dragoman.model_files import read_tokenizers, write_tokenizers, write_weights
from dragoman.models.architectures import build_model
from dragoman.models.weights import named_weights
from dragoman.recipe import DataConfig, Recipe
from dragoman.run import Run
from dragoman.storage import make_directory, write_atomically
from dragoman.tasks.task import ValidationData
from dragoman.tasks.translate import open_parallel_corpus
from dragoman.text.tokenizer import Tokenizer
from dragoman.tokens import END
from dragoman.training.prepare import PreparedData

_SYLLABLES = [consonant + vowel for consonant in "bdfgklmnprstvz" for vowel in "aeiou"]


@dataclass(frozen=True)
class BenchmarkText:
    """Sentences, their origin, and their reference translations if there are any."""

    origin: str
    sources: list[str]
    references: list[str] | None


@dataclass(frozen=True)
class BenchmarkCorpus:
    """A tokenized text on disk, which every engine process can open."""

    origin: str
    folder: Path  # where the tokenizers are, as in a run directory
    arrays: Path
    joint: bool

    def describe(self) -> dict[str, Any]:
        """Return the corpus as JSON, for the process of an engine."""
        return {**asdict(self), "folder": str(self.folder), "arrays": str(self.arrays)}

    @classmethod
    def from_description(cls, description: dict[str, Any]) -> "BenchmarkCorpus":
        """Return the corpus that was described."""
        folders = {name: Path(description[name]) for name in ("folder", "arrays")}
        return cls(**{**description, **folders})

    def read_tokenizers(self) -> tuple[Tokenizer, Tokenizer]:
        """Read the source and the target tokenizer."""
        return read_tokenizers(Run(self.folder), self.joint)

    def open_pairs(self) -> TokenPairs:
        """Map the pairs into memory."""
        return open_arrays(self.arrays)

    def prepared_data(self) -> PreparedData:
        """Return the data of a training; the validation data are never used."""
        pairs = self.open_pairs()
        return PreparedData(*self.read_tokenizers(), train_pairs=pairs, validation=ValidationData([], pairs), origin={})


def load_training_text(config: BenchmarkConfig) -> BenchmarkText:
    """Load sentence pairs: those of the run's recipe, the files given, or the phrasebook."""
    recorded = _existing_corpus(Run(config.run).read_recipe().data) if config.run else None
    given = ParallelCorpus.from_files(config.source, config.target) if config.source and config.target else None
    corpus = recorded or given
    if corpus is None:
        pairs = [(pair.source, pair.target) for pair in phrasebook("train", config.workload.phrasebook_pairs)]
        return _text_from_pairs("the built-in phrasebook", pairs)
    corpus.count_pairs()
    usable = (pair for pair in corpus.pairs() if pair[0].strip() and pair[1].strip())
    return _text_from_pairs(str(corpus), list(islice(usable, config.workload.max_pairs)))


def _existing_corpus(config: DataConfig, prefix: Literal["", "valid_"] = "") -> AnyParallelCorpus | None:
    """Return the corpus that a recipe names, if its files exist."""
    corpus = open_parallel_corpus(config, prefix)
    return corpus if corpus and all(file.is_file() for part in corpus.parts for file in part.files) else None


def _text_from_pairs(origin: str, pairs: list[tuple[str, str]]) -> BenchmarkText:
    if not pairs:
        raise UserError(f"{origin}: no pair has text on both sides.")
    sources, targets = zip(*pairs, strict=True)
    return BenchmarkText(origin, list(sources), list(targets))


def load_decoding_text(config: BenchmarkConfig) -> BenchmarkText:
    """Load sentences to translate: the file given, the validation text of the run, or the training text."""
    if config.source:
        sources = list(read_lines(config.source))
        references = list(read_lines(config.target)) if config.target else None
        if references is not None and len(sources) != len(references):
            raise UserError(
                f"{config.source} has {format_count(len(sources), 'line')} but {config.target} has "
                f"{len(references):,}; the files must be aligned line by line."
            )
        return BenchmarkText(config.source, sources, references)
    valid = _existing_corpus(Run(config.run).read_recipe().data, "valid_") if config.run else None
    return _text_from_pairs(str(valid), list(valid.pairs())) if valid else load_training_text(config)


def tokenize_text(
    folder: Path, text: BenchmarkText, recipe: Recipe, tokenizers: tuple[Tokenizer, Tokenizer]
) -> BenchmarkCorpus:
    """Tokenize a text as `dragoman train` does."""
    assert text.references is not None, "load_training_text returns both sides"
    make_directory(folder)
    write_tokenizers(Run(folder), *tokenizers, recipe.tokenizer.joint)
    files = folder / "text.source", folder / "text.target"
    for file, lines in zip(files, (text.sources, text.references), strict=True):
        file.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8", newline="\n")
    pairs = tokenize_corpus(
        ParallelCorpus.from_files(*files), *tokenizers, recipe.data.longest, cache_dir=folder / "arrays"
    )
    return BenchmarkCorpus(text.origin, folder, pairs.folder, recipe.tokenizer.joint)


def learn_tokenizers(text: BenchmarkText, recipe: Recipe) -> tuple[Tokenizer, Tokenizer]:
    """Learn a joint vocabulary, of its full size even from a small text."""
    lines = chain(text.sources, text.references or [], _filler_words(recipe.tokenizer.size))
    tokenizer = Tokenizer.train(lines, recipe.tokenizer)
    return tokenizer, tokenizer


def _filler_words(count: int) -> Iterator[str]:
    """Yield invented words that fill the vocabulary, so that the output layer has its full size.

    Each occurs only twice, so the words of the text are learned first.
    """
    rng = Random(1)
    for _ in range(count):
        yield " ".join(["".join(rng.choices(_SYLLABLES, k=rng.randint(2, 4)))] * 2)


def write_random_run(folder: Path, recipe: Recipe, tokenizers: tuple[Tokenizer, Tokenizer]) -> Run:
    """Write a run directory with random weights, which never produce END before the length limit."""
    run = Run(folder)
    make_directory(folder)
    write_atomically(run.recipe_file, recipe.to_toml().encode())
    write_tokenizers(run, *tokenizers, recipe.tokenizer.joint)
    torch.manual_seed(1)
    model = build_model(recipe.model, *map(len, tokenizers))
    with torch.no_grad():
        model.output_weight[END] = 0.0  # its logit is 0, below the maximum of thousands of random logits
    write_weights(run.weights_file, named_weights(model), {})
    return run
