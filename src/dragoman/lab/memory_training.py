"""Trains a memory network within seconds to answer questions about stories.

Memory networks get stuck: from some initial weights the first hop never finds the sentence that the second one needs,
and longer training does not help. The authors of the network use two remedies. A linear start omits the softmax of the
hops in the first part of a training, so that every sentence receives a gradient. And a network is trained from several
starts; `lab/memory.py` keeps the one with the best validation accuracy.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F
from torch.nn.utils import clip_grad_norm_

from dragoman.corpora.stories import Story, story_words
from dragoman.models.memory_network import MemoryNetwork
from dragoman.tokens import PAD

_WIDTH = 32
_BATCH_SIZE = 64  # stories
_LEARNING_RATE, _WARMUP_STEPS = 0.02, 100  # of Adam; the rate falls linearly to zero
_CLIP_NORM = 10.0
_VALIDATE_EVERY = 200  # steps


@dataclass(frozen=True)
class EncodedStories:
    """Stories as tokens."""

    story: Tensor  # B M L
    question: Tensor  # B L
    answer: Tensor  # B

    def __len__(self) -> int:
        return len(self.answer)


@dataclass(frozen=True)
class MemoryTrainingConfig:
    """The settings of one training."""

    hops: int
    seconds: float
    linear_share: float  # of the time, without the softmax of the hops
    seed: int


def build_vocabulary(stories: Sequence[Story]) -> dict[str, int]:
    """Return a token for each word of stories, starting after PAD."""
    texts = {text for story in stories for text in (*story.sentences, story.question, story.answer)}
    words = sorted({word for text in texts for word in story_words(text)})
    return {word: token for token, word in enumerate(words, PAD + 1)}


def encode_stories(stories: Sequence[Story], vocabulary: dict[str, int]) -> EncodedStories:
    """Encode stories as padded token tensors."""
    texts = {text for story in stories for text in (*story.sentences, story.question)}
    tokens = {text: [vocabulary[word] for word in story_words(text)] for text in texts}
    most, longest = max(len(story.sentences) for story in stories), max(map(len, tokens.values()))
    rows = {text: ids + [PAD] * (longest - len(ids)) for text, ids in tokens.items()}
    sentences = np.full((len(stories), most, longest), PAD)
    for number, story in enumerate(stories):
        sentences[number, : len(story.sentences)] = [rows[sentence] for sentence in story.sentences]
    return EncodedStories(
        torch.from_numpy(sentences),
        torch.tensor([rows[story.question] for story in stories]),
        torch.tensor([vocabulary[story.answer] for story in stories]),
    )


def train_memory_network(
    model: MemoryNetwork,
    train_set: EncodedStories,
    valid_set: EncodedStories,
    config: MemoryTrainingConfig,
    on_progress: Callable[[float], None],
    *,
    now: Callable[[], float] = time.monotonic,
) -> list[tuple[int, float]]:
    """Train until the time is over or the validation accuracy is 1; return steps with their validation accuracy.

    `on_progress` is called with the share of the time that is over.
    """
    optimizer = torch.optim.Adam(model.parameters(), fused=True)
    inputs = model.encode_stories(train_set.story, train_set.question)
    started_at, curve = now(), [(0, accuracy(model, valid_set))]
    for step, rows in enumerate(_shuffled_batches(len(train_set), config.seed), start=1):
        share = (now() - started_at) / config.seconds
        if step % _VALIDATE_EVERY == 0 or share >= 1:
            curve.append((step - 1, accuracy(model, valid_set)))
            on_progress(min(share, 1.0))
        if share >= 1 or curve[-1][1] == 1:
            break
        for group in optimizer.param_groups:
            group["lr"] = _LEARNING_RATE * min(1, step / _WARMUP_STEPS) * (1 - share)
        logits, _ = model.answer(inputs.select(rows), linear=share < config.linear_share)
        loss = F.cross_entropy(logits, train_set.answer[rows])
        optimizer.zero_grad()
        torch.autograd.backward(loss)
        clip_grad_norm_(model.parameters(), _CLIP_NORM)
        optimizer.step()
    return curve


def build_memory_network(
    stories: EncodedStories, vocabulary: dict[str, int], config: MemoryTrainingConfig
) -> MemoryNetwork:
    """Return a newly initialised network with room for these stories."""
    torch.manual_seed(config.seed)
    return MemoryNetwork(len(vocabulary) + 1, _WIDTH, config.hops, max_sentences=stories.story.shape[1])


def _shuffled_batches(stories: int, seed: int) -> Iterator[Tensor]:
    """Yield batches of story indices without end, shuffled in every epoch."""
    generator = torch.Generator().manual_seed(seed)
    while True:
        yield from torch.split(torch.randperm(stories, generator=generator), _BATCH_SIZE)


@torch.no_grad()
def predict(model: MemoryNetwork, stories: EncodedStories) -> tuple[Tensor, Tensor]:
    """Return the answers to all questions (B), and the weights of the sentences (B hops M)."""
    logits, weights = model(stories.story, stories.question)
    return logits.argmax(-1), weights


def accuracy(model: MemoryNetwork, stories: EncodedStories) -> float:
    """Return the share of questions that are answered correctly."""
    return float((predict(model, stories)[0] == stories.answer).double().mean())


@torch.no_grad()
def answer_loss(model: MemoryNetwork, stories: EncodedStories) -> float:
    """Return the mean negative log-likelihood of the correct answers."""
    logits, _ = model(stories.story, stories.question)
    return float(F.cross_entropy(logits, stories.answer))
