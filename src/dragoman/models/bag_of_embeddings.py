"""The baseline: a bag of source embeddings and a feed-forward n-gram decoder.

Two kinds of pooling make one vector of a source: the average loses the order of the tokens; concatenation keeps it, but
needs an input layer as wide as the longest source and cuts longer ones. The decoder is the neural n-gram model of
Bengio et al. (2003): hidden layers over that vector and the last k embeddings of the prefix. There is no recurrence, no
attention and no normalisation.

Shapes: B batch, S source positions, T target positions, D width, F inner width, V vocabulary, W beam,
k tokens that the decoder reads (the setting `kernel`).
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from dragoman.model_config import BagOfEmbeddingsConfig
from dragoman.models.layers import ACTIVATIONS, Dropout, VocabularyModel, initialise_weights
from dragoman.models.transducer import AttentionMaps, Memory, Source, State, gather_parents
from dragoman.tokens import PAD

_MAX_CONCATENATED_POSITIONS = 64  # at width 512 the input layer is 32 768 wide


class _AveragePooling(nn.Module):
    """The mean of the source embeddings."""

    def __init__(self, config: BagOfEmbeddingsConfig) -> None:
        super().__init__()
        self.inner = nn.Linear(config.width, config.inner_width)

    def forward(self, states: Tensor, mask: Tensor) -> Tensor:
        """Return the contribution of embeddings (B S D, zeros at padding) to the first hidden layer (B F)."""
        count = mask.sum(dim=1, keepdim=True).clamp(min=1)  # B 1
        return cast(Tensor, self.inner(states.sum(dim=1) / count))


class _ConcatenatePooling(nn.Module):
    """The concatenated source embeddings, cut at `longest` of the config, at most 64."""

    def __init__(self, config: BagOfEmbeddingsConfig) -> None:
        super().__init__()
        self.inner = nn.Linear(min(config.longest, _MAX_CONCATENATED_POSITIONS) * config.width, config.inner_width)

    def forward(self, states: Tensor, mask: Tensor) -> Tensor:  # noqa: ARG002
        """Return the contribution of embeddings (B S D, zeros at padding) to the first hidden layer (B F)."""
        wide = states.flatten(1)[:, : self.inner.in_features]
        return F.linear(wide, self.inner.weight[:, : wide.shape[1]], self.inner.bias)  # missing positions add nothing


_POOLINGS: dict[str, Callable[[BagOfEmbeddingsConfig], nn.Module]] = {
    "average": _AveragePooling,
    "concatenate": _ConcatenatePooling,
}


@dataclass(frozen=True)
class NgramState:
    """The decoder's state: the last tokens, and the contribution of the source."""

    tokens: Tensor  # B W k-1, padded with PAD on the left
    context: Tensor  # B F

    def reorder(self, parents: Tensor) -> "NgramState":
        """Return the state in which hypothesis w of sentence b continues hypothesis parents[b, w] (B W)."""
        return NgramState(gather_parents(self.tokens, parents), self.context)

    def keep(self, sentences: Tensor) -> "NgramState":
        """Return the state of the given sentences."""
        return NgramState(self.tokens[sentences], self.context[sentences])


class BagOfEmbeddings(VocabularyModel):
    """The feed-forward baseline; a `Transducer`."""

    def __init__(self, config: BagOfEmbeddingsConfig, source_vocabulary: int, target_vocabulary: int) -> None:
        super().__init__(config, source_vocabulary, target_vocabulary)
        width, inner = config.width, config.inner_width
        self.ngram_length = config.kernel
        self.pooling = _POOLINGS[config.pooling](config)
        self.recent = nn.Linear(config.kernel * width, inner, bias=False)  # the context has the bias
        self.middle = nn.ModuleList(nn.Linear(inner, inner) for _ in range(config.layers - 1))
        self.outer = nn.Linear(inner, width)
        self.activation = ACTIVATIONS[config.activation]
        self.dropout = Dropout(config.dropout)
        initialise_weights(self, nn.init.kaiming_uniform_)  # made for ReLU

    def encode(self, source: Source) -> Memory:
        """Look up the embeddings of a batch of token ids."""
        return Memory(self.dropout(self.source_embedding(source.values)), source.mask)

    def hidden_states(self, prefix: Tensor, memory: Memory) -> Tensor:
        """Return the last hidden states (B T D) over `prefix` (B T)."""
        windows = F.pad(prefix, (self.ngram_length - 1, 0), value=PAD).unfold(1, self.ngram_length, 1)  # B T k
        return self.run_layers(windows, self.context(memory))

    def initial_state(self, memory: Memory) -> NgramState:
        """Return the state before the first token: one empty hypothesis per sentence."""
        tokens = torch.full((len(memory.mask), 1, self.ngram_length - 1), PAD, device=memory.mask.device)
        return NgramState(tokens, self.context(memory))

    def step(self, token: Tensor, memory: Memory, state: State) -> tuple[Tensor, NgramState]:  # noqa: ARG002
        """Feed one more token to each of W hypotheses (B W); return the logits of the next token (B W V)."""
        assert isinstance(state, NgramState), f"expected NgramState, got {type(state).__name__}"
        window = torch.cat([state.tokens, token[..., None]], dim=-1)  # B W k
        return self.logits(self.run_layers(window, state.context)), NgramState(window[..., 1:], state.context)

    def attention_maps(self, source: Source, prefix: Tensor) -> AttentionMaps:  # noqa: ARG002
        """Return empty lists: there is no attention."""
        return AttentionMaps([], [], [])

    def context(self, memory: Memory) -> Tensor:
        """Return the contribution of the source to each step (B F)."""
        states = memory.masked_states()
        return cast(Tensor, self.pooling(states, memory.mask))

    def run_layers(self, windows: Tensor, context: Tensor) -> Tensor:
        """Return the hidden state (B T D) after each window of tokens (B T k)."""
        words = self.dropout(self.target_embedding(windows)).flatten(2)  # B T kD
        x = self.activation(self.recent(words) + context[:, None])  # B T F
        for layer in self.middle:
            x = self.activation(layer(self.dropout(x)))
        return cast(Tensor, self.outer(self.dropout(x)))
