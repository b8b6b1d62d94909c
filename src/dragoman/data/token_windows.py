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

from dragoman.data.arrays import ARRAY_FORMAT, Array, TokenPairs, find_or_build
from dragoman.data.chunks import OnLinesDone
from dragoman.data.running_text import RunningText, text_chunks
from dragoman.data.split import SplitPart
from dragoman.errors import UserError
from dragoman.text.tokenizer import Tokenizer
from dragoman.tokens import END

TRAINING_OVERLAP = 8  # stretches that a token of the training text is in
_CHUNKS_PER_CALL = 256
_FILES = ("tokens", "chunks", "numbers")


@dataclass(frozen=True, eq=False)
class TokenWindows(TokenPairs):
    """Stretches of one text, each the target of a pair without a source; only the last one has END."""

    window_length: int = 0
    repeats: int = 1

    @cached_property
    def target_ends(self) -> Array:
        """Where every stretch ends, the next having begun before."""
        ends: Array = np.minimum(self.target_offsets[:-1] + self.window_length, len(self.target_tokens))
        return ends


def tokenize_stream(
    text: RunningText,
    tokenizer: Tokenizer,
    longest: int,
    cache_dir: str | PathLike[str] | None = None,
    on_lines_done: OnLinesDone | None = None,
    keep: SplitPart | None = None,
) -> TokenWindows:
    """Cut a text into tokens, or find it cut already; return its stretches of `longest` tokens."""
    part = keep.fingerprint if keep else "all"
    key = _digest("stream", ARRAY_FORMAT, text.fingerprint(), tokenizer.fingerprint, part)
    folder = find_or_build(
        key, cache_dir, lambda unfinished: write_stream(unfinished, text, tokenizer, keep, on_lines_done), _FILES
    )
    stride = max(1, longest // (1 if keep and keep.is_held_out else text.overlap))
    return _open_windows(folder, longest, stride)


def _digest(*facts: object) -> str:
    """Return a hash of all that something depends on."""
    return hashlib.sha256(json.dumps(facts).encode()).hexdigest()


def _open_windows(folder: Path, longest: int, stride: int) -> TokenWindows:
    """Map the tokens of a text into memory and lay stretches over them, each a stride behind the one before."""
    header = json.loads((folder / "header.json").read_text())
    kinds = ("<u4" if header["tokens"] == "<u4" else "<u2", "<i8", "<i8")
    tokens, firsts, numbers = (
        np.asarray(np.memmap(folder / name, dtype=kind, mode="r")) for name, kind in zip(_FILES, kinds, strict=True)
    )
    starts = np.arange(0, max(1, len(tokens) - longest + stride), stride, dtype=np.int64)
    return TokenWindows(
        folder=folder,
        fingerprint=_digest(folder.name, longest, stride),
        dropped_empty=0,
        dropped_long=0,
        source_tokens=np.zeros(0, dtype=kinds[0]),
        source_offsets=np.zeros(len(starts) + 1, dtype=np.int64),
        target_tokens=tokens,
        target_offsets=np.append(starts, len(tokens)),
        line_numbers=numbers[np.searchsorted(firsts, starts, side="right") - 1],
        window_length=longest,
        repeats=max(1, longest // stride),
    )


def write_stream(
    folder: Path, text: RunningText, tokenizer: Tokenizer, part: SplitPart | None, on_lines_done: OnLinesDone | None
) -> None:
    """Fill the folder with the tokens of a text, where its chunks begin, and a header."""
    kind = "<u2" if len(tokenizer) <= 1 << 16 else "<u4"
    count = 0
    with (folder / "tokens").open("wb") as tokens, (folder / "chunks").open("wb") as starts:
        numbers = []
        for number, pieces in _encode_chunks(text, tokenizer, part):
            np.array(pieces, dtype=kind).tofile(tokens)
            np.array([count], dtype="<i8").tofile(starts)
            numbers.append(number)
            count += len(pieces)
            if on_lines_done:
                on_lines_done(number)
        np.array([END], dtype=kind).tofile(tokens)
    if not count:
        raise UserError(f"{text}: there is no text left to train on; give a longer one.")
    np.array(numbers, dtype="<i8").tofile(folder / "numbers")
    sizes = {name: (folder / name).stat().st_size for name in _FILES}
    (folder / "header.json").write_text(
        json.dumps({"format": ARRAY_FORMAT, "tokens": kind, "bytes": sizes}, indent=2) + "\n"
    )


def _encode_chunks(text: RunningText, tokenizer: Tokenizer, part: SplitPart | None) -> Iterator[tuple[int, list[int]]]:
    """Yield the tokens of every chunk that is kept, with its number."""
    pairs = ((number, pair[1]) for number, pair in enumerate(text.pairs(), 1) if part is None or part.contains(*pair))
    numbers, texts = tee(pairs)
    pieces = _tokenize_chunks((chunk for _, chunk in texts), tokenizer)
    return ((number, tokens) for (number, _), tokens in zip(numbers, pieces, strict=True))


def _tokenize_chunks(chunks: Iterable[str], tokenizer: Tokenizer) -> Iterator[list[int]]:
    """Yield the tokens of each chunk of a text; together they are the tokens of the text."""
    rest = iter(chunks)
    for first in islice(rest, 1):
        yield tokenizer.encode(first)
    while some := list(islice(rest, _CHUNKS_PER_CALL)):
        yield from tokenizer.without_prefix_space.encode_batch(some)


def tokenize_long_text(text: str, tokenizer: Tokenizer) -> npt.NDArray[np.int64]:
    """Return the tokens of a text, however long it is."""
    pieces = [np.array(tokens, dtype=np.int64) for tokens in _tokenize_chunks(text_chunks([text]), tokenizer)]
    return np.concatenate(pieces) if pieces else np.zeros(0, dtype=np.int64)
