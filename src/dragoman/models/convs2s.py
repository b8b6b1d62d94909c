"""ConvS2S (Gehring et al. 2017, "Convolutional Sequence to Sequence Learning"): the paper's fastest rival.

Both stacks are convolutions of k places with gated linear units; every decoder layer looks at the source once. A place
sees k - 1 more with each layer, so two words n apart meet after n / (k - 1) layers. Differences from that paper, whose
vectors have a deviation of 0.1 where ours have 1: scores are divided by √D (unless score = "dot"); what was looked up
is not multiplied by √S (with that, new hidden vectors had a deviation of 13 after twelve layers, without it 2.7); and
weights are drawn with its care but not normalised. Adam makes it needless to scale the encoder's gradient.

Shapes: B batch, S source positions, T target positions, D width, V vocabulary, W beam, R places that are remembered.
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

_SQRT_HALF = math.sqrt(0.5)  # keeps the variance of a sum of two
# A gate that is σ(b) lets E[σ(b)²] of a variance through: a quarter while b is small, as that paper's are, but a third
# at this variance of a and b, of which one is left: our vectors begin with the variance 1.
_GATE_VARIANCE = 2.98


class Convolution(nn.Module):
    """A linear map from k places, `dilation` apart, to one: a product of matrices, for a whole row as for a step."""

    def __init__(self, width: int, outputs: int, kernel: int, dilation: int = 1) -> None:
        super().__init__()
        self.dilation = dilation
        self.reach = (kernel - 1) * dilation  # places that an output looks beyond its own
        self.map = nn.Linear(kernel * width, outputs)

    def forward(self, x: Tensor) -> Tensor:
        """Turn T + reach places into T."""
        length = x.shape[1] - self.reach
        shifted = [x[:, first : first + length] for first in range(0, self.reach + 1, self.dilation)]
        return cast(Tensor, self.map(torch.cat(shifted, dim=-1)))

    def convolve_centred(self, x: Tensor, mask: Tensor) -> Tensor:
        """Read as many places behind as ahead (an even kernel: one more ahead), zeros where the mask (B S) is False."""
        behind = self.reach // self.dilation // 2 * self.dilation
        x = x.masked_fill(~mask[..., None], 0.0)
        return cast(Tensor, self(F.pad(x, (0, 0, behind, self.reach - behind))))

    def convolve_causal(self, x: Tensor) -> Tensor:
        """Read each place and those behind it; before the first are zeros."""
        return cast(Tensor, self(F.pad(x, (0, 0, self.reach, 0))))

    def step(self, recent: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
        """Read one more place (B W D) after the recent ones (B W R D); return the output and what is recent then."""
        seen = torch.cat([recent, x[:, :, None]], dim=2)
        return self.map(seen[:, :, :: self.dilation].flatten(2)), seen[:, :, 1:]


@dataclass(frozen=True)
class ConvolutionCache:
    """A convolutional decoder's state: the last places that each layer has read, and how many there were."""

    length: int
    layers: Sequence[Tensor]  # a layer each: B W R D

    @classmethod
    def empty(cls, convolutions: Sequence[Convolution], widths: Sequence[int], like: Tensor) -> "ConvolutionCache":
        """Return the state before the first token: zeros, as before the first place of a row."""
        empty = [
            like.new_zeros(len(like), 1, one.reach, width) for one, width in zip(convolutions, widths, strict=True)
        ]
        return cls(0, empty)

    def reorder(self, parents: Tensor) -> "ConvolutionCache":
        """Let hypothesis w of sentence b continue hypothesis parents[b, w] (B W)."""
        return ConvolutionCache(self.length, [gather_parents(layer, parents) for layer in self.layers])

    def keep(self, sentences: Tensor) -> "ConvolutionCache":
        """Forget all sentences but the given ones."""
        return ConvolutionCache(self.length, [layer[sentences] for layer in self.layers])


class ConvS2SEncoderLayer(nn.Module):
    """Dropout, a convolution, gates, and the way around them."""

    def __init__(self, config: ConvS2SConfig) -> None:
        super().__init__()
        self.dropout = Dropout(config.dropout)
        self.convolution = Convolution(config.width, 2 * config.width, config.kernel)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        """Let every place (B S D) read its neighbours."""
        return (x + F.glu(self.convolution.convolve_centred(self.dropout(x), mask))) * _SQRT_HALF


class ConvS2SDecoderLayer(nn.Module):
    """Dropout, a convolution that looks back only, gates, a look at the source, and the way around all of it."""

    def __init__(self, config: ConvS2SConfig) -> None:
        super().__init__()
        self.dropout = Dropout(config.dropout)
        self.convolution = Convolution(config.width, 2 * config.width, config.kernel)
        self.query = nn.Linear(config.width, config.width)
        self.score_function = SCORE_FUNCTIONS[config.score](1, config.width)

    def forward(
        self, x: Tensor, word: Tensor, memory: Memory, *, record: bool = False
    ) -> tuple[Tensor, Tensor | None]:  # B T D, and the weights B 1 T S if recorded
        """Let every place (B T D), at which some word stands, read those before it and the source."""
        return self.cross_attention_block(
            x, self.convolution.convolve_causal(self.dropout(x)), word, memory, record=record
        )

    def step(self, x: Tensor, word: Tensor, memory: Memory, recent: Tensor) -> tuple[Tensor, Tensor]:
        """Read one more place of each hypothesis (B W D) after the recent ones (B W R D)."""
        convolved, recent = self.convolution.step(recent, x)
        return self.cross_attention_block(x, convolved, word, memory)[0], recent

    def cross_attention_block(
        self, x: Tensor, convolved: Tensor, word: Tensor, memory: Memory, *, record: bool = False
    ) -> tuple[Tensor, Tensor | None]:
        """Open the gates, look at the source, and join what went around both."""
        gated = F.glu(convolved)
        query = (self.query(gated) + word) * _SQRT_HALF
        key, value = memory.states[:, None].chunk(2, dim=-1)  # B 1 S D
        seen, weights = attend(
            query[:, None], key, value, memory.mask[:, None, None], score_function=self.score_function, record=record
        )
        return (x + (gated + seen[:, 0]) * _SQRT_HALF) * _SQRT_HALF, weights


