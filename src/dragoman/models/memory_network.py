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
class StoryFeatures:
    """Stories and questions as a network reads them, counted once for all hops; nothing in it is learned."""

    story: Tensor  # B M C: for each sentence, how much of each row of a hop's matrix it takes
    question: Tensor  # B C
    sentence_mask: Tensor  # B M, True where the memory holds a sentence

    def select(self, rows: Tensor) -> "StoryFeatures":
        """Return some of the stories, by their numbers."""
        return StoryFeatures(self.story[rows], self.question[rows], self.sentence_mask[rows])


class MemoryNetwork(nn.Module):
    """K hops with adjacent weight tying: a hop reads with the matrix that the hop before it answered with.

    Of the K + 1 matrices, the first also embeds the question, and the last also writes the answer.
    """

    def __init__(
        self, vocabulary: int, width: int, hops: int, *, max_sentences: int, position_encoding: bool = True
    ) -> None:
        super().__init__()
        self.max_sentences = max_sentences  # sentences that the memory holds; of a longer story, the last ones
        self.position_encoding = position_encoding  # position encoding; otherwise a sentence is a plain bag of words
        self.word_embeddings = nn.Parameter(0.1 * torch.randn(hops + 1, vocabulary, width))
        self.temporal_embeddings = nn.Parameter(
            0.1 * torch.randn(hops + 1, max_sentences, width)
        )  # temporal encoding: 0 is the last one

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
        return self.answer(self.encode_stories(story, question), linear=linear)

    def answer(self, stories: StoryFeatures, *, linear: bool = False) -> tuple[Tensor, Tensor]:  # B V, and B hops M
        """Answer what was counted before, which saves a third of a training."""
        matrices = self.embedding_matrices()
        memories = _project_all_hops(stories.story, matrices)  # hops+1 B M D
        state = stories.question @ matrices[0]  # B D
        weights = []
        for key, value in pairwise(memories):
            weights.append(
                _sentence_weights((key * state[:, None]).sum(-1), stories.sentence_mask, linear=linear)
            )  # B M
            state = state + (weights[-1][..., None] * value).sum(1)
        return state @ self.word_embeddings[-1].T, torch.stack(weights, dim=1)

    def embedding_matrices(self) -> Tensor:
        """Return what a sentence is embedded with (hops+1 C D): rows for the words, once or twice, and for the ages.

        The paper weights dimension k of word j of J by (1 − j/J) − (k/d)(1 − 2j/J). That is linear in k, so a sentence
        is two bags of words, the second one for rows multiplied by k/d: one small matrix product for all hops, and no
        vector for each word.
        """
        if not self.position_encoding:
            return torch.cat([self.word_embeddings, self.temporal_embeddings], dim=1)
        ramp = (
            torch.arange(1, self.word_embeddings.shape[-1] + 1).to(self.word_embeddings)
            / self.word_embeddings.shape[-1]
        )  # D, the k/d
        return torch.cat([self.word_embeddings, self.word_embeddings * ramp, self.temporal_embeddings], dim=1)

    def encode_stories(self, story: Tensor, question: Tensor) -> StoryFeatures:
        """Count the words of stories (B M L) and questions (B L), and how old each sentence is."""
        present, age = _sentence_mask_and_ages(story, self.max_sentences)
        ages = F.one_hot(age, self.max_sentences).to(self.word_embeddings)  # B M longest
        ageless = self.word_embeddings.new_zeros(len(question), self.max_sentences)
        sentences, asked = self.bag_of_words(story), self.bag_of_words(question)
        return StoryFeatures(torch.cat([sentences, ages], dim=-1), torch.cat([asked, ageless], dim=-1), present)

    def bag_of_words(self, sentences: Tensor) -> Tensor:
        """Turn sentences (… L) into bags of words (… V, or twice V with position encoding)."""
        place = _relative_positions(sentences).to(self.word_embeddings)  # … L
        weights = (1 - place, 2 * place - 1) if self.position_encoding else (torch.ones_like(place),)
        empty = self.word_embeddings.new_zeros(*sentences.shape[:-1], self.word_embeddings.shape[1])
        each = [empty.scatter_add(-1, sentences, weight * (sentences != PAD)) for weight in weights]
        return torch.cat(each, dim=-1)


def _sentence_mask_and_ages(story: Tensor, max_sentences: int) -> tuple[Tensor, Tensor]:  # B M, twice
    """Tell which sentences the memory holds, and how many follow each of them; padding does not count."""
    present = (story != PAD).any(-1)
    age = present.flip(-1).cumsum(-1).flip(-1) - 1
    return present & (age < max_sentences), age.clamp(0, max_sentences - 1)


def _relative_positions(sentences: Tensor) -> Tensor:
    """Return where in its sentence each word stands (… L), from nearly 0 to 1: the paper's j / J."""
    length = (sentences != PAD).sum(-1, keepdim=True).clamp(min=1)
    return torch.arange(1, sentences.shape[-1] + 1, dtype=torch.float64, device=sentences.device) / length


def _project_all_hops(counts: Tensor, matrices: Tensor) -> Tensor:
    """Multiply counts (… C) by each of several matrices (hops+1 C D) at once: hops+1 … D."""
    joint = counts @ matrices.transpose(0, 1).flatten(1)  # … (hops+1 D)
    return joint.view(*counts.shape[:-1], len(matrices), -1).movedim(-2, 0)


def _sentence_weights(scores: Tensor, mask: Tensor, *, linear: bool) -> Tensor:
    """Turn the scores of sentences (B M) into weights; what is not in the memory gets none."""
    if linear:
        return scores.masked_fill(~mask, 0.0)
    lowest = torch.finfo(scores.dtype).min  # minus infinity would make an empty memory NaN
    return scores.masked_fill(~mask, lowest).softmax(-1).masked_fill(~mask, 0.0)
