"""What every architecture promises, each as a check of any `Transducer` (float64, vocabulary of 13, dropout 0).

`PROMISES` and `CHOICES` are the two sides of the table that test_promises.py proves. A check leaves the model as it
was: all checks of a choice share one.
"""

import copy
import math
from contextlib import nullcontext
from dataclasses import replace

import torch
from small_models import VOCABULARY, gradients, padded_by, random_rows
from torch import Tensor

from dragoman.decoding.scoring import score_targets
from dragoman.decoding.search import beam_search
from dragoman.models.attention import unfused_attention
from dragoman.models.layers import Dropout, dropout_seed
from dragoman.models.transducer import Source
from dragoman.recipe import DecodingConfig
from dragoman.tokens import END, PAD, RESERVED_TOKENS, START
from dragoman.training.loss import projected_cross_entropy

CLOSE = {"atol": 1e-11, "rtol": 1e-11}


def batch():
    """Return three sources and three prefixes, no two of one length."""
    return random_rows([7, 3, 5]), random_rows([4, 6, 2], seed=2)


def logits(model, source, prefix):
    """Return the logits at the real positions of the prefix (N V)."""
    return model.decode(prefix, model.encode(Source.from_ids(source)))[prefix != PAD]


def whole(model, prefixes, memory):
    """Return the logits after the last token of each of W prefixes (B W T), each read whole and on its own (B W V)."""
    beam = prefixes.shape[1]
    repeated = memory.keep(torch.arange(len(prefixes)).repeat_interleave(beam))
    return model.decode(prefixes.flatten(0, 1), repeated)[:, -1].unflatten(0, (-1, beam))


def every_step_gives_the_logits_of_the_whole_prefix(model):
    memory = model.encode(Source.from_ids(batch()[0]))
    prefix = random_rows([18, 18, 18], seed=2)  # more positions than a new cache has room for
    torch.testing.assert_close(stepwise(model, prefix, memory), model.decode(prefix, memory), **CLOSE)


def stepwise(model, prefix, memory):
    """Return the logits after each token of a prefix (B T V), read one token per step."""
    state, steps = model.initial_state(memory), []
    for token in prefix.split(1, dim=1):
        found, state = model.step(token, memory, state)
        steps.append(found)
    return torch.cat(steps, dim=1)


def hypotheses_branch_die_and_leave_without_disturbing_each_other(model):
    memory, generator = model.encode(Source.from_ids(batch()[0])), torch.Generator().manual_seed(1)
    prefixes = torch.full((3, 1, 1), START)
    found, state = model.step(prefixes[..., 0], memory, model.initial_state(memory))
    for beam, kept in ((4, [0, 1, 2]), (4, [2, 0]), (5, [1, 0]), (1, [0, 1]), (3, [1]), (2, [0])):
        parents = torch.randint(prefixes.shape[1], (len(prefixes), beam), generator=generator)
        prefixes, state = prefixes[torch.arange(len(prefixes))[:, None], parents], state.reorder(parents)
        sentences = torch.tensor(kept)
        prefixes, memory, state = prefixes[sentences], memory.keep(sentences), state.keep(sentences)
        token = torch.randint(RESERVED_TOKENS, VOCABULARY, prefixes.shape[:2], generator=generator)
        prefixes = torch.cat([prefixes, token[..., None]], dim=-1)
        found, state = model.step(token, memory, state)
        torch.testing.assert_close(found, whole(model, prefixes, memory), **CLOSE)


def a_state_can_be_read_on_from_twice(model):
    memory = model.encode(Source.from_ids(batch()[0]))
    _, state = model.step(torch.full((3, 1), START), memory, model.initial_state(memory))
    first, _ = model.step(torch.full((3, 1), 5), memory, state)
    model.step(torch.full((3, 1), 6), memory, state)
    again, _ = model.step(torch.full((3, 1), 5), memory, state)
    torch.testing.assert_close(first, again, atol=0, rtol=0)


def padding_does_not_change_the_logits(model):
    source, prefix = batch()
    expected = logits(model, source, prefix)
    for more in (1, 9):
        torch.testing.assert_close(logits(model, padded_by(source, more), padded_by(prefix, more)), expected, **CLOSE)


def neighbours_do_not_change_the_logits(model):
    source, prefix = batch()
    together = model.decode(prefix, model.encode(Source.from_ids(source)))
    for row, (words, read) in enumerate(zip((source != PAD).sum(1), (prefix != PAD).sum(1), strict=True)):
        alone = logits(model, source[row : row + 1, :words], prefix[row : row + 1, :read])
        torch.testing.assert_close(together[row, :read], alone, **CLOSE)


