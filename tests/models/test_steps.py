"""Reading a prefix token by token gives what reading it whole gives (promise B4)."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from small_models import VOCABULARY, random_rows, small_model

from dragoman.models.transducer import Memory, Source
from dragoman.tokens import RESERVED_TOKENS, START

TOLERANCE = {torch.float64: 1e-12, torch.float32: 1e-5}
types = pytest.mark.parametrize("dtype", TOLERANCE)
VARIANTS = [
    {"norm": "post"},
    {"norm": "pre", "activation": "gelu"},
    {"norm": "pre", "positions": "learned"},
    {"norm": "post", "key_width": 3, "value_width": 5, "share_output": True},
]


def whole(model, prefixes, memory):
    """Return the logits after the last token of each of W prefixes (B W T), each read whole and on its own (B W V)."""
    beam = prefixes.shape[1]
    repeated = Memory(memory.states.repeat_interleave(beam, dim=0), memory.mask.repeat_interleave(beam, dim=0))
    return model.decode(prefixes.flatten(0, 1), repeated)[:, -1].unflatten(0, (-1, beam))


class Reader:
    """Follows W prefixes of each of B sentences step by step, and keeps them to be read whole."""

    def __init__(self, model, memory, seed=1):
        self.model, self.memory, self.state = model, memory, model.initial_state(memory)
        self.prefixes = torch.empty(len(memory.mask), 1, 0, dtype=torch.long)
        self.generator = torch.Generator().manual_seed(seed)

    def read(self, token):
        self.prefixes = torch.cat([self.prefixes, token[..., None]], dim=-1)
        self.logits, self.state = self.model.step(token, self.memory, self.state)

    def read_any(self):
        self.read(torch.randint(RESERVED_TOKENS, VOCABULARY, self.prefixes.shape[:2], generator=self.generator))

    def reorder(self, beam):
        sentences, before = self.prefixes.shape[:2]
        parents = torch.randint(before, (sentences, beam), generator=self.generator)
        self.prefixes = self.prefixes[torch.arange(sentences)[:, None], parents]
        self.state = self.state.reorder(parents)

    def keep(self, sentences):
        self.prefixes = self.prefixes[sentences]
        self.memory, self.state = self.memory.keep(sentences), self.state.keep(sentences)

    def check(self):
        close = {"atol": TOLERANCE[self.logits.dtype], "rtol": 0}
        torch.testing.assert_close(self.logits, whole(self.model, self.prefixes, self.memory), **close)


@given(st.lists(st.sampled_from(["read", "wider", "narrower", "keep"]), max_size=8), st.integers(0, 2**31))
@settings(max_examples=25, deadline=None)
def test_no_order_of_events_makes_a_step_forget_or_confuse(events, seed):
    model = small_model()
    reader = Reader(model, model.encode(Source.from_ids(random_rows([4, 1, 6, 3], seed=seed))), seed)
    reader.read(torch.full((4, 1), START))
    happen = {
        "read": reader.read_any,
        "wider": lambda: reader.reorder(reader.prefixes.shape[1] + 2),
        "narrower": lambda: reader.reorder(max(1, reader.prefixes.shape[1] - 1)),
        "keep": lambda: reader.keep(torch.arange(len(reader.prefixes))[-2:].flip(0)),
    }

    for event in events:
        happen[event]()
    reader.read_any()

    reader.check()
