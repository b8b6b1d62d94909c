"""What the experiments read: a parallel corpus in three parts, the built-in phrasebook unless another is named."""

from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import Path
from random import Random

from dragoman.corpora.phrasebook import write_lines, write_phrasebook
from dragoman.data.corpus import ParallelCorpus
from dragoman.errors import UserError
from dragoman.storage import make_directory

_FilePair = tuple[Path, Path]  # source and target, line by line

PHRASEBOOK_SIZES = {"train": 20_000, "valid": 500, "test": 1000}
_HELD_OUT_PAIRS = 1000  # pairs for validation, and again for the test, of a corpus that comes in one piece
_ANNOTATION_SUFFIXES = {"links", "antecedents"}  # which the phrasebook has beside its languages
_VALIDATION_NAMES, _TEST_NAMES = ("valid", "val", "dev"), ("test",)


@dataclass(frozen=True)
class SplitCorpus:
    """A corpus to train, validate and test with."""

    name: str
    train: _FilePair
    valid: _FilePair
    test: _FilePair
    links: Path | None = None  # the gold word alignment of the test text

    def pairs(self, split: str) -> list[tuple[str, str]]:
        """Return the sentence pairs of a split."""
        return list(ParallelCorpus.from_files(*map(str, getattr(self, split))).pairs())

    @property
    def fingerprint(self) -> str:
        """What makes this corpus different from any other."""
        parts = [
            ParallelCorpus.from_files(*map(str, files)).fingerprint() for files in (self.train, self.valid, self.test)
        ]
        return sha256(" ".join(parts).encode()).hexdigest()[:16]

    def filter_shorter_than(self, max_words: int, folder: Path) -> "SplitCorpus":
        """Return the corpus in which training and validation know only sources of fewer words."""
        make_directory(folder)
        short: dict[str, _FilePair] = {}
        for split in ("train", "valid"):
            kept = [pair for pair in self.pairs(split) if len(pair[0].split()) < max_words]
            if not kept:
                raise UserError(
                    f"{self.name}: no {split} pair has fewer than {max_words} words; there is nothing to train on."
                )
            short[split] = _write_pairs(folder / f"{split}.under{max_words}", kept)
        return replace(self, name=f"{self.name}, under {max_words} words", train=short["train"], valid=short["valid"])


def find_corpus(name: str, folder: Path, seed: int = 1, languages: str | None = None) -> SplitCorpus:
    """Find the corpus that `--corpus` names: phrasebook, a folder with train, valid and test, or SOURCE:TARGET."""
    if name == "phrasebook":
        return _phrasebook_corpus(folder / ("phrasebook" if seed == 1 else f"phrasebook-{seed}"), seed)
    source, colon, target = name.partition(":")
    if colon and not Path(name).exists():
        return _split_corpus(ParallelCorpus.from_files(source, target), folder / "divided", seed)
    if Path(name).is_dir():
        return _corpus_in_folder(Path(name), languages)
    raise UserError(
        f'--corpus "{name}" is neither "phrasebook", nor a folder with train, valid and test files, nor two files as '
        "SOURCE:TARGET."
    )


def _phrasebook_corpus(folder: Path, seed: int) -> SplitCorpus:
    """Write the phrasebook out, unless it is there."""
    if not (folder / "test.links").exists():
        make_directory(folder)
        write_phrasebook(folder, PHRASEBOOK_SIZES, seed=seed)
    train, valid, test = ((folder / f"{split}.en", folder / f"{split}.de") for split in PHRASEBOOK_SIZES)
    return SplitCorpus("phrasebook", train, valid, test, links=folder / "test.links")


def _split_corpus(corpus: ParallelCorpus, folder: Path, seed: int) -> SplitCorpus:
    """Hold validation and test pairs out of a corpus that comes in one piece; none of them is trained on."""
    pairs = list(dict.fromkeys(corpus.pairs()))
    held_out = min(_HELD_OUT_PAIRS, len(pairs) // 10)
    if held_out < 1:
        raise UserError(
            f"{corpus} has {len(pairs)} different pairs; 10 or more are needed to train, validate and test."
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
    """Find train, valid and test files of two languages in a folder."""
    known = sorted(
        {_language_suffix(path) for path in folder.iterdir() if path.name.startswith("train.")} - _ANNOTATION_SUFFIXES
    )
    both = known if languages is None else languages.split(":")
    if len(known) < 2:
        raise UserError(f"{folder} has no two files train.LANGUAGE; name two files as SOURCE:TARGET instead.")
    if len(both) != 2 or not set(both) <= set(known):
        usual = f"--languages {known[0]}:{known[1]}"
        raise UserError(f"{folder} has {', '.join(known)}; say from which to which, as {usual}.")

    def files(names: tuple[str, ...]) -> _FilePair:
        found = [path for path in sorted(folder.iterdir()) if path.name.startswith(names)]
        chosen = [next((path for path in found if _language_suffix(path) == each), None) for each in both]
        if chosen[0] is None or chosen[1] is None:
            raise UserError(f"{folder} has no files called {' or '.join(names)} in {both[0]} and {both[1]}.")
        return chosen[0], chosen[1]

    return SplitCorpus(
        f"{folder.name} {both[0]}–{both[1]}", files(("train",)), files(_VALIDATION_NAMES), files(_TEST_NAMES)
    )


def _language_suffix(path: Path) -> str:
    """Return the language that a file's name ends with: train.en and train.en.gz are English."""
    return path.name.removesuffix(".gz").rpartition(".")[2]


def _write_pairs(prefix: Path, pairs: list[tuple[str, str]]) -> _FilePair:
    """Write pairs as two files and return them."""
    files = prefix.with_name(f"{prefix.name}.source"), prefix.with_name(f"{prefix.name}.target")
    for side, file in enumerate(files):
        write_lines(file, (pair[side] for pair in pairs))
    return files
