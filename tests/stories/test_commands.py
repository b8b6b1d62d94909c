"""What a person does with a model, command by command, and the same in Python."""

import json
import os
import shutil
import signal
from pathlib import Path

import pytest

import dragoman
from dragoman import checkpoints
from dragoman.cli import quickstart
from dragoman.cli.train import build_recipe


@pytest.fixture
def one_core():
    """Be as on a machine with one core: a training takes a thread a core, and here several train side by side."""
    cores = os.sched_getaffinity(0)
    worker = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
    os.sched_setaffinity(0, {sorted(cores)[worker % len(cores)]})
    yield
    os.sched_setaffinity(0, cores)


@pytest.fixture
def own_run(trained, tmp_path):
    """A trained run that the test may change."""
    return Path(shutil.copytree(trained, tmp_path / "run"))


def test_a_sentence_given_as_an_argument_is_translated(command, trained):
    outcome = command("translate", trained, "a b c")
    assert (outcome.code, outcome.out) == (0, dragoman.load(trained).translate("a b c") + "\n")


def test_every_line_of_standard_input_gives_one_line_in_order(command, trained):
    lines = ["a b c", "", "h g", " ", "c"]
    outcome = command("translate", trained, stdin="\n".join(lines).encode())
    alone = [command("translate", trained, line).out if line.strip() else "\n" for line in lines]
    assert outcome.out == "".join(alone)


def test_answering_line_by_line_changes_nothing_but_the_moment(command, trained):
    text = b"a b c\nh g\n"
    assert command("translate", trained, "--line-by-line", stdin=text) == command("translate", trained, stdin=text)


def test_n_best_with_scores_are_sorted_and_different(command, trained):
    outcome = command("translate", trained, "--n-best", 3, "--scores", "a b c")
    scores, texts = zip(*(line.split("\t") for line in outcome.out.splitlines()), strict=True)
    assert sorted(map(float, scores), reverse=True) == [float(score) for score in scores]
    assert len(set(texts)) == 3


def test_json_holds_text_score_and_pieces(command, trained):
    (best,) = json.loads(command("translate", trained, "--json", "a b c").out)
    assert set(best) == {"text", "score", "log_probability", "tokens", "truncated", "parts", "long_sentences"}
    assert best["text"] + "\n" == command("translate", trained, "a b c").out


def test_the_same_seed_draws_the_same_sample(command, trained):
    drawn = [command("translate", trained, "--sample", "--seed", seed, "a b c d").out for seed in (1, 1, 2)]
    assert drawn[0] == drawn[1] != drawn[2]


def test_evaluation_prints_four_scores_with_signatures_and_a_table_by_length(command, trained, toy_files):
    outcome = command("evaluate", trained, "--source", toy_files[0], "--reference", toy_files[1], "--worst", 2)
    assert outcome.code == 0
    assert [line.split()[0] for line in outcome.out.splitlines()[:4]] == ["BLEU", "BLEU", "chrF2", "TER"]
    assert "case:mixed" in outcome.out
    assert "case:lc" in outcome.out
    assert "source words" in outcome.out
    assert outcome.out.count("reference") == 2


def test_translations_written_by_evaluate_score_the_same_from_the_file(command, trained, toy_files, tmp_path):
    written = tmp_path / "out put.txt"
    files = ["--source", toy_files[0], "--reference", toy_files[1], "--json"]
    ours = json.loads(command("evaluate", trained, *files, "--output", written).out)
    theirs = json.loads(command("evaluate", "--hypotheses", written, "--reference", toy_files[1], "--json").out)
    assert theirs["bleu"] == ours["bleu"]


def test_a_run_against_itself_is_within_the_noise(command, trained, toy_files):
    files = ["--source", toy_files[0], "--reference", toy_files[1], "--json"]
    compared = json.loads(command("evaluate", trained, *files, "--against", trained).out)["against"]
    assert compared["p_value"] == 1.0


def test_averaging_other_checkpoints_makes_another_model(command, own_run):
    before = (own_run / "model.safetensors").read_bytes()
    outcome = command("average", own_run, "--last", 1)
    assert "the average of the checkpoints at steps 8" in outcome.err
    assert (own_run / "model.safetensors").read_bytes() != before
    assert command("translate", own_run, "a b").code == 0


