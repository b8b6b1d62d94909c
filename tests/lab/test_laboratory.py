"""The laboratory: measurements made once, and models trained once, resumed and in parallel."""

import pytest
from small_lab import shrink
from toy_lab import toy_lab

from dragoman.errors import TrainingStopped, UserError
from dragoman.lab.laboratory import FINISHED_FILE, SMALL_RECIPE, TrainedModel
from dragoman.run import Run
from dragoman.tasks.events import ProgressUpdate
from dragoman.training.events import StopRequest

TOY = {
    "tokenizer.kind": "words", "model.layers": 1, "model.width": 16, "model.inner_width": 16, "model.heads": 2,
    "training.batch_tokens": 64, "training.checkpoint_every": 2, "training.validate_every": 4, "training.threads": 1,
}  # fmt: skip


def test_a_measurement_is_made_once(tmp_path, corpus):
    lab, times = toy_lab(tmp_path, corpus), []

    def measure():
        times.append(1)
        return {"found": (1, 2)}

    assert lab.measure_once("part", measure, n=3) == {"found": [1, 2]}
    assert toy_lab(tmp_path, corpus).measure_once("part", measure, n=3) == {"found": [1, 2]}
    assert len(times) == 1


def test_a_measurement_is_repeated_if_its_dependencies_changed_or_its_file_is_damaged(tmp_path, corpus):
    lab = toy_lab(tmp_path, corpus)
    assert [lab.measure_once("part", lambda n=n: n, n=n) for n in (1, 2)] == [1, 2]
    (lab.folder / "parts" / "part.json").write_text('{"what": {"n"')
    assert lab.measure_once("part", lambda: 3, n=2) == 3


def test_a_trained_model_is_an_ordinary_run_and_is_loaded_again(tmp_path, corpus):
    settings = {**TOY, "training.steps": 6}
    trained = toy_lab(tmp_path, corpus).train_model("model", settings, seconds=60)
    mark = trained.run.folder / FINISHED_FILE
    written_at = mark.stat().st_mtime_ns
    again = toy_lab(tmp_path, corpus).train_model("model", settings, seconds=60)
    assert mark.stat().st_mtime_ns == written_at
    assert again.steps == 6
    assert again.target_tokens > 0
    assert again.parameters == sum(parameter.numel() for parameter in again.translator.model.parameters())
    other = toy_lab(tmp_path, corpus).train_model("model", {**settings, "training.steps": 4}, seconds=60)
    assert other.steps == 4


def test_a_training_ends_when_its_time_is_over(tmp_path, corpus):
    trained = toy_lab(tmp_path, corpus).train_model("model", TOY, seconds=0.05)
    assert 0 < trained.steps < SMALL_RECIPE["training"]["steps"]


def test_an_interrupted_training_continues(tmp_path, corpus):
    settings, stop = {**TOY, "training.steps": 30}, StopRequest()
    ever = []

    def on_event(event):
        if isinstance(event, ProgressUpdate) and "training model" in event.description:
            ever.append(event)
            if len(ever) == 5:
                stop.request()

    with pytest.raises(
        TrainingStopped, match=r"Stopped during toy, model; everything is saved\. Run the same command to continue\."
    ):
        toy_lab(tmp_path, corpus, on_event=on_event, stop=stop).train_model("model", settings, seconds=60)
    trained = toy_lab(tmp_path, corpus).train_model("model", settings, seconds=60)
    steps = [event["step"] for event in trained.events if event["event"] == "train"]
    assert steps == list(range(1, 31))
    undisturbed = toy_lab(tmp_path / "other", corpus).train_model("model", settings, seconds=60)
    assert trained.perplexity == undisturbed.perplexity


def test_a_diverged_model_has_infinite_perplexity_and_empty_translations(tmp_path, corpus):
    lost = TrainedModel(toy_lab(tmp_path, corpus).model_run("lost"), diverged=True)
    assert lost.perplexity == float("inf")
    assert lost.translate_sources([("a b", "B A")]) == [""]
    assert lost.bleu([("a b", "B A")]) == 0


def test_models_trained_in_parallel_equal_those_trained_alone(tmp_path, corpus):
    settings = {**TOY, "training.steps": 4}
    orders = {"one": (settings, 1), "two": (settings, 2)}
    together = toy_lab(tmp_path, corpus).train_in_parallel(orders)
    alone = toy_lab(tmp_path / "alone", corpus).train_model("two", settings, seconds=60, seed=2)
    assert together["two"].perplexity == alone.perplexity
    assert together["one"].perplexity != alone.perplexity
    assert {each.steps for each in together.values()} == {4}


def test_a_failed_parallel_training_is_reported(tmp_path, corpus):
    lab = toy_lab(tmp_path, corpus)
    lab.model_run("one").folder.parent.mkdir()
    lab.model_run("one").folder.write_text("in the way")
    with pytest.raises(UserError, match=r"Training one failed: .*one is a file.*one\.log"):
        lab.train_in_parallel({"one": ({**TOY, "training.steps": 4}, 1)})


def test_experiments_with_different_budgets_share_the_reference_model(tmp_path, corpus, trained, monkeypatch):
    shrink(monkeypatch)
    first = toy_lab(tmp_path, corpus, name="heads").reference_model()
    other = toy_lab(tmp_path, corpus, name="alignment", seconds=3.0)
    assert other.reference_model().run.folder == first.run.folder == tmp_path / "reference"
    given = toy_lab(tmp_path, corpus, given_run=Run(trained)).reference_model()
    assert given.run.folder == trained