class ConvS2S(VocabularyModel):
    """ConvS2S; a `Transducer`. Its memory holds [z; z + e] along D: what is compared, and what is read."""

    def __init__(self, config: ConvS2SConfig, source_vocabulary: int, target_vocabulary: int) -> None:
        super().__init__(config, source_vocabulary, target_vocabulary)
        self.source_positions = build_positions(config)
        self.target_positions = build_positions(config)
        self.dropout = Dropout(config.dropout)
        self.encoder_entrance, self.encoder_exit = (nn.Linear(config.width, config.width) for _ in range(2))
        self.decoder_entrance, self.decoder_exit = (nn.Linear(config.width, config.width) for _ in range(2))
        self.encoder = nn.ModuleList(ConvS2SEncoderLayer(config) for _ in range(config.layers))
        self.decoder = nn.ModuleList(ConvS2SDecoderLayer(config) for _ in range(config.decoder_depth))
        _initialise_gated(self, config.dropout)

    def encode(self, source: Source) -> Memory:
        """Read `source` (B S, padded with PAD)."""
        word = self.dropout(
            self.source_embedding(source.values) + self.source_positions(0, source.mask.shape[1])
        )  # B S D
        x = self.encoder_entrance(word)
        for layer in self.encoder:
            x = layer(x, source.mask)
        z = self.encoder_exit(x)
        return Memory(torch.cat([z, (z + word) * _SQRT_HALF], dim=-1), source.mask)  # B S 2D

    def hidden_states(self, prefix: Tensor, memory: Memory) -> Tensor:
        """Return the last hidden vectors (B T D) over `prefix`."""
        return self.run_decoder(prefix, memory)[0]

    def attention_maps(self, source: Source, prefix: Tensor) -> AttentionMaps:
        """Return the weights with which `prefix` reads `source`: one head a layer, and no self-attention."""
        return AttentionMaps([], [], self.run_decoder(prefix, self.encode(source), record=True)[1])

    def run_decoder(self, prefix: Tensor, memory: Memory, *, record: bool = False) -> tuple[Tensor, list[Tensor]]:
        """Run the decoder; the second part holds each layer's weights (B 1 T S) if recorded."""
        memory = _zero_padding(memory)
        word = self.dropout(self.target_embedding(prefix) + self.target_positions(0, prefix.shape[1]))  # B T D
        x = self.decoder_entrance(word)
        recorded: list[Tensor] = []
        for layer in self.decoder:
            x, weights = layer(x, word, memory, record=record)
            recorded += [weights] if record else []
        return self.project_output(x), recorded

    def project_output(self, x: Tensor) -> Tensor:
        """Turn the last layer's vectors into hidden ones."""
        return cast(Tensor, self.dropout(self.decoder_exit(x)))

    def initial_state(self, memory: Memory) -> ConvolutionCache:
        """Return the state before the first token: one empty prefix a sentence."""
        convolutions = [cast(ConvS2SDecoderLayer, layer).convolution for layer in self.decoder]
        return ConvolutionCache.empty(convolutions, [self.output_weight.shape[1]] * len(convolutions), memory.states)

    def step(self, token: Tensor, memory: Memory, state: State) -> tuple[Tensor, ConvolutionCache]:
        """Read one more token of each of W hypotheses (B W); return the logits after it (B W V)."""
        assert isinstance(state, ConvolutionCache), f"this is the state of another model: {type(state)}"
        memory = _zero_padding(memory)
        word = self.target_embedding(token) + self.target_positions(state.length, 1)  # B W D
        x = self.decoder_entrance(word)
        layers: list[Tensor] = []
        for layer, recent in zip(self.decoder, state.layers, strict=True):
            x, recent = cast(ConvS2SDecoderLayer, layer).step(x, word, memory, recent)
            layers.append(recent)
        return self.logits(self.project_output(x)), ConvolutionCache(state.length + 1, layers)


def _zero_padding(memory: Memory) -> Memory:
    """Return a memory with zeros at padding: a weight of zero would not stop a NaN."""
    return Memory(memory.masked_states(), memory.mask)


def _initialise_gated(model: nn.Module, dropout: float) -> None:
    """Draw every matrix so that the variance of what passes stays the same (section 3.5); every bias starts at zero."""
    initialise_weights(model, lambda weight: nn.init.normal_(weight, std=weight.shape[1] ** -0.5))
    with torch.no_grad():
        for module in model.modules():
            if isinstance(module, Convolution):
                module.map.weight.mul_(math.sqrt(_GATE_VARIANCE * (1 - dropout)))
