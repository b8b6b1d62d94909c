"""The usable pairs of a corpus, a few thousand at a time, so that a corpus may be larger than memory."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from dragoman.data.corpus import Pairs
from dragoman.data.split import Part

LINES = 10_000
CHARACTERS = 4_000_000
EVERY = 1000  # lines between two words of progress

# Beyond this a line is over-long without being cut into pieces to see it: no vocabulary has such pieces on average.
CHARACTERS_A_PIECE = 100
FEWEST_CHARACTERS = 10_000

Progress = Callable[[int], None]


@dataclass(frozen=True)
class Rule:
    """Which pairs are used: those on one side of a split, with at most so many pieces."""

    longest: int
    part: Part | None = None

    def fits(self, tokens: Sequence[int]) -> bool:
        """Tell whether a sequence is short enough, and is one."""
        return 0 < len(tokens) <= self.longest

    def clearly_too_long(self, text: str) -> bool:
        """Tell whether a line need not even be cut."""
        return len(text) > max(FEWEST_CHARACTERS, CHARACTERS_A_PIECE * self.longest)


@dataclass
class Tally:
    """How many pairs were kept, and why the others were not."""

    kept: int = 0
    empty: int = 0
    long: int = 0


@dataclass
class Chunk:
    """Some pairs with their line numbers, counted from 1."""

    numbers: list[int] = field(default_factory=list)
    sources: list[str] = field(default_factory=list)
    targets: list[str] = field(default_factory=list)
    characters: int = 0

    def add(self, number: int, source: str, target: str) -> None:
        """Take a pair in."""
        self.numbers.append(number)
        self.sources.append(source)
        self.targets.append(target)
        self.characters += len(source) + len(target)

    @property
    def full(self) -> bool:
        """Whether the chunk is large enough to be worked on."""
        return len(self.numbers) >= LINES or self.characters >= CHARACTERS


def chunks(corpus: Pairs, rule: Rule, tally: Tally, progress: Progress | None = None) -> Iterator[Chunk]:
    """Yield the pairs worth cutting into pieces; the tally counts those that are not."""
    chunk, number = Chunk(), 0
    for number, (source, target) in enumerate(corpus.pairs(), 1):
        if progress and number % EVERY == 0:
            progress(number)
        if is_usable(source, target, rule, tally):
            chunk.add(number, source, target)
        if chunk.full:
            yield chunk
            chunk = Chunk()
    yield chunk
    if progress:
        progress(number)


def is_usable(source: str, target: str, rule: Rule, tally: Tally) -> bool:
    """Tell whether a pair belongs to the part and has text of a sensible length on both sides."""
    if rule.part and not rule.part.keeps(source, target):
        return False
    if not source.strip() or not target.strip():
        tally.empty += 1
        return False
    if rule.clearly_too_long(source) or rule.clearly_too_long(target):
        tally.long += 1
        return False
    return True