def nothing_escapes_from_padding_of_the_memory(model):
    source, prefix = batch()
    memory, token = model.encode(Source.from_ids(source)), torch.tensor([[4], [5], [6]])
    expected, _ = model.step(token, memory, model.initial_state(memory))
    for poison in (math.nan, 1e30):
        poisoned = replace(memory, states=memory.states.masked_fill(~memory.mask[..., None], poison))
        torch.testing.assert_close(model.decode(prefix, poisoned), model.decode(prefix, memory), **CLOSE)
        torch.testing.assert_close(model.step(token, poisoned, model.initial_state(poisoned))[0], expected, **CLOSE)


def nothing_escapes_from_the_embedding_of_padding(model):
    source, prefix = batch()
    found = []
    for poison in (0.0, math.nan):
        poisoned = copy.deepcopy(model)
        with torch.no_grad():
            for embedding in (poisoned.source_embedding, poisoned.target_embedding):
                embedding.weight[PAD] = poison
        hidden = poisoned.hidden_states(prefix, poisoned.encode(Source.from_ids(source)))[prefix != PAD]
        found.append([hidden, *gradients(hidden.square().sum(), poisoned)])
    torch.testing.assert_close(*found, **CLOSE)


def an_empty_source_leads_to_no_nan_and_changes_no_other(model):
    source, prefix, others = random_rows([5, 0, 3]), random_rows([4, 4, 4], seed=2), torch.tensor([0, 2])
    for kernels in (nullcontext, unfused_attention):
        with kernels():
            found = model.decode(prefix, model.encode(Source.from_ids(source)))
            without = model.decode(prefix[others], model.encode(Source.from_ids(source[others])))
        assert all(torch.isfinite(gradient).all() for gradient in gradients(found.square().sum(), model))
        torch.testing.assert_close(found[others], without, **CLOSE)


def the_future_does_not_change_the_past(model):
    memory, prefix = model.encode(Source.from_ids(batch()[0])), random_rows([9, 9, 9], seed=2)
    expected = model.decode(prefix, memory)
    for now in (1, 4, 8):
        other = torch.cat([prefix[:, :now], random_rows([9 - now] * 3, seed=now)], dim=1)
        torch.testing.assert_close(model.decode(other, memory)[:, :now], expected[:, :now], **CLOSE)


def every_parameter_learns(model):
    source, prefix = batch()
    hidden = model.hidden_states(prefix, model.encode(Source.from_ids(source)))
    loss, _ = projected_cross_entropy(hidden, model.output_weight, random_rows([4, 6, 2], seed=3), 0.1)
    found = torch.autograd.grad(loss, list(model.parameters()), allow_unused=True)
    for (name, _), gradient in zip(model.named_parameters(), found, strict=True):
        assert gradient is not None and gradient.count_nonzero(), f"{name} has no gradient"
        assert torch.isfinite(gradient).all(), f"{name} has a gradient that is not finite"


def learning_in_half_precision_has_a_loss_in_single(model):
    source, prefix = batch()
    single = copy.deepcopy(model).float()
    exact, _ = projected_cross_entropy(
        single.hidden_states(prefix, single.encode(Source.from_ids(source))), single.output_weight, prefix, 0.1
    )
    with torch.autocast("cpu", torch.bfloat16):
        hidden = single.hidden_states(prefix, single.encode(Source.from_ids(source)))
        loss, _ = projected_cross_entropy(hidden, single.output_weight, prefix, 0.1)
    torch.testing.assert_close(loss, exact, atol=0, rtol=0.1)  # which are of one type, too
    assert all(torch.isfinite(gradient).all() for gradient in gradients(loss, single))


def the_same_noise_drops_the_same(model):
    model = copy.deepcopy(model).train()
    for part in model.modules():
        if isinstance(part, Dropout):
            part.probability = 0.3
    found = []
    for seed in (1, 1, 2):
        with dropout_seed(seed, torch.device("cpu")):
            found.append(logits(model, *batch()))
    assert torch.equal(found[0], found[1])
    assert not torch.allclose(found[0], found[2])


