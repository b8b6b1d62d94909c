"""The baseline of training: `torch.nn.Transformer` in a plain training loop."""

import math
from collections.abc import Callable
from typing import cast

import torch
from torch import Tensor, nn

from dragoman.bench.data import BenchmarkCorpus
from dragoman.data.batches import Order, collate
from dragoman.model_config import ModelConfig, TransformerConfig
from dragoman.models.positions import sinusoids
from dragoman.recipe import Recipe
from dragoman.tokens import PAD

_MAX_POSITIONS = 4096

_BatchTensors = tuple[Tensor, Tensor, Tensor, int]  # source, prefix, target, number of target tokens


class TorchTransformer(nn.Module):
    """PyTorch's Transformer with tied embeddings and output, and as many parameters as Dragoman's."""

    positions: Tensor

    def __init__(self, config: TransformerConfig, source_vocabulary: int, target_vocabulary: int) -> None:
        super().__init__()
        self.source = nn.Embedding(source_vocabulary, config.width, padding_idx=PAD)
        self.target = self.source if config.share_embeddings else nn.Embedding(target_vocabulary, config.width, PAD)
        self.register_buffer("positions", sinusoids(_MAX_POSITIONS, config.width), persistent=False)
        self.dropout = nn.Dropout(config.dropout)
        self.transformer = nn.Transformer(
            config.width,
            config.heads,
            config.layers,
            config.decoder_depth,
            config.inner_width,
            config.dropout,
            config.activation,
            batch_first=True,
            norm_first=config.norm == "pre",
        )
        if config.norm == "post":  # the paper has no norm after the last layer
            self.transformer.encoder.norm = self.transformer.decoder.norm = None
        self.output = nn.Linear(config.width, target_vocabulary, bias=False)
        if config.share_output:
            self.output.weight = self.target.weight
        nn.init.normal_(self.source.weight, std=config.width**-0.5)
        nn.init.normal_(self.target.weight, std=config.width**-0.5)

    def forward(self, source: Tensor, prefix: Tensor) -> Tensor:
        """Return the logits (B T V) after each position of `prefix`."""
        source_padding = source == PAD
        causal = nn.Transformer.generate_square_subsequent_mask(prefix.shape[1], dtype=torch.bool)
        hidden = self.transformer(
            self.embed(self.source, source), self.embed(self.target, prefix), tgt_mask=causal,
            src_key_padding_mask=source_padding, tgt_key_padding_mask=prefix == PAD,
            memory_key_padding_mask=source_padding, tgt_is_causal=True,
        )  # fmt: skip
        logits: Tensor = self.output(hidden)
        return logits

    def embed(self, embedding: nn.Embedding, tokens: Tensor) -> Tensor:
        """Return the embeddings of tokens plus their positions."""
        vectors = embedding(tokens) * math.sqrt(embedding.embedding_dim) + self.positions[: tokens.shape[1]]
        dropped: Tensor = self.dropout(vectors)
        return dropped


def is_torch_compatible(config: ModelConfig) -> bool:
    """Return whether `torch.nn.Transformer` supports this model."""
    if not isinstance(config, TransformerConfig):
        return False
    share = config.width // config.heads
    paper = config.positions == "sinusoidal" and not config.rotary and config.score == "scaled_dot"
    full = config.pattern == "full" and config.normalisation == "layer"
    return paper and full and {config.key_width, config.value_width} <= {None, share}


def batch_loader(recipe: Recipe, corpus: BenchmarkCorpus) -> Callable[[int], list[_BatchTensors]]:
    """Return a function that returns the batches of a step (from 1), the same as those of Dragoman's training."""
    pairs, config = corpus.open_pairs(), recipe.training
    order = Order(pairs.costs, config.batch_tokens, config.accumulate, config.seed, tie_break=pairs.target_lengths)

    def batches(number: int) -> list[_BatchTensors]:
        collated = [collate(pairs, numbers) for numbers in order.update(number - 1)]
        return [(*map(torch.from_numpy, (b.source, b.prefix, b.target)), b.tokens) for b in collated]  # type: ignore[misc]

    return batches


class TorchTraining:
    """Forward, loss, backward, Adam; under autocast if the precision is bfloat16."""

    def __init__(self, recipe: Recipe, corpus: BenchmarkCorpus) -> None:
        config = recipe.training
        torch.set_num_threads(config.threads)
        torch.manual_seed(config.seed)
        self.config = config
        self.model = TorchTransformer(
            cast(TransformerConfig, recipe.model), *map(len, corpus.read_tokenizers())
        ).train()
        self.optimizer = torch.optim.Adam(self.model.parameters())
        self.loss = nn.CrossEntropyLoss(ignore_index=PAD, label_smoothing=config.label_smoothing)
        self.batches = batch_loader(recipe, corpus)
        self.steps_done = 0

    def step(self) -> int:
        """Make one update and return its number of target tokens."""
        self.steps_done += 1
        batches = self.batches(self.steps_done)
        self.optimizer.zero_grad()
        for source, prefix, target, _ in batches:
            with torch.autocast("cpu", torch.bfloat16, enabled=self.config.precision == "bfloat16"):
                logits = self.model(source, prefix)
                loss = self.loss(logits.flatten(0, 1), target.flatten()) / len(batches)
            loss.backward()
        if self.config.clip:
            nn.utils.clip_grad_norm_(self.model.parameters(), self.config.clip)
        self.optimizer.step()
        return sum(tokens for *_, tokens in batches)
