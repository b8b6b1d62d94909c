"""Constrained decoding for parsers: a transducer whose outputs are well-formed trees by construction.

A tree over n words is written as opening brackets with their labels, one tag per word, and closing brackets with their
labels: `(NP DT NN )NP`. After any prefix, only tokens from which a complete tree still fits the length limit are
allowed. Every output of every search, with any model, is therefore one tree over exactly the words of its source. The
probabilities of allowed tokens are not renormalised, so the score of a tree is that of the unconstrained model.

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

MAX_OPEN_BRACKETS = 120  # treebanks stay below 50
MAX_OPENING_CHAIN = 12  # consecutive opening brackets; treebanks have five or six
_MIN_EXTRA_TOKENS = 3  # tokens of a tree besides its tags: one opening bracket, one closing bracket, END
_MAX_LOGIT = 1e30  # larger logits and NaN are clamped

_DEPTH, _CHAIN, _WORDS, _TOKENS = range(4)  # the columns of `TreeState.counts`
_MAY_OPEN, _MAY_TAG = 1, 2  # bits of the situation, an index into `allowed` and `fallback`


@dataclass(frozen=True)
class TreeGrammar:
    """Lookup tables: the effect of each token on a tree, and the tokens allowed in each situation."""

    effects: Tensor  # V 4, added to the counts by a token
    keeps_chain: Tensor  # V, 0 where a token ends a chain of opening brackets, 1 elsewhere
    opened_label: Tensor  # V, number of the label that a token opens, from 1; 0: none
    closing_token: Tensor  # L+1, the token that closes each label; the first entry is unused
    allowed: Tensor  # 4 V, tokens allowed in each situation, besides a closing bracket
    fallback: Tensor  # 4, one token that is allowed in each situation; END if there is no other

    @classmethod
    def from_vocabulary(cls, pieces: Sequence[str]) -> "TreeGrammar":
        """Build the tables for a vocabulary of `(LABEL`, `)LABEL` and tags; a label needs both brackets."""
        numbered = list(enumerate(pieces))[RESERVED_TOKENS:]
        opening = {piece[1:]: token for token, piece in numbered if piece.startswith("(")}
        closing = {piece[1:]: token for token, piece in numbered if piece.startswith(")")}
        tags = [token for token, piece in numbered if piece and piece[0] not in "()"]
        labels = [label for label in opening if label in closing]
        if not labels or not tags:
            raise UserError(
                "The target vocabulary has no labelled brackets or no tags, so the model cannot generate trees. Train "
                'with [tokenizer] target_kind = "words" and a size that includes every label.'
            )
        return cls.from_tokens(
            len(pieces), [opening[label] for label in labels], [closing[label] for label in labels], tags
        )

    @classmethod
    def from_tokens(
        cls, size: int, opening: Sequence[int], closing: Sequence[int], tags: Sequence[int]
    ) -> "TreeGrammar":
        """Build the tables for the tokens of opening and closing brackets, in the order of the labels, and of tags."""
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
        """1 for every token (V) that is the tag of a word, else 0."""
        return -self.effects[:, _WORDS]

    def to(self, device: torch.device) -> "TreeGrammar":
        """Return the tables on a device."""
        if self.effects.device == device:
            return self
        return TreeGrammar(*(table.to(device) for table in vars(self).values()))


@dataclass(frozen=True)
class TreeMemory(Memory):
    """The encoder's output with the number of words of each sentence and its maximum output length."""

    inner: Memory  # the model's own
    words: Tensor  # B
    max_lengths: Tensor  # B

    def keep(self, sentences: Tensor) -> "TreeMemory":
        """Return the memory of the given sentences (a tensor of row indices)."""
        inner = self.inner.keep(sentences)
        return TreeMemory(inner.states, inner.mask, inner, self.words[sentences], self.max_lengths[sentences])


@dataclass(frozen=True)
class TreeState:
    """The decoder's state with the open brackets and the remaining words and tokens of each hypothesis."""

    inner: State  # the model's own
    counts: Tensor  # B W 4: open brackets, length of the opening chain, words left, tokens left with END
    stack: Tensor  # B W M, numbers of the open labels, the innermost at index depth - 1

    def reorder(self, parents: Tensor) -> "TreeState":
        """Return the state in which hypothesis w of sentence b continues hypothesis parents[b, w] (B W)."""
        return TreeState(
            self.inner.reorder(parents), gather_parents(self.counts, parents), gather_parents(self.stack, parents)
        )

    def keep(self, sentences: Tensor) -> "TreeState":
        """Return the state of the given sentences (a tensor of row indices)."""
        return TreeState(self.inner.keep(sentences), self.counts[sentences], self.stack[sentences])


