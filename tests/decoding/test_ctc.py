"""Every CTC score is compared with a sum over all paths or with PyTorch's CTC loss."""

import math
from collections import defaultdict
from itertools import groupby, pairwise, product

import numpy as np
import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from torch.nn import functional as F
from toy_transducers import Toy, padded, sentences, small_transformer

from dragoman.decoding.ctc import CTCPrefixScorer, JointDecoder, align, greedy_labels
from dragoman.decoding.engine import Engine
from dragoman.decoding.hypothesis import FAILED_HYPOTHESIS
from dragoman.decoding.sampling import sample
from dragoman.decoding.scoring import score_targets
from dragoman.decoding.search import beam_search
from dragoman.models.transducer import Memory, Source
from dragoman.native import functions
from dragoman.native.model import NativeTransformer
from dragoman.recipe import DecodingConfig
from dragoman.tokens import END, PAD, RESERVED_TOKENS, START, UNKNOWN

VOCABULARY = 6
LABELS = [UNKNOWN, 4, 5]
BATCH = [[4, 5, 5, END], [5, END], [4, 4, 5, 4, 5, 5, END]]

seeds = st.integers(0, 2**31)


def random_log_probabilities(*shape, seed=1, sharpness=2.0, labels_only=False):
    generator = torch.Generator().manual_seed(seed)
    logits = sharpness * torch.randn(*shape, generator=generator, dtype=torch.float64)
    if labels_only:
        logits[..., [START, END]] = -torch.inf
    return logits.log_softmax(dim=-1)


def mask_of(*lengths):
    return torch.arange(max(lengths)) < torch.tensor(lengths)[:, None]


def collapse(path):
    return tuple(symbol for symbol, _ in groupby(path) if symbol != PAD)


def path_sums(log_probabilities):
    """Return the probability of each label sequence and of each beginning of one, summed over all paths."""
    probabilities, whole, beginnings = log_probabilities.exp().tolist(), defaultdict(float), defaultdict(float)
    for path in product(range(VOCABULARY), repeat=len(probabilities)):
        labels = collapse(path)
        probability = math.prod(row[symbol] for row, symbol in zip(probabilities, path, strict=True))
        whole[labels] += probability
        for length in range(len(labels) + 1):
            beginnings[labels[:length]] += probability
    return whole, beginnings


def expected_scores(whole, beginnings, prefix):
    """Return the log-probabilities of what follows a prefix; -inf for what follows an impossible one."""
    values = [beginnings[*prefix, token] for token in range(VOCABULARY)]
    values[PAD] = values[START] = 0.0
    values[END] = whole[prefix]
    return (torch.tensor(values, dtype=torch.float64) / max(beginnings[prefix], 1e-300)).log()


def all_extensions(state):
    """Return the state with W hypotheses of which each was continued with each label."""
    batch, width = state.last.shape
    parents = torch.arange(width).repeat_interleave(len(LABELS)).expand(batch, -1)
    return state.extend(parents, torch.tensor(LABELS * width).expand(batch, -1))


def extend_one(state, tokens):
    """Return the state of one hypothesis per recording after the same tokens in each."""
    for token in tokens:
        state = state.extend(torch.zeros_like(state.last), torch.full_like(state.last, token))
    return state


def ctc_log_probability(log_probabilities, labels):
    """Return the logarithm of the probability of a label sequence for one recording (S V), by PyTorch."""
    lengths = [torch.tensor([len(part)]) for part in (log_probabilities, labels)]
    loss = F.ctc_loss(
        log_probabilities[:, None], torch.tensor([labels], dtype=torch.long), *lengths, blank=PAD, reduction="none"
    )
    return -float(loss)


def test_scores_are_the_sums_over_all_paths():
    mask = mask_of(5, 3, 1)
    log_probabilities = random_log_probabilities(3, 5, VOCABULARY).masked_fill(~mask[..., None], torch.nan)
    sums = [path_sums(row[own]) for row, own in zip(log_probabilities, mask, strict=True)]
    state = CTCPrefixScorer.initial(log_probabilities, mask)
    for length in range(4):
        prefixes = list(product(LABELS, repeat=length))
        expected = torch.stack([torch.stack([expected_scores(*one, prefix) for prefix in prefixes]) for one in sums])
        torch.testing.assert_close(state.scores(), expected, rtol=0, atol=1e-9)
        state = all_extensions(state)


