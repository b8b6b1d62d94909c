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

from dragoman.model.attention import Additive, Compare, attend, dot, scaled_dot
from dragoman.model.layers import Dropout, initialise, vocabularies_of
from dragoman.model.transducer import Attention, Memory, State, inherited
from dragoman.recipe import Model
from dragoman.tokens import PAD

CELLS: dict[str, type[nn.LSTM] | type[nn.GRU]] = {"lstm": nn.LSTM, "gru": nn.GRU}
PARTS = {"lstm": 2, "gru": 1}
REACH = 3  # places to both sides of one whose looks a `LookOn` sees


class Recurrence(nn.Module):
    """One layer that reads from left to right, by an LSTM or a GRU."""

    def __init__(self, cell: str, entering: int, width: int) -> None:
        super().__init__()
        self.cell = CELLS[cell](entering, width, batch_first=True)
        self.parts = PARTS[cell]
        initialise_cell(self.cell)

    def forward(self, x: Tensor, before: Tensor | None = None) -> Tensor:
        """Read whole sequences (N T D) from the state before them (N P D), from nothing if there is none."""
        with computable(x.device):
            x = x.to(next(self.cell.parameters()).dtype)
            if before is None:
                return cast(Tensor, self.cell(x)[0])
            parts = before.to(x.dtype).transpose(0, 1).contiguous()[:, None]  # P 1 N D
            return cast(Tensor, self.cell(x, tuple(parts) if self.parts == 2 else parts[0])[0])

    def step(self, x: Tensor, before: Tensor) -> Tensor:
        """Read one more vector of each sequence (N D) in its state (N P D); return the state after it."""
        weights = [getattr(self.cell, name) for name in ("weight_ih_l0", "weight_hh_l0", "bias_ih_l0", "bias_hh_l0")]
        if self.parts == 2:
            return torch.stack(torch.lstm_cell(x, before.unbind(1), *weights), dim=1)
        return torch.gru_cell(x, before[:, 0], *weights)[:, None]


def computable(device: torch.device) -> AbstractContextManager[object]:
    """Leave bfloat16, if it is asked for, where torch cannot compute its cells in it: without AVX-512."""
    able = device.type != "cpu" or torch.ops.mkldnn._is_mkldnn_bf16_supported()
    return nullcontext() if able else torch.autocast("cpu", enabled=False)


