"""Decoding with `generate` of Hugging Face Transformers, on a MarianMT model of the same size.

Marian is the post-norm Transformer of the paper with shared embeddings and sinusoidal positions. It has random weights
and outputs of a fixed length, so it is compared only where the other engines have random weights, too.
"""

from collections.abc import Sequence
from importlib import import_module
from typing import Any

import torch
from torch import Tensor

from dragoman.bench.timing import TokenSequence
from dragoman.model_config import TransformerConfig
from dragoman.tokens import END, PAD, START

_BATCH_SIZE = 64


class HuggingFaceDecoder:
    """A Marian model that returns `length` tokens for every source."""

    def __init__(self, settings: dict[str, Any], vocabulary: int, length: int, threads: int) -> None:
        transformers: Any = import_module("transformers")
        model_config = TransformerConfig(**settings)
        torch.set_num_threads(threads)
        torch.manual_seed(1)
        size = {"ffn_dim": model_config.inner_width, "attention_heads": model_config.heads}
        sides = {f"{side}_{name}": number for side in ("encoder", "decoder") for name, number in size.items()}
        config = transformers.MarianConfig(
            vocab_size=vocabulary,
            d_model=model_config.width,
            activation_function=model_config.activation,
            scale_embedding=True,
            pad_token_id=PAD,
            eos_token_id=END,
            decoder_start_token_id=START,
            forced_eos_token_id=None,
            encoder_layers=model_config.layers,
            decoder_layers=model_config.decoder_depth,
            **sides,
        )
        self.model = transformers.MarianMTModel(config).eval()
        self.length = length

    def prepare_inputs(self, sources: Sequence[TokenSequence]) -> list[Tensor]:
        """Return batches of equally long sources."""
        rows = torch.tensor(list(sources))  # B S
        return list(torch.split(rows, _BATCH_SIZE))

    @torch.inference_mode()
    def decode(self, inputs: list[Tensor], beam: int) -> list[Tensor]:
        """Generate one batch after another."""
        length = {"min_new_tokens": self.length, "max_new_tokens": self.length}
        return [self.model.generate(batch, num_beams=beam, do_sample=False, **length) for batch in inputs]

    def output_tokens(self, outputs: list[Tensor]) -> list[TokenSequence]:
        """Return the tokens after START."""
        return [row[1:] for batch in outputs for row in batch.tolist()]

    def tune(self, inputs: list[Tensor], beam: int) -> str:
        """Warm up; the batch size is fixed."""
        self.decode(inputs[:1], beam)
        return f"{_BATCH_SIZE} examples"
