"""The other rival in decoding: `generate` of Hugging Face Transformers, on a MarianMT model of the same shape.

Marian is the paper's post-norm Transformer with shared embeddings and sinusoids. It has random weights of its own and a
forced length, so it takes part only where the others have random weights too.
"""

from collections.abc import Sequence
from importlib import import_module
from typing import Any

import torch
from torch import Tensor

from dragoman.bench.stopwatch import Tokens
from dragoman.recipe import Model
from dragoman.tokens import END, PAD, START

BATCH = 64  # sentences


class HuggingFace:
    """A Marian model that answers every source with `length` tokens."""

    def __init__(self, how: Model, vocabulary: int, length: int, threads: int) -> None:
        transformers: Any = import_module("transformers")
        torch.set_num_threads(threads)
        torch.manual_seed(1)
        size = {"ffn_dim": how.inner_width, "attention_heads": how.heads}
        sides = {f"{side}_{name}": number for side in ("encoder", "decoder") for name, number in size.items()}
        config = transformers.MarianConfig(
            vocab_size=vocabulary, d_model=how.width, activation_function=how.activation, scale_embedding=True,
            pad_token_id=PAD, eos_token_id=END, decoder_start_token_id=START, forced_eos_token_id=None,
            encoder_layers=how.layers, decoder_layers=how.decoder_depth, **sides,
        )  # fmt: skip
        self.model = transformers.MarianMTModel(config).eval()
        self.length = length

    def given(self, sources: Sequence[Tokens]) -> list[Tensor]:
        """Return batches of equally long sources."""
        rows = torch.tensor(list(sources))  # B S
        return list(torch.split(rows, BATCH))

    @torch.inference_mode()
    def decode(self, given: list[Tensor], beam: int) -> list[Tensor]:
        """Generate batch after batch."""
        length = {"min_new_tokens": self.length, "max_new_tokens": self.length}
        return [self.model.generate(batch, num_beams=beam, do_sample=False, **length) for batch in given]

    def tokens(self, found: list[Tensor]) -> list[Tokens]:
        """Return what stands after START."""
        return [row[1:] for batch in found for row in batch.tolist()]

    def tune(self, given: list[Tensor], beam: int) -> str:
        """Warm up; the size of a batch is fixed."""
        self.decode(given[:1], beam)
        return f"{BATCH} examples"
