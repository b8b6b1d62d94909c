"""Recurrent encoder and decoder (LSTM or GRU), with or without attention.

Without attention (score "none") the source is one vector, as in Sutskever et al. (2014) and Cho et al. (2014). With it,
the decoder's top state attends to all states of the encoder (Bahdanau et al. 2015; Luong et al. 2015), and the result
is combined with it as tanh(W [h; c]), Luong's attentional vector. There is no input feeding, so that training runs
PyTorch's own loop over whole targets. Only location-aware attention (score "location") needs a loop over time here.

Shapes: B batch, S source positions, T target positions, D width, V vocabulary, W beam, N sequences of any kind,
L layers, P parts of a cell's state (output and memory of an LSTM, output of a GRU), C channels of the history.
"""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from dragoman.model_config import RecurrentConfig
from dragoman.models.attention import AdditiveScore, ScoreFunction, attend, dot_product, scaled_dot_product
from dragoman.models.layers import Dropout, VocabularyModel, initialise_weights
from dragoman.models.transducer import AttentionMaps, Memory, Source, State, gather_parents

CELLS: dict[str, type[nn.LSTM] | type[nn.GRU]] = {"lstm": nn.LSTM, "gru": nn.GRU}
_STATE_PARTS = {"lstm": 2, "gru": 1}
LOCATION_REACH = 3  # positions to both sides whose earlier weights LocationAttention sees


class _RecurrentLayer(nn.Module):
    """One unidirectional LSTM or GRU layer."""

    def __init__(self, cell: str, input_width: int, width: int) -> None:
        super().__init__()
        self.cell = CELLS[cell](input_width, width, batch_first=True)
        self.state_parts = _STATE_PARTS[cell]
        initialise_cell(self.cell)

    def forward(self, x: Tensor, state: Tensor | None = None) -> Tensor:
        """Return the outputs over whole sequences (N T D), from an initial state (N P D) or zeros."""
        with _cell_autocast(x.device):
            x = x.to(next(self.cell.parameters()).dtype)
            if state is None:
                return cast(Tensor, self.cell(x)[0])
            parts = state.to(x.dtype).transpose(0, 1).contiguous()[:, None]  # P 1 N D
            return cast(Tensor, self.cell(x, tuple(parts) if self.state_parts == 2 else parts[0])[0])

    def step(self, x: Tensor, state: Tensor) -> Tensor:
        """Return the state (N P D) after one more input of each sequence (N D)."""
        weights = [getattr(self.cell, name) for name in ("weight_ih_l0", "weight_hh_l0", "bias_ih_l0", "bias_hh_l0")]
        if self.state_parts == 2:
            return torch.stack(torch.lstm_cell(x, state.unbind(1), *weights), dim=1)
        return torch.gru_cell(x, state[:, 0], *weights)[:, None]


def _cell_autocast(device: torch.device) -> AbstractContextManager[object]:
    """Disable autocast to bfloat16 where PyTorch cannot compute its cells in it: on CPUs without AVX-512."""
    able = device.type != "cpu" or torch.ops.mkldnn._is_mkldnn_bf16_supported()
    return nullcontext() if able else torch.autocast("cpu", enabled=False)


