"""The end-to-end memory network (Sukhbaatar et al. 2015): several hops of attention over the sentences of a story.

It is not a `Transducer`: it reads a story and a question, and answers with one word. A hop is attention with the
question as query; the query of the next hop is the sum of the query and the output of this one. Section 2 of the
Transformer's paper names it among related work.

Shapes: B batch, M sentences of a story (the memory), L words of a sentence, D width, V vocabulary, C rows of a hop's
matrix. Sentences are padded with PAD; a sentence of nothing but PAD is padding and may have any position.
"""

from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from dragoman.tokens import PAD


@dataclass(frozen=True)
class StoryFeatures:
    """Stories and questions as bags of words, computed once for all hops and steps; they have no parameters."""

    story: Tensor  # B M C: the coefficients of the rows of a hop's matrix, for each sentence
    question: Tensor  # B C
    sentence_mask: Tensor  # B M, True where the memory holds a sentence

    def select(self, rows: Tensor) -> "StoryFeatures":
        """Return the stories with these indices."""
        return StoryFeatures(self.story[rows], self.question[rows], self.sentence_mask[rows])


class MemoryNetwork(nn.Module):
    """K hops with adjacent weight tying: the output matrix of a hop is the input matrix of the next.

    Of the K + 1 matrices, the first also embeds the question and the last is also the output projection.
    """

    def __init__(
        self, vocabulary: int, width: int, hops: int, *, max_sentences: int, position_encoding: bool = True
    ) -> None:
        super().__init__()
        self.max_sentences = max_sentences  # of the memory; of a longer story, the last ones
        self.position_encoding = position_encoding  # otherwise a sentence is a bag of words
        self.word_embeddings = nn.Parameter(0.1 * torch.randn(hops + 1, vocabulary, width))
        # Temporal encoding by age, 0 for the last sentence:
        self.temporal_embeddings = nn.Parameter(0.1 * torch.randn(hops + 1, max_sentences, width))

    def forward(
        self,
        story: Tensor,  # B M L
        question: Tensor,  # B L
        *,
        linear: bool = False,
    ) -> tuple[Tensor, Tensor]:  # B V, and the weights B hops M
        """Return the logits of the answer, and the weights of the sentences at each hop.

        `linear` omits the softmax of the hops, which helps at the start of a training.
        """
        return self.answer(self.encode_stories(story, question), linear=linear)

    def answer(self, stories: StoryFeatures, *, linear: bool = False) -> tuple[Tensor, Tensor]:  # B V, and B hops M
        """Answer encoded stories; encoding them once saves a third of the time of a training."""
        matrices = self.embedding_matrices()
        memories = _project_all_hops(stories.story, matrices)  # hops+1 B M D
        state = stories.question @ matrices[0]  # B D
        weights = []
        for key, value in pairwise(memories):
            scores = (key * state[:, None]).sum(-1)  # B M
            weights.append(_sentence_weights(scores, stories.sentence_mask, linear=linear))
            state = state + (weights[-1][..., None] * value).sum(1)
        return state @ self.word_embeddings[-1].T, torch.stack(weights, dim=1)

    def embedding_matrices(self) -> Tensor:
        """Return the embedding matrices of all hops (hops+1 C D): rows for words, once or twice, and for ages.

        The paper weights dimension k of word j of J by (1 − j/J) − (k/d)(1 − 2j/J). That is linear in k, so a sentence
        is embedded as two bags of words, the second with rows multiplied by k/d. This takes one small matrix product
        for all hops, without a vector per word.
        """
        if not self.position_encoding:
            return torch.cat([self.word_embeddings, self.temporal_embeddings], dim=1)
        width = self.word_embeddings.shape[-1]
        ramp = torch.arange(1, width + 1).to(self.word_embeddings) / width  # D, the k/d
        return torch.cat([self.word_embeddings, self.word_embeddings * ramp, self.temporal_embeddings], dim=1)

    def encode_stories(self, story: Tensor, question: Tensor) -> StoryFeatures:
        """Encode stories (B M L) and questions (B L) as bags of words, with the age of each sentence."""
        mask, age = _sentence_mask_and_ages(story, self.max_sentences)
        ages = F.one_hot(age, self.max_sentences).to(self.word_embeddings)  # B M max_sentences
        no_age = self.word_embeddings.new_zeros(len(question), self.max_sentences)
        return StoryFeatures(
            torch.cat([self.bag_of_words(story), ages], dim=-1),
            torch.cat([self.bag_of_words(question), no_age], dim=-1),
            mask,
        )

    def bag_of_words(self, sentences: Tensor) -> Tensor:
        """Return the bags of words (… V, or 2V with position encoding) of sentences (… L)."""
        position = _relative_positions(sentences).to(self.word_embeddings)  # … L
        weights = (1 - position, 2 * position - 1) if self.position_encoding else (torch.ones_like(position),)
        empty = self.word_embeddings.new_zeros(*sentences.shape[:-1], self.word_embeddings.shape[1])
        bags = [empty.scatter_add(-1, sentences, weight * (sentences != PAD)) for weight in weights]
        return torch.cat(bags, dim=-1)


def _sentence_mask_and_ages(story: Tensor, max_sentences: int) -> tuple[Tensor, Tensor]:  # B M, twice
    """Return the mask of the sentences in memory, and the number of sentences after each, padding left out."""
    present = (story != PAD).any(-1)
    age = present.flip(-1).cumsum(-1).flip(-1) - 1
    return present & (age < max_sentences), age.clamp(0, max_sentences - 1)


def _relative_positions(sentences: Tensor) -> Tensor:
    """Return the relative position of each word (… L): the paper's j / J."""
    length = (sentences != PAD).sum(-1, keepdim=True).clamp(min=1)
    return torch.arange(1, sentences.shape[-1] + 1, dtype=torch.float64, device=sentences.device) / length


def _project_all_hops(counts: Tensor, matrices: Tensor) -> Tensor:
    """Multiply counts (… C) by the matrices of all hops (hops+1 C D) at once; return hops+1 … D."""
    joint = counts @ matrices.transpose(0, 1).flatten(1)  # … (hops+1 D)
    return joint.view(*counts.shape[:-1], len(matrices), -1).movedim(-2, 0)


def _sentence_weights(scores: Tensor, mask: Tensor, *, linear: bool) -> Tensor:
    """Return the weights of sentences from their scores (B M); sentences outside of the memory get zero."""
    if linear:
        return scores.masked_fill(~mask, 0.0)
    lowest = torch.finfo(scores.dtype).min  # −∞ would give NaN for an empty memory
    return scores.masked_fill(~mask, lowest).softmax(-1).masked_fill(~mask, 0.0)
