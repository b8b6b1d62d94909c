"""A validation decodes with the weights of its own step.

torch's fused Adam changes parameters without counting it as a change, so what the decoder had packed at the first
validation was taken for fresh at every later one: the loss fell, and the sample translations were nonsense.
"""

import json

import dragoman
from dragoman.training.loop import TrainingStep


def test_what_a_validation_translates_is_what_its_checkpoint_translates(toy_recipe, tmp_path):
    settings = ("training.steps=60", "training.validate_every=20", "training.checkpoint_every=20", "training.keep=9")
    learning = ("training.schedule=constant", "training.rate=0.02", "model.dropout=0", "training.precision=float32")
    run = dragoman.train(toy_recipe(tmp_path / "run", *settings, *learning)).folder
    entries = map(json.loads, (run / "metrics.jsonl").read_text().splitlines())
    validations = [entry for entry in entries if entry["event"] == "validation"]
    assert [entry["step"] for entry in validations] == [20, 40, 60]
    for entry in validations:
        model = dragoman.load(run, checkpoint=entry["step"])
        for sample in entry["samples"]:
            assert sample["translation"] == model.translate(sample["source"], beam=1)


def test_every_step_counts_as_a_change_of_every_parameter(toy_recipe, tmp_path, monkeypatch):
    from dragoman.training.trainer import Trainer

    versions = []
    validate = Trainer.validate

    def noting(trainer, step, examples):
        versions.append([parameter._version for parameter in trainer.model.parameters()])
        return validate(trainer, step, examples)

    monkeypatch.setattr(Trainer, "validate", noting)
    heard = []
    dragoman.train(toy_recipe(tmp_path / "run", "training.steps=4", "training.validate_every=2"), on_event=heard.append)
    assert sum(isinstance(event, TrainingStep) for event in heard) == 4
    assert all(before < after for before, after in zip(*versions, strict=True))
