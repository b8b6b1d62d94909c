"""Traces: every hypothesis that was ever in the beam of a search for one sentence, as a tree.

A `SearchTrace` records the beam after each step. It holds tokens and scores, no text.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Literal

from dragoman.decoding.hypothesis import NO_HYPOTHESIS
from dragoman.decoding.scoring import length_penalty
from dragoman.decoding.search import Beam
from dragoman.tokens import END

TokenPath = tuple[int, ...]  # the tokens of a hypothesis, without START

# chosen: part of the result. finished: ended, but not the result. live: has a finished descendant, or was still in the
# beam when the search stopped. pruned: all of its descendants were dropped.
NodeStatus = Literal["chosen", "finished", "live", "pruned"]


@dataclass(frozen=True)
class SearchNode:
    """One token of a hypothesis."""

    parent: int | None  # index of its parent among the nodes
    path: TokenPath  # all tokens up to this one
    log_probability: float  # of this token
    sum: float  # of the log-probabilities up to it
    score: float  # the sum divided by the length penalty
    status: NodeStatus

    @property
    def token(self) -> int:
        """The token itself."""
        return self.path[-1]

    @property
    def step(self) -> int:
        """The step at which it was produced, from 0."""
        return len(self.path) - 1


@dataclass
class SearchTrace:
    """Records the hypotheses of the first sentence of a search, with their log-probabilities."""

    sums: dict[TokenPath, float] = field(default_factory=dict)

    def record_step(self, beam: Beam) -> None:
        """Record the beam after one step; pass this method as `on_step`."""
        for tokens, total in zip(beam.tokens[0].tolist(), beam.log_probabilities[0].tolist(), strict=True):
            if total > NO_HYPOTHESIS:
                self.sums[tuple(tokens[1:])] = total

    def nodes(self, chosen: Sequence[int], alpha: float) -> list[SearchNode]:
        """Return the tree, parents before their children; `chosen` are the tokens of the result, without END."""
        indices = {path: index for index, path in enumerate(self.sums)}
        surviving = self._surviving_paths()
        return [
            SearchNode(
                parent=indices.get(path[:-1]),
                path=path,
                log_probability=total - self.sums.get(path[:-1], 0.0),
                sum=total,
                score=total / length_penalty(float(len(path)), alpha),
                status=_path_status(path, (*chosen, END), surviving),
            )
            for path, total in self.sums.items()
        ]

    def _surviving_paths(self) -> set[TokenPath]:
        """Return all prefixes of hypotheses that ended or were still in the beam at the last step."""
        last = max(map(len, self.sums), default=0)
        final_paths = [path for path in self.sums if path[-1] == END or len(path) == last]
        return {prefix for path in final_paths for prefix in _path_prefixes(path)}


def _path_prefixes(path: TokenPath) -> Iterator[TokenPath]:
    """Yield the first token, the first two, …, all of a path."""
    return (path[:length] for length in range(1, len(path) + 1))


def _path_status(path: TokenPath, chosen: TokenPath, surviving: set[TokenPath]) -> NodeStatus:
    """Say what became of a path."""
    if path == chosen[: len(path)]:
        return "chosen"
    if path[-1] == END:
        return "finished"
    return "live" if path in surviving else "pruned"