class BothWays(nn.Module):
    """One layer of the encoder: half of the width reads onward, the other half backward; an odd one goes onward."""

    def __init__(self, cell: str, width: int) -> None:
        super().__init__()
        self.onward = Recurrence(cell, width, width - width // 2)
        self.backward = Recurrence(cell, width, width // 2)

    def forward(self, x: Tensor, turn: Tensor) -> Tensor:
        """Read sentences (B S D); `turn` (BS) says where each place of the turned sentences comes from."""
        return torch.cat([self.onward(x), turned(self.backward(turned(x, turn)), turn)], dim=-1)


def turn_of(mask: Tensor) -> Tensor:
    """Return where each of all places (BS) comes from when every sentence is turned within its own length.

    What reads a turned sentence onward has read it backward, and never meets the padding, which stays behind it.
    """
    batch, longest = mask.shape
    place = torch.arange(longest, device=mask.device)
    within = torch.where(mask, mask.sum(dim=1, keepdim=True) - 1 - place, place)  # B S
    return (within + longest * torch.arange(batch, device=mask.device)[:, None]).flatten()


def turned(x: Tensor, turn: Tensor) -> Tensor:
    """Return sentences (B S D) with their places taken as `turn` (BS) says; a second time turns them back."""
    return x.flatten(0, 1).index_select(0, turn).view(x.shape)  # whole rows: far faster than `gather`


class Look(nn.Module):
    """How a state of the decoder is compared with those of the encoder: as they are, or projected first."""

    def __init__(self, query: nn.Module, key: nn.Module, compare: Compare) -> None:
        super().__init__()
        self.query = query
        self.key = key
        self.compare = compare

    def forward(
        self, looking: Tensor, keys: Tensor, values: Tensor, mask: Tensor, *, record: bool = False
    ) -> tuple[Tensor, Tensor | None]:  # B T D, and the weights B 1 T S if recorded
        """Let each of `looking` (B T D) look at the source's keys and values (B S D) where the mask (B S) allows."""
        query = self.query(looking)[:, None]  # B 1 T D: one head
        places = mask[:, None, None]
        seen, weights = attend(query, keys[:, None], values[:, None], places, compare=self.compare, record=record)
        return seen[:, 0], weights

    def unlooked(self, keys: Tensor) -> Tensor:
        """Return what is remembered before the first look: of looks like these nothing ever is."""
        return nothing(keys)

    def again(
        self, looking: Tensor, keys: Tensor, values: Tensor, mask: Tensor, looked: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Let W hypotheses (B W D) look once more; return what each sees (B W D), and what is remembered then."""
        return self(looking, keys, values, mask)[0], looked


class LookOn(nn.Module):
    """A `Look` by a small network that also sees where the one before went, and all before it together.

    Chorowski et al. (2015, arXiv 1506.07503) have the former, Tu et al. (2016, arXiv 1601.04811) the latter. A state of
    the encoder tells what stands somewhere; these tell that it is next, or that it was skipped, or read already.
    """

    def __init__(self, width: int) -> None:
        super().__init__()
        self.query = nn.Linear(width, width)
        self.key = plain(width)
        self.place = nn.Linear(2 * (2 * REACH + 1), width, bias=False)
        self.direction = nn.Linear(width, 1, bias=False)

    def forward(
        self, looking: Tensor, keys: Tensor, values: Tensor, mask: Tensor, *, record: bool = False
    ) -> tuple[Tensor, Tensor | None]:  # B T D, and the weights B 1 T S if recorded
        """Let `looking` (B T D), one after the other, look at the source's keys and values where the mask allows."""
        looked = self.unlooked(keys)
        found = []
        for query in self.query(looking).split(1, dim=1):
            found.append(self.weights(query, keys, mask, looked))  # B 1 S
            looked = remembered(looked, found[-1])
        weights = torch.cat(found, dim=1)  # B T S
        return weights @ values, weights[:, None] if record else None

    def unlooked(self, keys: Tensor) -> Tensor:
        """Return what is remembered before the first look (B 1 2 S): none has gone anywhere."""
        return keys.new_zeros(len(keys), 1, 2, keys.shape[1])

    def again(
        self, looking: Tensor, keys: Tensor, values: Tensor, mask: Tensor, looked: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Let W hypotheses (B W D) look once more; return what each sees (B W D), and what is remembered then."""
        weights = self.weights(self.query(looking), keys, mask, looked)  # B W S
        return weights @ values, remembered(looked, weights)

    def weights(self, query: Tensor, keys: Tensor, mask: Tensor, looked: Tensor) -> Tensor:
        """Return where queries (B N D) look (B N S) that remember where they have looked (B N 2 S)."""
        around = F.pad(looked, (REACH, REACH)).unfold(-1, 2 * REACH + 1, 1)  # B N 2 S R
        places = self.place(around.transpose(2, 3).flatten(3))  # B N S D
        scores = self.direction(torch.tanh(query[:, :, None] + keys[:, None] + places))[..., 0]  # B N S
        hidden = ~mask[:, None]
        weights = scores.masked_fill(hidden, torch.finfo(scores.dtype).min).softmax(dim=-1)
        return cast(Tensor, weights.masked_fill(hidden, 0.0))  # in a sentence that is all padding, too


def nothing(keys: Tensor) -> Tensor:
    """Return the memory of one hypothesis a sentence that never remembers where it looked (B 1 0 S)."""
    return keys.new_zeros(len(keys), 1, 0, keys.shape[1])


def remembered(looked: Tensor, weights: Tensor) -> Tensor:
    """Return what is remembered (B N 2 S) after one more look (B N S): the look itself, and the sum of all."""
    return torch.stack([weights, looked[:, :, 1] + weights], dim=2)


# Luong's two compare states as they are, or by one matrix; Bahdanau's and the Transformer's project both sides.
# States are far below one: scaled without a projection, they would weigh all places nearly alike for a long time.
SCORES: dict[str, Callable[[int], Look | LookOn]] = {  # of a width
    "additive": lambda width: Look(nn.Linear(width, width), plain(width), Additive(1, width)),
    "dot": lambda _: Look(nn.Identity(), nn.Identity(), dot),
    "general": lambda width: Look(nn.Identity(), plain(width), dot),
    "location": LookOn,
    "scaled_dot": lambda width: Look(nn.Linear(width, width), plain(width), scaled_dot),
}


def plain(width: int) -> nn.Linear:
    """Return a square matrix without a bias, to which a softmax over places would be blind."""
    return nn.Linear(width, width, bias=False)


@dataclass(frozen=True)
class Reading:
    """What the decoder reads of the source at every step."""

    keys: Tensor  # B S D
    values: Tensor  # B S D
    mask: Tensor  # B S
    context: Tensor  # B D, all of the source in one vector

    def keep(self, sentences: Tensor) -> "Reading":
        """Forget all sentences but the given ones."""
        return Reading(*(part[sentences] for part in vars(self).values()))


@dataclass(frozen=True)
class Hypotheses:
    """The decoder's state: where each layer stands in each hypothesis, and what it reads of the source."""

    carried: Tensor  # B W L P D
    looked: Tensor  # B W C S, what each remembers of where it has looked, if anything
    reading: Reading

    def reorder(self, parents: Tensor) -> "Hypotheses":
        """Let hypothesis w of sentence b continue hypothesis parents[b, w] (B W)."""
        return Hypotheses(inherited(self.carried, parents), inherited(self.looked, parents), self.reading)

    def keep(self, sentences: Tensor) -> "Hypotheses":
        """Forget all sentences but the given ones."""
        return Hypotheses(self.carried[sentences], self.looked[sentences], self.reading.keep(sentences))


class Recurrent(nn.Module):
    """The recurrent encoder–decoder; a `Transducer`."""

    def __init__(self, how: Model, source_vocabulary: int, target_vocabulary: int) -> None:
        super().__init__()
        self.source_embedding, self.target_embedding, self.projection = vocabularies_of(
            how, source_vocabulary, target_vocabulary
        )
        width = how.width
        self.dropout = Dropout(how.dropout)
        self.encoder = nn.ModuleList(BothWays(how.cell, width) for _ in range(how.layers))
        self.decoder = nn.ModuleList(Recurrence(how.cell, width, width) for _ in range(how.decoder_depth))
        self.first = nn.Linear(width, how.decoder_depth * PARTS[how.cell] * width)
        self.look = None if how.score == "none" else SCORES[how.score](width)
        self.feed = plain(width) if self.look is None else None
        self.join = nn.Linear(2 * width, width)
        initialise(self)

    @property
    def output(self) -> Tensor:
        """The matrix that turns hidden vectors into logits (V D); it may be the target embedding too."""
        return self.target_embedding.weight if self.projection is None else self.projection.weight

    def encode(self, source: Tensor) -> Memory:
        """Read `source` (B S, padded with PAD)."""
        mask = source != PAD
        turn = turn_of(mask)
        x = self.source_embedding(source)  # B S D
        for layer in self.encoder:
            x = layer(self.dropout(x), turn)
        return Memory(x, mask)

    def decode(self, prefix: Tensor, memory: Memory) -> Tensor:
        """Return the logits (B T V) of the token after each position of `prefix` (B T)."""
        return self.hidden(prefix, memory) @ self.output.T

    def hidden(self, prefix: Tensor, memory: Memory) -> Tensor:
        """Return the last hidden vectors (B T D) over `prefix`."""
        return self.write(prefix, memory)[0]

    def attention(self, source: Tensor, prefix: Tensor) -> Attention:
        """Return the weights with which `source` is read; recurrence has none of its own."""
        _, weights = self.write(prefix, self.encode(source), record=True)
        return Attention([], [], [] if weights is None else [weights])

    def write(self, prefix: Tensor, memory: Memory, *, record: bool = False) -> tuple[Tensor, Tensor | None]:
        """Run the decoder; the second part holds the weights (B 1 T S) if it attends and they are recorded."""
        reading = self.read(memory)
        x = self.entering(prefix, reading)  # B T D
        for layer, before in zip(self.decoder, self.before(reading).unbind(1), strict=True):
            x = layer(self.dropout(x), before)
        if self.look is None:
            return self.joined(x, self.everything(x, reading)), None
        seen, weights = self.look(x, reading.keys, reading.values, reading.mask, record=record)
        return self.joined(x, seen), weights

    def start(self, memory: Memory) -> Hypotheses:
        """Return the state before the first token: one empty prefix a sentence."""
        reading = self.read(memory)
        looked = nothing(reading.keys) if self.look is None else self.look.unlooked(reading.keys)
        return Hypotheses(self.before(reading)[:, None], looked, reading)

    def step(self, token: Tensor, memory: Memory, state: State) -> tuple[Tensor, Hypotheses]:  # noqa: ARG002
        """Read one more token of each of W hypotheses (B W); return the logits after it (B W V)."""
        assert isinstance(state, Hypotheses), f"this is the state of another model: {type(state)}"
        x = self.entering(token, state.reading).flatten(0, 1)  # BW D
        after: list[Tensor] = []
        for layer, before in zip(self.decoder, state.carried.flatten(0, 1).unbind(1), strict=True):
            after.append(cast(Recurrence, layer).step(x, before))  # BW P D
            x = after[-1][:, 0]
        carried = torch.stack(after, dim=1).view(state.carried.shape)  # B W L P D
        top, reading, looked = x.view(*token.shape, -1), state.reading, state.looked
        if self.look is None:
            seen = self.everything(top, reading)
        else:
            seen, looked = self.look.again(top, reading.keys, reading.values, reading.mask, looked)
        return self.joined(top, seen) @ self.output.T, Hypotheses(carried, looked, reading)

    def read(self, memory: Memory) -> Reading:
        """Prepare what the decoder reads of the source. What stands at padding is never looked at."""
        states = memory.states.masked_fill(~memory.mask[..., None], 0.0)  # a zero weight would not stop a NaN
        keys = states if self.look is None else self.look.key(states)
        return Reading(keys, states, memory.mask, ends_of(states, memory.mask))

    def before(self, reading: Reading) -> Tensor:
        """Return the state (B L P D) in which the decoder's layers begin."""
        first = torch.tanh(self.first(reading.context))
        return first.view(len(first), len(self.decoder), -1, reading.context.shape[1])

    def entering(self, tokens: Tensor, reading: Reading) -> Tensor:
        """Return what the lowest layer reads (B T D); without attention the one context goes in at every step."""
        x = self.target_embedding(tokens)
        return cast(Tensor, x if self.feed is None else x + self.feed(reading.context)[:, None])

    def everything(self, top: Tensor, reading: Reading) -> Tensor:
        """Return what top states (B T D) see that do not look: all of the source in one vector, always the same."""
        return reading.context[:, None].expand_as(top)

    def joined(self, top: Tensor, seen: Tensor) -> Tensor:
        """Join to each top state (B T D) what it has seen of the source (B T D)."""
        return cast(Tensor, self.dropout(torch.tanh(self.join(torch.cat([top, seen], dim=-1)))))


def ends_of(states: Tensor, mask: Tensor) -> Tensor:
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