def test_info_tells_what_the_model_is_and_how_far_it_came(command, trained):
    found = json.loads(command("info", trained, "--json").out)
    assert (found["steps"], found["of"], found["damaged"]) == (8, 8, [])
    printed = command("info", trained).out
    assert "1+1 layers, width 16" in printed and "steps                 8 of 8" in printed
    assert "the average of the checkpoints at steps" in printed


@pytest.mark.parametrize("name", ["page.html", "picture.png"])
def test_attention_is_written_as_a_page_or_a_picture(command, trained, tmp_path, name):
    outcome = command("attention", trained, "a b c", "-o", tmp_path / name)
    assert outcome.out == command("translate", trained, "a b c").out
    assert (tmp_path / name).stat().st_size > 5000


def test_the_attention_page_can_begin_as_told_and_compare_two_runs(command, trained, tmp_path):
    options = ["--prefix", "H", "--compare", trained, "--gold", "0-0"]
    outcome = command("attention", trained, "a b c", *options, "-o", tmp_path / "page.html")
    assert [line.split()[0] for line in outcome.out.splitlines()] == ["H", "H"]
    assert '"error_rate"' in (tmp_path / "page.html").read_text()


def test_a_picture_of_lines_names_the_heads_that_there_are(command, trained, tmp_path):
    assert command("attention", trained, "a b c", "--lines", "encoder.1", "-o", tmp_path / "lines.svg").code == 0
    outcome = command("attention", trained, "a b c", "--lines", "encoder.2", "-o", tmp_path / "lines.svg")
    assert outcome.code == 2
    assert "a layer from 1 to 1" in outcome.err


def test_the_form_that_init_prints_trains_after_naming_two_files(one_core, command, toy_files, tmp_path):
    form = command("init", "translate", "--preset", "tiny").out
    for name, file in zip(("train.source.txt", "train.target.txt"), toy_files, strict=True):
        form = form.replace(name, str(file))
    (tmp_path / "recipe.toml").write_text(form)
    small = ["tokenizer.kind=words", "model.layers=1", "model.width=8", "model.heads=2", "training.steps=2"]
    settings = [word for setting in small for word in ("--set", setting)]
    outcome = command("train", tmp_path / "recipe.toml", "--run", tmp_path / "run", *settings)
    assert outcome.code == 0
    assert command("translate", tmp_path / "run", "a b").code == 0


def test_options_alone_train_and_win_over_the_preset(one_core, command, toy_files, tmp_path):
    files = ["--source", toy_files[0], "--target", toy_files[1], "--run", tmp_path / "run"]
    small = ["--set", "tokenizer.kind=words", "--set", "model.layers=1"]
    assert command("train", *files, *small, "--steps", 1, "--minutes", 5).code == 0
    recipe = dragoman.Recipe.from_toml(tmp_path / "run" / "recipe.toml")
    assert (recipe.training.steps, recipe.training.minutes, recipe.model.layers, recipe.model.width) == (1, 0, 1, 128)


def test_the_name_of_a_file_as_text_gets_a_hint(command, trained, toy_files):
    outcome = command("translate", trained, toy_files[0])
    assert outcome.code == 0
    assert f"{toy_files[0]} is a file, but its name is taken as text; use < {toy_files[0]}" in outcome.err.replace(
        "\n", " "
    )
    assert "is a file" not in command("translate", trained, "a b").err


def test_the_name_of_a_run_is_enough_to_resume_it(one_core, command, toy_files, tmp_path):
    files = ["--source", toy_files[0], "--target", toy_files[1]]
    small = ["--set", "tokenizer.kind=words", "--set", "model.width=8", "--set", "training.schedule=noam"]
    assert command("train", *files, *small, "--run", tmp_path / "run", "--steps", 1).code == 0
    resumed = command("train", "--run", tmp_path / "run", "--resume", "--steps", 2)
    assert (resumed.code, "1 of 2 steps left" in resumed.err) == (0, True)
    missing = command("train", "--run", tmp_path / "runn", "--resume")
    assert missing.code == 2
    assert f"{tmp_path / 'runn'}" in missing.err


