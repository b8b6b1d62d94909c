import pytest
import torch

from dragoman.decoding.scoring import length_penalty


def test_the_penalty_is_that_of_the_paper():
    assert length_penalty(1.0, 0.6) == 1.0
    assert length_penalty(7.0, 0.6) == pytest.approx(2**0.6)
    assert length_penalty(7.0, 1.0) == 2.0


def test_without_alpha_there_is_no_penalty():
    assert length_penalty(100.0, 0.0) == 1.0


def test_tensors_and_numbers_are_penalised_alike():
    lengths = torch.tensor([1.0, 7.0, 61.0], dtype=torch.float64)
    assert length_penalty(lengths, 0.6).tolist() == [length_penalty(n, 0.6) for n in lengths.tolist()]
