"""Train a memory network to answer questions about stories, within seconds, and see what it looked at.

Memory networks get stuck: from an unlucky start the first hop never finds the sentence that the second one would need,
and no patience helps. Two things do, both from the network's own paper. A linear start leaves the softmax of the hops
away for the first part of a training, so that every sentence gets a gradient. And a training is begun several times;
`lab/memory.py` keeps the network that does best on the validation split.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F
from torch.nn.utils import clip_grad_norm_

from dragoman.corpora.questions import Story, words
from dragoman.model.memory_network import MemoryNetwork
from dragoman.tokens import PAD

WIDTH = 32
BATCH = 64  # stories
RATE, WARMUP = 0.02, 100  # of Adam; the rate falls to nothing in a straight line
CLIP = 10.0
LOOK_EVERY = 200  # steps, at the validation split


@dataclass(frozen=True)
class Exam:
    """Stories as tokens."""

    story: Tensor  # B M L
    question: Tensor  # B L
    answer: Tensor  # B

    def __len__(self) -> int:
        return len(self.answer)


@dataclass(frozen=True)
class Plan:
    """How one network is trained."""

    hops: int
    seconds: float
    linear: float  # share of the time without the softmax of the hops
    seed: int


@dataclass(frozen=True)
class Reading:
    """What a network said, and which sentences it looked at for that."""

    answer: Tensor  # B
    weights: Tensor  # B hops M


def vocabulary(stories: Sequence[Story]) -> dict[str, int]:
    """Give each word of some stories a number, beginning after PAD."""
    texts = {text for story in stories for text in (*story.sentences, story.question, story.answer)}
    return {word: number for number, word in enumerate(sorted({w for text in texts for w in words(text)}), PAD + 1)}


def encode(stories: Sequence[Story], numbers: dict[str, int]) -> Exam:
    """Turn stories into tokens."""
    texts = {text for story in stories for text in (*story.sentences, story.question)}
    tokens = {text: [numbers[word] for word in words(text)] for text in texts}
    most, longest = max(len(story.sentences) for story in stories), max(map(len, tokens.values()))
    rows = {text: ids + [PAD] * (longest - len(ids)) for text, ids in tokens.items()}
    told = np.full((len(stories), most, longest), PAD)
    for number, story in enumerate(stories):
        told[number, : len(story.sentences)] = [rows[sentence] for sentence in story.sentences]
    asked = torch.tensor([rows[story.question] for story in stories])
    return Exam(torch.from_numpy(told), asked, torch.tensor([numbers[story.answer] for story in stories]))


def train(
    model: MemoryNetwork, exam: Exam, valid: Exam, plan: Plan, seen: Callable[[float], None]
) -> list[tuple[int, float]]:
    """Train a network until its time is over or validation finds no mistake; return steps and their accuracies.

    `seen` hears how much of the time is over.
    """
    optimizer = torch.optim.Adam(model.parameters(), fused=True)
    page = model.count(exam.story, exam.question)
    began_at, curve = time.monotonic(), [(0, accuracy(model, valid))]
    for step, rows in enumerate(batches(len(exam), plan.seed), start=1):
        share = (time.monotonic() - began_at) / plan.seconds
        if step % LOOK_EVERY == 0 or share >= 1:
            curve.append((step - 1, accuracy(model, valid)))
            seen(min(share, 1.0))
        if share >= 1 or curve[-1][1] == 1:
            break
        for group in optimizer.param_groups:
            group["lr"] = RATE * min(1, step / WARMUP) * (1 - share)
        logits, _ = model.answer(page.some(rows), linear=share < plan.linear)
        loss = F.cross_entropy(logits, exam.answer[rows])
        optimizer.zero_grad()
        torch.autograd.backward(loss)
        clip_grad_norm_(model.parameters(), CLIP)
        optimizer.step()
    return curve


def new_network(exam: Exam, numbers: dict[str, int], plan: Plan) -> MemoryNetwork:
    """Return a network that has not learned anything yet, with room for these stories."""
    torch.manual_seed(plan.seed)
    return MemoryNetwork(len(numbers) + 1, WIDTH, plan.hops, longest=exam.story.shape[1])


def batches(stories: int, seed: int) -> Iterator[Tensor]:
    """Return the numbers of the stories in batches, in another order each time, for ever."""
    generator = torch.Generator().manual_seed(seed)
    while True:
        yield from torch.split(torch.randperm(stories, generator=generator), BATCH)


@torch.no_grad()
def read(model: MemoryNetwork, exam: Exam) -> Reading:
    """Let a network answer every question."""
    logits, weights = model(exam.story, exam.question)
    return Reading(logits.argmax(-1), weights)


def accuracy(model: MemoryNetwork, exam: Exam) -> float:
    """Return the share of questions that a network answers right."""
    return float((read(model, exam).answer == exam.answer).double().mean())
