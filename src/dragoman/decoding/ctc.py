"""Connectionist temporal classification (CTC): prefix scores, joint decoding with attention, best paths, alignments.

CTC assigns a token or a blank to every position; the label sequence is what remains when repetitions are merged and
blanks are removed. The blank is PAD. A joint decoder interpolates the log-probabilities of an attention decoder with
CTC prefix scores (arXiv:1609.06773, arXiv:1706.02737). Training is not done here: the loss is PyTorch's.

CTC probabilities of START and END, which are not labels, belong to no hypothesis; a trained model has none.

Shapes: B batch, S source positions, V vocabulary, W beam, L labels.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from dragoman.decoding.hypothesis import sum_dtype
from dragoman.models.transducer import IncrementalDecoder, Memory, Source, State, gather_parents
from dragoman.tokens import END, PAD, START

_LOG_ZERO = -1e4  # stands for log 0 where -inf would give NaN; its exponential is 0

_STAY, _ENTER, _SKIP = range(3)  # how an alignment reaches a label: from itself, the blank before it, the last label


@dataclass(frozen=True)
class CTCPrefixScorer:
    """W prefixes of label sequences for each of B recordings, and the CTC probabilities of what may follow them.

    `non_blank` and `blank` are logarithms of the forward variables: the probability that the first s positions give
    exactly the prefix, and that position s is its last token or a blank.
    """

    probabilities: Tensor  # B S V, 0 at padding only
    lengths: Tensor  # B        positions without padding
    non_blank: Tensor  # B W S+1
    blank: Tensor  # B W S+1
    last: Tensor  # B W         last token of the prefix, or START
    log_probability: Tensor  # B W  that the label sequence begins with the prefix

    @classmethod
    def initial(cls, log_probabilities: Tensor, mask: Tensor) -> "CTCPrefixScorer":
        """Return the scorer of the empty prefix for log-probabilities (B S V) with padding at the end (mask B S)."""
        # The sums are taken in float64: in float32, the errors of 500 positions and 80 tokens add up to 1e-3.
        exact = log_probabilities.to(sum_dtype(log_probabilities.device))
        smallest = torch.finfo(exact.dtype).tiny  # stands for 0: the forward variables are quotients of products
        probabilities = exact.exp().clamp_(min=smallest).masked_fill_(~mask[..., None], 0.0)
        blank = F.pad(probabilities[..., PAD].log().cumsum(dim=-1), (1, 0))[:, None]  # B 1 S+1
        start = torch.full_like(blank[..., 0], START, dtype=torch.long)  # B 1
        return cls(probabilities, mask.sum(dim=1), torch.full_like(blank, -torch.inf), blank, start, blank[..., 0])

    def scores(self) -> Tensor:
        """Return the log-probability (B W V) of each next token given the prefix; END: that nothing follows.

        The label sequence begins with prefix g and token v with probability ψ(gv) = Σ_s φ_s-1 p_s(v), a matrix
        product. It is computed relative to the largest φ, which is at least ψ(g) / (S + 1), so that all terms that
        underflow are less than e^-700 of ψ(g).
        """
        exact_prefix = torch.logaddexp(self.non_blank, self.blank)  # B W S+1
        largest = _finite(exact_prefix.amax(dim=-1, keepdim=True))
        following = (exact_prefix[..., :-1] - largest).exp() @ self.probabilities  # B W V
        # The last token is repeated only after a blank.
        repeated = ((self.blank[..., :-1] - largest).exp() * self._token_probabilities(self.last)).sum(dim=-1)
        following.scatter_(2, self.last[..., None], repeated[..., None])
        prefix = _finite(self.log_probability)[..., None]
        scores = following.log() + (largest - prefix)
        end = self.lengths[:, None, None].expand(*self.last.shape, 1)
        scores[..., END] = (exact_prefix.gather(2, end) - prefix).squeeze(2)
        scores[..., [PAD, START]] = -torch.inf
        return scores

    def extend(self, parents: Tensor, tokens: Tensor) -> "CTCPrefixScorer":
        """Return the scorer of prefix parents[b, w] with tokens[b, w] (B W); PAD, START and END add nothing."""
        parent = replace(
            self,
            non_blank=gather_parents(self.non_blank, parents),
            blank=gather_parents(self.blank, parents),
            last=gather_parents(self.last, parents),
            log_probability=gather_parents(self.log_probability, parents),
        )
        unchanged = (tokens == PAD) | (tokens == START) | (tokens == END)
        if unchanged.all():
            return parent
        before = torch.logaddexp(parent.non_blank, parent.blank)
        before = torch.where((tokens == parent.last)[..., None], parent.blank, before)[..., :-1]  # B W S
        token_values = self._token_probabilities(tokens).log()
        log_probability = (before + token_values).logsumexp(dim=-1)  # B W
        non_blank = _forward_variables(before, token_values)
        blank = _forward_variables(non_blank[..., :-1], self.probabilities[:, None, :, PAD].log())
        return replace(
            parent,
            non_blank=torch.where(unchanged[..., None], parent.non_blank, non_blank),
            blank=torch.where(unchanged[..., None], parent.blank, blank),
            last=torch.where(unchanged, parent.last, tokens),
            log_probability=torch.where(unchanged, parent.log_probability, log_probability),
        )

    def keep(self, sentences: Tensor) -> "CTCPrefixScorer":
        """Return the scorer of the given recordings (row indices)."""
        return CTCPrefixScorer(*(part[sentences] for part in vars(self).values()))

    def _token_probabilities(self, tokens: Tensor) -> Tensor:
        """Return the probabilities (B W S) of one token per hypothesis (B W)."""
        indices = tokens[:, None].expand(-1, self.probabilities.shape[1], -1)  # B S W
        return self.probabilities.gather(2, indices).transpose(1, 2)


def _forward_variables(before: Tensor, values: Tensor) -> Tensor:
    """Return log r (… S+1) with r_0 = 0 and r_s = (r_s-1 + before_s-1) p_s, for log before and log p (… S).

    The closed form is r_s = p_s P_s Σ_u≤s before_u-1 / P_u with P_u = Π_v<u p_v. In float64 it is as accurate as the
    recursion: both are within 3e-12 of the sum in extended precision at S = 500, after 80 tokens.
    """
    # At padding, where log p is -inf, the difference of products would be NaN.
    products = F.pad(values.clamp(min=_LOG_ZERO).cumsum(dim=-1)[..., :-1], (1, 0))
    return F.pad(values + products + (before - products).logcumsumexp(dim=-1), (1, 0), value=-torch.inf)


def _finite(values: Tensor) -> Tensor:
    """Return values with -inf replaced, from which -inf can be subtracted."""
    return values.clamp(min=torch.finfo(values.dtype).min)


@dataclass(frozen=True)
class JointState:
    """The decoder's state with the CTC forward variables of the hypotheses before the last token."""

    inner: State  # the model's own
    ctc: CTCPrefixScorer
    parents: Tensor  # B W, the prefix of `ctc` that each hypothesis continues

    def reorder(self, parents: Tensor) -> "JointState":
        """Return the state in which hypothesis w of recording b continues hypothesis parents[b, w] (B W)."""
        return JointState(self.inner.reorder(parents), self.ctc, gather_parents(self.parents, parents))

    def keep(self, sentences: Tensor) -> "JointState":
        """Return the state of the given recordings (row indices)."""
        return JointState(self.inner.keep(sentences), self.ctc.keep(sentences), self.parents[sentences])


