"""The head report of a real, small model: held to losses measured otherwise, kept while it is true, and no longer."""

import copy
import json
import shutil

import pytest
import torch

import dragoman
from dragoman.run import Run
from dragoman.tasks import head_report
from dragoman.tasks.head_cache import cached_head_history, cached_head_report, saved_checkpoints
from dragoman.tasks.head_report import make_head_report, make_history_reports

NUMBERS = {
    "positional", "offset", "rare", "rare_baseline", "alignment", "alignment_shifted", "alignment_baseline", "sink",
    "punctuation", "punctuation_baseline", "copy", "entropy", "distance", "confidence",
}  # fmt: skip


def ignore(_event):
    pass


@pytest.fixture(scope="module")
def folder(trained, tmp_path_factory):
    """A copy of the trained run, to write reports into."""
    return shutil.copytree(trained, tmp_path_factory.mktemp("heads") / "run")


@pytest.fixture(scope="module")
def run(folder):
    return Run(folder)


@pytest.fixture(scope="module")
def report(run):
    return make_head_report(run, ignore)


def loss_by_scoring(model, pairs):
    """The mean loss per target token, by way of the scores of given translations."""
    scored = model.score(*map(list, zip(*pairs, strict=True)))
    return -sum(each.log_probability for each in scored) / sum(len(each.tokens) + 1 for each in scored)


@pytest.fixture(scope="module")
def held_out(run):
    """The pairs that the run was validated on, as text."""
    corpus, part = head_report.validation_corpus(run, run.read_recipe())
    return [pair for pair in corpus.pairs() if part.contains(*pair)]


def test_every_head_of_every_kind_is_reported_with_its_numbers(report):
    places = [(head["kind"], head["layer"], head["head"]) for head in report["heads"]]
    assert places == [(kind, 0, head) for kind in ("encoder", "decoder", "cross") for head in (0, 1)]
    for head in report["heads"]:
        assert set(head) == {"kind", "layer", "head", "badges", "importance"} | NUMBERS
        assert (head["alignment"] is None) == (head["kind"] != "cross")


def test_the_loss_is_the_one_that_scores_give(report, run, held_out):
    assert report["data"]["sentences"] == len(held_out) == 8
    assert report["loss"] == pytest.approx(loss_by_scoring(dragoman.load(run), held_out), abs=1e-5)


def test_the_importance_of_a_head_is_the_loss_that_it_spares(report, run, held_out):
    model = dragoman.load(run)
    whole = loss_by_scoring(model, held_out)
    for kind, layers, name in (("encoder", "encoder", "attention"), ("decoder", "decoder", "attention"),
                               ("cross", "decoder", "cross_attention")):  # fmt: skip
        for number in range(2):
            lame = copy.deepcopy(model)
            columns = getattr(getattr(lame.model, layers)[0], name).output.weight
            with torch.no_grad():
                columns[:, 8 * number : 8 * number + 8] = 0
            (head,) = [each for each in report["heads"] if (each["kind"], each["head"]) == (kind, number)]
            assert head["importance"] == pytest.approx(loss_by_scoring(lame, held_out) - whole, abs=2e-5)


def test_measuring_leaves_the_model_as_it_was(run):
    model = dragoman.load(run)
    before = {name: parameter.clone() for name, parameter in model.model.named_parameters()}
    text = head_report.MeasuredText.from_pairs(model, head_report.load_measured_pairs(run, model, None), 5)
    head_report.measure_heads(model, text, True, ignore)
    assert all(parameter.equal(before[name]) for name, parameter in model.model.named_parameters())


def test_a_report_is_made_once(report, run, monkeypatch):
    monkeypatch.setattr(head_report, "measure_heads", None)
    assert make_head_report(run, ignore) == report == cached_head_report(run)
    assert make_head_report(run, ignore, importance=False) == report


def test_another_text_is_measured_anew(report, folder, tmp_path):
    run = Run(shutil.copytree(folder, tmp_path / "run"))
    assert make_head_report(run, ignore, sentences=3, importance=False)["data"]["sentences"] == 3


