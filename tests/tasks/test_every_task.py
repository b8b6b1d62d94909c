"""What works for a model of any task, and what is refused because it makes no sense for some."""

import numpy as np
import pytest
from safetensors.numpy import load_file

import dragoman
from dragoman.tasks.registry import TASKS

INPUTS = {"pronounce": "abba", "inflect": "abba\tV;PST", "parse": "the dog sees a cow", "generate": "The dog "}
EVERY = pytest.mark.parametrize("task", INPUTS)
READING = pytest.mark.parametrize("task", [name for name in INPUTS if not TASKS[name].is_language_model])


@EVERY
def test_a_look_inside_shows_the_pieces_that_the_model_reads_and_writes(task, other_runs):
    model = dragoman.load(other_runs[task])
    record = model.inspect(INPUTS[task], trace=True)
    read = {"pronounce": ["a", "b", "b", "a"], "inflect": ["V;", "PST;", "a", "b", "b", "a"], "generate": []}
    pieces = [piece.strip() for piece in record.source_pieces[:-1]]
    assert pieces == read.get(task, pieces)
    assert task != "parse" or "".join(pieces).replace("Ġ", "") == "thedogseesacow"
    assert record.decoder.shape[-1] == len(record.target_pieces)
    again = record.rerun(without=[]) if record.can_ablate else record
    assert again.source_pieces == record.source_pieces


@EVERY
def test_attention_writes_a_page_and_prints_what_a_person_would_see(task, other_runs, command, tmp_path):
    told = command("attention", other_runs[task], INPUTS[task], "-o", tmp_path / "look.html")
    assert told.code == 0
    assert (tmp_path / "look.html").stat().st_size > 1000
    expected = (
        INPUTS[task] if TASKS[task].is_language_model else dragoman.load(other_runs[task]).translate(INPUTS[task])
    )
    assert told.out.rstrip("\n") == expected.rstrip("\n")


@READING
def test_a_look_at_what_the_task_cannot_read_is_refused(task, other_runs, command, tmp_path):
    told = command("attention", other_runs[task], " ", "-o", tmp_path / "look.html")
    assert told.code == 2
    assert "nothing to look at" in told.err


@EVERY
def test_heads_are_measured_on_the_validation_data_of_the_task(task, other_runs, command):
    told = command("heads", other_runs[task], "--no-importance")
    assert told.code == 0
    assert f"{task}.valid.txt" in told.out
    kinds = {line.split()[0] for line in told.out.splitlines()[1:-1]}
    assert kinds == ({"decoder"} if TASKS[task].is_language_model else {"encoder", "decoder", "cross"})


@EVERY
def test_heads_are_not_measured_on_two_plain_texts(task, other_runs, command, toy_files):
    told = command("heads", other_runs[task], "--source", toy_files[0], "--target", toy_files[1])
    assert told.code == 2
    assert f"is a {TASKS[task].noun}" in told.err
    assert "leave --source and --target out" in told.err


@EVERY
def test_only_what_reads_and_writes_plain_text_is_exported(task, other_runs, command, tmp_path):
    pytest.importorskip("ctranslate2", reason="needs ctranslate2")
    told = command("export", other_runs[task], "-o", tmp_path / "exported")
    assert told.code == 2
    assert "cannot be exported" in told.err
    assert not (tmp_path / "exported").exists()


@EVERY
def test_a_shortlist_is_for_translators(task, other_runs, command):
    told = command("shortlist", other_runs[task])
    assert told.code == 2
    assert f"is a {TASKS[task].noun}" in told.err
    assert "for translators" in told.err


@EVERY
def test_speed_is_measured_of_translators(task, other_runs, command, tmp_path):
    told = command("bench", other_runs[task], "--quick", "-o", tmp_path / "bench")
    assert told.code == 2
    assert f"is a {TASKS[task].noun}" in told.err


@EVERY
def test_info_names_the_task_and_its_measure(task, other_runs, command):
    told = command("info", other_runs[task])
    assert told.code == 0
    assert f"{task}.txt" in told.out
    assert task in told.out


@EVERY
def test_checkpoints_are_averaged_whatever_the_task(task, other_runs, command, tmp_path):
    import shutil

    run = shutil.copytree(other_runs[task], tmp_path / task)
    told = command("average", run, "--last", "1")
    assert told.code == 0
    newest = max((run / "checkpoints").iterdir()) / "model.safetensors"
    averaged, saved = load_file(run / "model.safetensors"), load_file(newest)
    assert averaged.keys() == saved.keys()
    assert all(np.array_equal(averaged[name], saved[name]) for name in saved)


@pytest.mark.parametrize(
    ("task", "plain"), [("translate", True), ("generate", True), ("parse", False), ("inflect", False)]
)
def test_a_task_is_plain_if_it_leaves_texts_as_they_are(task, plain):
    assert TASKS[task].raw_text_io == plain


@READING
def test_what_a_model_answers_is_as_probable_when_it_is_given_as_when_it_is_found(task, other_runs):
    model = dragoman.load(other_runs[task])
    found = model.translate(INPUTS[task], details=True)
    given = model.score([INPUTS[task]], [found.text])[0]
    assert (given.text, given.tokens) == (found.text, found.tokens)
    assert given.log_probability == pytest.approx(found.log_probability, abs=1e-4)
    assert model.inspect(INPUTS[task], target=found.text).target_pieces == model.inspect(INPUTS[task]).target_pieces


def test_the_probability_of_a_tree_is_asked_with_its_words_and_without(other_runs):
    model = dragoman.load(other_runs["parse"])
    bare, tree = "(TOP (S NN VBZ )S )TOP", "(TOP (S (NN dog) (VBZ sees)))"
    assert model.score(["dog sees"], [bare]) == model.score(["dog sees"], [tree])
    with pytest.raises(dragoman.UserError, match='"dog sees", are not those of the sentence, "dog saw"'):
        model.score(["dog saw"], [tree])
    with pytest.raises(dragoman.UserError, match="The tree given: line 1"):
        model.score(["dog sees"], ["(TOP (S (NN dog"])


@READING
def test_the_verb_of_a_task_is_a_method_of_its_models(task, other_runs):
    model = dragoman.load(other_runs[task])
    assert getattr(model, task)(INPUTS[task]) == model.translate(INPUTS[task])


def test_a_verb_that_a_model_has_not_learned_is_refused(other_runs):
    with pytest.raises(dragoman.UserError, match="is a parser; it cannot pronounce, but parse"):
        dragoman.load(other_runs["parse"]).pronounce("word")