class _BidirectionalLayer(nn.Module):
    """One encoder layer: half of the width in each direction (of an odd width, one more left to right)."""

    def __init__(self, cell: str, width: int) -> None:
        super().__init__()
        self.left_to_right = _RecurrentLayer(cell, width, width - width // 2)
        self.right_to_left = _RecurrentLayer(cell, width, width // 2)

    def forward(self, x: Tensor, reversal: Tensor) -> Tensor:
        """Return the outputs over B S D; `reversal` (BS) is the index of `reversal_index`."""
        return torch.cat(
            [self.left_to_right(x), reverse_sentences(self.right_to_left(reverse_sentences(x, reversal)), reversal)],
            dim=-1,
        )


def reversal_index(mask: Tensor) -> Tensor:
    """Return the index (BS) that reverses every sentence within its own length.

    Padding stays behind a reversed sentence, so that the backward direction never reads it first.
    """
    batch, longest = mask.shape
    positions = torch.arange(longest, device=mask.device)
    within = torch.where(mask, mask.sum(dim=1, keepdim=True) - 1 - positions, positions)  # B S
    return (within + longest * torch.arange(batch, device=mask.device)[:, None]).flatten()


def reverse_sentences(x: Tensor, reversal: Tensor) -> Tensor:
    """Return sentences (B S D) reversed by `reversal` (BS); applied twice it is the identity."""
    return x.flatten(0, 1).index_select(0, reversal).view(x.shape)  # whole rows: far faster than `gather`


class ContentAttention(nn.Module):
    """Attention by content: decoder states are compared with encoder states, both projected or as they are."""

    def __init__(self, query: nn.Module, key: nn.Module, score_function: ScoreFunction) -> None:
        super().__init__()
        self.query = query
        self.key = key
        self.score_function = score_function

    def forward(
        self, query_source: Tensor, keys: Tensor, values: Tensor, mask: Tensor, *, record: bool = False
    ) -> tuple[Tensor, Tensor | None]:  # B T D, and the weights B 1 T S if recorded
        """Attend from decoder states (B T D) to keys and values (B S D) where the mask (B S) allows it."""
        query = self.query(query_source)[:, None]  # B 1 T D: one head
        context, weights = attend(
            query,
            keys[:, None],
            values[:, None],
            mask[:, None, None],
            score_function=self.score_function,
            record=record,
        )
        return context[:, 0], weights

    def initial_history(self, keys: Tensor) -> Tensor:
        """Return an empty history: this attention does not use one."""
        return _empty_history(keys)

    def step(
        self, query_source: Tensor, keys: Tensor, values: Tensor, mask: Tensor, history: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Attend from one more state of W hypotheses (B W D); return the outputs (B W D) and the new history."""
        return self(query_source, keys, values, mask)[0], history


class LocationAttention(nn.Module):
    """Location-aware additive attention: it also sees the previous weights and the sum of all earlier ones.

    The former is of Chorowski et al. (2015, arXiv 1506.07503), the latter, coverage, of Tu et al. (2016, arXiv
    1601.04811).
    """

    def __init__(self, width: int) -> None:
        super().__init__()
        self.query = nn.Linear(width, width)
        self.key = _linear_without_bias(width)
        self.location = nn.Linear(2 * (2 * LOCATION_REACH + 1), width, bias=False)
        self.direction = nn.Linear(width, 1, bias=False)

    def forward(
        self, query_source: Tensor, keys: Tensor, values: Tensor, mask: Tensor, *, record: bool = False
    ) -> tuple[Tensor, Tensor | None]:  # B T D, and the weights B 1 T S if recorded
        """Attend from decoder states (B T D), one after the other, to keys and values where the mask allows it."""
        history = self.initial_history(keys)
        steps = []
        for query in self.query(query_source).split(1, dim=1):
            steps.append(self.attention_weights(query, keys, mask, history))  # B 1 S
            history = _extend_history(history, steps[-1])
        weights = torch.cat(steps, dim=1)  # B T S
        return weights @ values, weights[:, None] if record else None

    def initial_history(self, keys: Tensor) -> Tensor:
        """Return the history before the first step (B 1 2 S): zeros."""
        return keys.new_zeros(len(keys), 1, 2, keys.shape[1])

    def step(
        self, query_source: Tensor, keys: Tensor, values: Tensor, mask: Tensor, history: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Attend from one more state of W hypotheses (B W D); return the outputs (B W D) and the new history."""
        weights = self.attention_weights(self.query(query_source), keys, mask, history)  # B W S
        return weights @ values, _extend_history(history, weights)

    def attention_weights(self, query: Tensor, keys: Tensor, mask: Tensor, history: Tensor) -> Tensor:
        """Return the weights (B N S) of queries (B N D) with a history (B N 2 S)."""
        around = F.pad(history, (LOCATION_REACH, LOCATION_REACH)).unfold(-1, 2 * LOCATION_REACH + 1, 1)  # B N 2 S R
        locations = self.location(around.transpose(2, 3).flatten(3))  # B N S D
        scores = self.direction(torch.tanh(query[:, :, None] + keys[:, None] + locations))[..., 0]  # B N S
        hidden = ~mask[:, None]
        weights = scores.masked_fill(hidden, torch.finfo(scores.dtype).min).softmax(dim=-1)
        return cast(Tensor, weights.masked_fill(hidden, 0.0))  # also for a source without tokens


def _empty_history(keys: Tensor) -> Tensor:
    """Return a history without channels (B 1 0 S)."""
    return keys.new_zeros(len(keys), 1, 0, keys.shape[1])


def _extend_history(history: Tensor, weights: Tensor) -> Tensor:
    """Return the history (B N 2 S) after one more step of weights (B N S): these weights and the sum of all."""
    return torch.stack([weights, history[:, :, 1] + weights], dim=2)


# Luong's two compare states as they are, or by one matrix; Bahdanau's and the Transformer's project both sides. States
# are far below one: scaled and without a projection, all positions would have nearly equal weights for a long time.
ATTENTIONS: dict[str, Callable[[int], ContentAttention | LocationAttention]] = {  # by width
    "additive": lambda width: ContentAttention(
        nn.Linear(width, width), _linear_without_bias(width), AdditiveScore(1, width)
    ),
    "dot": lambda _: ContentAttention(nn.Identity(), nn.Identity(), dot_product),
    "general": lambda width: ContentAttention(nn.Identity(), _linear_without_bias(width), dot_product),
    "location": LocationAttention,
    "scaled_dot": lambda width: ContentAttention(
        nn.Linear(width, width), _linear_without_bias(width), scaled_dot_product
    ),
}


def _linear_without_bias(width: int) -> nn.Linear:
    """Return a square linear map without bias, which a softmax over positions would cancel."""
    return nn.Linear(width, width, bias=False)


@dataclass(frozen=True)
class SourceContext:
    """The source as every decoder step uses it."""

    keys: Tensor  # B S D
    values: Tensor  # B S D
    mask: Tensor  # B S
    context: Tensor  # B D, the whole source in one vector

    def keep(self, sentences: Tensor) -> "SourceContext":
        """Return the state of the given sentences."""
        return SourceContext(*(part[sentences] for part in vars(self).values()))


@dataclass(frozen=True)
class RecurrentState:
    """The decoder's state: the cells of each layer and hypothesis, the attention history and the source."""

    cells: Tensor  # B W L P D
    history: Tensor  # B W C S, the attention history
    source: SourceContext

    def reorder(self, parents: Tensor) -> "RecurrentState":
        """Return the state in which hypothesis w of sentence b continues hypothesis parents[b, w] (B W)."""
        return RecurrentState(gather_parents(self.cells, parents), gather_parents(self.history, parents), self.source)

    def keep(self, sentences: Tensor) -> "RecurrentState":
        """Return the state of the given sentences."""
        return RecurrentState(self.cells[sentences], self.history[sentences], self.source.keep(sentences))


class Recurrent(VocabularyModel):
    """The recurrent encoder–decoder; a `Transducer`."""

    def __init__(self, config: RecurrentConfig, source_vocabulary: int, target_vocabulary: int) -> None:
        super().__init__(config, source_vocabulary, target_vocabulary)
        width = config.width
        self.dropout = Dropout(config.dropout)
        self.encoder = nn.ModuleList(_BidirectionalLayer(config.cell, width) for _ in range(config.layers))
        self.decoder = nn.ModuleList(_RecurrentLayer(config.cell, width, width) for _ in range(config.decoder_depth))
        self.bridge = nn.Linear(width, config.decoder_depth * _STATE_PARTS[config.cell] * width)
        self.cross_attention = None if config.score == "none" else ATTENTIONS[config.score](width)
        self.feed = _linear_without_bias(width) if self.cross_attention is None else None
        self.join = nn.Linear(2 * width, width)
        initialise_weights(self)

    def encode(self, source: Source) -> Memory:
        """Encode a batch of token ids."""
        reversal = reversal_index(source.mask)
        x = self.source_embedding(source.values)  # B S D
        for layer in self.encoder:
            x = layer(self.dropout(x), reversal)
        return Memory(x, source.mask)

    def hidden_states(self, prefix: Tensor, memory: Memory) -> Tensor:
        """Return the last hidden states (B T D) over `prefix` (B T)."""
        return self.run_decoder(prefix, memory)[0]

    def attention_maps(self, source: Source, prefix: Tensor) -> AttentionMaps:
        """Return the cross-attention weights, if the model attends; there is no self-attention."""
        _, weights = self.run_decoder(prefix, self.encode(source), record=True)
        return AttentionMaps([], [], [] if weights is None else [weights])

    def run_decoder(self, prefix: Tensor, memory: Memory, *, record: bool = False) -> tuple[Tensor, Tensor | None]:
        """Return the hidden states and, if the model attends and they are recorded, the weights (B 1 T S)."""
        source = self.prepare_source(memory)
        x = self.decoder_input(prefix, source)  # B T D
        for layer, cell in zip(self.decoder, self.initial_cells(source).unbind(1), strict=True):
            x = layer(self.dropout(x), cell)
        if self.cross_attention is None:
            return self.attentional_vector(x, self.repeat_context(x, source)), None
        context, weights = self.cross_attention(x, source.keys, source.values, source.mask, record=record)
        return self.attentional_vector(x, context), weights

    def initial_state(self, memory: Memory) -> RecurrentState:
        """Return the state before the first token: one empty hypothesis per sentence."""
        source = self.prepare_source(memory)
        history = (
            _empty_history(source.keys)
            if self.cross_attention is None
            else self.cross_attention.initial_history(source.keys)
        )
        return RecurrentState(self.initial_cells(source)[:, None], history, source)

    def step(self, token: Tensor, memory: Memory, state: State) -> tuple[Tensor, RecurrentState]:  # noqa: ARG002
        """Feed one more token to each of W hypotheses (B W); return the logits of the next token (B W V)."""
        assert isinstance(state, RecurrentState), f"expected RecurrentState, got {type(state).__name__}"
        x = self.decoder_input(token, state.source).flatten(0, 1)  # BW D
        after: list[Tensor] = []
        for layer, cell in zip(self.decoder, state.cells.flatten(0, 1).unbind(1), strict=True):
            after.append(cast(_RecurrentLayer, layer).step(x, cell))  # BW P D
            x = after[-1][:, 0]
        cells = torch.stack(after, dim=1).view(state.cells.shape)  # B W L P D
        top, source, history = x.view(*token.shape, -1), state.source, state.history
        if self.cross_attention is None:
            context = self.repeat_context(top, source)
        else:
            context, history = self.cross_attention.step(top, source.keys, source.values, source.mask, history)
        return self.logits(self.attentional_vector(top, context)), RecurrentState(cells, history, source)

    def prepare_source(self, memory: Memory) -> SourceContext:
        """Return keys, values and context of the source, with zeros at padding."""
        states = memory.masked_states()
        keys = states if self.cross_attention is None else self.cross_attention.key(states)
        return SourceContext(keys, states, memory.mask, _final_states(states, memory.mask))

    def initial_cells(self, source: SourceContext) -> Tensor:
        """Return the initial cell states (B L P D) of the decoder's layers."""
        first = torch.tanh(self.bridge(source.context))
        return first.view(len(first), len(self.decoder), -1, source.context.shape[1])

    def decoder_input(self, tokens: Tensor, source: SourceContext) -> Tensor:
        """Return the input of the lowest layer (B T D); without attention it includes the context."""
        x = self.target_embedding(tokens)
        return cast(Tensor, x if self.feed is None else x + self.feed(source.context)[:, None])

    def repeat_context(self, top: Tensor, source: SourceContext) -> Tensor:
        """Return the context for every top state (B T D), used without attention."""
        return source.context[:, None].expand_as(top)

    def attentional_vector(self, top: Tensor, context: Tensor) -> Tensor:
        """Return Luong's attentional vector of top states and contexts (B T D each)."""
        return cast(Tensor, self.dropout(torch.tanh(self.join(torch.cat([top, context], dim=-1)))))


def _final_states(states: Tensor, mask: Tensor) -> Tensor:
    """Return the final states of both directions (B D): the last of left to right, the first of right to left."""
    onward = states.shape[-1] - states.shape[-1] // 2
    last = (mask.sum(dim=1) - 1).clamp(min=0)  # B
    sentence = torch.arange(len(states), device=states.device)
    return torch.cat([states[sentence, last, :onward], states[:, 0, onward:]], dim=-1)


def initialise_cell(cell: nn.LSTM | nn.GRU) -> None:
    """Initialise each gate as a matrix of its own.

    The second gate is the forget gate of an LSTM or the update gate of a GRU. Its bias starts at one, so that gradients
    reach far back from the beginning (Jozefowicz et al. 2015).
    """
    with torch.no_grad():
        for name, parameter in cell.named_parameters():
            for number, gate in enumerate(parameter.view(-1, cell.hidden_size, *parameter.shape[1:])):
                if name.startswith("bias"):
                    gate.fill_(1.0 if number == 1 and name.startswith("bias_ih") else 0.0)
                elif name.startswith("weight_ih"):
                    nn.init.xavier_uniform_(gate)
                else:
                    nn.init.orthogonal_(gate)