class TreeConstraint:
    """A transducer that writes only trees over the words of its source."""

    def __init__(self, model: IncrementalDecoder, grammar: TreeGrammar, words: Tensor, config: DecodingConfig) -> None:
        """Constrain `model`; `words` (V) is the number of words that each source token begins."""
        if config.extra_length < _MIN_EXTRA_TOKENS:
            raise UserError(
                f"[decoding] extra_length = {config.extra_length} is too small for the brackets of a tree; set it to "
                f"{_MIN_EXTRA_TOKENS} or more (the paper uses 300)."
            )
        self.model, self.grammar, self.words, self.config = model, grammar, words, config

    def encode(self, source: Source) -> TreeMemory:
        """Read `source` (B S, padded with PAD)."""
        self.grammar, self.words = self.grammar.to(source.device), self.words.to(source.device)
        inner = self.model.encode(source)
        words, longest = self.words[source.values].sum(dim=1), max_output_lengths(source, self.config)  # B
        assert (longest >= words + _MIN_EXTRA_TOKENS).all(), "a source has at least one token per word"
        return TreeMemory(inner.states, inner.mask, inner, words, longest)

    def initial_state(self, memory: Memory) -> TreeState:
        """Return the state before the first token."""
        assert isinstance(memory, TreeMemory), f"expected TreeMemory, got {type(memory).__name__}"
        nothing = torch.zeros_like(memory.words)
        counts = torch.stack([nothing, nothing, memory.words, memory.max_lengths], dim=-1)[:, None]  # B 1 4
        stack = torch.zeros(len(nothing), 1, MAX_OPEN_BRACKETS + 1, dtype=torch.int32, device=nothing.device)
        return TreeState(self.model.initial_state(memory.inner), counts, stack)

    def step(self, token: Tensor, memory: Memory, state: State) -> tuple[Tensor, TreeState]:
        """Read one more token of each of W hypotheses (B W); return the logits after it (B W V)."""
        assert isinstance(memory, TreeMemory), f"expected TreeMemory, got {type(memory).__name__}"
        assert isinstance(state, TreeState), f"expected TreeState, got {type(state).__name__}"
        logits, inner = self.model.step(token, memory.inner, state.inner)
        grown = replace(self._advance(token, state), inner=inner)
        return _mask_logits(logits, self._allowed_tokens(grown)), grown

    def _advance(self, token: Tensor, state: TreeState) -> TreeState:
        """Return the state after a token per hypothesis (B W); START, PAD and tokens after END have no effect."""
        counts = state.counts + self.grammar.effects[token]
        counts[..., _CHAIN] *= self.grammar.keeps_chain[token]
        # Where nothing opens, a 0 is written above the innermost label, where it is never read.
        depth = state.counts[..., :1].clamp(0, MAX_OPEN_BRACKETS)
        return TreeState(
            state.inner, counts, state.stack.scatter(2, depth, self.grammar.opened_label[token][..., None])
        )

    def _allowed_tokens(self, state: TreeState) -> Tensor:
        """Return a mask (B W V) of the tokens from which a complete tree still fits the length limit."""
        depth, chain, words, tokens = state.counts.unbind(dim=-1)
        more, inside = words > 0, depth > 0
        # A new bracket needs two tokens, besides a tag per remaining word, a closing bracket per open one, and END.
        room = (tokens > words + depth + 2) & (chain < MAX_OPENING_CHAIN) & (depth < MAX_OPEN_BRACKETS)
        situation = _MAY_OPEN * (more & (room | ~inside)) + _MAY_TAG * (more & inside)
        may_close = inside & (chain == 0) & ((depth > 1) | ~more)  # no empty bracket; the root closes last
        innermost = state.stack.gather(2, (depth - 1).clamp(0, MAX_OPEN_BRACKETS)[..., None]).squeeze(2)  # B W
        closing = torch.where(may_close, self.grammar.closing_token[innermost], self.grammar.fallback[situation])
        return self.grammar.allowed[situation].scatter_(2, closing[..., None], True)


def _mask_logits(logits: Tensor, allowed: Tensor) -> Tensor:
    """Rule out tokens that are not allowed (… V); their probability goes to PAD, which is never chosen."""
    finite = logits.nan_to_num(0.0).clamp(-_MAX_LOGIT, _MAX_LOGIT)
    masked = finite.masked_fill(~allowed, -torch.inf)
    masked[..., PAD] = finite.masked_fill(allowed, -torch.inf).logsumexp(dim=-1)
    return masked
