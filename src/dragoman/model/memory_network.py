"""The end-to-end memory network (Sukhbaatar et al. 2015) as a reader: several hops over an external memory.

It is no `Transducer`: it reads a story of sentences and a question, and answers with one word. A hop is attention with
the question as its query; the next hop asks with the question and what was found. (Section 2 of the Transformer's
paper names it among its forebears.)

Shapes: B batch, M sentences of a story (the memory), L words of a sentence, D width, V vocabulary, C rows of a
hop's matrix. A sentence is filled up with PAD; a padding sentence holds nothing else, and may stand anywhere.
"""

from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from dragoman.tokens import PAD


@dataclass(frozen=True)
class Page:
    """Stories and questions as a network reads them, counted once for all hops; nothing in it is learned."""

    story: Tensor  # B M C: for each sentence, how much of each row of a hop's matrix it takes
    question: Tensor  # B C
    present: Tensor  # B M, True where the memory holds a sentence

    def some(self, rows: Tensor) -> "Page":
        """Return some of the stories, by their numbers."""
        return Page(self.story[rows], self.question[rows], self.present[rows])


class MemoryNetwork(nn.Module):
    """K hops with adjacent weight tying: a hop reads with the matrix that the hop before it answered with.

    Of the K + 1 matrices, the first also embeds the question, and the last also writes the answer.
    """

    def __init__(self, vocabulary: int, width: int, hops: int, *, longest: int, ordered: bool = True) -> None:
        super().__init__()
        self.longest = longest  # sentences that the memory holds; of a longer story, the last ones
        self.ordered = ordered  # position encoding; otherwise a sentence is a plain bag of words
        self.words = nn.Parameter(0.1 * torch.randn(hops + 1, vocabulary, width))
        self.ages = nn.Parameter(0.1 * torch.randn(hops + 1, longest, width))  # temporal encoding: 0 is the last one

    def forward(
        self,
        story: Tensor,  # B M L
        question: Tensor,  # B L
        *,
        linear: bool = False,
    ) -> tuple[Tensor, Tensor]:  # B V, and the weights B hops M
        """Return the logits of the answer, and the weights of the sentences hop by hop.

        `linear` leaves the softmax of the hops away, which helps at the start of a training.
        """
        return self.answer(self.count(story, question), linear=linear)

    def answer(self, page: Page, *, linear: bool = False) -> tuple[Tensor, Tensor]:  # B V, and B hops M
        """Answer what was counted before, which saves a third of a training."""
        matrices = self.matrices()
        memories = product(page.story, matrices)  # hops+1 B M D
        state = page.question @ matrices[0]  # B D
        weights = []
        for key, value in pairwise(memories):
            weights.append(focus((key * state[:, None]).sum(-1), page.present, linear=linear))  # B M
            state = state + (weights[-1][..., None] * value).sum(1)
        return state @ self.words[-1].T, torch.stack(weights, dim=1)

    def matrices(self) -> Tensor:
        """Return what a sentence is embedded with (hops+1 C D): rows for the words, once or twice, and for the ages.

        The paper weights dimension k of word j of J by (1 − j/J) − (k/d)(1 − 2j/J). That is linear in k, so a sentence
        is two bags of words, the second one for rows multiplied by k/d: one small matrix product for all hops, and no
        vector for each word.
        """
        if not self.ordered:
            return torch.cat([self.words, self.ages], dim=1)
        ramp = torch.arange(1, self.words.shape[-1] + 1).to(self.words) / self.words.shape[-1]  # D, the k/d
        return torch.cat([self.words, self.words * ramp, self.ages], dim=1)

    def count(self, story: Tensor, question: Tensor) -> Page:
        """Count the words of stories (B M L) and questions (B L), and how old each sentence is."""
        present, age = attendance(story, self.longest)
        ages = F.one_hot(age, self.longest).to(self.words)  # B M longest
        ageless = self.words.new_zeros(len(question), self.longest)
        sentences, asked = self.bags(story), self.bags(question)
        return Page(torch.cat([sentences, ages], dim=-1), torch.cat([asked, ageless], dim=-1), present)

    def bags(self, sentences: Tensor) -> Tensor:
        """Turn sentences (… L) into bags of words (… V, or twice V with position encoding)."""
        place = places(sentences).to(self.words)  # … L
        weights = (1 - place, 2 * place - 1) if self.ordered else (torch.ones_like(place),)
        empty = self.words.new_zeros(*sentences.shape[:-1], self.words.shape[1])
        each = [empty.scatter_add(-1, sentences, weight * (sentences != PAD)) for weight in weights]
        return torch.cat(each, dim=-1)


def attendance(story: Tensor, longest: int) -> tuple[Tensor, Tensor]:  # B M, twice
    """Tell which sentences the memory holds, and how many follow each of them; padding does not count."""
    present = (story != PAD).any(-1)
    age = present.flip(-1).cumsum(-1).flip(-1) - 1
    return present & (age < longest), age.clamp(0, longest - 1)


def places(sentences: Tensor) -> Tensor:
    """Return where in its sentence each word stands (… L), from nearly 0 to 1: the paper's j / J."""
    length = (sentences != PAD).sum(-1, keepdim=True).clamp(min=1)
    return torch.arange(1, sentences.shape[-1] + 1, dtype=torch.float64, device=sentences.device) / length


def product(counts: Tensor, matrices: Tensor) -> Tensor:
    """Multiply counts (… C) by each of several matrices (hops+1 C D) at once: hops+1 … D."""
    joint = counts @ matrices.transpose(0, 1).flatten(1)  # … (hops+1 D)
    return joint.view(*counts.shape[:-1], len(matrices), -1).movedim(-2, 0)


def focus(scores: Tensor, present: Tensor, *, linear: bool) -> Tensor:
    """Turn the scores of sentences (B M) into weights; what is not in the memory gets none."""
    if linear:
        return scores.masked_fill(~present, 0.0)
    lowest = torch.finfo(scores.dtype).min  # minus infinity would make an empty memory NaN
    return scores.masked_fill(~present, lowest).softmax(-1).masked_fill(~present, 0.0)
