"""ByteNet (Kalchbrenner et al. 2016, "Neural Machine Translation in Linear Time"): dilated convolutions, no attention.

The dilation doubles with each layer, 1, 2, 4, 8, 16, and starts again: two words n apart meet after log_k n layers
(table 1), as long as n is within one cycle. The decoder is stacked on the encoder: target position t reads the
encoder's output at position t. A translation is often longer than its source, so the encoder is extended beyond the
end of the source to _LENGTH_FACTOR times its length; positions of a longer target read zeros ("dynamic unfolding").

Shapes: B batch, S source positions, U unfolded positions, T target positions, D width, V vocabulary, W beam.
"""

import math
from fractions import Fraction
from typing import cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from dragoman.model_config import ByteNetConfig
from dragoman.models.convs2s import Convolution, ConvolutionCache
from dragoman.models.layers import Dropout, VocabularyModel, initialise_weights
from dragoman.models.positions import build_positions
from dragoman.models.transducer import AttentionMaps, Memory, Source, State

# Target positions per source position: ByteNet's a for English to German (its b is 0). A fraction, since 25 times the
# float32 1.2 is more than 30.
_LENGTH_FACTOR = Fraction("1.2")
_DILATION_CYCLE = 5  # layers until the dilation is 1 again: after 2⁴ = 16


def layer_dilation(layer: int) -> int:
    """Return the dilation of a layer, counted from 0."""
    return int(2 ** (layer % _DILATION_CYCLE))


class _ByteNetBlock(nn.Module):
    """ByteNet's residual block: to half the width, a convolution, and back; layer norm and ReLU before each map."""

    def __init__(self, config: ByteNetConfig, layer: int) -> None:
        super().__init__()
        inner = max(1, config.width // 2)
        self.norms = nn.ModuleList(nn.LayerNorm(width) for width in (config.width, inner, inner))
        self.narrow = nn.Linear(config.width, inner)
        self.convolution = Convolution(inner, inner, config.kernel, layer_dilation(layer))
        self.widen = nn.Linear(inner, config.width)
        self.dropout = Dropout(config.dropout)

    def convolve_centred(self, x: Tensor, mask: Tensor) -> Tensor:
        """Apply the block to B U D, with a convolution around each position where the mask (B U) is True."""
        return self.post(x, self.convolution.convolve_centred(self.pre(x), mask))

    def convolve_causal(self, x: Tensor) -> Tensor:
        """Apply the block to B T D, with a causal convolution."""
        return self.post(x, self.convolution.convolve_causal(self.pre(x)))

    def step(self, x: Tensor, recent: Tensor) -> tuple[Tensor, Tensor]:
        """Apply the block to one more position of each hypothesis (B W D) after the recent ones."""
        convolved, recent = self.convolution.step(recent, self.pre(x))
        return self.post(x, convolved), recent

    def pre(self, x: Tensor) -> Tensor:
        """Return the input of the convolution."""
        return F.relu(self.norms[1](self.narrow(F.relu(self.norms[0](x)))))

    def post(self, x: Tensor, convolved: Tensor) -> Tensor:
        """Return the residual sum."""
        return cast(Tensor, self.dropout(self.widen(F.relu(self.norms[2](convolved))), x))


class ByteNet(VocabularyModel):
    """ByteNet; a `Transducer`. The original has positions = "none"."""

    def __init__(self, config: ByteNetConfig, source_vocabulary: int, target_vocabulary: int) -> None:
        super().__init__(config, source_vocabulary, target_vocabulary)
        self.source_positions = build_positions(config)
        self.target_positions = build_positions(config)
        self.beyond = nn.Parameter(torch.zeros(config.width))  # the input at each position beyond the source
        self.dropout = Dropout(config.dropout)
        self.encoder = nn.ModuleList(_ByteNetBlock(config, layer) for layer in range(config.layers))
        self.decoder = nn.ModuleList(_ByteNetBlock(config, layer) for layer in range(config.decoder_depth))
        self.encoder_norm, self.decoder_norm = (nn.LayerNorm(config.width) for _ in range(2))
        self.exit = nn.Linear(config.width, config.width)
        initialise_weights(self)

    def encode(self, source: Source) -> Memory:
        """Encode a batch of token ids; the memory and its mask (B U) have the unfolded lengths."""
        word = self.source_embedding(source.values) + self.source_positions(0, source.mask.shape[1])  # B S D
        length = source.mask.shape[1]
        unfolded = math.ceil(_LENGTH_FACTOR * length) - length
        x = torch.where(source.mask[..., None], word, self.beyond)
        x = torch.cat([x, self.beyond.expand(len(x), unfolded, -1)], dim=1)  # B U D
        position = torch.arange(x.shape[1], device=x.device)
        mask = _LENGTH_FACTOR.denominator * position < _LENGTH_FACTOR.numerator * source.lengths[:, None]  # B U
        x = self.dropout(x)
        for block in self.encoder:
            x = cast(_ByteNetBlock, block).convolve_centred(x, mask)
        return Memory(self.encoder_norm(x), mask)

    def hidden_states(self, prefix: Tensor, memory: Memory) -> Tensor:
        """Return the last hidden states (B T D) over `prefix` (B T)."""
        length = prefix.shape[1]
        word = self.target_embedding(prefix) + self.target_positions(0, length)  # B T D
        x = self.dropout(word + _unfold_memory(memory, 0, length))
        for block in self.decoder:
            x = cast(_ByteNetBlock, block).convolve_causal(x)
        return self.project_output(x)

    def attention_maps(self, source: Source, prefix: Tensor) -> AttentionMaps:  # noqa: ARG002
        """Return empty lists: there is no attention."""
        return AttentionMaps([], [], [])

    def project_output(self, x: Tensor) -> Tensor:
        """Return the hidden states of the last block's output."""
        return cast(Tensor, self.exit(F.relu(self.decoder_norm(x))))

    def initial_state(self, memory: Memory) -> ConvolutionCache:
        """Return the state before the first token: one empty hypothesis per sentence."""
        convolutions = [cast(_ByteNetBlock, block).convolution for block in self.decoder]
        return ConvolutionCache.empty(
            convolutions, [convolution.map.out_features for convolution in convolutions], memory.states
        )

    def step(self, token: Tensor, memory: Memory, state: State) -> tuple[Tensor, ConvolutionCache]:
        """Feed one more token to each of W hypotheses (B W); return the logits of the next token (B W V)."""
        assert isinstance(state, ConvolutionCache), f"expected ConvolutionCache, got {type(state).__name__}"
        x = (
            self.target_embedding(token)
            + self.target_positions(state.length, 1)
            + _unfold_memory(memory, state.length, 1)
        )
        layers: list[Tensor] = []
        for block, recent in zip(self.decoder, state.layers, strict=True):
            x, recent = cast(_ByteNetBlock, block).step(x, recent)
            layers.append(recent)
        return self.logits(self.project_output(x)), ConvolutionCache(state.length + 1, layers)


def _unfold_memory(memory: Memory, first: int, length: int) -> Tensor:
    """Return the encoder's output at positions first, first + 1, … (B T D): zeros beyond its end."""
    states = memory.states[:, first : first + length]
    states = states.masked_fill(~memory.mask[:, first : first + length, None], 0.0)
    return F.pad(states, (0, 0, 0, length - states.shape[1]))
