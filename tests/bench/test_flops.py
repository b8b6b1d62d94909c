"""Operations, counted by hand and by PyTorch's own counter."""

import pytest
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from dragoman.bench.flops import decoder_flops, decoding_flops, encoder_flops, memory_flops, training_flops
from dragoman.bench.torch_baseline import TorchTransformer
from dragoman.model_config import TransformerConfig

SMALL = TransformerConfig(layers=1, width=4, inner_width=8, heads=2, dropout=0.0)


def test_an_encoder_layer_is_four_projections_two_inner_matrices_and_two_products_of_attention():
    projections = 3 * 4 * (2 * 4 * 4)
    inner = 3 * 2 * (2 * 4 * 8)
    attention = 2 * (2 * 3 * 3 * 4)
    assert encoder_flops(SMALL, 3) == projections + inner + attention == 912


def test_the_memory_is_projected_to_keys_and_values_in_each_layer_of_the_decoder():
    assert memory_flops(SMALL, 3) == 3 * 2 * (2 * 4 * 4) == 192


def test_a_decoder_layer_looks_twice_and_ends_in_the_vocabulary():
    own, cross, inner = 2 * 4 * 32, 2 * 2 * 32, 2 * 2 * 64
    attention = 2 * (2 * 2 * 2 * 4) + 2 * (2 * 2 * 3 * 4)
    output = 2 * 2 * 4 * 10
    assert decoder_flops(SMALL, 10, 2, attended_pairs=2 * (2 + 3)) == own + cross + inner + attention + output == 960


def test_training_is_three_times_the_forward_pass_shared_by_the_target_tokens():
    assert training_flops(SMALL, 10, [(3, 2)]) == 3 * (912 + 192 + 960) / 2
    assert training_flops(SMALL, 10, [(3, 2), (3, 2)]) == training_flops(SMALL, 10, [(3, 2)])


def test_decoding_reads_the_source_once_and_writes_as_often_as_the_beam_is_wide():
    layers = 2 * 2 * 4 * (16 + 8 + 16) + 2 * (1 + 2 + 2 * 3) * 8
    assert decoding_flops(SMALL, 10, 3, 2, beam=2) == 912 + 192 + 2 * (layers + 160)


def test_heads_with_widths_of_their_own_count_as_wide_as_they_are():
    wider = SMALL.model_copy(update={"key_width": 3, "value_width": 5})
    assert encoder_flops(wider, 1) == 2 * 4 * (2 * 6 + 2 * 10) + 2 * (2 * 4 * 8) + 2 * (6 + 10)


@pytest.mark.parametrize("choice", [{"norm": "pre"}, {"norm": "post"}, {"decoder_layers": 1}])
def test_pytorch_counts_the_same_for_its_own_transformer(choice):
    config = TransformerConfig(layers=2, width=8, inner_width=12, heads=2, dropout=0.0, **choice)
    model = TorchTransformer(config, 20, 20).train()
    source, prefix = torch.full((1, 5), 7), torch.full((1, 3), 9)
    with sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as counter:
        model(source, prefix).sum().backward()
    assert counter.get_total_flops() == training_flops(config, 20, [(5, 3)]) * 3