def recording_attention_changes_no_number(model):
    """The output of every layer that has no parts is compared, at the positions that are not padding."""
    source, prefix = batch()
    real = {source.shape: source != PAD, prefix.shape: prefix != PAD}
    outputs = []

    def note(_module, _inputs, output):
        outputs.extend([output[real.get(output.shape[:2], ...)]] if isinstance(output, Tensor) else [])

    hooks = [part.register_forward_hook(note) for part in model.modules() if not list(part.children())]
    maps = model.attention_maps(Source.from_ids(source), prefix)
    recorded = outputs.copy()
    outputs.clear()
    model.hidden_states(prefix, model.encode(Source.from_ids(source)))
    for hook in hooks:
        hook.remove()
    torch.testing.assert_close(recorded, outputs if maps.cross or recorded else [], **CLOSE)


def recorded_attention_sums_to_one_over_real_positions_of_the_past(model):
    source, prefix = batch()
    read, written = source != PAD, prefix != PAD
    maps = model.attention_maps(Source.from_ids(source), prefix)
    for kind, queries, keys in (("encoder", read, read), ("decoder", written, written), ("cross", written, read)):
        for weights in getattr(maps, kind):  # B H T S
            assert weights.shape[::2] == queries.shape and weights.shape[3] == keys.shape[1]
            sums = weights.sum(-1).transpose(1, 2)[queries]
            torch.testing.assert_close(sums, torch.ones_like(sums), **CLOSE)
            unseen = weights.triu(1) if kind == "decoder" else weights.masked_select(~keys[:, None, None])
            assert unseen.count_nonzero() == 0


def a_beam_of_one_is_greedy_search(model):
    config = DecodingConfig(beam=1, extra_length=4)
    source = random_rows([3, 1, 4])
    for row, (found,) in enumerate(beam_search(model, Source.from_ids(source), config)):
        longest = int((source[row] != PAD).sum()) - 1 + config.extra_length
        assert found.tokens == greedy(model, source[row : row + 1], longest)


def greedy(model, source, longest):
    """Take the likeliest token each time, asking the model for the whole prefix anew."""
    memory, prefix = model.encode(Source.from_ids(source)), [START]
    while len(prefix) <= longest and prefix[-1] != END:
        values = model.decode(torch.tensor([prefix]), memory)[0, -1]
        values[[PAD, START, END] if len(prefix) == 1 else [PAD, START]] = -math.inf
        prefix.append(int(values.argmax()))
    return tuple(token for token in prefix[1:] if token != END)


def a_beam_scores_what_it_finds_as_the_whole_pass_does(model):
    config, source = DecodingConfig(beam=4, extra_length=5), random_rows([3, 1, 4])
    for row, found in enumerate(beam_search(model, Source.from_ids(source), config, n_best=4)):
        targets = torch.full((4, 12), PAD)
        for row_of_beam, hypothesis in enumerate(found):
            produced = [*hypothesis.tokens, *[END] * (not hypothesis.truncated)]
            targets[row_of_beam, : len(produced)] = torch.tensor(produced)
        scored = score_targets(model, Source.from_ids(source[[row] * 4]), targets, config)
        assert all(abs(ours.score - theirs.score) < 1e-9 for ours, theirs in zip(found, scored, strict=True))


PROMISES = [
    every_step_gives_the_logits_of_the_whole_prefix,
    hypotheses_branch_die_and_leave_without_disturbing_each_other,
    a_state_can_be_read_on_from_twice,
    padding_does_not_change_the_logits,
    neighbours_do_not_change_the_logits,
    nothing_escapes_from_padding_of_the_memory,
    nothing_escapes_from_the_embedding_of_padding,
    an_empty_source_leads_to_no_nan_and_changes_no_other,
    the_future_does_not_change_the_past,
    every_parameter_learns,
    learning_in_half_precision_has_a_loss_in_single,
    the_same_noise_drops_the_same,
    recording_attention_changes_no_number,
    recorded_attention_sums_to_one_over_real_positions_of_the_past,
    a_beam_of_one_is_greedy_search,
    a_beam_scores_what_it_finds_as_the_whole_pass_does,
]


