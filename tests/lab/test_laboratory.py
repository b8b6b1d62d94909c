"""The laboratory: measurements made once, and models trained once, resumed and in parallel."""

import pytest
from small_lab import shrink
from toy_lab import toy_lab, train

from dragoman.errors import TrainingStopped, UserError
from dragoman.lab.laboratory import FINISHED_FILE, SMALL_RECIPE, TrainedModel
from dragoman.presets import PLANNED_SETTINGS
from dragoman.run import Run
from dragoman.tasks.events import Notice, ProgressUpdate
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
    trained = train(toy_lab(tmp_path, corpus), "model", settings)
    mark = trained.run.folder / FINISHED_FILE
    written_at = mark.stat().st_mtime_ns
    again = train(toy_lab(tmp_path, corpus), "model", settings)
    assert mark.stat().st_mtime_ns == written_at
    assert again.steps == 6
    assert again.target_tokens > 0
    assert again.parameters == sum(parameter.numel() for parameter in again.translator.model.parameters())
    other = train(toy_lab(tmp_path, corpus), "model", {**settings, "training.steps": 4})
    assert other.steps == 4


def test_a_training_ends_when_its_time_is_over(tmp_path, corpus):
    trained = train(toy_lab(tmp_path, corpus), "model", {**TOY, "training.minutes": 0.05 / 60})
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
        train(toy_lab(tmp_path, corpus, on_event=on_event, stop=stop), "model", settings)
    trained = train(toy_lab(tmp_path, corpus), "model", settings)
    steps = [event["step"] for event in trained.events if event["event"] == "train"]
    assert steps == list(range(1, 31))
    undisturbed = train(toy_lab(tmp_path / "other", corpus), "model", settings)
    assert trained.perplexity == undisturbed.perplexity


def test_a_diverged_model_has_infinite_perplexity_and_empty_translations(tmp_path, corpus):
    lost = TrainedModel(toy_lab(tmp_path, corpus).model_run("lost"), diverged=True)
    assert lost.perplexity == float("inf")
    assert lost.translate_sources([("a b", "B A")]) == [""]
    assert lost.bleu([("a b", "B A")]) == 0


def recipes(lab, names, **settings):
    return {name: lab.build_recipe(name, {**TOY, "training.steps": 4, **settings}, seed=seed) for seed, name in names}


NAMES = ((1, "one"), (2, "two"))


def test_models_trained_in_parallel_equal_those_trained_in_turn(tmp_path, corpus):
    parallel, serial = toy_lab(tmp_path / "parallel", corpus), toy_lab(tmp_path / "serial", corpus)
    together = parallel.train_all(recipes(parallel, NAMES), at_once=2)
    alone = serial.train_all(recipes(serial, NAMES))
    assert {name: model.perplexity for name, model in together.items()} == {
        name: model.perplexity for name, model in alone.items()
    }
    assert together["one"].perplexity != together["two"].perplexity
    assert {each.steps for each in together.values()} == {4}


def test_progress_names_the_model_and_the_number_of_models_left(tmp_path, corpus):
    events = []
    lab = toy_lab(tmp_path, corpus, on_event=events.append)
    train(lab, "one", {**TOY, "training.steps": 4}, seed=1)
    events.clear()
    lab.train_all(recipes(lab, (*NAMES, (3, "three"))))
    steps = [event for event in events if isinstance(event, ProgressUpdate)]
    assert steps[0] == ProgressUpdate("toy: training two (model 2 of 3), step", 1, 4)
    assert steps[-1] == ProgressUpdate("toy: training three (model 3 of 3), step", 4, 4)
    notices = [event.text for event in events if isinstance(event, Notice) and not event.serious]
    assert [text.split(":")[1] for text in notices] == [" trained two", " trained three"]
    assert [text.rpartition("; ")[2] for text in notices] == ["1 model left.", "0 models left."]


@pytest.mark.parametrize("at_once", [1, 2])
def test_models_are_left_out_if_the_budget_is_used_up_and_the_others_suffice(tmp_path, corpus, at_once):
    events = []
    lab = toy_lab(tmp_path, corpus, seconds=0.0, on_event=events.append)
    some = {"at_once": at_once, "suffices": lambda labels: "one" in labels}
    models = lab.train_all(recipes(lab, (*NAMES, (3, "three"))), **some)
    assert "one" in models and "three" not in models
    assert events[-1].text.startswith("toy: the budget is used up; ")
    patient = toy_lab(tmp_path, corpus, seconds=1e9)
    assert set(patient.train_all(recipes(patient, (*NAMES, (3, "three"))), **some)) == {"one", "two", "three"}


def test_a_failed_parallel_training_is_reported(tmp_path, corpus):
    lab = toy_lab(tmp_path, corpus)
    lab.model_run("one").folder.parent.mkdir()
    lab.model_run("one").folder.write_text("in the way")
    with pytest.raises(UserError, match=r"Training one failed: .*one is a file.*one\.log"):
        lab.train_all(recipes(lab, NAMES[:1]), at_once=2)


@pytest.mark.parametrize("architecture", ["transformer", "recurrent", "convs2s", "bytenet"])
def test_a_recipe_of_the_laboratory_leaves_nothing_to_plan(tmp_path, corpus, architecture):
    recipe = toy_lab(tmp_path, corpus).build_recipe("model", {"model.architecture": architecture})
    left_open = {
        f"{section}.{name}"
        for section, names in PLANNED_SETTINGS.items()
        for name in names
        if name in type(config := getattr(recipe, section)).model_fields and name not in config.model_fields_set
    }
    assert left_open <= {"model.decoder_layers"}  # as many as in the encoder


def test_the_speed_of_variants_is_measured_once(tmp_path, corpus):
    variants = {"small": TOY, "wide": {**TOY, "model.width": 32}}
    speed = toy_lab(tmp_path, corpus).measure_speed(variants)
    assert list(speed.seconds_per_step) == ["small", "wide"]
    assert min(*speed.seconds_per_step.values(), speed.overhead_seconds) > 0
    assert toy_lab(tmp_path, corpus).measure_speed(variants) == speed


def test_experiments_with_different_budgets_share_the_reference_model(tmp_path, corpus, trained, monkeypatch):
    shrink(monkeypatch)
    first = toy_lab(tmp_path, corpus, name="heads").reference_model()
    other = toy_lab(tmp_path, corpus, name="alignment", seconds=3.0)
    assert other.reference_model().run.folder == first.run.folder == tmp_path / "reference"
    given = toy_lab(tmp_path, corpus, given_run=Run(trained)).reference_model()
    assert given.run.folder == trained