class JointDecoder:
    """A decoder whose log-probabilities are interpolated with CTC prefix scores (arXiv:1706.02737)."""

    def __init__(
        self, model: IncrementalDecoder, weight: float, ctc_log_probabilities: Callable[[Memory], Tensor]
    ) -> None:
        """Combine `model` with the CTC log-probabilities (B S V) of its memory, which have this weight (λ)."""
        assert 0 <= weight < 1, f"the weight of CTC must be at least 0 and below 1, got {weight}"
        self.model, self.weight, self.ctc_log_probabilities = model, weight, ctc_log_probabilities

    def encode(self, source: Source) -> Memory:
        """Encode a batch of sources."""
        return self.model.encode(source)

    def initial_state(self, memory: Memory) -> JointState:
        """Return the state before the first token."""
        ctc = CTCPrefixScorer.initial(self.ctc_log_probabilities(memory), memory.mask)
        return JointState(self.model.initial_state(memory), ctc, torch.zeros_like(ctc.last))

    def step(self, token: Tensor, memory: Memory, state: State) -> tuple[Tensor, JointState]:
        """Feed one more token to each of W hypotheses (B W); return the logits of the next token (B W V)."""
        assert isinstance(state, JointState), f"expected JointState, got {type(state).__name__}"
        logits, inner = self.model.step(token, memory, state.inner)
        ctc = state.ctc.extend(state.parents, token)
        own = torch.arange(token.shape[1], device=token.device).expand_as(token)
        return self._interpolate(logits, ctc.scores()), JointState(inner, ctc, own)

    def _interpolate(self, logits: Tensor, scores: Tensor) -> Tensor:
        """Return the weighted means of log-probabilities as logits that sum to 1; PAD, never chosen, has the rest.

        By Hölder's inequality, the probabilities of the other tokens sum to at most 1.
        """
        joint = logits.to(scores.dtype).log_softmax(dim=-1)  # B W V
        if self.weight > 0:  # 0 times -inf is not 0
            joint = (1 - self.weight) * joint + self.weight * scores
        joint[..., [PAD, START]] = -torch.inf
        joint[..., PAD] = (1 - joint.exp().sum(dim=-1)).clamp(min=0.0).log()
        return joint.to(torch.promote_types(logits.dtype, torch.float32))


