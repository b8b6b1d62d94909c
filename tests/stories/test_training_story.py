"""What a person sees who trains, and some things to do with a run that are not done every day."""

import json

import pytest

from dragoman.training.metrics_log import draw_curves


def test_training_says_what_it_does_and_leaves_a_model_with_its_card(command, toy_recipe, tmp_path, monkeypatch):
    monkeypatch.setattr("dragoman.training.trainer.draw_curves", draw_curves)
    (tmp_path / "recipe.toml").write_text(
        toy_recipe(tmp_path / "run", "training.steps=12", "training.validate_every=6").to_toml()
    )
    trained = command("train", tmp_path / "recipe.toml")
    assert trained.code == 0
    assert trained.out == ""
    for words in (
        "holding out 8 pairs of the training text",
        f"Training run {tmp_path / 'run'}: 72 pairs for training, 8 for validation",
        "12 steps, ", "Ctrl-C saves a checkpoint and stops. Continue with --resume.", "Validation at step 6: loss ",
        "(best so far)", "  → ", "Trained 12 steps in ", "contains the average of the checkpoints at steps ", "BLEU",
    ):  # fmt: skip
        assert words in trained.err
    names = ["recipe.toml", "tokenizer.json", "model.safetensors", "metrics.jsonl", "curves.png", "README.md"]
    assert all((tmp_path / "run" / name).stat().st_size for name in names)
    assert list((tmp_path / "run" / "events").iterdir())
    card = (tmp_path / "run" / "README.md").read_text()
    assert "Trained on 72 pairs" in card
    assert "BLEU" in card


def test_a_perfect_translation_has_a_perfect_score(command, toy_files):
    report = json.loads(command("evaluate", "--hypotheses", toy_files[1], "--reference", toy_files[1], "--json").out)
    assert report["bleu"]["value"] == pytest.approx(100)


def test_attention_can_follow_a_given_translation_into_a_drawing(command, trained, tmp_path):
    result = command("attention", trained, "a b", "--target", "B A", "-o", tmp_path / "DRAWING.SVG")
    assert (result.code, result.out) == (0, "B A\n")
    assert f"Wrote {tmp_path / 'DRAWING.SVG'}" in result.err
    assert (tmp_path / "DRAWING.SVG").read_bytes().startswith(b"<?xml")


def test_check_finds_nothing_wrong_with_the_toy_and_something_with_the_same_file_twice(command, toy_files):
    good = command("check", "--source", toy_files[0], "--target", toy_files[1])
    assert good.code == 0
    assert "80 pairs" in good.out
    bad = command("check", "--source", toy_files[0], "--target", toy_files[0])
    assert "source and target are the same; was one file given twice?" in bad.out


@pytest.mark.parametrize("arguments", [["--help"], ["train", "--help"], ["translate", "--help"], ["--version"]])
def test_help_and_version_go_to_standard_output(command, arguments):
    result = command(*arguments)
    assert result.code == 0
    assert result.out
    assert result.err == ""
