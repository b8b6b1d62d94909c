"""What the experiments read: a parallel corpus in three parts, the built-in phrasebook unless another is named."""

from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import Path
from random import Random

from dragoman.corpora.phrasebook import write_lines, write_phrasebook
from dragoman.data.corpus import Corpus
from dragoman.errors import UserError
from dragoman.run import make_folder

Files = tuple[Path, Path]  # source and target, line by line

PHRASEBOOK = {"train": 20_000, "valid": 500, "test": 1000}
HELD_OUT = 1000  # pairs for validation, and again for the test, of a corpus that comes in one piece
OTHERS = {"links", "antecedents"}  # which the phrasebook has beside its languages
VALIDATION_NAMES, TEST_NAMES = ("valid", "val", "dev"), ("test",)


@dataclass(frozen=True)
class Material:
    """A corpus to train, validate and test with."""

    name: str
    train: Files
    valid: Files
    test: Files
    links: Path | None = None  # the gold word alignment of the test text

    def pairs(self, split: str) -> list[tuple[str, str]]:
        """Return the sentence pairs of a split."""
        return list(Corpus.of(*map(str, getattr(self, split))).pairs())

    @property
    def fingerprint(self) -> str:
        """What makes this corpus different from any other."""
        parts = [Corpus.of(*map(str, files)).fingerprint() for files in (self.train, self.valid, self.test)]
        return sha256(" ".join(parts).encode()).hexdigest()[:16]

    def shorter_than(self, words: int, folder: Path) -> "Material":
        """Return the corpus in which training and validation know only sources of fewer words."""
        make_folder(folder)
        short: dict[str, Files] = {}
        for split in ("train", "valid"):
            kept = [pair for pair in self.pairs(split) if len(pair[0].split()) < words]
            if not kept:
                raise UserError(
                    f"{self.name}: no {split} pair has fewer than {words} words; there is nothing to train on."
                )
            short[split] = write_pairs(folder / f"{split}.under{words}", kept)
        return replace(self, name=f"{self.name}, under {words} words", train=short["train"], valid=short["valid"])


def material(wanted: str, folder: Path, seed: int = 1, languages: str | None = None) -> Material:
    """Find the corpus that `--corpus` names: phrasebook, a folder with train, valid and test, or SOURCE:TARGET."""
    if wanted == "phrasebook":
        return phrasebook_material(folder / ("phrasebook" if seed == 1 else f"phrasebook-{seed}"), seed)
    source, colon, target = wanted.partition(":")
    if colon and not Path(wanted).exists():
        return divided(Corpus.of(source, target), folder / "divided", seed)
    if Path(wanted).is_dir():
        return found_in(Path(wanted), languages)
    raise UserError(
        f'--corpus "{wanted}" is neither "phrasebook", nor a folder with train, valid and test files, nor two files as '
        "SOURCE:TARGET."
    )


def phrasebook_material(folder: Path, seed: int) -> Material:
    """Write the phrasebook out, unless it is there."""
    if not (folder / "test.links").exists():
        make_folder(folder)
        write_phrasebook(folder, PHRASEBOOK, seed=seed)
    train, valid, test = ((folder / f"{split}.en", folder / f"{split}.de") for split in PHRASEBOOK)
    return Material("phrasebook", train, valid, test, links=folder / "test.links")


def divided(corpus: Corpus, folder: Path, seed: int) -> Material:
    """Hold validation and test pairs out of a corpus that comes in one piece; none of them is trained on."""
    pairs = list(dict.fromkeys(corpus.pairs()))
    held_out = min(HELD_OUT, len(pairs) // 10)
    if held_out < 1:
        raise UserError(
            f"{corpus} has {len(pairs)} different pairs; 10 or more are needed to train, validate and test."
        )
    Random(seed).shuffle(pairs)
    make_folder(folder)
    test, valid, train = pairs[:held_out], pairs[held_out : 2 * held_out], pairs[2 * held_out :]
    return Material(
        str(corpus),
        write_pairs(folder / "train", train),
        write_pairs(folder / "valid", valid),
        write_pairs(folder / "test", test),
    )


def found_in(folder: Path, languages: str | None = None) -> Material:
    """Find train, valid and test files of two languages in a folder."""
    known = sorted({language(path) for path in folder.iterdir() if path.name.startswith("train.")} - OTHERS)
    both = known if languages is None else languages.split(":")
    if len(known) < 2:
        raise UserError(f"{folder} has no two files train.LANGUAGE; name two files as SOURCE:TARGET instead.")
    if len(both) != 2 or not set(both) <= set(known):
        usual = f"--languages {known[0]}:{known[1]}"
        raise UserError(f"{folder} has {', '.join(known)}; say from which to which, as {usual}.")

    def files(names: tuple[str, ...]) -> Files:
        found = [path for path in sorted(folder.iterdir()) if path.name.startswith(names)]
        chosen = [next((path for path in found if language(path) == each), None) for each in both]
        if chosen[0] is None or chosen[1] is None:
            raise UserError(f"{folder} has no files called {' or '.join(names)} in {both[0]} and {both[1]}.")
        return chosen[0], chosen[1]

    return Material(f"{folder.name} {both[0]}–{both[1]}", files(("train",)), files(VALIDATION_NAMES), files(TEST_NAMES))


def language(path: Path) -> str:
    """Return the language that a file's name ends with: train.en and train.en.gz are English."""
    return path.name.removesuffix(".gz").rpartition(".")[2]


def write_pairs(prefix: Path, pairs: list[tuple[str, str]]) -> Files:
    """Write pairs as two files and return them."""
    files = prefix.with_name(f"{prefix.name}.source"), prefix.with_name(f"{prefix.name}.target")
    for side, file in enumerate(files):
        write_lines(file, (pair[side] for pair in pairs))
    return files
