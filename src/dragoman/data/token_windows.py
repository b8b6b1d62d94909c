"""A running text as overlapping windows of tokens, for language models: tokenized once, cached, mapped into memory.

The cached files are the tokens of the text, END after the last, and where each chunk of the text begins among them. A
window is only an offset and a length, so any number of windows costs nothing. In training every token is in several
windows: near the start of one, with little context, and well inside others. The order of the data still depends on the
seed and the step alone.
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

from dragoman.cache import find_or_build
from dragoman.data.arrays import ARRAY_FORMAT, Array, OnLinesDone, TokenPairs
from dragoman.data.running_text import RunningText, text_chunks
from dragoman.data.split import SplitPart
from dragoman.errors import UserError
from dragoman.text.tokenizer import Tokenizer
from dragoman.tokens import END

TRAINING_OVERLAP = 8  # windows that a token of the training text is in
_CHUNKS_PER_CALL = 256
_FILES = ("tokens", "chunks", "numbers")


@dataclass(frozen=True, eq=False)
class TokenWindows(TokenPairs):
    """Windows of one text, each the target of a pair without a source; only the last one has END."""

    window_length: int = 0
    repeats: int = 1

    @cached_property
    def target_ends(self) -> Array:
        """The offset after the last token of every window; the next window begins before it."""
        ends: Array = np.minimum(self.target_offsets[:-1] + self.window_length, len(self.target_tokens))
        return ends


def tokenize_stream(
    text: RunningText,
    tokenizer: Tokenizer,
    longest: int,
    cache_dir: str | PathLike[str] | None = None,
    on_lines_done: OnLinesDone | None = None,
    part: SplitPart | None = None,
) -> TokenWindows:
    """Return a text as windows of `longest` tokens, from the cache if it is there."""
    part_name = part.fingerprint if part else "all"
    key = _digest("stream", ARRAY_FORMAT, text.fingerprint(), tokenizer.fingerprint, part_name)

    def build(folder: Path) -> None:
        write_stream(folder, text, tokenizer, part, on_lines_done)

    folder = find_or_build(key, build, _FILES, cache_dir)
    overlap = 1 if part and part.is_held_out else text.overlap
    return _open_windows(folder, longest, stride=max(1, longest // overlap))


def _digest(*facts: object) -> str:
    return hashlib.sha256(json.dumps(facts).encode()).hexdigest()


def _open_windows(folder: Path, longest: int, stride: int) -> TokenWindows:
    header = json.loads((folder / "header.json").read_text())
    dtypes = ("<u4" if header["tokens"] == "<u4" else "<u2", "<i8", "<i8")
    tokens, chunk_starts, chunk_numbers = (
        np.asarray(np.memmap(folder / name, dtype=dtype, mode="r")) for name, dtype in zip(_FILES, dtypes, strict=True)
    )
    starts = np.arange(0, max(1, len(tokens) - longest + stride), stride, dtype=np.int64)
    return TokenWindows(
        folder=folder,
        fingerprint=_digest(folder.name, longest, stride),
        dropped_empty=0,
        dropped_long=0,
        source_tokens=np.zeros(0, dtype=dtypes[0]),
        source_offsets=np.zeros(len(starts) + 1, dtype=np.int64),
        target_tokens=tokens,
        target_offsets=np.append(starts, len(tokens)),
        line_numbers=chunk_numbers[np.searchsorted(chunk_starts, starts, side="right") - 1],
        window_length=longest,
        repeats=max(1, longest // stride),
    )


def write_stream(
    folder: Path, text: RunningText, tokenizer: Tokenizer, part: SplitPart | None, on_lines_done: OnLinesDone | None
) -> None:
    """Write the tokens of a text, where its chunks begin, and a header into a directory."""
    dtype = "<u2" if len(tokenizer) <= 1 << 16 else "<u4"
    count = 0
    numbers = []
    with (folder / "tokens").open("wb") as tokens, (folder / "chunks").open("wb") as starts:
        for number, chunk_tokens in _encode_chunks(text, tokenizer, part):
            np.array(chunk_tokens, dtype=dtype).tofile(tokens)
            np.array([count], dtype="<i8").tofile(starts)
            numbers.append(number)
            count += len(chunk_tokens)
            if on_lines_done:
                on_lines_done(number)
        np.array([END], dtype=dtype).tofile(tokens)
    if not count:
        raise UserError(f"{text}: no text is left for training; use a longer text.")
    np.array(numbers, dtype="<i8").tofile(folder / "numbers")
    sizes = {name: (folder / name).stat().st_size for name in _FILES}
    header = {"format": ARRAY_FORMAT, "tokens": dtype, "bytes": sizes}
    (folder / "header.json").write_text(json.dumps(header, indent=2) + "\n")


def _encode_chunks(text: RunningText, tokenizer: Tokenizer, part: SplitPart | None) -> Iterator[tuple[int, list[int]]]:
    chunks = ((number, pair[1]) for number, pair in enumerate(text.pairs(), 1) if part is None or part.contains(*pair))
    numbers, texts = tee(chunks)
    tokens = _tokenize_chunks((chunk for _, chunk in texts), tokenizer)
    return ((number, chunk_tokens) for (number, _), chunk_tokens in zip(numbers, tokens, strict=True))


def _tokenize_chunks(chunks: Iterable[str], tokenizer: Tokenizer) -> Iterator[list[int]]:
    # The tokens of all chunks together are the tokens of the text.
    rest = iter(chunks)
    for first in islice(rest, 1):
        yield tokenizer.encode(first)
    while batch := list(islice(rest, _CHUNKS_PER_CALL)):
        yield from tokenizer.without_prefix_space.encode_batch(batch)


def tokenize_long_text(text: str, tokenizer: Tokenizer) -> npt.NDArray[np.int64]:
    """Return the tokens of a text of any length."""
    chunks = [np.array(tokens, dtype=np.int64) for tokens in _tokenize_chunks(text_chunks([text]), tokenizer)]
    return np.concatenate(chunks) if chunks else np.zeros(0, dtype=np.int64)