@given(seeds)
@settings(max_examples=50)
def test_probabilities_may_be_zero(seed):
    """What follows an impossible prefix was chosen by nobody, but it must be a number."""
    log_probabilities = random_log_probabilities(1, 4, VOCABULARY, seed=seed, sharpness=5.0)
    log_probabilities = torch.where(log_probabilities < -5.0, -torch.inf, log_probabilities).log_softmax(dim=-1)
    whole, beginnings = path_sums(log_probabilities[0])
    state = CTCPrefixScorer.initial(log_probabilities, mask_of(4))
    for length in range(3):
        for prefix, found in zip(product(LABELS, repeat=length), state.scores()[0], strict=True):
            assert (found < 1e-9).all()
            expected = expected_scores(whole, beginnings, prefix).exp()
            torch.testing.assert_close(found.exp() * (beginnings[prefix] > 0), expected, rtol=0, atol=1e-9)
        state = all_extensions(state)


def test_a_token_is_repeated_only_after_a_blank():
    certain = torch.tensor([[[0.0] * 4 + [1.0, 0.0]] * 2]).log()  # token 4 at both positions
    after = extend_one(CTCPrefixScorer.initial(certain, mask_of(2)), [4]).scores()[0, 0]
    assert after.exp().tolist() == pytest.approx([0, 0, 0, 1, 0, 0])


@given(seeds, st.integers(1, 40), st.lists(st.sampled_from(LABELS), max_size=12))
@settings(max_examples=50)
def test_what_may_follow_has_a_total_probability_of_one(seed, positions, tokens):
    log_probabilities = random_log_probabilities(1, positions, VOCABULARY, seed=seed, labels_only=True)
    state = extend_one(CTCPrefixScorer.initial(log_probabilities, mask_of(positions)), tokens)
    total = float(state.scores().exp().sum())
    assert total == pytest.approx(1.0 if state.log_probability.isfinite().all() else 0.0, abs=1e-9)


@given(seeds, st.integers(1, 60), st.lists(st.integers(4, 7), max_size=20))
@settings(max_examples=50)
def test_the_score_of_the_end_is_the_ctc_loss(seed, positions, labels):
    log_probabilities = random_log_probabilities(1, positions, 8, seed=seed)
    state = extend_one(CTCPrefixScorer.initial(log_probabilities, mask_of(positions)), labels)
    found = float(state.log_probability + state.scores()[..., END])
    assert found == pytest.approx(ctc_log_probability(log_probabilities[0], labels), abs=1e-9)


@pytest.mark.parametrize("sharpness", [0.1, 2.0, 20.0])
def test_500_positions_are_summed_accurately(sharpness):
    log_probabilities = random_log_probabilities(1, 500, 32, sharpness=sharpness).float()
    labels = [RESERVED_TOKENS + number * number % 23 for number in range(80)]
    assert any(label == other for label, other in pairwise(labels))
    state = extend_one(CTCPrefixScorer.initial(log_probabilities, mask_of(500)), labels)
    found = float(state.log_probability + state.scores()[..., END])
    assert found == pytest.approx(ctc_log_probability(log_probabilities[0].double(), labels), abs=1e-9)


@pytest.mark.parametrize("padding", [torch.nan, torch.inf, -torch.inf, 0.0])
def test_padding_has_no_influence(padding):
    lengths = (9, 4, 6, 0)
    log_probabilities = random_log_probabilities(4, 9, VOCABULARY)
    batch = CTCPrefixScorer.initial(
        log_probabilities.masked_fill(~mask_of(*lengths)[..., None], padding), mask_of(*lengths)
    )
    alone = [
        CTCPrefixScorer.initial(row[None, :length], mask_of(length))
        for row, length in zip(log_probabilities, lengths, strict=True)
    ]
    for tokens in ([], [4], [4, 4], [4, 4, UNKNOWN, 5]):
        expected = torch.cat([extend_one(one, tokens).scores() for one in alone])
        torch.testing.assert_close(extend_one(batch, tokens).scores(), expected, rtol=0, atol=1e-12)


