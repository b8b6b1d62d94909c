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


@types
@pytest.mark.parametrize("how", VARIANTS)
def test_every_step_gives_the_logits_of_the_whole_prefix(dtype, how):
    model = small_model(dtype, **how)
    memory = model.encode(Source.from_ids(random_rows([7, 3, 5])))
    prefix = random_rows([8, 8, 8], seed=2)
    state = model.initial_state(memory)

    steps = []
    for place in range(8):
        logits, state = model.step(prefix[:, place : place + 1], memory, state)
        steps.append(logits)

    torch.testing.assert_close(torch.cat(steps, dim=1), model.decode(prefix, memory), atol=TOLERANCE[dtype], rtol=0)


@types
@pytest.mark.parametrize("how", VARIANTS)
def test_hypotheses_side_by_side_branch_die_and_leave_without_disturbing_each_other(dtype, how):
    model = small_model(dtype, **how)
    reader = Reader(model, model.encode(Source.from_ids(random_rows([7, 3, 5]))))

    reader.read(torch.full((3, 1), START))
    reader.check()
    reader.reorder(beam=4)  # one hypothesis becomes four
    for _ in range(3):
        reader.read_any()
        reader.check()
        reader.reorder(beam=4)
    reader.keep(torch.tensor([2, 0]))
    reader.read_any()
    reader.check()


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


def test_a_state_can_be_read_on_from_twice():
    """A step makes a new state and leaves the old one as it was."""
    model = small_model()
    memory = model.encode(Source.from_ids(random_rows([7, 3, 5])))
    _, state = model.step(torch.full((3, 1), START), memory, model.initial_state(memory))

    first, _ = model.step(torch.full((3, 1), 5), memory, state)
    model.step(torch.full((3, 1), 6), memory, state)
    again, _ = model.step(torch.full((3, 1), 5), memory, state)

    assert torch.equal(first, again)


def test_the_state_of_another_model_is_refused():
    model = small_model()
    memory = model.encode(Source.from_ids(random_rows([7, 3, 5])))
    with pytest.raises(AssertionError, match="the state of another model"):
        model.step(torch.full((3, 1), START), memory, object())