def greedy_labels(log_probabilities: Tensor, mask: Tensor) -> list[list[int]]:
    """Return the labels of the most probable path of each recording, for log-probabilities (B S V) and mask (B S)."""
    values = log_probabilities.clone()
    values[..., [START, END]] = -torch.inf
    path = values.argmax(dim=-1).masked_fill(~mask, PAD)  # B S
    begins = (path != F.pad(path, (1, 0), value=PAD)[:, :-1]) & (path != PAD)
    return [row[first].tolist() for row, first in zip(path, begins, strict=True)]


def align(log_probabilities: Tensor, labels: Sequence[int]) -> list[tuple[int, int]]:
    """Return the first position of each label and the position after its last one in the most probable CTC alignment.

    The log-probabilities (S V) are those of one recording without padding. The backpointers take S (L + 1) bytes.
    """
    repetitions = sum(label == other for label, other in pairwise(labels))
    if len(log_probabilities) < len(labels) + repetitions:
        raise ValueError(
            f"{len(labels)} labels with {repetitions} repetitions need at least {len(labels) + repetitions} positions, "
            f"got {len(log_probabilities)}."
        )
    if not labels:
        return []
    moves, ends_with_label = _viterbi_moves(log_probabilities, labels)
    spans = [(0, 0)] * len(labels)
    index, in_label = len(labels) - ends_with_label, ends_with_label
    for position in reversed(range(len(moves))):
        move = int(moves[position, index])
        if in_label:
            spans[index] = (position, spans[index][1] or position + 1)
            in_label = move >> 1 != _ENTER
            index -= move >> 1 == _SKIP
        elif move & 1:
            index, in_label = index - 1, True
    return spans


def _viterbi_moves(log_probabilities: Tensor, labels: Sequence[int]) -> tuple[np.ndarray, bool]:
    """Return how the best path to each state enters it (S L+1), and whether the best path ends with the last label.

    Column n is 2 × the move into label n, plus 1 if the blank before it is entered from label n - 1.
    """
    finite = log_probabilities.float().nan_to_num(nan=_LOG_ZERO).clamp(min=_LOG_ZERO)
    targets = np.asarray(labels)
    skip_cost = np.where(targets[1:] == targets[:-1], -np.inf, 0.0)  # equal labels need a blank between them
    moves = np.zeros((len(finite), len(labels) + 1), dtype=np.int8)
    # The best log-probabilities: of ending in blank n, before label n, and in label n.
    blank, label = np.full(len(labels) + 1, -np.inf), np.full(len(labels), -np.inf)
    blank[0] = 0.0
    for row, move in zip(finite.cpu().numpy(), moves, strict=True):
        best, how = np.maximum(label, blank[:-1]), np.where(blank[:-1] > label, _ENTER, _STAY)
        skipped = label[:-1] + skip_cost
        how[1:][skipped > best[1:]] = _SKIP
        best[1:] = np.maximum(best[1:], skipped)
        move[:-1] = 2 * how
        move[1:] += label > blank[1:]
        blank[1:] = np.maximum(blank[1:], label)
        blank += row[PAD]
        label = best + row[targets]
    return moves, bool(label[-1] > blank[-1])
