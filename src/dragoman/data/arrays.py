"""Token arrays: a corpus as ids, made once, kept on disk, and mapped into memory rather than read.

A folder of flat files, little-endian: the tokens of all sources one after another, where each begins, the same for
targets, and the line number of every pair that was kept. `header.json` counts them. The folder's name is the hash of
all that its content depends on, and it appears under that name complete or not at all.
"""

import hashlib
import json
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from os import PathLike
from pathlib import Path
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from dragoman.cache import clear_abandoned, default_cache, discard, written_whole
from dragoman.data.chunks import Progress, Rule, Tally, chunks
from dragoman.data.corpus import Pairs
from dragoman.data.split import Part
from dragoman.errors import UserError
from dragoman.text.tokenizer import Tokenizer
from dragoman.tokens import END

FORMAT = 1
FILES = ("source.tokens", "source.offsets", "target.tokens", "target.offsets", "lines")

Array = npt.NDArray[Any]


@dataclass(frozen=True, eq=False)
class TokenPairs:
    """Pairs of token sequences; each source and each target ends with END."""

    folder: Path
    fingerprint: str
    dropped_empty: int
    dropped_long: int
    source_tokens: Array
    source_offsets: Array
    target_tokens: Array
    target_offsets: Array
    line_numbers: Array  # in the corpus, counted from 1
    passes = 1  # how often a token of the corpus is among them

    def __len__(self) -> int:
        return len(self.line_numbers)

    @cached_property
    def source_lengths(self) -> npt.NDArray[np.int32]:
        """Tokens of every source, END included."""
        return np.diff(self.source_offsets).astype(np.int32)

    @cached_property
    def target_lengths(self) -> npt.NDArray[np.int32]:
        """Tokens of every target, END included."""
        return (self.target_ends - self.target_offsets[:-1]).astype(np.int32)

    @cached_property
    def target_ends(self) -> Array:
        """Where every target ends: where the next begins."""
        return self.target_offsets[1:]

    def source(self, number: int) -> Array:
        """Return the tokens of a source, with END."""
        return self.source_tokens[self.source_offsets[number] : self.source_offsets[number + 1]]

    def target(self, number: int) -> Array:
        """Return the tokens of a target, with END."""
        return self.target_tokens[self.target_offsets[number] : self.target_ends[number]]


def prepare(
    corpus: Pairs,
    source_tokenizer: Tokenizer,
    target_tokenizer: Tokenizer,
    longest: int,
    cache_dir: str | PathLike[str] | None = None,
    progress: Progress | None = None,
    keep: Part | None = None,
) -> TokenPairs:
    """Cut a corpus into tokens, or find it cut already; `progress` hears how many lines have been done."""
    key = key_of(corpus, source_tokenizer, target_tokenizer, longest, keep)
    tokenizers, rule = (source_tokenizer, target_tokenizer), Rule(longest, keep)
    return opened(kept(key, cache_dir, lambda folder: write(folder, corpus, tokenizers, rule, progress)))


def kept(
    key: str, cache_dir: str | PathLike[str] | None, fill: Callable[[Path], None], files: Sequence[str] = FILES
) -> Path:
    """Return the folder of this name in the cache; if it is not there, or some file in it is damaged, `fill` it."""
    cache = Path(cache_dir) if cache_dir is not None else default_cache()
    folder = cache / key
    if not is_valid(folder, files):
        try:
            clear_abandoned(cache)
            if folder.exists() and not is_valid(folder, files):
                discard(folder)
            with written_whole(folder) as unfinished:
                fill(unfinished)
        except OSError as error:
            raise UserError(
                f"{cache}: prepared data cannot be written there ({error.strerror or error}); "
                "make room, or name another folder in DRAGOMAN_CACHE."
            ) from None
    return folder


def key_of(corpus: Pairs, source: Tokenizer, target: Tokenizer, longest: int, keep: Part | None) -> str:
    """Return the hash of everything that the arrays depend on."""
    part = keep.fingerprint if keep else "all"
    facts = [FORMAT, corpus.fingerprint(), source.fingerprint, target.fingerprint, longest, part]
    return hashlib.sha256(json.dumps(facts).encode()).hexdigest()


