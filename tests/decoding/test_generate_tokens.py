"""Going on with a text: the tokens that a plain loop over whole sequences would draw, whatever slides or is cached."""

import pytest
import torch

from dragoman.decoding.generate import ContextWindow, generate_tokens
from dragoman.decoding.hypothesis import output_log_probabilities
from dragoman.decoding.sampling_options import SamplingOptions
from dragoman.decoding.scoring import token_losses
from dragoman.model_config import DecoderOnlyConfig
from dragoman.models.decoder_only import DecoderOnly
from dragoman.models.transducer import Source
from dragoman.tokens import END, START, UNKNOWN

CPU = torch.device("cpu")
VOCABULARY = 12
PATTERNS = [
    {},
    {"pattern": "window", "window": 3},
    {"pattern": "dilated", "window": 2},
    {"pattern": "sparse", "window": 4},
]


def language_model(**settings):
    torch.manual_seed(1)
    model = DecoderOnly(
        DecoderOnlyConfig(layers=2, width=16, inner_width=24, heads=4, norm="pre", **settings),
        VOCABULARY,
        VOCABULARY,
    )
    return model.double().eval()


def whole(model, tokens):
    """Return the log-probabilities after START and these tokens, from one pass over all of them."""
    prefix = torch.tensor([[START, *tokens]])
    return model.decode(prefix, model.encode(Source.from_ids(prefix[:, :0])))[0].log_softmax(-1)


@pytest.mark.parametrize("settings", PATTERNS)
def test_a_prompt_that_is_read_at_once_leaves_the_state_of_one_that_is_read_token_by_token(settings):
    model = language_model(**settings)
    row = torch.tensor([[START, 5, 9, 4, 7, 7, 6, 5]])
    memory = model.encode(Source.from_ids(row[:, :0]))
    at_once, state = model.prefill(row, memory)
    slow = model.initial_state(memory)
    for token in row[0]:
        logits, slow = model.step(token.view(1, 1), memory, slow)
    torch.testing.assert_close(at_once, logits)
    after, _ = model.step(torch.tensor([[8]]), memory, state)
    expected, _ = model.step(torch.tensor([[8]]), memory, slow)
    torch.testing.assert_close(after, expected)


@pytest.mark.parametrize("settings", PATTERNS)
def test_every_token_is_drawn_by_what_the_window_shows_and_the_window_slides_by_half(settings):
    model, window, prompt = language_model(**settings), 8, [5, 6, 7]
    slid = []
    drawn = list(
        generate_tokens(
            model,
            prompt,
            SamplingOptions(0),
            length=20,
            window=window,
            device=CPU,
            on_slide=lambda: slid.append(len(slid)),
        )
    )
    seen, shown = list(prompt), list(prompt)
    for number, (token, log_probability) in enumerate(drawn):
        values = output_log_probabilities(whole(model, shown)[-1:], first=number == 0)
        values[..., UNKNOWN] = -torch.inf
        assert token == int(values.argmax())
        assert log_probability == pytest.approx(values.max().item())
        seen.append(token)
        shown.append(token)
        if len(shown) + 1 > window:
            shown = seen[-window // 2 :]
    assert len(slid) == 4  # 4 more tokens fill the window, then 4 at a time; the last are not read


def test_a_prompt_longer_than_the_window_is_read_from_its_last_half():
    model = language_model()
    page = ContextWindow(model, 8, CPU)
    long = [5, 6, 7, 8, 9, 10, 11, 4, 5, 6]
    assert page.is_full(long)
    torch.testing.assert_close(page.next_logits(long)[0, 0].log_softmax(-1), whole(model, long[-4:])[-1])


def test_the_end_is_never_first_and_nothing_follows_it():
    model = language_model()
    with torch.no_grad():
        model.target_embedding.weight[END] = 0.3 * model.target_embedding.weight.sum(0)
    for seed in range(20):
        tokens = [
            token
            for token, _ in generate_tokens(
                model, [], SamplingOptions(1.5, seed=seed), length=30, window=16, device=CPU
            )
        ]
        assert tokens[0] != END and END not in tokens[:-1]


def test_different_samples_and_seeds_and_prompts_draw_differently():
    model = language_model()

    def text(prompt, seed, sample):
        pairs = generate_tokens(
            model, prompt, SamplingOptions(1.0, seed=seed), length=12, window=16, device=CPU, sample=sample
        )
        return tuple(token for token, _ in pairs)

    assert text([5], 1, 0) == text([5], 1, 0)
    assert len({text([5], 1, 0), text([5], 1, 1), text([5], 2, 0), text([6], 1, 0)}) == 4


def test_only_the_tokens_allowed_first_come_first():
    opening = torch.zeros(VOCABULARY, dtype=torch.bool)
    opening[[7, 9]] = True
    for seed in range(5):
        pairs = generate_tokens(
            language_model(),
            [5],
            SamplingOptions(2.0, seed=seed),
            length=1,
            window=16,
            device=CPU,
            first_token_mask=opening,
        )
        assert next(pairs)[0] in (7, 9)


@pytest.mark.parametrize("settings", PATTERNS)
@pytest.mark.parametrize("length", [1, 5, 8, 9, 12, 13, 40])
def test_each_token_of_a_long_text_is_predicted_once_with_half_a_window_before_it(settings, length):
    model, window = language_model(**settings), 8
    tokens = torch.randint(4, VOCABULARY, (length,), generator=torch.Generator().manual_seed(length)).tolist()
    counts = []
    found = token_losses(model, tokens, window, CPU, counts.append)
    for place, token in enumerate(tokens):
        first = 0 if place < window else (place // 4 - 1) * 4
        expected = -whole(model, tokens[first:place])[-1, token].item()
        assert found[place] == pytest.approx(expected, rel=1e-6), place
    assert sum(counts) == length
