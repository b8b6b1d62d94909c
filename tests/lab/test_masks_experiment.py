"""Section 3.2.3: the wrong masks differ from the causal mask as described, and only in training."""

import copy

import pytest
import torch
from small_lab import check_report, shrink
from toy_lab import toy_lab

from dragoman.lab import masks
from dragoman.model_config import TransformerConfig
from dragoman.models.attention import causal_mask
from dragoman.models.transducer import Source
from dragoman.models.transformer import Transformer
from dragoman.tokens import START

SMALLEST = TransformerConfig(layers=2, width=16, inner_width=16, heads=2, dropout=0.0)


def gradient_of_the_future(weigh):
    torch.manual_seed(1)
    scores = torch.randn(1, 1, 5, 5, dtype=torch.float64, requires_grad=True)
    weights = weigh(scores, causal_mask(5)[None, None])
    kept = weights * causal_mask(5)
    return torch.autograd.grad((kept * torch.randn(5, 5, dtype=torch.float64)).sum(), scores)[0].triu(1).abs().max()


def test_with_minus_infinity_nothing_depends_on_later_positions():
    weights = masks.mask_scores(torch.randn(1, 1, 5, 5), causal_mask(5)[None, None])
    assert weights.triu(1).max() == 0
    assert weights.sum(-1) == pytest.approx(torch.ones(1, 1, 5))
    assert gradient_of_the_future(masks.mask_scores) == 0


def test_zero_scores_have_the_weight_of_e_to_the_zero():
    weights = masks.zero_scores(torch.full((1, 1, 2, 2), 3.0), causal_mask(2)[None, None])
    e = torch.e
    assert weights[0, 0, 0] == pytest.approx(torch.tensor([e**3 / (e**3 + 1), 1 / (e**3 + 1)]))


def test_zero_weights_do_not_add_up_to_one_and_depend_on_later_positions():
    weights = masks.zero_weights(torch.zeros(1, 1, 4, 4), causal_mask(4)[None, None])
    assert weights.sum(-1)[0, 0].tolist() == [0.25, 0.5, 0.75, 1.0]
    assert gradient_of_the_future(masks.zero_weights) > 0


def test_replacing_the_mask_by_the_papers_does_not_change_the_model():
    torch.manual_seed(2)
    ordinary = Transformer(SMALLEST, 20, 20).eval()
    handed = copy.deepcopy(ordinary)
    masks.replace_decoder_masks(masks.mask_scores, handed)
    source, prefix = torch.randint(4, 20, (3, 6)), torch.randint(4, 20, (3, 7))
    expected = ordinary.hidden_states(prefix, ordinary.encode(Source.from_ids(source)))
    assert torch.allclose(handed.hidden_states(prefix, handed.encode(Source.from_ids(source))), expected, atol=1e-5)


@pytest.mark.parametrize("weigh", list(masks.MASKS.values()), ids=lambda weigh: weigh.__name__)
def test_only_the_papers_mask_hides_the_next_token_and_decoding_is_the_same_for_all(weigh):
    torch.manual_seed(2)
    model = Transformer(SMALLEST, 20, 20).eval()
    source = torch.randint(4, 20, (1, 6))
    before = model.step(
        torch.tensor([[START]]),
        model.encode(Source.from_ids(source)),
        model.initial_state(model.encode(Source.from_ids(source))),
    )[0]
    masks.replace_decoder_masks(weigh, model)
    memory = model.encode(Source.from_ids(source))
    one, other = (model.hidden_states(torch.tensor([[START, piece, 5]]), memory)[:, 0] for piece in (6, 7))
    assert torch.allclose(one, other, atol=1e-6) == (weigh is masks.mask_scores)
    assert torch.allclose(
        model.step(torch.tensor([[START]]), memory, model.initial_state(memory))[0], before, atol=1e-6
    )


def test_the_experiment_writes_a_report(tmp_path, corpus, monkeypatch):
    shrink(monkeypatch)
    lab = toy_lab(tmp_path, corpus, seconds=60)
    report = masks.run(lab)
    check_report(report, lab, tables=2, pictures=1)
    assert list(report.results["masks"]) == ["−∞, as in the paper", "no mask"]  # the others need more time
    assert "Because time is short: without “scores set to zero”, “weights set to zero”" in report.parts[1]
    assert masks.run(lab) == report  # nothing is trained again


def test_masks_are_not_compared_if_the_model_with_the_papers_mask_has_not_learned(tmp_path, corpus, monkeypatch):
    shrink(monkeypatch, learned=False)
    report = masks.run(toy_lab(tmp_path, corpus, seconds=20))
    assert [finding.split(";")[0] for finding in report.findings] == ["Nothing was learned in this budget"]