TRANSFORMERS = {
    "as in the paper": {},
    "norm first, gelu": {"norm": "pre", "activation": "gelu"},
    "learned positions": {"norm": "pre", "positions": "learned"},
    "no positions": {"positions": "none"},
    "narrow heads, shared output": {"key_width": 3, "value_width": 5, "share_output": True},
    "embeddings of their own": {"share_embeddings": False},
    "dot": {"score": "dot"},
    "narrow dot keys": {"score": "dot", "key_width": 3, "value_width": 5, "activation": "gelu"},
    "additive": {"score": "additive"},
    "narrow additive keys": {"score": "additive", "key_width": 3, "value_width": 5},
    "batch normalisation": {"normalisation": "batch"},
    "batch normalisation first": {"normalisation": "batch", "norm": "pre"},
    "rotary": {"rotary": True},
    "rotary alone": {"rotary": True, "positions": "none", "score": "dot", "key_width": 6, "value_width": 5},
    "a shallow decoder": {"layers": 3, "decoder_layers": 1},
    "a deep decoder": {"layers": 1, "decoder_layers": 3},
    "all at once": {"score": "additive", "normalisation": "batch", "positions": "none", "norm": "pre"},
    "window": {"pattern": "window", "window": 5},
    "dilated": {"pattern": "dilated", "window": 3},
    "sparse": {"pattern": "sparse", "window": 6},
    "window, rotary": {"pattern": "window", "window": 5, "rotary": True},
    "next word": {"next_word": True, "norm": "pre"},
    "next word, embeddings of their own": {"next_word": True, "share_embeddings": False},
}
CHOICES = {
    "transformer": TRANSFORMERS,
    "decoder_only": {
        "norm first": {"norm": "pre"},
        "learned positions, narrow heads": {
            "positions": "learned", "share_embeddings": False, "key_width": 3, "value_width": 5,
        },
        "additive": {"positions": "none", "share_output": True, "score": "additive"},
        "window": {"pattern": "window", "window": 3},
        "dilated": {"pattern": "dilated", "window": 2, "layers": 3, "norm": "pre"},
        "sparse": {"pattern": "sparse", "window": 4, "layers": 2},
        "window, rotary": {"pattern": "window", "window": 3, "rotary": True},
        "rotary": {"rotary": True},
    },
    "recurrent": {
        "LSTM without attention": {"cell": "lstm", "score": "none"},
        "GRU without attention": {"cell": "gru", "score": "none", "width": 7},
        "additive": {"cell": "lstm", "score": "additive", "layers": 1, "share_output": True},
        "dot": {"cell": "gru", "score": "dot", "decoder_layers": 1},
        "general": {"cell": "gru", "score": "general", "share_embeddings": False},
        "scaled dot": {"cell": "lstm", "score": "scaled_dot", "width": 7},
        "location": {"cell": "lstm", "score": "location", "decoder_layers": 1},
    },
    "convs2s": {
        "as in the paper": {},
        "kernel 1": {"kernel": 1, "share_output": True, "score": "additive"},
        "kernel 4": {"kernel": 4, "positions": "learned", "score": "dot", "decoder_layers": 1},
        "kernel 5": {"kernel": 5, "layers": 3, "positions": "none", "share_embeddings": False, "width": 7},
    },
    "bytenet": {
        "as in the paper": {},
        "kernel 1": {"kernel": 1, "share_output": True},
        "kernel 4": {"kernel": 4, "positions": "learned", "layers": 3, "decoder_layers": 1},
        "kernel 2": {"kernel": 2, "layers": 6, "positions": "none", "share_embeddings": False, "width": 7},
    },
    "bag_of_embeddings": {
        "average": {"pooling": "average"},
        "average, one word back": {"pooling": "average", "kernel": 1, "layers": 1},
        "concatenate": {"pooling": "concatenate"},
        "concatenate, four words back": {
            "pooling": "concatenate", "kernel": 4, "longest": 8, "share_embeddings": False,
        },
    },
}  # fmt: skip


def learned(model, task, *, steps=200, rate=5e-3, words=4):
    """Train a model to write `task` of random rows of words; return how many unseen ones it then writes whole."""
    torch.manual_seed(1)
    optimizer = torch.optim.Adam(model.train().parameters(), lr=rate)
    for _ in range(steps):
        source, target = examples(task, words)
        prefix = torch.cat([torch.full_like(target[:, :1], START), target[:, :-1]], dim=1)
        loss, _ = projected_cross_entropy(
            model.hidden_states(prefix, model.encode(Source.from_ids(source))), model.output_weight, target, 0.0
        )
        optimizer.zero_grad()
        (loss / target.numel()).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
    source, target = examples(task, words)
    written = [
        found.tokens
        for (found,) in beam_search(model.eval(), Source.from_ids(source), DecodingConfig(beam=2, extra_length=2))
    ]
    right = [tuple(row[:-1]) == tokens for row, tokens in zip(target.tolist(), written, strict=True)]
    return sum(right) / len(right)


def examples(task, words, count=48):
    """Return rows of random words, and what the task makes of them, both closed by END."""
    rows = torch.randint(RESERVED_TOKENS, VOCABULARY, (count, words))
    end = torch.full((count, 1), END)
    return torch.cat([rows, end], dim=1), torch.cat([task(rows), end], dim=1)