def test_tokens_that_are_no_labels_change_nothing():
    state = all_extensions(CTCPrefixScorer.initial(random_log_probabilities(2, 5, VOCABULARY), mask_of(5, 4)))
    after = state.extend(torch.tensor([[2, 1, 0]] * 2), torch.tensor([[START, PAD, END]] * 2))
    assert torch.equal(after.scores(), state.scores().flip(1))


def test_an_impossible_prefix_stays_impossible():
    state = CTCPrefixScorer.initial(random_log_probabilities(1, 2, VOCABULARY), mask_of(2))
    for tokens in ([4, 5, 4], [4, 4], [5, 5, 5, 5]):
        assert (extend_one(state, tokens).scores() == -torch.inf).all()


def test_recordings_that_are_kept_have_the_same_scores():
    state = all_extensions(CTCPrefixScorer.initial(random_log_probabilities(3, 5, VOCABULARY), mask_of(5, 2, 4)))
    kept = torch.tensor([2, 0])
    assert torch.equal(all_extensions(state.keep(kept)).scores(), all_extensions(state).scores()[kept])


def joint_decoder(model, weight, *, width=5, vocabulary=VOCABULARY, dtype=torch.float64):
    """Return a joint decoder whose CTC output is a random projection of the memory."""
    generator = torch.Generator().manual_seed(7)
    projection = torch.randn(width, vocabulary, generator=generator, dtype=torch.float64).to(dtype)

    def ctc_log_probabilities(memory: Memory):
        return (memory.states @ projection).log_softmax(dim=-1)

    return JointDecoder(model, weight, ctc_log_probabilities)


@pytest.mark.parametrize("weight", [0.0, 0.3, 0.9])
def test_the_log_probabilities_are_weighted_means(weight):
    model = Toy(3)
    joint = joint_decoder(model, weight)
    memory = joint.encode(Source.from_ids(padded(BATCH)))
    empty = CTCPrefixScorer.initial(joint.ctc_log_probabilities(memory), memory.mask)
    state, plain, rows = joint.initial_state(memory), model.initial_state(memory), [[()]] * 3
    token = torch.full((3, 1), START)
    generator = torch.Generator().manual_seed(1)
    for width in (1, 4, 2, 6):
        parents = torch.randint(token.shape[1], (3, width), generator=generator)
        token = torch.randint(4, 6, (3, width), generator=generator) if width > 1 else token
        state, plain = state.reorder(parents), plain.reorder(parents)
        rows = [
            [(*row[parent], new) for parent, new in zip(*pair, strict=True)]
            for row, *pair in zip(rows, parents.tolist(), token.tolist(), strict=True)
        ]
        logits, state = joint.step(token, memory, state)
        attention, plain = model.step(token, memory, plain)
        for sentence, row in enumerate(rows):
            for hypothesis, tokens in enumerate(row):
                ctc = (weight * extend_one(empty, tokens).scores()[sentence, 0]).nan_to_num(0.0, neginf=-torch.inf)
                expected = (1 - weight) * attention[sentence, hypothesis].log_softmax(-1) + ctc
                allowed = [UNKNOWN, END, 4, 5]
                found = logits[sentence, hypothesis].log_softmax(-1)
                torch.testing.assert_close(found[allowed], expected[allowed], rtol=0, atol=1e-9)
                assert found[START] == -torch.inf


def test_a_state_may_be_reordered_twice_before_a_step():
    joint = joint_decoder(Toy(3), 0.5)
    memory = joint.encode(Source.from_ids(padded(BATCH)))
    state = joint.step(torch.full((3, 1), START), memory, joint.initial_state(memory))[1]
    state = joint.step(torch.tensor([[4, 5, 1]] * 3), memory, state.reorder(torch.zeros(3, 3, dtype=torch.long)))[1]
    once, twice = torch.tensor([[2, 0]] * 3), torch.tensor([[1, 0, 1]] * 3)
    token, kept = torch.tensor([[4, 4, 5]] * 2), torch.tensor([2, 0])
    found = joint.step(token, memory.keep(kept), state.reorder(once).keep(kept).reorder(twice[kept]))[0]
    expected = joint.step(token, memory.keep(kept), state.reorder(once.gather(1, twice)).keep(kept))[0]
    assert torch.equal(found, expected)


