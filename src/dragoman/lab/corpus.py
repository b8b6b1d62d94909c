"""The corpora of the experiments: parallel text in three splits, the built-in phrasebook unless another is named."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import Path
from random import Random

from dragoman.corpora.phrasebook import write_lines, write_phrasebook
from dragoman.data.corpus import ParallelCorpus
from dragoman.errors import UserError
from dragoman.evaluation.scores import corpus_bleu
from dragoman.storage import make_directory

SentencePairs = Sequence[tuple[str, str]]  # source and target sentences
LengthRange = tuple[int, int]  # the fewest and the most words of a source, both included
_FilePair = tuple[Path, Path]  # source and target file, aligned by line

PHRASEBOOK_SIZES = {"train": 20_000, "valid": 500, "test": 1000}
_HELD_OUT_PAIRS = 1000  # for each of validation and test, if a corpus has no splits
_ANNOTATION_SUFFIXES = {"links", "antecedents"}  # of phrasebook files that are not text
_VALIDATION_NAMES, _TEST_NAMES = ("valid", "val", "dev"), ("test",)


@dataclass(frozen=True)
class SplitCorpus:
    """A parallel corpus with training, validation and test files."""

    name: str
    train: _FilePair
    valid: _FilePair
    test: _FilePair
    links: Path | None = None  # the gold word alignment of the test split

    def pairs(self, split: str) -> list[tuple[str, str]]:
        """Return the sentence pairs of a split."""
        return list(ParallelCorpus.from_files(*map(str, getattr(self, split))).pairs())

    @property
    def fingerprint(self) -> str:
        """A hash of the text."""
        splits = (self.train, self.valid, self.test)
        prints = [ParallelCorpus.from_files(*map(str, files)).fingerprint() for files in splits]
        return sha256(" ".join(prints).encode()).hexdigest()[:16]

    def filter_shorter_than(self, max_words: int, folder: Path) -> "SplitCorpus":
        """Return the corpus with only those training and validation pairs whose source has fewer words."""
        make_directory(folder)
        short: dict[str, _FilePair] = {}
        for split in ("train", "valid"):
            pairs = [pair for pair in self.pairs(split) if len(pair[0].split()) < max_words]
            if not pairs:
                raise UserError(
                    f"{self.name}: no source in the {split} files has fewer than {max_words} words; choose a "
                    "--corpus with shorter sentences."
                )
            short[split] = _write_pairs(folder / f"{split}.under{max_words}", pairs)
        return replace(self, name=f"{self.name}, under {max_words} words", train=short["train"], valid=short["valid"])


def find_corpus(name: str, folder: Path, seed: int = 1, languages: str | None = None) -> SplitCorpus:
    """Return the corpus that `--corpus` names: phrasebook, a folder with train, valid and test, or SOURCE:TARGET."""
    if name == "phrasebook":
        return _phrasebook_corpus(folder / ("phrasebook" if seed == 1 else f"phrasebook-{seed}"), seed)
    source, colon, target = name.partition(":")
    if colon and not Path(name).exists():
        return _split_corpus(ParallelCorpus.from_files(source, target), folder / "divided", seed)
    if Path(name).is_dir():
        return _corpus_in_folder(Path(name), languages)
    raise UserError(
        f'--corpus "{name}" is neither "phrasebook", nor a directory with train, valid and test files, nor two files '
        "as SOURCE:TARGET."
    )


def _phrasebook_corpus(folder: Path, seed: int) -> SplitCorpus:
    if not (folder / "test.links").exists():
        make_directory(folder)
        write_phrasebook(folder, PHRASEBOOK_SIZES, seed=seed)
    train, valid, test = ((folder / f"{split}.en", folder / f"{split}.de") for split in PHRASEBOOK_SIZES)
    return SplitCorpus("phrasebook", train, valid, test, links=folder / "test.links")


def _split_corpus(corpus: ParallelCorpus, folder: Path, seed: int) -> SplitCorpus:
    """Hold out validation and test pairs at random; no held-out pair is in the training split."""
    pairs = list(dict.fromkeys(corpus.pairs()))
    held_out = min(_HELD_OUT_PAIRS, len(pairs) // 10)
    if held_out < 1:
        raise UserError(
            f"{corpus} has {len(pairs)} different pairs; at least 10 are needed for training, validation and test."
        )
    Random(seed).shuffle(pairs)
    make_directory(folder)
    test, valid, train = pairs[:held_out], pairs[held_out : 2 * held_out], pairs[2 * held_out :]
    return SplitCorpus(
        str(corpus),
        _write_pairs(folder / "train", train),
        _write_pairs(folder / "valid", valid),
        _write_pairs(folder / "test", test),
    )


def _corpus_in_folder(folder: Path, languages: str | None = None) -> SplitCorpus:
    """Return the train, valid and test files of two languages in a folder."""
    known = sorted({_language_suffix(path) for path in folder.iterdir() if path.name.startswith("train.")})
    known = [language for language in known if language not in _ANNOTATION_SUFFIXES]
    both = known if languages is None else languages.split(":")
    if len(known) < 2:
        raise UserError(
            f"{folder} does not have two files named train.LANGUAGE; give two files as SOURCE:TARGET instead."
        )
    if len(both) != 2 or not set(both) <= set(known):
        example = f"--languages {known[0]}:{known[1]}"
        raise UserError(f"{folder} has the languages {', '.join(known)}; choose two, for example {example}.")

    def find_files(prefixes: tuple[str, ...]) -> _FilePair:
        paths = [path for path in sorted(folder.iterdir()) if path.name.startswith(prefixes)]
        source, target = (next((path for path in paths if _language_suffix(path) == suffix), None) for suffix in both)
        if source is None or target is None:
            names = " or ".join(f"{prefix}.{both[0]} and {prefix}.{both[1]}" for prefix in prefixes)
            raise UserError(f"{folder} is missing files; expected {names}.")
        return source, target

    train, valid, test = (find_files(prefixes) for prefixes in (("train",), _VALIDATION_NAMES, _TEST_NAMES))
    return SplitCorpus(f"{folder.name} {both[0]}–{both[1]}", train, valid, test)


def _language_suffix(path: Path) -> str:
    """Return the language in a file name: "en" for train.en and train.en.gz."""
    return path.name.removesuffix(".gz").rpartition(".")[2]


def _write_pairs(prefix: Path, pairs: SentencePairs) -> _FilePair:
    files = prefix.with_name(f"{prefix.name}.source"), prefix.with_name(f"{prefix.name}.target")
    for side, file in enumerate(files):
        write_lines(file, (pair[side] for pair in pairs))
    return files


# Sentence lengths


def is_in_range(source: str, lengths: LengthRange) -> bool:
    """Return whether the number of words of a sentence is in a range."""
    return lengths[0] <= len(source.split()) <= lengths[1]


def bleu_in_range(translations: Sequence[str], pairs: SentencePairs, lengths: LengthRange) -> float:
    """Return the BLEU of the sentences whose source length is in a range."""
    rows = [row for row, (source, _) in enumerate(pairs) if is_in_range(source, lengths)]
    return corpus_bleu([translations[row] for row in rows], [pairs[row][1] for row in rows])


def format_range(lengths: LengthRange) -> str:
    """Format a range as 4–7."""
    fewest, most = lengths
    return f"{fewest}–{most}" if fewest < most else str(fewest)
