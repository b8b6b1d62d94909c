"""The floor under all rivals: feed-forward networks that see the source as one vector, and only the last words written.

Two ways to make one vector of a source: `averaged` embeddings lose the order of the words; `concatenated` ones keep
it, but need an input layer as wide as the longest source, and a longer one is cut. The decoder is the neural n-gram
model of Bengio et al. (2003): from that vector and the last k embeddings of the prefix, through hidden layers, to the
next word. Nothing recurs, nothing attends, nothing is normalised; it is what the others must beat.

Shapes: B batch, S source positions, T target positions, D width, F inner width, V vocabulary, W beam,
k words that the decoder reads (the setting `kernel`).
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

_MAX_CONCATENATED_POSITIONS = (
    64  # of the source that are concatenated: at width 512 the input layer is 32 768 wide already
)


class AveragePooling(nn.Module):
    """A source as the mean of its embeddings, whatever their order."""

    def __init__(self, config: BagOfEmbeddingsConfig) -> None:
        super().__init__()
        self.inner = nn.Linear(config.width, config.inner_width)

    def forward(self, states: Tensor, mask: Tensor) -> Tensor:
        """Return what embeddings (B S D, zeros at padding) give to the first hidden layer (B F)."""
        count = mask.sum(dim=1, keepdim=True).clamp(min=1)  # B 1
        return cast(Tensor, self.inner(states.sum(dim=1) / count))


class ConcatenatePooling(nn.Module):
    """A source as its first embeddings side by side: `longest` of the recipe, but 64 at most; the rest is not seen."""

    def __init__(self, config: BagOfEmbeddingsConfig) -> None:
        super().__init__()
        self.inner = nn.Linear(min(config.longest, _MAX_CONCATENATED_POSITIONS) * config.width, config.inner_width)

    def forward(self, states: Tensor, mask: Tensor) -> Tensor:  # noqa: ARG002
        """Return what embeddings (B S D, zeros at padding) give to the first hidden layer (B F)."""
        wide = states.flatten(1)[:, : self.inner.in_features]
        return F.linear(wide, self.inner.weight[:, : wide.shape[1]], self.inner.bias)  # places left empty add nothing


POOLINGS: dict[str, Callable[[BagOfEmbeddingsConfig], nn.Module]] = {
    "average": AveragePooling,
    "concatenate": ConcatenatePooling,
}


@dataclass(frozen=True)
class NgramState:
    """The decoder's state: the words it has read last, and what the source gives to each step."""

    tokens: Tensor  # B W k-1, the first ones PAD while there are fewer
    context: Tensor  # B F

    def reorder(self, parents: Tensor) -> "NgramState":
        """Let hypothesis w of sentence b continue hypothesis parents[b, w] (B W)."""
        return NgramState(gather_parents(self.tokens, parents), self.context)

    def keep(self, sentences: Tensor) -> "NgramState":
        """Forget all sentences but the given ones."""
        return NgramState(self.tokens[sentences], self.context[sentences])


class BagOfEmbeddings(VocabularyModel):
    """A feed-forward translator; a `Transducer`."""

    def __init__(self, config: BagOfEmbeddingsConfig, source_vocabulary: int, target_vocabulary: int) -> None:
        super().__init__(config, source_vocabulary, target_vocabulary)
        width, inner = config.width, config.inner_width
        self.ngram_length = config.kernel
        self.pooling = POOLINGS[config.pooling](config)
        self.recent = nn.Linear(config.kernel * width, inner, bias=False)  # the context brings the bias
        self.middle = nn.ModuleList(nn.Linear(inner, inner) for _ in range(config.layers - 1))
        self.outer = nn.Linear(inner, width)
        self.activation = ACTIVATIONS[config.activation]
        self.dropout = Dropout(config.dropout)
        initialise_weights(self, nn.init.kaiming_uniform_)  # made for what a ReLU cuts off

    def encode(self, source: Source) -> Memory:
        """Look up `source` (B S, padded with PAD)."""
        return Memory(self.dropout(self.source_embedding(source.values)), source.mask)

    def hidden_states(self, prefix: Tensor, memory: Memory) -> Tensor:
        """Return the last hidden vectors (B T D) over `prefix`."""
        windows = F.pad(prefix, (self.ngram_length - 1, 0), value=PAD).unfold(1, self.ngram_length, 1)  # B T k
        return self.run_layers(windows, self.context(memory))

    def initial_state(self, memory: Memory) -> NgramState:
        """Return the state before the first token: one empty prefix a sentence."""
        nothing = torch.full((len(memory.mask), 1, self.ngram_length - 1), PAD, device=memory.mask.device)
        return NgramState(nothing, self.context(memory))

    def step(self, token: Tensor, memory: Memory, state: State) -> tuple[Tensor, NgramState]:  # noqa: ARG002
        """Read one more token of each of W hypotheses (B W); return the logits after it (B W V)."""
        assert isinstance(state, NgramState), f"this is the state of another model: {type(state)}"
        window = torch.cat([state.tokens, token[..., None]], dim=-1)  # B W k
        return self.logits(self.run_layers(window, state.context)), NgramState(window[..., 1:], state.context)

    def attention_maps(self, source: Source, prefix: Tensor) -> AttentionMaps:  # noqa: ARG002
        """Return no weights: nothing attends."""
        return AttentionMaps([], [], [])

    def context(self, memory: Memory) -> Tensor:
        """Return what the source gives to each step (B F)."""
        states = memory.masked_states()
        return cast(Tensor, self.pooling(states, memory.mask))

    def run_layers(self, windows: Tensor, context: Tensor) -> Tensor:
        """Return the hidden vector (B T D) after each window of words (B T k)."""
        words = self.dropout(self.target_embedding(windows)).flatten(2)  # B T kD
        x = self.activation(self.recent(words) + context[:, None])  # B T F
        for layer in self.middle:
            x = self.activation(layer(self.dropout(x)))
        return cast(Tensor, self.outer(self.dropout(x)))
