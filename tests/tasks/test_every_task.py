"""What works for a model of any task, and what is refused because it makes no sense for some."""

import shutil

import pytest
import torch

import dragoman
from dragoman.checkpoints import newest_checkpoint
from dragoman.model_files import read_tensors
from dragoman.tasks.parse import Parser
from dragoman.tasks.registry import get_task
from dragoman.tasks.word_tasks import Pronouncer

INPUTS = {"pronounce": "abba", "inflect": "abba\tV;PST", "parse": "the dog sees a cow", "generate": "The dog "}
EVERY = pytest.mark.parametrize("task", INPUTS)
READING = pytest.mark.parametrize("task", [name for name in INPUTS if not get_task(name).is_language_model])


PIECES = {
    "pronounce": ["a", "b", "b", "a"],
    "inflect": ["V;", "PST;", "a", "b", "b", "a"],
    "parse": ["the", "dog", "sees", "a", "cow"],
    "generate": [],
}


@EVERY
def test_an_inspection_shows_the_pieces_that_the_model_reads_and_writes(task, other_runs):
    record = dragoman.load(other_runs[task]).inspect(INPUTS[task], trace=True)
    assert "".join(record.source_pieces[:-1]).replace(" ", "") == "".join(PIECES[task])
    assert record.decoder.shape[-1] == len(record.target_pieces)


@READING
def test_an_inspection_can_be_repeated_without_some_heads(task, other_runs):
    record = dragoman.load(other_runs[task]).inspect(INPUTS[task])
    assert record.can_ablate
    assert record.rerun(ablate_heads=[("cross", 0, 1)]).ablated_heads == (("cross", 0, 1),)


@EVERY
def test_attention_writes_a_page_and_prints_what_a_person_would_see(task, other_runs, command, tmp_path):
    result = command("attention", other_runs[task], INPUTS[task], "-o", tmp_path / "look.html")
    assert result.code == 0
    assert "<script" in (tmp_path / "look.html").read_text()
    expected = (
        INPUTS[task] if get_task(task).is_language_model else dragoman.load(other_runs[task]).predict(INPUTS[task])
    )
    assert result.out.rstrip("\n") == expected.rstrip("\n")


@READING
def test_a_look_at_what_the_task_cannot_read_is_refused(task, other_runs, command, tmp_path):
    result = command("attention", other_runs[task], " ", "-o", tmp_path / "look.html")
    assert result.code == 2
    assert "The text to inspect is empty" in result.err


@EVERY
def test_heads_are_measured_on_the_validation_data_of_the_task(task, other_runs, command):
    result = command("heads", other_runs[task], "--no-importance")
    assert result.code == 0
    assert f"{task}.valid.txt" in result.out
    kinds = {line.split()[0] for line in result.out.splitlines()[1:-1]}
    assert kinds == ({"decoder"} if get_task(task).is_language_model else {"encoder", "decoder", "cross"})


@EVERY
def test_heads_are_not_measured_on_two_plain_texts(task, other_runs, command, toy_files):
    result = command("heads", other_runs[task], "--source", toy_files[0], "--target", toy_files[1])
    assert result.code == 2
    assert f"is a {get_task(task).noun}" in result.err
    assert "omit --source and --target" in result.err


@EVERY
def test_only_what_reads_and_writes_plain_text_is_exported(task, other_runs, command, tmp_path):
    pytest.importorskip("ctranslate2", reason="needs ctranslate2")
    result = command("export", other_runs[task], "-o", tmp_path / "exported")
    assert result.code == 2
    assert "cannot be exported" in result.err
    assert not (tmp_path / "exported").exists()


@EVERY
def test_a_shortlist_is_for_translators(task, other_runs, command):
    result = command("shortlist", other_runs[task])
    assert result.code == 2
    assert f"is a {get_task(task).noun}" in result.err
    assert "only translators" in result.err


@EVERY
def test_speed_is_measured_of_translators(task, other_runs, command, tmp_path):
    result = command("bench", other_runs[task], "--quick", "-o", tmp_path / "bench")
    assert result.code == 2
    assert f"is a {get_task(task).noun}" in result.err


@EVERY
def test_info_names_the_task_and_its_measure(task, other_runs, command):
    result = command("info", other_runs[task])
    assert result.code == 0
    assert f"{task}.txt" in result.out
    assert task in result.out


@EVERY
def test_checkpoints_are_averaged_whatever_the_task(task, other_runs, command, tmp_path):
    run = shutil.copytree(other_runs[task], tmp_path / task)
    result = command("average", run, "--last", "1")
    assert result.code == 0
    averaged = read_tensors(run / "model.safetensors")[0]
    newest = read_tensors(newest_checkpoint(run / "checkpoints")[0] / "model.safetensors")[0]
    assert averaged.keys() == newest.keys()
    assert all(torch.equal(averaged[name], tensor) for name, tensor in newest.items())


@pytest.mark.parametrize(
    ("task", "plain"), [("translate", True), ("generate", True), ("parse", False), ("inflect", False)]
)
def test_a_task_is_plain_if_it_leaves_texts_as_they_are(task, plain):
    assert get_task(task).raw_text_io == plain


@READING
def test_what_a_model_answers_is_as_probable_when_it_is_given_as_when_it_is_found(task, other_runs):
    model = dragoman.load(other_runs[task])
    found = model.predict(INPUTS[task], details=True)
    given = model.score([INPUTS[task]], [found.text])[0]
    assert (given.text, given.tokens) == (found.text, found.tokens)
    assert given.log_probability == pytest.approx(found.log_probability, abs=1e-4)
    assert model.inspect(INPUTS[task], target=found.text).target_pieces == model.inspect(INPUTS[task]).target_pieces


def test_the_probability_of_a_tree_is_asked_with_its_words_and_without(other_runs):
    model = dragoman.load(other_runs["parse"])
    bare, tree = "(TOP (S NN VBZ )S )TOP", "(TOP (S (NN dog) (VBZ sees)))"
    assert model.score(["dog sees"], [bare]) == model.score(["dog sees"], [tree])
    with pytest.raises(dragoman.UserError, match='"dog sees", differ from those of the sentence, "dog saw"'):
        model.score(["dog saw"], [tree])
    with pytest.raises(dragoman.UserError, match="The given tree: line 1"):
        model.score(["dog sees"], ["(TOP (S (NN dog"])
    with pytest.raises(dragoman.UserError, match="expected one tree with words; found 2 trees, 1 with words"):
        model.score(["dog sees"], [f"{tree} (TOP (-NONE- *))"])


@READING
def test_the_verb_of_a_task_is_a_method_of_its_models(task, other_runs):
    model = dragoman.load(other_runs[task])
    assert getattr(model, task)(INPUTS[task]) == model.predict(INPUTS[task])


def test_the_class_of_another_task_does_not_load_a_run(other_runs):
    assert isinstance(dragoman.load(other_runs["parse"]), Parser)
    assert not hasattr(dragoman.load(other_runs["parse"]), "pronounce")
    with pytest.raises(dragoman.UserError, match=r"is a parser; load it with dragoman.load or Parser.load"):
        Pronouncer.load(other_runs["parse"])
