"""The facts about a run."""

import pytest

from dragoman.model_config import DecoderOnlyConfig, TransformerConfig
from dragoman.tasks.info import describe_model


@pytest.mark.parametrize(
    ("config", "start"),
    [
        (TransformerConfig(layers=1, width=16, heads=1), "1+1 layers, width 16, 1 head, "),
        (DecoderOnlyConfig(layers=1, width=16, heads=2), "decoder-only Transformer, 1 layer, width 16, 2 heads, "),
    ],
)
def test_the_description_of_a_model_counts_its_layers_and_heads(config, start):
    assert describe_model(config).startswith(start)
