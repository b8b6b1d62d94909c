"""What is finished in the laboratory is kept, and what was interrupted goes on."""

import pytest
from toy_lab import toy_lab

from dragoman.errors import TrainingStopped, UserError
from dragoman.lab.laboratory import FINISHED_FILE, TrainedModel
from dragoman.run import Run
from dragoman.tasks.events import ProgressUpdate
from dragoman.training.events import StopRequest

TOY = {
    "tokenizer.kind": "words", "model.layers": 1, "model.width": 16, "model.inner_width": 16, "model.heads": 2,
    "training.batch_tokens": 64, "training.checkpoint_every": 2, "training.validate_every": 4, "training.threads": 1,
}  # fmt: skip


def test_a_part_is_measured_once(tmp_path, material):
    lab, times = toy_lab(tmp_path, material), []

    def measure():
        times.append(1)
        return {"found": (1, 2)}

    assert lab.measure_once("part", measure, n=3) == {"found": [1, 2]}
    assert toy_lab(tmp_path, material).measure_once("part", measure, n=3) == {"found": [1, 2]}
    assert len(times) == 1


def test_a_part_is_measured_again_when_what_it_depends_on_has_changed_or_its_file_is_damaged(tmp_path, material):
    lab = toy_lab(tmp_path, material)
    assert [lab.measure_once("part", lambda n=n: n, n=n) for n in (1, 2)] == [1, 2]
    (lab.folder / "parts" / "part.json").write_text('{"what": {"n"')
    assert lab.measure_once("part", lambda: 3, n=2) == 3


def test_a_model_to_order_is_a_run_like_any_other_and_is_found_again(tmp_path, material):
    settings = {**TOY, "training.steps": 6}
    trained = toy_lab(tmp_path, material).train_model("model", settings, seconds=60)
    mark = trained.run.folder / FINISHED_FILE
    written_at = mark.stat().st_mtime_ns
    again = toy_lab(tmp_path, material).train_model("model", settings, seconds=60)
    assert mark.stat().st_mtime_ns == written_at
    assert again.steps == 6
    assert again.target_tokens > 0
    assert again.parameters == sum(parameter.numel() for parameter in again.translator.model.parameters())
    assert 0 <= again.bleu(material.pairs("test")) <= 100
    assert 1 < again.perplexity < 100
    other = toy_lab(tmp_path, material).train_model("model", {**settings, "training.steps": 4}, seconds=60)
    assert other.steps == 4


def test_the_time_of_a_model_to_order_ends_its_training(tmp_path, material):
    trained = toy_lab(tmp_path, material).train_model("model", TOY, seconds=0.05)
    assert trained.seconds < 5
    assert trained.steps < 1000


def test_an_interrupted_training_goes_on_when_it_is_ordered_again(tmp_path, material):
    settings, stop = {**TOY, "training.steps": 30}, StopRequest()
    ever = []

    def listen(event):
        if isinstance(event, ProgressUpdate) and "training model" in event.description:
            ever.append(event)
            if len(ever) == 5:
                stop.request()

    with pytest.raises(
        TrainingStopped, match=r"Stopped in toy, model; everything is saved\. Run the same command to continue\."
    ):
        toy_lab(tmp_path, material, listen=listen, stop=stop).train_model("model", settings, seconds=60)
    trained = toy_lab(tmp_path, material).train_model("model", settings, seconds=60)
    steps = [event["step"] for event in trained.events if event["event"] == "train"]
    assert steps == list(range(1, 31))
    undisturbed = toy_lab(tmp_path / "other", material).train_model("model", settings, seconds=60)
    assert trained.perplexity == undisturbed.perplexity


def test_what_has_diverged_is_infinitely_perplexed_and_translates_nothing(tmp_path, material):
    lost = TrainedModel(toy_lab(tmp_path, material).model_run("lost"), diverged=True)
    assert lost.perplexity == float("inf")
    assert lost.translate_sources([("a b", "B A")]) == [""]
    assert lost.bleu([("a b", "B A")]) == 0


def test_models_trained_side_by_side_are_those_trained_one_by_one(tmp_path, material):
    settings = {**TOY, "training.steps": 4}
    orders = {"one": (settings, 1), "two": (settings, 2)}
    together = toy_lab(tmp_path, material).train_in_parallel(orders)
    alone = toy_lab(tmp_path / "alone", material).train_model("two", settings, seconds=60, seed=2)
    assert together["two"].perplexity == alone.perplexity
    assert together["one"].perplexity != alone.perplexity
    assert {each.steps for each in together.values()} == {4}


def test_a_training_beside_others_that_fails_says_why(tmp_path, material):
    lab = toy_lab(tmp_path, material)
    lab.model_run("one").folder.parent.mkdir()
    lab.model_run("one").folder.write_text("in the way")
    with pytest.raises(UserError, match=r"The training of one failed: .*one is a file.*one\.log"):
        lab.train_in_parallel({"one": ({**TOY, "training.steps": 4}, 1)})


def test_the_reference_is_shared_by_experiments_also_when_they_have_different_times(tmp_path, material, trained):
    first = toy_lab(tmp_path, material, name="heads").reference_model()
    other = toy_lab(tmp_path, material, name="alignment", seconds=3.0)
    assert other.reference_model().run.folder == first.run.folder == tmp_path / "reference"
    given = toy_lab(tmp_path, material, given_run=Run(trained)).reference_model()
    assert given.run.folder == trained