@torch.inference_mode()
@pytest.mark.parametrize("beam", [1, 4])
def test_without_weight_the_search_is_that_of_the_model(beam):
    model, config = small_transformer(), DecodingConfig(beam=beam, extra_length=20)
    source = Source.from_ids(padded(sentences(6)))
    found = beam_search(joint_decoder(model, 0.0, width=32, vocabulary=200, dtype=torch.float32), source, config)
    for (one,), (expected,) in zip(found, beam_search(model, source, config), strict=True):
        assert one.tokens == expected.tokens
        assert one.log_probability == pytest.approx(expected.log_probability, abs=1e-4)


@given(seeds, st.sampled_from([0.1, 0.5, 0.9]), st.integers(1, 5), st.booleans())
@settings(max_examples=40)
def test_a_hypothesis_has_the_joint_score_of_its_tokens(seed, weight, beam, compact):
    """The CTC scores of the tokens add up to the loss, and the length is limited: a blank or a token per position."""
    model, config = Toy(seed), DecodingConfig(beam=beam, extra_length=3)
    joint = joint_decoder(model, weight)
    source = Source.from_ids(padded(BATCH))
    log_probabilities = joint.ctc_log_probabilities(joint.encode(source))
    for index, hypotheses in enumerate(beam_search(joint, source, config, n_best=beam, compact=compact)):
        for found in hypotheses:
            target = [*found.tokens, END]
            (attention,) = score_targets(model, source[index : index + 1], torch.tensor([target]), config)
            ctc = ctc_log_probability(log_probabilities[index][source.mask[index]], list(found.tokens))
            expected = (1 - weight) * attention.log_probability + weight * ctc
            assert not found.truncated
            assert found.log_probability == pytest.approx(expected, abs=1e-9)


@given(seeds, st.integers(1, 5))
@settings(max_examples=20)
def test_a_batch_gives_the_same_as_each_recording_alone(seed, beam):
    joint, config = joint_decoder(Toy(seed), 0.4), DecodingConfig(beam=beam, extra_length=3)
    together = beam_search(joint, Source.from_ids(padded(BATCH)), config)
    for row, (found,) in zip(BATCH, together, strict=True):
        ((expected,),) = beam_search(joint, Source.from_ids(padded([row])), config)
        assert found.tokens == expected.tokens
        assert found.log_probability == pytest.approx(expected.log_probability, abs=1e-9)


def test_a_recording_without_positions_fails_and_its_neighbour_does_not():
    joint, config = joint_decoder(Toy(3), 0.4), DecodingConfig(beam=3, extra_length=3)
    found = beam_search(joint, Source.from_ids(padded([[4, 5, END], [PAD]])), config)
    assert found[1] == [FAILED_HYPOTHESIS]
    assert found[0][0] == beam_search(joint, Source.from_ids(padded([[4, 5, END]])), config)[0][0]


def test_samples_are_drawn_from_the_joint_probabilities():
    joint, config = joint_decoder(Toy(3), 0.5), DecodingConfig(extra_length=3)
    for row, samples in zip(BATCH, sample(joint, Source.from_ids(padded(BATCH)), config, n=5), strict=True):
        assert len(samples) == 5
        assert all(len(one.tokens) <= len(row) and math.isfinite(one.log_probability) for one in samples)


