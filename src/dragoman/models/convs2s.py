"""ConvS2S (Gehring et al. 2017, "Convolutional Sequence to Sequence Learning"): gated convolutions.

Both stacks are convolutions over k positions with gated linear units, and every decoder layer attends to the source.
Each layer adds k - 1 positions to the receptive field, so two words n apart meet after n / (k - 1) layers. Differences
from that paper, whose vectors have a standard deviation of 0.1 where ours have 1: scores are divided by √D (unless
score = "dot"); the attention output is not multiplied by √S (with it, hidden states had a deviation of 13 after twelve
layers, without it 2.7); and weights are initialised as there but without weight normalisation. With Adam the encoder's
gradient need not be scaled.

Shapes: B batch, S source positions, T target positions, D width, V vocabulary, W beam, R cached positions.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from dragoman.model_config import ConvS2SConfig
from dragoman.models.attention import SCORE_FUNCTIONS, attend
from dragoman.models.layers import Dropout, VocabularyModel, initialise_weights
from dragoman.models.positions import build_positions
from dragoman.models.transducer import AttentionMaps, Memory, Source, State, gather_parents

_SQRT_HALF = math.sqrt(0.5)  # keeps the variance of a sum of two terms
# A gate σ(b) passes E[σ(b)²] of the variance: a quarter for small b, as in that paper, but a third for inputs of this
# variance, which leaves an output of variance 1.
_GATE_VARIANCE = 2.98


class Convolution(nn.Module):
    """A linear map of k positions, `dilation` apart, as one matrix product, for sequences and single steps."""

    def __init__(self, width: int, outputs: int, kernel: int, dilation: int = 1) -> None:
        super().__init__()
        self.dilation = dilation
        self.reach = (kernel - 1) * dilation  # positions beyond its own that an output depends on
        self.map = nn.Linear(kernel * width, outputs)

    def forward(self, x: Tensor) -> Tensor:
        """Map T + reach positions to T."""
        length = x.shape[1] - self.reach
        shifted = [x[:, first : first + length] for first in range(0, self.reach + 1, self.dilation)]
        return cast(Tensor, self.map(torch.cat(shifted, dim=-1)))

    def convolve_centred(self, x: Tensor, mask: Tensor) -> Tensor:
        """Convolve around each position (an even kernel: one more after it), with zeros where the mask is False."""
        behind = self.reach // self.dilation // 2 * self.dilation
        x = x.masked_fill(~mask[..., None], 0.0)
        return cast(Tensor, self(F.pad(x, (0, 0, behind, self.reach - behind))))

    def convolve_causal(self, x: Tensor) -> Tensor:
        """Convolve over each position and those before it; before the first are zeros."""
        return cast(Tensor, self(F.pad(x, (0, 0, self.reach, 0))))

    def step(self, recent: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
        """Convolve one more position (B W D) after the recent ones (B W R D); return the output and the recent ones."""
        inputs = torch.cat([recent, x[:, :, None]], dim=2)
        return self.map(inputs[:, :, :: self.dilation].flatten(2)), inputs[:, :, 1:]


@dataclass(frozen=True)
class ConvolutionCache:
    """The state of a convolutional decoder: the last inputs of each layer, and the number of positions so far."""

    length: int
    layers: Sequence[Tensor]  # per layer: B W R D

    @classmethod
    def empty(cls, convolutions: Sequence[Convolution], widths: Sequence[int], like: Tensor) -> "ConvolutionCache":
        """Return the state before the first token: zeros."""
        empty = [
            like.new_zeros(len(like), 1, convolution.reach, width)
            for convolution, width in zip(convolutions, widths, strict=True)
        ]
        return cls(0, empty)

    def reorder(self, parents: Tensor) -> "ConvolutionCache":
        """Return the state in which hypothesis w of sentence b continues hypothesis parents[b, w] (B W)."""
        return ConvolutionCache(self.length, [gather_parents(layer, parents) for layer in self.layers])

    def keep(self, sentences: Tensor) -> "ConvolutionCache":
        """Return the state of the given sentences."""
        return ConvolutionCache(self.length, [layer[sentences] for layer in self.layers])


class _ConvS2SEncoderLayer(nn.Module):
    """Dropout, convolution, gated linear unit and residual connection."""

    def __init__(self, config: ConvS2SConfig) -> None:
        super().__init__()
        self.dropout = Dropout(config.dropout)
        self.convolution = Convolution(config.width, 2 * config.width, config.kernel)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        """Apply the layer to B S D."""
        return (x + F.glu(self.convolution.convolve_centred(self.dropout(x), mask))) * _SQRT_HALF


class _ConvS2SDecoderLayer(nn.Module):
    """Dropout, causal convolution, gated linear unit, attention to the source and residual connection."""

    def __init__(self, config: ConvS2SConfig) -> None:
        super().__init__()
        self.dropout = Dropout(config.dropout)
        self.convolution = Convolution(config.width, 2 * config.width, config.kernel)
        self.query = nn.Linear(config.width, config.width)
        self.score_function = SCORE_FUNCTIONS[config.score](1, config.width)

    def forward(
        self, x: Tensor, word: Tensor, memory: Memory, *, record: bool = False
    ) -> tuple[Tensor, Tensor | None]:  # B T D, and the weights B 1 T S if recorded
        """Apply the layer to B T D; `word` is the embedded target."""
        return self.cross_attention_block(
            x, self.convolution.convolve_causal(self.dropout(x)), word, memory, record=record
        )

    def step(self, x: Tensor, word: Tensor, memory: Memory, recent: Tensor) -> tuple[Tensor, Tensor]:
        """Apply the layer to one more position of each hypothesis (B W D) after the recent ones (B W R D)."""
        convolved, recent = self.convolution.step(recent, x)
        return self.cross_attention_block(x, convolved, word, memory)[0], recent

    def cross_attention_block(
        self, x: Tensor, convolved: Tensor, word: Tensor, memory: Memory, *, record: bool = False
    ) -> tuple[Tensor, Tensor | None]:
        """Apply the gates, attend to the source and add the residual."""
        gated = F.glu(convolved)
        query = (self.query(gated) + word) * _SQRT_HALF
        key, value = memory.states[:, None].chunk(2, dim=-1)  # B 1 S D
        attended, weights = attend(
            query[:, None], key, value, memory.mask[:, None, None], score_function=self.score_function, record=record
        )
        return (x + (gated + attended[:, 0]) * _SQRT_HALF) * _SQRT_HALF, weights


class ConvS2S(VocabularyModel):
    """ConvS2S; a `Transducer`. Its memory holds the keys z and the values z + e, concatenated along D."""

    def __init__(self, config: ConvS2SConfig, source_vocabulary: int, target_vocabulary: int) -> None:
        super().__init__(config, source_vocabulary, target_vocabulary)
        self.source_positions = build_positions(config)
        self.target_positions = build_positions(config)
        self.dropout = Dropout(config.dropout)
        self.encoder_entrance, self.encoder_exit = (nn.Linear(config.width, config.width) for _ in range(2))
        self.decoder_entrance, self.decoder_exit = (nn.Linear(config.width, config.width) for _ in range(2))
        self.encoder = nn.ModuleList(_ConvS2SEncoderLayer(config) for _ in range(config.layers))
        self.decoder = nn.ModuleList(_ConvS2SDecoderLayer(config) for _ in range(config.decoder_depth))
        _initialise_gated(self, config.dropout)

    def encode(self, source: Source) -> Memory:
        """Encode a batch of token ids."""
        word = self.dropout(
            self.source_embedding(source.values) + self.source_positions(0, source.mask.shape[1])
        )  # B S D
        x = self.encoder_entrance(word)
        for layer in self.encoder:
            x = layer(x, source.mask)
        z = self.encoder_exit(x)
        return Memory(torch.cat([z, (z + word) * _SQRT_HALF], dim=-1), source.mask)  # B S 2D

    def hidden_states(self, prefix: Tensor, memory: Memory) -> Tensor:
        """Return the last hidden states (B T D) over `prefix` (B T)."""
        return self.run_decoder(prefix, memory)[0]

    def attention_maps(self, source: Source, prefix: Tensor) -> AttentionMaps:
        """Return the cross-attention weights: one head per layer, and no self-attention."""
        return AttentionMaps([], [], self.run_decoder(prefix, self.encode(source), record=True)[1])

    def run_decoder(self, prefix: Tensor, memory: Memory, *, record: bool = False) -> tuple[Tensor, list[Tensor]]:
        """Return the hidden states and, if recorded, the weights of each layer (B 1 T S)."""
        memory = _zero_padding(memory)
        word = self.dropout(self.target_embedding(prefix) + self.target_positions(0, prefix.shape[1]))  # B T D
        x = self.decoder_entrance(word)
        recorded: list[Tensor] = []
        for layer in self.decoder:
            x, weights = layer(x, word, memory, record=record)
            recorded += [weights] if record else []
        return self.project_output(x), recorded

    def project_output(self, x: Tensor) -> Tensor:
        """Return the hidden states of the last layer's output."""
        return cast(Tensor, self.dropout(self.decoder_exit(x)))

    def initial_state(self, memory: Memory) -> ConvolutionCache:
        """Return the state before the first token: one empty hypothesis per sentence."""
        convolutions = [cast(_ConvS2SDecoderLayer, layer).convolution for layer in self.decoder]
        return ConvolutionCache.empty(convolutions, [self.output_weight.shape[1]] * len(convolutions), memory.states)

    def step(self, token: Tensor, memory: Memory, state: State) -> tuple[Tensor, ConvolutionCache]:
        """Feed one more token to each of W hypotheses (B W); return the logits of the next token (B W V)."""
        assert isinstance(state, ConvolutionCache), f"expected ConvolutionCache, got {type(state).__name__}"
        memory = _zero_padding(memory)
        word = self.target_embedding(token) + self.target_positions(state.length, 1)  # B W D
        x = self.decoder_entrance(word)
        layers: list[Tensor] = []
        for layer, recent in zip(self.decoder, state.layers, strict=True):
            x, recent = cast(_ConvS2SDecoderLayer, layer).step(x, word, memory, recent)
            layers.append(recent)
        return self.logits(self.project_output(x)), ConvolutionCache(state.length + 1, layers)


def _zero_padding(memory: Memory) -> Memory:
    """Return a memory with zeros at padding: an attention weight of zero would not stop a NaN."""
    return Memory(memory.masked_states(), memory.mask)


def _initialise_gated(model: nn.Module, dropout: float) -> None:
    """Initialise all matrices so that the variance is kept (section 3.5 of that paper), and all biases with zero."""
    initialise_weights(model, lambda weight: nn.init.normal_(weight, std=weight.shape[1] ** -0.5))
    with torch.no_grad():
        for module in model.modules():
            if isinstance(module, Convolution):
                module.map.weight.mul_(math.sqrt(_GATE_VARIANCE * (1 - dropout)))
