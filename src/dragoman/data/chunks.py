"""The usable pairs of a corpus, a few thousand at a time, so that a corpus may be larger than memory."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from dragoman.data.corpus import TextPairs
from dragoman.data.split import SplitPart

CHUNK_LINES = 10_000
_CHUNK_CHARACTERS = 4_000_000
_PROGRESS_EVERY_LINES = 1000  # lines between two words of progress

# Beyond this a line is over-long without being cut into pieces to see it: no vocabulary has such pieces on average.
_MAX_CHARACTERS_PER_TOKEN = 100
_MIN_LONG_LINE_CHARACTERS = 10_000

OnLinesDone = Callable[[int], None]


@dataclass(frozen=True)
class PairFilter:
    """Which pairs are used: those on one side of a split, with at most so many pieces."""

    longest: int
    part: SplitPart | None = None

    def has_allowed_length(self, tokens: Sequence[int]) -> bool:
        """Tell whether a sequence is short enough, and is one."""
        return 0 < len(tokens) <= self.longest

    def is_clearly_too_long(self, text: str) -> bool:
        """Tell whether a line need not even be cut."""
        return len(text) > max(_MIN_LONG_LINE_CHARACTERS, _MAX_CHARACTERS_PER_TOKEN * self.longest)


@dataclass
class FilterCounts:
    """How many pairs were kept, and why the others were not."""

    kept: int = 0
    empty: int = 0
    long: int = 0


@dataclass
class PairChunk:
    """Some pairs with their line numbers, counted from 1."""

    line_numbers: list[int] = field(default_factory=list)
    sources: list[str] = field(default_factory=list)
    targets: list[str] = field(default_factory=list)
    characters: int = 0

    def add(self, number: int, source: str, target: str) -> None:
        """Take a pair in."""
        self.line_numbers.append(number)
        self.sources.append(source)
        self.targets.append(target)
        self.characters += len(source) + len(target)

    @property
    def is_full(self) -> bool:
        """Whether the chunk is large enough to be worked on."""
        return len(self.line_numbers) >= CHUNK_LINES or self.characters >= _CHUNK_CHARACTERS


def pair_chunks(
    corpus: TextPairs, pair_filter: PairFilter, counts: FilterCounts, on_lines_done: OnLinesDone | None = None
) -> Iterator[PairChunk]:
    """Yield the pairs worth cutting into pieces; the tally counts those that are not."""
    chunk, number = PairChunk(), 0
    for number, (source, target) in enumerate(corpus.pairs(), 1):
        if on_lines_done and number % _PROGRESS_EVERY_LINES == 0:
            on_lines_done(number)
        if _is_usable(source, target, pair_filter, counts):
            chunk.add(number, source, target)
        if chunk.is_full:
            yield chunk
            chunk = PairChunk()
    yield chunk
    if on_lines_done:
        on_lines_done(number)


def _is_usable(source: str, target: str, pair_filter: PairFilter, counts: FilterCounts) -> bool:
    """Tell whether a pair belongs to the part and has text of a sensible length on both sides."""
    if pair_filter.part and not pair_filter.part.contains(source, target):
        return False
    if not source.strip() or not target.strip():
        counts.empty += 1
        return False
    if pair_filter.is_clearly_too_long(source) or pair_filter.is_clearly_too_long(target):
        counts.long += 1
        return False
    return True