@pytest.mark.skipif(functions.native_library() is None, reason="built without kernels")
def test_a_compiled_model_is_searched_jointly():
    model, config = small_transformer(width=64, inner_width=96, heads=2), DecodingConfig(beam=4, extra_length=10)

    def constrain(inner):
        return joint_decoder(inner, 0.3, width=64, vocabulary=200, dtype=torch.float32)

    engine, rows = Engine(model, config, constrain=constrain), sentences(8)
    assert isinstance(engine.search_model.model, NativeTransformer)
    with torch.inference_mode():
        expected = [beam_search(constrain(model), Source.from_ids(padded([row])), config)[0][0] for row in rows]
    for exact in (False, True):
        for (found,), one in zip(engine.search(rows, exact=exact), expected, strict=True):
            assert found.tokens == one.tokens
            assert found.log_probability == pytest.approx(one.log_probability, abs=1e-3)


@pytest.mark.parametrize("weight", [-0.1, 1.0])
def test_a_weight_without_attention_is_refused(weight):
    with pytest.raises(AssertionError, match=f"got {weight}"):
        joint_decoder(Toy(1), weight)


def one_hot(path, vocabulary=VOCABULARY):
    """Return log-probabilities (S V) that prefer one path."""
    return (5.0 * F.one_hot(torch.tensor(path), vocabulary)).log_softmax(dim=-1)


def test_greedy_labels_are_the_best_path_without_repetitions_and_blanks():
    paths = [[0, 4, 4, 0, 4, 5, 5, 1], [5, 0, 0, 5, 4, 4, 4, 4], [0] * 8]
    log_probabilities = torch.stack([one_hot(path) for path in paths])
    assert greedy_labels(log_probabilities, mask_of(8, 4, 8)) == [[4, 4, 5, 1], [5, 5], []]


def test_greedy_labels_are_never_start_or_end():
    log_probabilities = one_hot([START, 4, END])[None]
    log_probabilities[..., PAD] += 1.0
    assert greedy_labels(log_probabilities, mask_of(3)) == [[4]]


def path_of(spans, labels, positions):
    path = np.zeros(positions, dtype=int)
    for (first, end), label in zip(spans, labels, strict=True):
        path[first:end] = label
    return tuple(path.tolist())


@given(seeds, st.integers(1, 5), st.lists(st.sampled_from(LABELS), max_size=4))
@settings(max_examples=60)
def test_an_alignment_is_the_best_of_all_paths(seed, positions, labels):
    log_probabilities = random_log_probabilities(positions, VOCABULARY, seed=seed)
    values = log_probabilities.tolist()
    paths = {
        path: sum(row[symbol] for row, symbol in zip(values, path, strict=True))
        for path in product([PAD, *LABELS], repeat=positions)
        if collapse(path) == tuple(labels)
    }
    assume(paths)
    assert path_of(align(log_probabilities, labels), labels, positions) == max(paths, key=paths.__getitem__)


def test_an_alignment_gives_the_first_position_and_the_end_of_each_label():
    path = [0, 0, 4, 4, 4, 5, 0, 5, 5, 0, 1]
    assert align(one_hot(path), [4, 5, 5, 1]) == [(2, 5), (5, 6), (7, 9), (10, 11)]
    assert align(one_hot(path), []) == []


def test_too_few_positions_for_the_labels_are_refused():
    assert align(one_hot([4, 0, 4, 5]), [4, 4, 5]) == [(0, 1), (2, 3), (3, 4)]
    with pytest.raises(ValueError, match="3 labels with 1 repetitions need at least 4 positions, got 3"):
        align(one_hot([4, 4, 5]), [4, 4, 5])


def test_an_alignment_exists_even_if_a_label_is_impossible():
    log_probabilities = one_hot([4, 0, 5, 5])
    log_probabilities[:, 1] = -torch.inf
    assert align(log_probabilities, [4, 1, 5]) == [(0, 1), (1, 2), (2, 4)]
    assert len(align(torch.full_like(log_probabilities, torch.nan), [4, 4])) == 2


def test_a_long_recording_is_aligned_to_its_own_path():
    generator = torch.Generator().manual_seed(1)
    labels = torch.randint(RESERVED_TOKENS, 30, (300,), generator=generator).tolist()
    path = [symbol for label in labels for symbol in (label, label, PAD, PAD)]
    expected = [(4 * number, 4 * number + 2) for number in range(300)]
    assert align(one_hot(path, 30), labels) == expected
