import pytest
import torch

from dragoman import checkpoints
from dragoman.checkpoints import TrainingProgress, average_checkpoints, select_checkpoints
from dragoman.errors import UserError


@pytest.fixture
def saved(tmp_path):
    """Three checkpoints of a model with four weights; the second has the lowest loss."""
    for step, loss in ((1, 3.0), (2, 1.0), (3, 2.0)):
        model = torch.nn.Linear(2, 2, bias=False)
        torch.nn.init.constant_(model.weight, float(step**2))
        optimizer = torch.optim.Adam(model.parameters())
        checkpoints.save_checkpoint(
            tmp_path, TrainingProgress(step=step, validated_at=step, loss=loss), model, optimizer
        )
    return tmp_path


def steps(places):
    return [int(place.name) for place in places]


def test_the_average_is_the_sum_divided_by_the_number(saved):
    mean = average_checkpoints(select_checkpoints(saved, 3, "last"))
    assert mean["weight"].tolist() == [[pytest.approx((1 + 4 + 9) / 3)] * 2] * 2
    assert mean["weight"].dtype == torch.float32


def test_the_average_of_one_is_that_one(saved):
    assert average_checkpoints(select_checkpoints(saved, 1, "last"))["weight"].tolist() == [[9.0, 9.0], [9.0, 9.0]]


def test_the_newest_or_the_best_are_chosen(saved):
    assert steps(select_checkpoints(saved, 2, "last")) == [3, 2]
    assert steps(select_checkpoints(saved, 2, "best")) == [2, 3]
    assert steps(select_checkpoints(saved, 9, "last")) == [3, 2, 1]


def test_a_damaged_checkpoint_is_not_averaged(saved):
    (saved / "000000003" / "model.safetensors").write_bytes(b"")
    assert steps(select_checkpoints(saved, 2, "last")) == [2, 1]


def test_without_a_whole_checkpoint_there_is_nothing_to_average(tmp_path):
    with pytest.raises(UserError, match=r"has no intact checkpoint to average; create one with `dragoman train`"):
        select_checkpoints(tmp_path, 2, "last")