def test_a_report_of_other_weights_is_passed_over(report, folder, tmp_path):
    run = Run(shutil.copytree(folder, tmp_path / "run"))
    shutil.copy(run.checkpoints_dir / "000000004" / "model.safetensors", run.weights_file)
    assert cached_head_report(run) is None


def test_a_damaged_report_is_none(report, folder, tmp_path):
    run = Run(shutil.copytree(folder, tmp_path / "run"))
    for content in ("", "{", "[]", '{"format": 1}', "[" * 100_000):
        (run.head_reports_dir / "model.json").write_text(content)
        assert cached_head_report(run) is None


def test_checkpoints_are_measured_for_the_history_and_said_to_be(folder, tmp_path):
    run = Run(shutil.copytree(folder, tmp_path / "run"))
    assert cached_head_history(run) == []
    make_history_reports(run, ignore, sentences=4)
    assert [entry["step"] for entry in cached_head_history(run)] == [4, 6, 8]
    assert all(len(entry["heads"]) == 6 for entry in cached_head_history(run))
    assert [(each["step"], each["measured"]) for each in saved_checkpoints(run)] == [(4, True), (6, True), (8, True)]
    assert [each["loss"] is None for each in saved_checkpoints(run)] == [False, True, False]
    shutil.rmtree(run.checkpoints_dir / "000000004")
    assert [entry["step"] for entry in cached_head_history(run)] == [4, 6, 8]
    assert [each["step"] for each in saved_checkpoints(run)] == [6, 8]


def test_before_the_model_is_written_the_newest_checkpoint_is_measured(folder, tmp_path):
    run = Run(shutil.copytree(folder, tmp_path / "run"))
    run.weights_file.unlink()
    assert make_head_report(run, ignore, sentences=2, importance=False)["step"] == 8


def test_a_new_training_takes_old_reports_away(folder, tmp_path):
    run = Run(shutil.copytree(folder, tmp_path / "run"))
    run.head_reports_dir.mkdir(exist_ok=True)
    run.erase()
    assert not run.head_reports_dir.exists()


def test_the_command_prints_a_table_and_json(command, folder):
    result = command("heads", folder)
    assert result.code == 0
    lines = result.out.splitlines()
    assert lines[0].split()[:4] == ["kind", "layer", "head", "importance"]
    assert [line.split()[:3] for line in lines[1:3]] == [["encoder", "1", "1"], ["encoder", "1", "2"]]
    assert "on 8 pairs of" in lines[-1]
    assert json.loads(command("heads", folder, "--json").out) == cached_head_report(Run(folder))


def test_a_validation_text_that_is_gone_is_named(command, folder, tmp_path):
    run = shutil.copytree(folder, tmp_path / "run")
    recipe = run / "recipe.toml"
    recipe.write_text(recipe.read_text().replace("toy.source", "gone.source"))
    result = command("heads", run)
    assert result.code == 2
    assert "cannot be read" in result.err
    assert "gone.source: no such file" in result.err
    assert "--source and --target" in result.err


def test_a_text_can_be_given_instead(command, folder, toy_files, tmp_path):
    run = shutil.copytree(folder, tmp_path / "run")
    result = command("heads", run, "--source", toy_files[0], "--target", toy_files[1], "--no-importance", "--json")
    assert json.loads(result.out)["data"]["sentences"] == 80
    assert command("heads", run, "--source", toy_files[0]).code == 2


def test_vocabularies_of_their_own_are_compared_by_spelling(toy_recipe, tmp_path):
    settings = ("tokenizer.joint=false", "model.share_embeddings=false", "training.steps=1")
    run = dragoman.train(toy_recipe(tmp_path / "run", *settings))
    report = make_head_report(run, ignore, importance=False)
    cross = [head for head in report["heads"] if head["kind"] == "cross"]
    assert all(head["copy"] is None for head in cross)  # "a" is never written in a language of capitals


def test_a_model_whose_heads_cannot_be_ablated_is_reported_without_importance(command, other_runs, tmp_path):
    result = command("heads", shutil.copytree(other_runs["generate"], tmp_path / "run"))
    heading = result.out.split("\n")[0]
    assert "importance" not in heading and "alignment" not in heading and "entropy" in heading
    assert "The importance was not measured: only heads of an encoder-decoder Transformer can be ablated." in result.err
