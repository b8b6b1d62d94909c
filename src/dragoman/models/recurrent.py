"""The recurrent rival: an encoder that reads both ways, a decoder that reads on, with or without attention between.

Without attention (score "none") the whole source is squeezed into one vector, as in Sutskever et al. (2014) and Cho
et al. (2014). With it, the decoder's top state is compared with every state of the encoder (Bahdanau et al. 2015;
Luong et al. 2015), and what it finds is joined to it as tanh(W [h; c]), Luong's attentional vector. That vector is not
fed back into the next step (no input feeding): so a whole target is read at once in training, by torch's own loop over
time. Only a decoder that remembers where it has looked (score "location") looks in a loop of our own.

Shapes: B batch, S source positions, T target positions, D width, V vocabulary, W beam, N sequences of any kind,
L layers, P parts of a cell's state (an LSTM's output and memory, a GRU's output), C and R what a `LookOn` remembers and
how many places of it around one it sees.
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
LOCATION_REACH = 3  # places to both sides of one whose looks a `LookOn` sees


class RecurrentLayer(nn.Module):
    """One layer that reads from left to right, by an LSTM or a GRU."""

    def __init__(self, cell: str, input_width: int, width: int) -> None:
        super().__init__()
        self.cell = CELLS[cell](input_width, width, batch_first=True)
        self.state_parts = _STATE_PARTS[cell]
        initialise_cell(self.cell)

    def forward(self, x: Tensor, state: Tensor | None = None) -> Tensor:
        """Read whole sequences (N T D) from the state before them (N P D), from nothing if there is none."""
        with _cell_autocast(x.device):
            x = x.to(next(self.cell.parameters()).dtype)
            if state is None:
                return cast(Tensor, self.cell(x)[0])
            parts = state.to(x.dtype).transpose(0, 1).contiguous()[:, None]  # P 1 N D
            return cast(Tensor, self.cell(x, tuple(parts) if self.state_parts == 2 else parts[0])[0])

    def step(self, x: Tensor, state: Tensor) -> Tensor:
        """Read one more vector of each sequence (N D) in its state (N P D); return the state after it."""
        weights = [getattr(self.cell, name) for name in ("weight_ih_l0", "weight_hh_l0", "bias_ih_l0", "bias_hh_l0")]
        if self.state_parts == 2:
            return torch.stack(torch.lstm_cell(x, state.unbind(1), *weights), dim=1)
        return torch.gru_cell(x, state[:, 0], *weights)[:, None]


def _cell_autocast(device: torch.device) -> AbstractContextManager[object]:
    """Leave bfloat16, if it is asked for, where torch cannot compute its cells in it: without AVX-512."""
    able = device.type != "cpu" or torch.ops.mkldnn._is_mkldnn_bf16_supported()
    return nullcontext() if able else torch.autocast("cpu", enabled=False)


class BidirectionalLayer(nn.Module):
    """One layer of the encoder: half of the width reads onward, the other half backward; an odd one goes onward."""

    def __init__(self, cell: str, width: int) -> None:
        super().__init__()
        self.left_to_right = RecurrentLayer(cell, width, width - width // 2)
        self.right_to_left = RecurrentLayer(cell, width, width // 2)

    def forward(self, x: Tensor, reversal: Tensor) -> Tensor:
        """Read sentences (B S D); `turn` (BS) says where each place of the turned sentences comes from."""
        return torch.cat(
            [self.left_to_right(x), reverse_sentences(self.right_to_left(reverse_sentences(x, reversal)), reversal)],
            dim=-1,
        )


def reversal_index(mask: Tensor) -> Tensor:
    """Return where each of all places (BS) comes from when every sentence is turned within its own length.

    What reads a turned sentence onward has read it backward, and never meets the padding, which stays behind it.
    """
    batch, longest = mask.shape
    place = torch.arange(longest, device=mask.device)
    within = torch.where(mask, mask.sum(dim=1, keepdim=True) - 1 - place, place)  # B S
    return (within + longest * torch.arange(batch, device=mask.device)[:, None]).flatten()


def reverse_sentences(x: Tensor, reversal: Tensor) -> Tensor:
    """Return sentences (B S D) with their places taken as `turn` (BS) says; a second time turns them back."""
    return x.flatten(0, 1).index_select(0, reversal).view(x.shape)  # whole rows: far faster than `gather`


class ContentAttention(nn.Module):
    """How a state of the decoder is compared with those of the encoder: as they are, or projected first."""

    def __init__(self, query: nn.Module, key: nn.Module, score_function: ScoreFunction) -> None:
        super().__init__()
        self.query = query
        self.key = key
        self.score_function = score_function

    def forward(
        self, query_source: Tensor, keys: Tensor, values: Tensor, mask: Tensor, *, record: bool = False
    ) -> tuple[Tensor, Tensor | None]:  # B T D, and the weights B 1 T S if recorded
        """Let each of `looking` (B T D) look at the source's keys and values (B S D) where the mask (B S) allows."""
        query = self.query(query_source)[:, None]  # B 1 T D: one head
        places = mask[:, None, None]
        seen, weights = attend(
            query, keys[:, None], values[:, None], places, score_function=self.score_function, record=record
        )
        return seen[:, 0], weights

    def initial_history(self, keys: Tensor) -> Tensor:
        """Return what is remembered before the first look: of looks like these nothing ever is."""
        return _empty_history(keys)

    def step(
        self, query_source: Tensor, keys: Tensor, values: Tensor, mask: Tensor, history: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Let W hypotheses (B W D) look once more; return what each sees (B W D), and what is remembered then."""
        return self(query_source, keys, values, mask)[0], history


class LocationAttention(nn.Module):
    """A `Look` by a small network that also sees where the one before went, and all before it together.

    Chorowski et al. (2015, arXiv 1506.07503) have the former, Tu et al. (2016, arXiv 1601.04811) the latter. A state of
    the encoder tells what stands somewhere; these tell that it is next, or that it was skipped, or read already.
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
        """Let `looking` (B T D), one after the other, look at the source's keys and values where the mask allows."""
        looked = self.initial_history(keys)
        found = []
        for query in self.query(query_source).split(1, dim=1):
            found.append(self.attention_weights(query, keys, mask, looked))  # B 1 S
            looked = _extend_history(looked, found[-1])
        weights = torch.cat(found, dim=1)  # B T S
        return weights @ values, weights[:, None] if record else None

    def initial_history(self, keys: Tensor) -> Tensor:
        """Return what is remembered before the first look (B 1 2 S): none has gone anywhere."""
        return keys.new_zeros(len(keys), 1, 2, keys.shape[1])

    def step(
        self, query_source: Tensor, keys: Tensor, values: Tensor, mask: Tensor, history: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Let W hypotheses (B W D) look once more; return what each sees (B W D), and what is remembered then."""
        weights = self.attention_weights(self.query(query_source), keys, mask, history)  # B W S
        return weights @ values, _extend_history(history, weights)

    def attention_weights(self, query: Tensor, keys: Tensor, mask: Tensor, history: Tensor) -> Tensor:
        """Return where queries (B N D) look (B N S) that remember where they have looked (B N 2 S)."""
        around = F.pad(history, (LOCATION_REACH, LOCATION_REACH)).unfold(-1, 2 * LOCATION_REACH + 1, 1)  # B N 2 S R
        places = self.location(around.transpose(2, 3).flatten(3))  # B N S D
        scores = self.direction(torch.tanh(query[:, :, None] + keys[:, None] + places))[..., 0]  # B N S
        hidden = ~mask[:, None]
        weights = scores.masked_fill(hidden, torch.finfo(scores.dtype).min).softmax(dim=-1)
        return cast(Tensor, weights.masked_fill(hidden, 0.0))  # in a sentence that is all padding, too


def _empty_history(keys: Tensor) -> Tensor:
    """Return the memory of one hypothesis a sentence that never remembers where it looked (B 1 0 S)."""
    return keys.new_zeros(len(keys), 1, 0, keys.shape[1])


def _extend_history(history: Tensor, weights: Tensor) -> Tensor:
    """Return what is remembered (B N 2 S) after one more look (B N S): the look itself, and the sum of all."""
    return torch.stack([weights, history[:, :, 1] + weights], dim=2)


# Luong's two compare states as they are, or by one matrix; Bahdanau's and the Transformer's project both sides.
# States are far below one: scaled without a projection, they would weigh all places nearly alike for a long time.
ATTENTIONS: dict[str, Callable[[int], ContentAttention | LocationAttention]] = {  # of a width
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
    """Return a square matrix without a bias, to which a softmax over places would be blind."""
    return nn.Linear(width, width, bias=False)


@dataclass(frozen=True)
class SourceContext:
    """What the decoder reads of the source at every step."""

    keys: Tensor  # B S D
    values: Tensor  # B S D
    mask: Tensor  # B S
    context: Tensor  # B D, all of the source in one vector

    def keep(self, sentences: Tensor) -> "SourceContext":
        """Forget all sentences but the given ones."""
        return SourceContext(*(part[sentences] for part in vars(self).values()))


@dataclass(frozen=True)
class RecurrentState:
    """The decoder's state: where each layer stands in each hypothesis, and what it reads of the source."""

    cells: Tensor  # B W L P D
    history: Tensor  # B W C S, what each remembers of where it has looked, if anything
    source: SourceContext

    def reorder(self, parents: Tensor) -> "RecurrentState":
        """Let hypothesis w of sentence b continue hypothesis parents[b, w] (B W)."""
        return RecurrentState(gather_parents(self.cells, parents), gather_parents(self.history, parents), self.source)

    def keep(self, sentences: Tensor) -> "RecurrentState":
        """Forget all sentences but the given ones."""
        return RecurrentState(self.cells[sentences], self.history[sentences], self.source.keep(sentences))


class Recurrent(VocabularyModel):
    """The recurrent encoder–decoder; a `Transducer`."""

    def __init__(self, config: RecurrentConfig, source_vocabulary: int, target_vocabulary: int) -> None:
        super().__init__(config, source_vocabulary, target_vocabulary)
        width = config.width
        self.dropout = Dropout(config.dropout)
        self.encoder = nn.ModuleList(BidirectionalLayer(config.cell, width) for _ in range(config.layers))
        self.decoder = nn.ModuleList(RecurrentLayer(config.cell, width, width) for _ in range(config.decoder_depth))
        self.bridge = nn.Linear(width, config.decoder_depth * _STATE_PARTS[config.cell] * width)
        self.cross_attention = None if config.score == "none" else ATTENTIONS[config.score](width)
        self.feed = _linear_without_bias(width) if self.cross_attention is None else None
        self.join = nn.Linear(2 * width, width)
        initialise_weights(self)

    def encode(self, source: Source) -> Memory:
        """Read `source` (B S, padded with PAD)."""
        turn = reversal_index(source.mask)
        x = self.source_embedding(source.values)  # B S D
        for layer in self.encoder:
            x = layer(self.dropout(x), turn)
        return Memory(x, source.mask)

    def hidden_states(self, prefix: Tensor, memory: Memory) -> Tensor:
        """Return the last hidden vectors (B T D) over `prefix`."""
        return self.run_decoder(prefix, memory)[0]

    def attention_maps(self, source: Source, prefix: Tensor) -> AttentionMaps:
        """Return the weights with which `source` is read; recurrence has none of its own."""
        _, weights = self.run_decoder(prefix, self.encode(source), record=True)
        return AttentionMaps([], [], [] if weights is None else [weights])

    def run_decoder(self, prefix: Tensor, memory: Memory, *, record: bool = False) -> tuple[Tensor, Tensor | None]:
        """Run the decoder; the second part holds the weights (B 1 T S) if it attends and they are recorded."""
        reading = self.prepare_source(memory)
        x = self.decoder_input(prefix, reading)  # B T D
        for layer, before in zip(self.decoder, self.initial_cells(reading).unbind(1), strict=True):
            x = layer(self.dropout(x), before)
        if self.cross_attention is None:
            return self.attentional_vector(x, self.repeat_context(x, reading)), None
        seen, weights = self.cross_attention(x, reading.keys, reading.values, reading.mask, record=record)
        return self.attentional_vector(x, seen), weights

    def initial_state(self, memory: Memory) -> RecurrentState:
        """Return the state before the first token: one empty prefix a sentence."""
        reading = self.prepare_source(memory)
        looked = (
            _empty_history(reading.keys)
            if self.cross_attention is None
            else self.cross_attention.initial_history(reading.keys)
        )
        return RecurrentState(self.initial_cells(reading)[:, None], looked, reading)

    def step(self, token: Tensor, memory: Memory, state: State) -> tuple[Tensor, RecurrentState]:  # noqa: ARG002
        """Read one more token of each of W hypotheses (B W); return the logits after it (B W V)."""
        assert isinstance(state, RecurrentState), f"this is the state of another model: {type(state)}"
        x = self.decoder_input(token, state.source).flatten(0, 1)  # BW D
        after: list[Tensor] = []
        for layer, before in zip(self.decoder, state.cells.flatten(0, 1).unbind(1), strict=True):
            after.append(cast(RecurrentLayer, layer).step(x, before))  # BW P D
            x = after[-1][:, 0]
        carried = torch.stack(after, dim=1).view(state.cells.shape)  # B W L P D
        top, reading, looked = x.view(*token.shape, -1), state.source, state.history
        if self.cross_attention is None:
            seen = self.repeat_context(top, reading)
        else:
            seen, looked = self.cross_attention.step(top, reading.keys, reading.values, reading.mask, looked)
        return self.logits(self.attentional_vector(top, seen)), RecurrentState(carried, looked, reading)

    def prepare_source(self, memory: Memory) -> SourceContext:
        """Prepare what the decoder reads of the source. What stands at padding is never looked at."""
        states = memory.masked_states()
        keys = states if self.cross_attention is None else self.cross_attention.key(states)
        return SourceContext(keys, states, memory.mask, _final_states(states, memory.mask))

    def initial_cells(self, source: SourceContext) -> Tensor:
        """Return the state (B L P D) in which the decoder's layers begin."""
        first = torch.tanh(self.bridge(source.context))
        return first.view(len(first), len(self.decoder), -1, source.context.shape[1])

    def decoder_input(self, tokens: Tensor, source: SourceContext) -> Tensor:
        """Return what the lowest layer reads (B T D); without attention the one context goes in at every step."""
        x = self.target_embedding(tokens)
        return cast(Tensor, x if self.feed is None else x + self.feed(source.context)[:, None])

    def repeat_context(self, top: Tensor, source: SourceContext) -> Tensor:
        """Return what top states (B T D) see that do not look: all of the source in one vector, always the same."""
        return source.context[:, None].expand_as(top)

    def attentional_vector(self, top: Tensor, context: Tensor) -> Tensor:
        """Join to each top state (B T D) what it has seen of the source (B T D)."""
        return cast(Tensor, self.dropout(torch.tanh(self.join(torch.cat([top, context], dim=-1)))))


def _final_states(states: Tensor, mask: Tensor) -> Tensor:
    """Return both ends of each sentence (B D): the last state read onward, the first read backward.

    These are what each direction of an encoder's top layer says after all of the source; an empty one gives zeros.
    """
    onward = states.shape[-1] - states.shape[-1] // 2
    last = (mask.sum(dim=1) - 1).clamp(min=0)  # B
    sentence = torch.arange(len(states), device=states.device)
    return torch.cat([states[sentence, last, :onward], states[:, 0, onward:]], dim=-1)


def initialise_cell(cell: nn.LSTM | nn.GRU) -> None:
    """Initialise one gate after the other, as each is a matrix of its own.

    The second is the one that keeps, an LSTM's forget gate and a GRU's update gate: its bias begins at one, so that
    errors reach far back from the first step on (Jozefowicz et al. 2015).
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
