"""The rival in training: `torch.nn.Transformer` in a loop as anyone would write it."""

import math
from collections.abc import Callable

import torch
from torch import Tensor, nn

from dragoman.bench.material import Material
from dragoman.data.batches import Order, collate
from dragoman.model.positions import sinusoids
from dragoman.recipe import Model, Recipe
from dragoman.tokens import PAD

PLACES = 4096

Arrays = tuple[Tensor, Tensor, Tensor, int]  # source, prefix, target, and the target's tokens without padding


class PlainTransformer(nn.Module):
    """PyTorch's Transformer between tied embeddings and their transpose, with as many parameters as ours."""

    places: Tensor

    def __init__(self, how: Model, source_vocabulary: int, target_vocabulary: int) -> None:
        super().__init__()
        self.source = nn.Embedding(source_vocabulary, how.width, padding_idx=PAD)
        self.target = self.source if how.share_embeddings else nn.Embedding(target_vocabulary, how.width, PAD)
        self.register_buffer("places", sinusoids(PLACES, how.width), persistent=False)
        self.dropout = nn.Dropout(how.dropout)
        self.transformer = nn.Transformer(
            how.width, how.heads, how.layers, how.decoder_depth, how.inner_width, how.dropout, how.activation,
            batch_first=True, norm_first=how.norm == "pre",
        )  # fmt: skip
        if how.norm == "post":  # the paper has no norm after the last layer's own
            self.transformer.encoder.norm = self.transformer.decoder.norm = None
        self.output = nn.Linear(how.width, target_vocabulary, bias=False)
        if how.share_output:
            self.output.weight = self.target.weight
        nn.init.normal_(self.source.weight, std=how.width**-0.5)
        nn.init.normal_(self.target.weight, std=how.width**-0.5)

    def forward(self, source: Tensor, prefix: Tensor) -> Tensor:
        """Return the logits (B T V) after each position of `prefix`."""
        blank = source == PAD
        later = nn.Transformer.generate_square_subsequent_mask(prefix.shape[1], dtype=torch.bool)
        hidden = self.transformer(
            self.placed(self.source, source), self.placed(self.target, prefix), tgt_mask=later,
            src_key_padding_mask=blank, tgt_key_padding_mask=prefix == PAD, memory_key_padding_mask=blank,
            tgt_is_causal=True,
        )  # fmt: skip
        logits: Tensor = self.output(hidden)
        return logits

    def placed(self, embedding: nn.Embedding, tokens: Tensor) -> Tensor:
        """Return the vectors of tokens with their places added."""
        vectors = embedding(tokens) * math.sqrt(embedding.embedding_dim) + self.places[: tokens.shape[1]]
        dropped: Tensor = self.dropout(vectors)
        return dropped


def can_be_plain(how: Model) -> bool:
    """Say whether `torch.nn.Transformer` can be a model like this one."""
    share = how.width // how.heads
    paper = how.positions == "sinusoidal" and not how.rotary and how.score == "scaled_dot"
    full = how.architecture == "transformer" and how.pattern == "full" and how.normalisation == "layer"
    return paper and full and {how.key_width, how.value_width} <= {None, share}


def batches_of(recipe: Recipe, material: Material) -> Callable[[int], list[Arrays]]:
    """Return the function that gives the batches of a step (from 1): the very ones that our training gets."""
    pairs, plan = material.pairs(), recipe.training
    order = Order(pairs.source_lengths, pairs.target_lengths, plan.batch_tokens, plan.accumulate, plan.seed)

    def batches(number: int) -> list[Arrays]:
        collated = [collate(pairs, numbers) for numbers in order.update(number - 1)]
        return [(*map(torch.from_numpy, (b.source, b.prefix, b.target)), b.tokens) for b in collated]  # type: ignore[misc]

    return batches


class PlainTraining:
    """The loop: forward, loss, backward, Adam; under autocast if the recipe says bfloat16."""

    def __init__(self, recipe: Recipe, material: Material) -> None:
        plan = recipe.training
        torch.set_num_threads(plan.threads)
        torch.manual_seed(plan.seed)
        self.plan = plan
        self.model = PlainTransformer(recipe.model, *map(len, material.tokenizers())).train()
        self.optimizer = torch.optim.Adam(self.model.parameters())
        self.loss = nn.CrossEntropyLoss(ignore_index=PAD, label_smoothing=plan.label_smoothing)
        self.batches = batches_of(recipe, material)
        self.steps_done = 0

    def step(self) -> int:
        """Make one update; return the target tokens it was made from."""
        self.steps_done += 1
        batches = self.batches(self.steps_done)
        self.optimizer.zero_grad()
        for source, prefix, target, _ in batches:
            with torch.autocast("cpu", torch.bfloat16, enabled=self.plan.precision == "bfloat16"):
                logits = self.model(source, prefix)
                loss = self.loss(logits.flatten(0, 1), target.flatten()) / len(batches)
            loss.backward()
        if self.plan.clip:
            nn.utils.clip_grad_norm_(self.model.parameters(), self.plan.clip)
        self.optimizer.step()
        return sum(tokens for *_, tokens in batches)