def test_plan_prints_the_recipe_that_train_records_and_why(one_core, command, toy_files, tmp_path):
    files = ["--source", toy_files[0], "--target", toy_files[1], "--run", tmp_path / "run"]
    given = [*files, "--steps", 2, "--set", "tokenizer.kind=words", "--set", "model.width=8"]
    planned = command("plan", *given)
    assert planned.code == 0
    assert not (tmp_path / "run").exists()
    assert planned.out.startswith("# Plan for 72 pairs of ")
    (tmp_path / "recipe.toml").write_text(planned.out)
    assert command("train", *given).code == 0
    recorded = dragoman.Recipe.from_toml(tmp_path / "run" / "recipe.toml")
    assert dragoman.Recipe.from_toml(tmp_path / "recipe.toml") == recorded
    assert not set(recorded.unplanned_settings) - {"model.decoder_layers"}
    assert command("plan").code == 2


def test_a_preset_that_is_asked_for_wins_over_the_recipe_and_gives_way_to_options(command, tmp_path):
    recipe = tmp_path / "recipe.toml"
    recipe.write_text(command("init", "--preset", "tiny").out)
    found = build_recipe(recipe, "small", ["model.heads=8"], steps=7)
    assert (found.model.width, found.model.heads, found.training.steps) == (256, 8, 7)


def test_the_quick_start_trains_translates_scores_and_draws(one_core, command, monkeypatch, tmp_path):
    monkeypatch.setattr(quickstart, "_CORPUS_SIZES", {"train": 300, "valid": 20, "test": 20})
    monkeypatch.setattr(quickstart, "_STEPS", 3)
    first = command("quickstart", "--run", tmp_path / "run")
    assert first.code == 0
    assert first.out.count("→") == quickstart.SHOWN_SENTENCES
    assert "Test set: BLEU" in first.out
    assert "Run the same command to continue." in first.err and "--resume" not in first.err
    assert "no checkpoint to resume" not in first.err
    assert (tmp_path / "run" / "attention.html").stat().st_size > 5000
    again = command("quickstart", "--run", tmp_path / "run")
    assert again.out == first.out
    assert "is already trained" in again.err


def test_an_interrupted_quick_start_continues_when_it_is_called_again(one_core, command, monkeypatch, tmp_path):
    monkeypatch.setattr(quickstart, "_CORPUS_SIZES", {"train": 300, "valid": 20, "test": 20})
    monkeypatch.setattr(quickstart, "_STEPS", 3)
    with monkeypatch.context() as patch:
        patch.setattr(
            checkpoints, "save_hook", lambda stage: stage == "renamed" and os.kill(os.getpid(), signal.SIGTERM)
        )
        stopped = command("quickstart", "--run", tmp_path / "run")
    assert stopped.code != 0
    assert "Run the same command to continue." in stopped.err
    assert command("quickstart", "--run", tmp_path / "run").code == 0


def test_python_translates_a_string_or_a_list(trained):
    model = dragoman.load(trained)
    assert model.translate(["a b c", "", "h"]) == [model.translate("a b c"), "", model.translate("h")]


def test_python_gives_details_of_the_n_best(trained):
    model = dragoman.load(trained)
    (best,) = model.translate(["a b c"], beam=4, n_best=3, details=True)
    assert [one.text for one in best] == model.translate("a b c", beam=4, n_best=3)
    assert best[0].score >= best[1].score >= best[2].score


def test_python_scores_a_translation_as_the_search_does(trained):
    model = dragoman.load(trained)
    found = model.translate("a b c", details=True)
    assert model.score(["a b c"], [found.text])[0].score == pytest.approx(found.score, abs=1e-4)


def test_python_refuses_a_beam_of_nothing(trained):
    with pytest.raises(dragoman.UserError, match="beam"):
        dragoman.load(trained).translate("a b", beam=0)


def test_a_text_longer_than_any_in_training_is_translated_in_parts(trained):
    """The toy language has at most seven words a line; the model must not be asked to read seventy at once."""
    model = dragoman.load(trained)
    assert model.max_length <= 8
    text = ". ".join(["a b c d e"] * 14) + "."
    segmented = model.split_text(text)
    assert all(len(part.split()) <= 8 for part in segmented.sentences)
    assert segmented.fill(segmented.sentences) == text


def test_a_text_that_had_to_be_cut_is_told_of(command, trained):
    result = command("translate", trained, "--json", ". ".join(["a b c d e"] * 3), "a b")
    assert [json.loads(line)[0]["parts"] > 1 for line in result.out.splitlines()] == [True, False]
    assert "Split 1 sentence longer than any in the training data into parts" in result.err
