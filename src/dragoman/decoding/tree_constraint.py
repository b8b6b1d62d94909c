"""Outputs that are trees by construction: a transducer that can say nothing but what leads to a well-formed tree.

A tree over n words is written as opening brackets with their labels, one tag a word, and closing brackets with the
labels of what they close: `(NP DT NN )NP`. After any beginning only some tokens can be part of a tree that is whole in
time; no other can be chosen. So every output of every search, with any model, is one tree over exactly the words of its
source. What is ruled out keeps its probability, so the score of a tree stays the model's own.

Shapes: B batch, S source positions, T target positions, W beam, V vocabulary of the target, M brackets open at once,
L labels.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from dragoman.decoding.hypothesis import max_output_lengths
from dragoman.errors import UserError
from dragoman.models.transducer import IncrementalDecoder, Memory, Source, State, gather_parents
from dragoman.recipe import DecodingConfig
from dragoman.tokens import END, PAD, RESERVED_TOKENS

MAX_OPEN_BRACKETS = 120  # brackets open at once; trees of treebanks stay below 50
MAX_OPENING_CHAIN = 12  # opening brackets one after the other: treebanks have five or six
_MIN_EXTRA_TOKENS = 3  # tokens of a tree beside its tags: a bracket opens, the same one closes, END
_MAX_LOGIT = 1e30  # a logit beyond it, or one that is no number, must not make a search lose its way

_DEPTH, _CHAIN, _WORDS, _TOKENS = range(4)  # the columns of `Growing.counts`
_MAY_OPEN, _MAY_TAG = 1, 2  # what the number of a situation is made of


@dataclass(frozen=True)
class TreeGrammar:
    """What each token of a vocabulary does to a tree, and which tokens each situation allows, to be looked up."""

    effects: Tensor  # V 4, what a token adds to the counts
    keeps_chain: Tensor  # V, 0 where a token ends a chain of opening brackets, 1 elsewhere
    opened_label: Tensor  # V, the number, from 1, of the label that a token opens; 0: none
    closing_token: Tensor  # L+1, the token that closes each label; the first is nobody's
    allowed: Tensor  # 4 V, what may be said in each situation, beside a closing bracket
    fallback: Tensor  # 4, one token that may be said in each situation; END if nothing else may

    @classmethod
    def from_vocabulary(cls, pieces: Sequence[str]) -> "TreeGrammar":
        """Sort a vocabulary, in the order of its ids, into `(LABEL`, `)LABEL` and tags; a label needs both brackets."""
        numbered = list(enumerate(pieces))[RESERVED_TOKENS:]
        opening = {piece[1:]: token for token, piece in numbered if piece.startswith("(")}
        closing = {piece[1:]: token for token, piece in numbered if piece.startswith(")")}
        tags = [token for token, piece in numbered if piece and piece[0] not in "()"]
        labels = [label for label in opening if label in closing]
        if not labels or not tags:
            raise UserError(
                "The vocabulary of the output has no brackets with labels, or no tags, so it cannot write trees. Train "
                'with [tokenizer] target_kind = "words" and a size that has room for every label.'
            )
        return cls.from_tokens(
            len(pieces), [opening[label] for label in labels], [closing[label] for label in labels], tags
        )

    @classmethod
    def from_tokens(
        cls, size: int, opening: Sequence[int], closing: Sequence[int], tags: Sequence[int]
    ) -> "TreeGrammar":
        """Make the tables for opening and closing brackets, label by label, and tags."""
        effects, breaks, opened = torch.zeros(size, 4), torch.ones(size), torch.zeros(size)
        effects[[*opening, *closing, *tags, END], _TOKENS] = -1
        effects[opening, _DEPTH] = effects[opening, _CHAIN] = 1
        effects[closing, _DEPTH] = effects[tags, _WORDS] = -1
        breaks[[*closing, *tags]] = 0
        opened[opening] = torch.arange(1.0, len(opening) + 1)
        allowed = torch.zeros(2, 2, size, dtype=torch.bool)  # to tag, to open
        allowed[:, 1, opening] = True
        allowed[1, :, tags] = True
        surely = torch.tensor([END, opening[0], tags[0], tags[0]])
        closed = torch.tensor([END, *closing])
        return cls(effects.long(), breaks.long(), opened.int(), closed, allowed.flatten(0, 1), surely)

    @property
    def tags(self) -> Tensor:
        """1 for every token (V) that stands for a word, else 0."""
        return -self.effects[:, _WORDS]

    def to(self, device: torch.device) -> "TreeGrammar":
        """Return the tables on a device."""
        if self.effects.device == device:
            return self
        return TreeGrammar(*(table.to(device) for table in vars(self).values()))


@dataclass(frozen=True)
class TreeMemory(Memory):
    """What an encoder leaves, with the words that a tree has to have, and the tokens that it may take."""

    inner: Memory  # the model's own
    words: Tensor  # B
    max_lengths: Tensor  # B

    def keep(self, sentences: Tensor) -> "TreeMemory":
        """Return the memory of the given sentences (a tensor of row numbers) alone."""
        inner = self.inner.keep(sentences)
        return TreeMemory(inner.states, inner.mask, inner, self.words[sentences], self.max_lengths[sentences])


@dataclass(frozen=True)
class TreeState:
    """The trees so far: what is open, and what is still to come."""

    inner: State  # the model's own
    counts: Tensor  # B W 4: brackets open, opened since the last tag or closing one; words left, tokens left with END
    stack: Tensor  # B W M, the numbers of the labels that are open, the innermost before place `depth`

    def reorder(self, parents: Tensor) -> "TreeState":
        """Let hypothesis w of sentence b continue hypothesis parents[b, w] (B W)."""
        return TreeState(
            self.inner.reorder(parents), gather_parents(self.counts, parents), gather_parents(self.stack, parents)
        )

    def keep(self, sentences: Tensor) -> "TreeState":
        """Forget all sentences but the given ones."""
        return TreeState(self.inner.keep(sentences), self.counts[sentences], self.stack[sentences])


class TreeConstraint:
    """A transducer that writes nothing but trees over the words of its source."""

    def __init__(self, model: IncrementalDecoder, grammar: TreeGrammar, words: Tensor, config: DecodingConfig) -> None:
        """Hold `model` to trees; `words` (V) says how many words each token of the source stands for, or begins."""
        if config.extra_length < _MIN_EXTRA_TOKENS:
            raise UserError(
                f"[decoding] extra_length = {config.extra_length} leaves no room for brackets around the words; set "
                "it to "
                f"{_MIN_EXTRA_TOKENS} or more (the paper has 300)."
            )
        self.model, self.grammar, self.words, self.config = model, grammar, words, config

    def encode(self, source: Source) -> TreeMemory:
        """Read `source` (B S, padded with PAD)."""
        self.grammar, self.words = self.grammar.to(source.device), self.words.to(source.device)
        inner = self.model.encode(source)
        words, longest = self.words[source.values].sum(dim=1), max_output_lengths(source, self.config)  # B
        assert (longest >= words + _MIN_EXTRA_TOKENS).all(), "a source has at least a token for each of its words"
        return TreeMemory(inner.states, inner.mask, inner, words, longest)

    def initial_state(self, memory: Memory) -> TreeState:
        """Return the state before the first token."""
        assert isinstance(memory, TreeMemory), f"this memory does not count words: {type(memory)}"
        nothing = torch.zeros_like(memory.words)
        counts = torch.stack([nothing, nothing, memory.words, memory.max_lengths], dim=-1)[:, None]  # B 1 4
        stack = torch.zeros(len(nothing), 1, MAX_OPEN_BRACKETS + 1, dtype=torch.int32, device=nothing.device)
        return TreeState(self.model.initial_state(memory.inner), counts, stack)

    def step(self, token: Tensor, memory: Memory, state: State) -> tuple[Tensor, TreeState]:
        """Read one more token of each of W hypotheses (B W); return the logits after it (B W V)."""
        assert isinstance(memory, TreeMemory), f"this memory does not count words: {type(memory)}"
        assert isinstance(state, TreeState), f"this is the state of another model: {type(state)}"
        logits, inner = self.model.step(token, memory.inner, state.inner)
        grown = replace(self._advance(token, state), inner=inner)
        return _mask_logits(logits, self._allowed_tokens(grown)), grown

    def _advance(self, token: Tensor, state: TreeState) -> TreeState:
        """Return the trees after one more token of each (B W); START, PAD and all that comes after END do nothing."""
        counts = state.counts + self.grammar.effects[token]
        counts[..., _CHAIN] *= self.grammar.keeps_chain[token]
        # Where nothing opens a 0 is written, behind the innermost label, where nobody looks.
        place = state.counts[..., :1].clamp(0, MAX_OPEN_BRACKETS)
        return TreeState(
            state.inner, counts, state.stack.scatter(2, place, self.grammar.opened_label[token][..., None])
        )

    def _allowed_tokens(self, state: TreeState) -> Tensor:
        """Return which tokens (B W V) a tree can go on with that is still whole in time."""
        depth, chain, words, tokens = state.counts.unbind(dim=-1)
        more, inside = words > 0, depth > 0
        # A bracket more needs two tokens, beside the tag of each word left, a closing bracket for each open one, END.
        room = (tokens > words + depth + 2) & (chain < MAX_OPENING_CHAIN) & (depth < MAX_OPEN_BRACKETS)
        situation = _MAY_OPEN * (more & (room | ~inside)) + _MAY_TAG * (more & inside)
        may_close = inside & (chain == 0) & ((depth > 1) | ~more)  # never an empty bracket, nor the last one too soon
        innermost = state.stack.gather(2, (depth - 1).clamp(0, MAX_OPEN_BRACKETS)[..., None]).squeeze(2)  # B W
        closing = torch.where(may_close, self.grammar.closing_token[innermost], self.grammar.fallback[situation])
        return self.grammar.allowed[situation].scatter_(2, closing[..., None], True)


def _mask_logits(logits: Tensor, allowed: Tensor) -> Tensor:
    """Rule out what is not possible (… V); the rest keeps its probability, and PAD, never chosen, gets what is lost."""
    finite = logits.nan_to_num(0.0).clamp(-_MAX_LOGIT, _MAX_LOGIT)
    held = finite.masked_fill(~allowed, -torch.inf)
    held[..., PAD] = finite.masked_fill(allowed, -torch.inf).logsumexp(dim=-1)
    return held
