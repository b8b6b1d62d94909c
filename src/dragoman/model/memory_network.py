"""The end-to-end memory network (Sukhbaatar et al. 2015) as a reader: several hops over an external memory.

It is no `Transducer`: it reads a story of sentences and a question, and answers with one word. A hop is attention with
the question as its query; the next hop asks with the question and what was found. (Section 2 of the Transformer's
paper names it among its forebears.)

Shapes: B batch, M sentences of a story (the memory), L words of a sentence, D width, V vocabulary. A sentence is
filled up with PAD; a padding sentence holds nothing else, and may stand anywhere.
"""

from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from dragoman.tokens import PAD


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
        present, age = attendance(story, self.longest)
        asked = self.embed(question)[0]  # B D
        memories = self.embed(story) + self.dated(age)  # hops+1 B M D
        weights = []
        for key, value in pairwise(memories):
            weights.append(focus((key * asked[:, None]).sum(-1), present, linear=linear))  # B M
            asked = asked + (weights[-1][..., None] * value).sum(1)
        return asked @ self.words[-1].T, torch.stack(weights, dim=1)

    def embed(self, sentences: Tensor) -> Tensor:
        """Turn sentences (… L) into vectors (hops+1 … D) by each of the matrices.

        The paper weights dimension k of word j of J by (1 − j/J) − (k/d)(1 − 2j/J). That is linear in k, so a sentence
        is two bags of words, the second multiplied by k/d: one small matrix product, and no vector for each word.
        """
        place = places(sentences).to(self.words)  # … L
        if not self.ordered:
            return product(bags(sentences, torch.ones_like(place), self.words), self.words)
        both = torch.cat([bags(sentences, 1 - place, self.words), bags(sentences, 2 * place - 1, self.words)], dim=-1)
        ramp = torch.arange(1, self.words.shape[-1] + 1).to(self.words) / self.words.shape[-1]  # D
        return product(both, torch.cat([self.words, self.words * ramp], dim=1))

    def dated(self, age: Tensor) -> Tensor:
        """Return the vectors (hops+1 B M D) of ages (B M)."""
        return product(F.one_hot(age, self.longest).to(self.ages), self.ages)


def attendance(story: Tensor, longest: int) -> tuple[Tensor, Tensor]:  # B M, twice
    """Tell which sentences the memory holds, and how many follow each of them; padding does not count."""
    present = (story != PAD).any(-1)
    age = present.flip(-1).cumsum(-1).flip(-1) - 1
    return present & (age < longest), age.clamp(0, longest - 1)


def places(sentences: Tensor) -> Tensor:
    """Return where in its sentence each word stands (… L), from nearly 0 to 1: the paper's j / J."""
    length = (sentences != PAD).sum(-1, keepdim=True).clamp(min=1)
    return torch.arange(1, sentences.shape[-1] + 1, dtype=torch.float64, device=sentences.device) / length


def bags(sentences: Tensor, weight: Tensor, words: Tensor) -> Tensor:
    """Count the words of each sentence (… V), each word as often as its weight (… L) says."""
    empty = words.new_zeros(*sentences.shape[:-1], words.shape[1])
    return empty.scatter_add(-1, sentences, weight * (sentences != PAD))


def product(counts: Tensor, matrices: Tensor) -> Tensor:
    """Multiply counts (… V) by each of several matrices (hops+1 V D) at once: hops+1 … D."""
    joint = counts @ matrices.transpose(0, 1).flatten(1)  # … (hops+1 D)
    return joint.view(*counts.shape[:-1], len(matrices), -1).movedim(-2, 0)


def focus(scores: Tensor, present: Tensor, *, linear: bool) -> Tensor:
    """Turn the scores of sentences (B M) into weights; what is not in the memory gets none."""
    if linear:
        return scores.masked_fill(~present, 0.0)
    lowest = torch.finfo(scores.dtype).min  # minus infinity would make an empty memory NaN
    return scores.masked_fill(~present, lowest).softmax(-1).masked_fill(~present, 0.0)
