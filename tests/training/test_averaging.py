import shutil
from dataclasses import replace

import pytest
import torch

import dragoman
from dragoman import checkpoints
from dragoman.checkpoints import TrainingProgress, average_checkpoints, candidate_averages, select_checkpoints
from dragoman.errors import UserError
from dragoman.model_files import read_tensors


@pytest.fixture
def saved(tmp_path):
    """Three checkpoints of a model with four weights; the second has the lowest loss."""
    for step, loss in ((1, 3.0), (2, 1.0), (3, 2.0)):
        model = torch.nn.Linear(2, 2, bias=False)
        torch.nn.init.constant_(model.weight, float(step**2))
        optimizer = torch.optim.Adam(model.parameters())
        checkpoints.save_checkpoint(
            tmp_path / "checkpoints", TrainingProgress(step=step, validated_at=step, loss=loss), model, optimizer
        )
    return tmp_path / "checkpoints"


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


def test_means_of_neighbours_the_last_and_the_best_are_candidates(saved):
    assert [steps(paths) for paths in candidate_averages(saved, 3, "last")] == [[3, 2, 1], [3, 2], [3], [2]]
    assert [steps(paths) for paths in candidate_averages(saved, 1, "last")] == [[3], [2]]


@pytest.fixture
def finished(toy_recipe, tmp_path):
    """A training that may choose its weights, with the events of its end."""
    recipe = toy_recipe(tmp_path / "run", "training.validate_every=4", "training.checkpoint_every=4")
    recipe = recipe.model_copy(update={"training": recipe.training.model_copy(update={"average": None})})
    events = []
    run = dragoman.train(recipe, on_event=events.append)
    return recipe, run, events[-1]


def test_the_candidate_that_validates_best_becomes_the_model(finished):
    _, run, event = finished
    chosen, *others = event.weights
    assert others
    assert all((-chosen.score, chosen.loss) <= (-other.score, other.loss) for other in others)
    weights, metadata = read_tensors(run.weights_file)
    assert metadata["steps"] == " ".join(map(str, chosen.steps))
    mean = average_checkpoints([run.checkpoints_dir / f"{step:09d}" for step in chosen.steps])
    assert all(torch.equal(weights[name], mean[name]) for name in mean)
    card = run.card_file.read_text()
    assert f"The weights are {chosen} (BLEU {chosen.score:.1f}, loss {chosen.loss:.3f})" in card
    assert all(f"- {other}: BLEU {other.score:.1f}, loss {other.loss:.3f}" in card for other in others)


def test_a_mean_that_is_worse_than_the_last_checkpoint_is_not_published(finished):
    """Weights before the last checkpoint that outweigh its own make every mean its opposite.

    If they only cancelled its own, all tokens would be equally likely, and how ties are broken would decide.
    """
    recipe, run, _ = finished
    (last,) = select_checkpoints(run.checkpoints_dir, 1, "last")
    progress = checkpoints.read_progress(last)
    model = dragoman.load(run.folder, checkpoint=progress.step).model
    for path in run.checkpoints_dir.iterdir():
        if path != last:
            shutil.rmtree(path)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(-3)
    optimizer = torch.optim.Adam(model.parameters())
    earlier = replace(progress, step=progress.step - 4, validated_at=progress.step - 4, loss=99.0)
    checkpoints.save_checkpoint(run.checkpoints_dir, earlier, model, optimizer)
    events = []
    dragoman.train(recipe, resume=True, on_event=events.append)
    assert events[-1].weights[0].steps == (progress.step,)
    assert (progress.step, progress.step - 4) in [weights.steps for weights in events[-1].weights]


def test_a_recipe_that_says_how_many_to_average_gets_that(trained):
    assert read_tensors(trained / "model.safetensors")[1]["steps"] == "8 6"


def test_a_damaged_checkpoint_is_not_averaged(saved):
    (saved / "000000003" / "model.safetensors").write_bytes(b"")
    assert steps(select_checkpoints(saved, 2, "last")) == [2, 1]


def test_without_a_whole_checkpoint_there_is_nothing_to_average(tmp_path):
    with pytest.raises(UserError, match=r"has no intact checkpoint to average; create one with `dragoman train`"):
        select_checkpoints(tmp_path, 2, "last")
