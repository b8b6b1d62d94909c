"""What every architecture promises, each as a check of any `Transducer` (float64, vocabulary of 13, dropout 0)."""

import math

import torch
from small_models import SMALL, VOCABULARY, gradients, padded_by, random_rows

from dragoman.decoding.scoring import score_targets
from dragoman.decoding.search import beam_search
from dragoman.model_config import applicable_settings, build_model_config
from dragoman.models.architectures import build_model
from dragoman.models.layers import BatchNorm, Dropout, dropout_seed
from dragoman.models.transducer import Memory, Source
from dragoman.recipe import DecodingConfig
from dragoman.tokens import END, PAD, RESERVED_TOKENS, START
from dragoman.training.loss import projected_cross_entropy

CLOSE = {"atol": 1e-11, "rtol": 1e-11}


def small_rival(dtype=torch.float64, *, seed=1, **how):
    """Return a small model of any architecture, in which no two parameters are alike."""
    torch.manual_seed(seed)
    model = (
        build_model(
            build_model_config({**applicable_settings(SMALL, how.get("architecture", "transformer")), **how}),
            VOCABULARY,
            VOCABULARY,
        )
        .to(dtype)
        .eval()
    )
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.2 * torch.randn_like(parameter))
    for part in model.modules():
        if isinstance(part, BatchNorm):  # no longer the statistics of a new model
            part.running_mean.uniform_(-0.5, 0.5)
            part.running_variance.uniform_(0.5, 2.0)
    return model


def batch():
    """Return three sources and three prefixes, no two of one length."""
    return random_rows([7, 3, 5]), random_rows([4, 6, 2], seed=2)


def logits(model, source, prefix):
    """Return the logits at the real positions of the prefix (N V)."""
    return model.decode(prefix, model.encode(Source.from_ids(source)))[prefix != PAD]


def whole(model, prefixes, memory):
    """Return the logits after the last token of each of W prefixes (B W T), each read whole and on its own (B W V)."""
    beam = prefixes.shape[1]
    repeated = Memory(memory.states.repeat_interleave(beam, dim=0), memory.mask.repeat_interleave(beam, dim=0))
    return model.decode(prefixes.flatten(0, 1), repeated)[:, -1].unflatten(0, (-1, beam))


def every_step_gives_the_logits_of_the_whole_prefix(model):
    memory, prefix = model.encode(Source.from_ids(batch()[0])), random_rows([8, 8, 8], seed=2)
    state, steps = model.initial_state(memory), []
    for token in prefix.split(1, dim=1):
        found, state = model.step(token, memory, state)
        steps.append(found)
    torch.testing.assert_close(torch.cat(steps, dim=1), model.decode(prefix, memory), **CLOSE)


def hypotheses_branch_die_and_leave_without_disturbing_each_other(model):
    memory, generator = model.encode(Source.from_ids(batch()[0])), torch.Generator().manual_seed(1)
    prefixes = torch.full((3, 1, 1), START)
    found, state = model.step(prefixes[..., 0], memory, model.initial_state(memory))
    for beam, kept in ((4, [0, 1, 2]), (4, [2, 0]), (5, [1, 0]), (2, [1])):
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


def nothing_escapes_from_padding(model):
    source, prefix = batch()
    memory, token = model.encode(Source.from_ids(source)), torch.tensor([[4], [5], [6]])
    expected, _ = model.step(token, memory, model.initial_state(memory))
    for poison in (math.nan, 1e30):
        poisoned = Memory(memory.states.masked_fill(~memory.mask[..., None], poison), memory.mask)
        torch.testing.assert_close(model.decode(prefix, poisoned), model.decode(prefix, memory), **CLOSE)
        torch.testing.assert_close(model.step(token, poisoned, model.initial_state(poisoned))[0], expected, **CLOSE)


def an_empty_source_leads_to_no_nan_and_changes_no_other(model):
    source, prefix = random_rows([5, 0, 3]), random_rows([4, 4, 4], seed=2)
    found = model.decode(prefix, model.encode(Source.from_ids(source)))
    assert all(torch.isfinite(gradient).all() for gradient in gradients(found.square().sum(), model))
    others = torch.tensor([0, 2])
    torch.testing.assert_close(
        found[others], model.decode(prefix[others], model.encode(Source.from_ids(source[others]))), **CLOSE
    )


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
    single = model.float()
    exact, _ = projected_cross_entropy(
        single.hidden_states(prefix, single.encode(Source.from_ids(source))), single.output_weight, prefix, 0.1
    )
    with torch.autocast("cpu", torch.bfloat16):
        hidden = single.hidden_states(prefix, single.encode(Source.from_ids(source)))
        loss, _ = projected_cross_entropy(hidden, single.output_weight, prefix, 0.1)
    torch.testing.assert_close(loss, exact, atol=0, rtol=0.1)  # which are of one type, too
    assert all(torch.isfinite(gradient).all() for gradient in gradients(loss, single))


def the_same_noise_drops_the_same(model):
    for part in model.train().modules():
        if isinstance(part, Dropout):
            part.probability = 0.3
    found = []
    for seed in (1, 1, 2):
        with dropout_seed(seed, torch.device("cpu")):
            found.append(logits(model, *batch()))
    assert torch.equal(found[0], found[1])
    assert not torch.allclose(found[0], found[2])


def the_attention_shown_stays_within_the_source_and_sums_to_one(model):
    source, prefix = batch()
    for weights in model.attention_maps(Source.from_ids(source), prefix).cross:
        assert weights.shape[::2] == (3, 6) and weights.shape[3] == 7
        torch.testing.assert_close(weights.sum(-1), torch.ones_like(weights[..., 0]), **CLOSE)
        assert weights.masked_select((source == PAD)[:, None, None]).count_nonzero() == 0


def a_beam_of_one_is_greedy_search(model):
    how = DecodingConfig(beam=1, extra_length=6)
    source = random_rows([3, 1, 4])
    for row, (found,) in enumerate(beam_search(model, Source.from_ids(source), how)):
        longest = int((source[row] != PAD).sum()) - 1 + how.extra_length
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
    how, source = DecodingConfig(beam=4, extra_length=5), random_rows([3, 1, 4])
    for row, found in enumerate(beam_search(model, Source.from_ids(source), how, n_best=4)):
        targets = torch.full((4, 12), PAD)
        for place, hypothesis in enumerate(found):
            produced = [*hypothesis.tokens, *[END] * (not hypothesis.truncated)]
            targets[place, : len(produced)] = torch.tensor(produced)
        scored = score_targets(model, Source.from_ids(source[[row] * 4]), targets, how)
        assert all(abs(ours.score - theirs.score) < 1e-9 for ours, theirs in zip(found, scored, strict=True))


PROMISES = [
    every_step_gives_the_logits_of_the_whole_prefix,
    hypotheses_branch_die_and_leave_without_disturbing_each_other,
    a_state_can_be_read_on_from_twice,
    padding_does_not_change_the_logits,
    neighbours_do_not_change_the_logits,
    nothing_escapes_from_padding,
    an_empty_source_leads_to_no_nan_and_changes_no_other,
    the_future_does_not_change_the_past,
    every_parameter_learns,
    learning_in_half_precision_has_a_loss_in_single,
    the_same_noise_drops_the_same,
    the_attention_shown_stays_within_the_source_and_sums_to_one,
    a_beam_of_one_is_greedy_search,
    a_beam_scores_what_it_finds_as_the_whole_pass_does,
]


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
