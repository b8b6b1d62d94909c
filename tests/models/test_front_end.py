"""The front end: frames become a quarter as many positions, and padding has no influence."""

import pytest
import torch

from dragoman.model_config import TransformerConfig
from dragoman.models.front_end import FrontEnd
from dragoman.models.transducer import Source
from dragoman.models.transformer import Transformer
from dragoman.native.model import compile_model
from dragoman.tokens import START

WIDTH = 10


def frames(*lengths: int) -> Source:
    torch.manual_seed(1)
    values = torch.randn(len(lengths), max(lengths), WIDTH)
    source = Source.from_frames(values, torch.tensor(lengths))
    return Source(values * source.mask[..., None], source.mask)


def small_transformer(**settings: object) -> Transformer:
    torch.manual_seed(2)
    config = TransformerConfig(
        layers=2, width=32, inner_width=32, heads=2, dropout=0.0, frame_width=WIDTH, ctc_weight=0.3, **settings
    )
    return Transformer(config, 12, 12).eval()


@pytest.mark.parametrize("length", [1, 2, 3, 4, 5, 8, 9, 33])
def test_four_frames_become_one_position(length):
    source = frames(length)

    vectors, mask = FrontEnd(WIDTH, 16)(source)

    assert vectors.shape == (1, -(-length // 4), 16)
    assert mask.all() and source.positions.tolist() == [mask.shape[1]]


@torch.inference_mode()
def test_a_signal_gives_the_same_positions_alone_and_beside_a_longer_one():
    model, together = small_transformer(), frames(21, 40, 7)

    memory = model.encode(together)

    for row, length in enumerate([21, 40, 7]):
        alone = model.encode(Source.from_frames(together.values[row : row + 1, :length], torch.tensor([length])))
        positions = alone.states.shape[1]
        assert memory.mask[row].sum() == positions
        torch.testing.assert_close(memory.states[row, :positions], alone.states[0], atol=1e-5, rtol=1e-5)


@torch.inference_mode()
def test_the_compiled_decoder_reads_the_memory_of_frames():
    model, source = small_transformer(), frames(21, 40)
    native = compile_model(model, "float32")

    memory = native.encode(source)
    state = native.initial_state(memory)
    logits, _ = native.step(torch.full((2, 1), START), memory, state)

    expected = model.decode(torch.full((2, 1), START), model.encode(source))
    torch.testing.assert_close(logits, expected, atol=1e-4, rtol=1e-4)


@torch.inference_mode()
def test_ctc_log_probabilities_are_those_of_a_softmax_at_every_position():
    model = small_transformer()

    heard = model.ctc_log_probabilities(model.encode(frames(21, 40)))

    assert heard.shape == (2, 10, 12)
    torch.testing.assert_close(heard.exp().sum(-1), torch.ones(2, 10))


def test_window_attention_works_on_frames():
    model, source = small_transformer(pattern="window", window=4), frames(80)
    assert model.encode(source).states.shape == (1, 20, 32)


def test_a_source_of_frames_has_no_source_words_and_no_embedding_of_its_own():
    with pytest.raises(ValueError, match="set share_embeddings = true"):
        TransformerConfig(frame_width=4, share_embeddings=False)
    with pytest.raises(ValueError, match="set next_word = false"):
        TransformerConfig(frame_width=4, next_word=True)
    model = small_transformer()
    assert model.source_embedding is model.target_embedding
