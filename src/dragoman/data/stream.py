"""Running text as token arrays: cut into tokens once, kept on disk, and read in stretches that overlap.

On disk is the text's tokens, END behind the last, and where each chunk of the text begins among them. A stretch is only
a place and a length, so that as many of them as one likes cost nothing. In training a token is in several stretches:
near the beginning of one, where there is little to predict it from, and well inside others. So no cut of the text is
more than one in several that a token meets, and still the order of the data depends on the seed and the step alone.
"""

import hashlib
import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import islice, tee
from os import PathLike
from pathlib import Path

import numpy as np
import numpy.typing as npt

from dragoman.data.arrays import FORMAT, Array, TokenPairs, kept
from dragoman.data.chunks import Progress
from dragoman.data.running_text import RunningText, chunks
from dragoman.data.split import Part
from dragoman.errors import UserError
from dragoman.text.tokenizer import Tokenizer
from dragoman.tokens import END

OVERLAP = 8  # stretches that a token of the training text is in
CHUNKS_AT_ONCE = 256
FILES = ("tokens", "chunks", "numbers")


@dataclass(frozen=True, eq=False)
class Stretches(TokenPairs):
    """Stretches of one text, each the target of a pair without a source; only the last one has END."""

    longest: int = 0
    passes: int = 1

    @cached_property
    def target_ends(self) -> Array:
        """Where every stretch ends, the next having begun before."""
        ends: Array = np.minimum(self.target_offsets[:-1] + self.longest, len(self.target_tokens))
        return ends


def prepare_stream(
    text: RunningText,
    tokenizer: Tokenizer,
    longest: int,
    cache_dir: str | PathLike[str] | None = None,
    progress: Progress | None = None,
    keep: Part | None = None,
) -> Stretches:
    """Cut a text into tokens, or find it cut already; return its stretches of `longest` tokens."""
    part = keep.fingerprint if keep else "all"
    key = digest("stream", FORMAT, text.fingerprint(), tokenizer.fingerprint, part)
    folder = kept(key, cache_dir, lambda unfinished: write(unfinished, text, tokenizer, keep, progress), FILES)
    stride = max(1, longest // (1 if keep and keep.held_out else text.overlap))
    return opened(folder, longest, stride)


def digest(*facts: object) -> str:
    """Return a hash of all that something depends on."""
    return hashlib.sha256(json.dumps(facts).encode()).hexdigest()


def opened(folder: Path, longest: int, stride: int) -> Stretches:
    """Map the tokens of a text into memory and lay stretches over them, each a stride behind the one before."""
    header = json.loads((folder / "header.json").read_text())
    kinds = ("<u4" if header["tokens"] == "<u4" else "<u2", "<i8", "<i8")
    tokens, firsts, numbers = (
        np.asarray(np.memmap(folder / name, dtype=kind, mode="r")) for name, kind in zip(FILES, kinds, strict=True)
    )
    starts = np.arange(0, max(1, len(tokens) - longest + stride), stride, dtype=np.int64)
    return Stretches(
        folder=folder,
        fingerprint=digest(folder.name, longest, stride),
        dropped_empty=0,
        dropped_long=0,
        source_tokens=np.zeros(0, dtype=kinds[0]),
        source_offsets=np.zeros(len(starts) + 1, dtype=np.int64),
        target_tokens=tokens,
        target_offsets=np.append(starts, len(tokens)),
        line_numbers=numbers[np.searchsorted(firsts, starts, side="right") - 1],
        longest=longest,
        passes=max(1, longest // stride),
    )


def write(folder: Path, text: RunningText, tokenizer: Tokenizer, keep: Part | None, progress: Progress | None) -> None:
    """Fill the folder with the tokens of a text, where its chunks begin, and a header."""
    kind = "<u2" if len(tokenizer) <= 1 << 16 else "<u4"
    count = 0
    with (folder / "tokens").open("wb") as tokens, (folder / "chunks").open("wb") as starts:
        numbers = []
        for number, pieces in encoded(text, tokenizer, keep):
            np.array(pieces, dtype=kind).tofile(tokens)
            np.array([count], dtype="<i8").tofile(starts)
            numbers.append(number)
            count += len(pieces)
            if progress:
                progress(number)
        np.array([END], dtype=kind).tofile(tokens)
    if not count:
        raise UserError(f"{text}: there is no text left to train on; give a longer one.")
    np.array(numbers, dtype="<i8").tofile(folder / "numbers")
    sizes = {name: (folder / name).stat().st_size for name in FILES}
    (folder / "header.json").write_text(json.dumps({"format": FORMAT, "tokens": kind, "bytes": sizes}, indent=2) + "\n")


def encoded(text: RunningText, tokenizer: Tokenizer, keep: Part | None) -> Iterator[tuple[int, list[int]]]:
    """Yield the tokens of every chunk that is kept, with its number."""
    pairs = ((number, pair[1]) for number, pair in enumerate(text.pairs(), 1) if keep is None or keep.keeps(*pair))
    numbers, texts = tee(pairs)
    pieces = in_pieces((chunk for _, chunk in texts), tokenizer)
    return ((number, tokens) for (number, _), tokens in zip(numbers, pieces, strict=True))


def in_pieces(chunks: Iterable[str], tokenizer: Tokenizer) -> Iterator[list[int]]:
    """Yield the tokens of each chunk of a text; together they are the tokens of the text."""
    rest = iter(chunks)
    for first in islice(rest, 1):
        yield tokenizer.encode(first)
    while some := list(islice(rest, CHUNKS_AT_ONCE)):
        yield from tokenizer.continued.encode_batch(some)


def tokens_of(text: str, tokenizer: Tokenizer) -> npt.NDArray[np.int64]:
    """Return the tokens of a text, however long it is."""
    pieces = [np.array(tokens, dtype=np.int64) for tokens in in_pieces(chunks([text]), tokenizer)]
    return np.concatenate(pieces) if pieces else np.zeros(0, dtype=np.int64)