def is_valid(folder: Path, files: Sequence[str] = FILES) -> bool:
    """Tell whether the folder holds arrays of the sizes that its header says."""
    try:
        header = json.loads((folder / "header.json").read_text())
        return all((folder / name).stat().st_size == header["bytes"][name] for name in files)
    except (OSError, ValueError, KeyError, TypeError):
        return False


def opened(folder: Path) -> TokenPairs:
    """Map the arrays of a folder into memory."""
    header = json.loads((folder / "header.json").read_text())
    kinds = dict.fromkeys(FILES, "<i8") | {name: header["tokens"] for name in FILES if name.endswith(".tokens")}
    # As plain arrays: cutting a `memmap` costs several times more than cutting an array over the same memory.
    arrays = [np.asarray(np.memmap(folder / name, dtype=kinds[name], mode="r")) for name in FILES]
    return TokenPairs(folder, folder.name, header["dropped_empty"], header["dropped_long"], *arrays)


def write(
    folder: Path,
    corpus: Pairs,
    tokenizers: tuple[Tokenizer, Tokenizer],
    rule: Rule,
    progress: Progress | None,
) -> None:
    """Fill the folder with the arrays of a corpus and their header."""
    kind = "<u2" if max(map(len, tokenizers)) <= 1 << 16 else "<u4"
    tally = Tally()
    with ExitStack() as open_files:
        sources, targets = (open_files.enter_context(TokenFile(folder, side, kind)) for side in ("source", "target"))
        lines = open_files.enter_context((folder / "lines").open("wb"))
        for chunk in chunks(corpus, rule, tally, progress):
            source, target = tokenizers[0].encode_batch(chunk.sources), tokenizers[1].encode_batch(chunk.targets)
            fitting = [i for i in range(len(source)) if rule.fits(source[i]) and rule.fits(target[i])]
            tally.long += len(source) - len(fitting)
            tally.kept += len(fitting)
            sources.append([source[i] for i in fitting])
            targets.append([target[i] for i in fitting])
            np.array([chunk.numbers[i] for i in fitting], dtype="<i8").tofile(lines)
    if not tally.kept:
        raise nothing_usable(corpus, tally, rule)
    write_header(folder, kind, tally)


class TokenFile:
    """One side of the corpus on its way to disk: tokens in one file, where each sequence begins in another."""

    def __init__(self, folder: Path, side: str, kind: str) -> None:
        self.kind = kind
        self.tokens = (folder / f"{side}.tokens").open("wb")
        self.offsets = (folder / f"{side}.offsets").open("wb")
        self.end = 0
        np.zeros(1, dtype="<i8").tofile(self.offsets)

    def append(self, sequences: list[list[int]]) -> None:
        """Write the sequences, each with END behind it."""
        lengths = np.array([len(sequence) + 1 for sequence in sequences], dtype="<i8")
        tokens = chain.from_iterable((*sequence, END) for sequence in sequences)
        np.fromiter(tokens, dtype=self.kind, count=int(lengths.sum())).tofile(self.tokens)
        (self.end + np.cumsum(lengths)).astype("<i8").tofile(self.offsets)
        self.end += int(lengths.sum())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.tokens.close()
        self.offsets.close()


def write_header(folder: Path, kind: str, tally: Tally) -> None:
    """Write what the arrays hold, with their sizes, by which a damaged folder is known."""
    header = {
        "format": FORMAT,
        "tokens": kind,
        "pairs": tally.kept,
        "dropped_empty": tally.empty,
        "dropped_long": tally.long,
        "bytes": {name: (folder / name).stat().st_size for name in FILES},
    }
    (folder / "header.json").write_text(json.dumps(header, indent=2) + "\n")


def nothing_usable(corpus: Pairs, tally: Tally, rule: Rule) -> UserError:
    """Say why no pair is left."""
    return UserError(
        f"{corpus}: no usable pair: {tally.empty:,} are empty on a side and {tally.long:,} are longer than "
        f"{rule.longest:,} pieces ([data] longest)."
    )
