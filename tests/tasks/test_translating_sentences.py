"""A text of several sentences is translated sentence by sentence, wherever it is translated."""

import json
import signal
import subprocess
import sys
from dataclasses import replace

import pytest
from typer.testing import CliRunner

import dragoman
from dragoman.cli.main import app
from dragoman.errors import UserError
from dragoman.tasks.sequence_model import SequenceModel

SENTENCES = ["A b c.", "D e?", "F g h!"]
TEXT = "A b c.  D e? F g h!"


@pytest.fixture
def model(trained):
    model = dragoman.load(trained)
    model.max_length = 64  # longer than any sentence here
    return model


def paragraph_model(model):
    """The same model as if a third of its training lines had several sentences."""
    return SequenceModel(
        model.recipe, model.model, model.source_tokenizer, model.target_tokenizer, model.device,
        max_length=64, paragraph_share=0.34,
    )  # fmt: skip


def test_every_sentence_is_translated_by_itself_and_the_spacing_is_kept(model):
    one, two, three = model.translate(SENTENCES)
    assert model.translate(TEXT) == f"{one}  {two} {three}"
    assert model.translate(f"{TEXT}\n\n  A b c.") == f"{one}  {two} {three}\n\n  {one}"


def test_without_splitting_a_text_is_read_at_once(model):
    (whole,) = model.search([TEXT], split=False)[0]
    assert whole.parts == 1
    assert model.search([TEXT])[0][0].parts == 3
    assert model.translate(TEXT, split=False) == whole.text


def test_a_model_trained_on_paragraphs_reads_them_at_once(model):
    assert paragraph_model(model).search([TEXT])[0][0].parts == 1


def test_scores_of_a_text_are_made_of_those_of_its_sentences(model):
    rows = model.search(SENTENCES, n_best=2)
    joined = model.search([TEXT], n_best=2)[0]
    for rank, prediction in enumerate(joined):
        parts = [row[rank] for row in rows]
        assert prediction.log_probability == pytest.approx(sum(part.log_probability for part in parts), abs=1e-4)
        assert prediction.score == pytest.approx(sum(part.score for part in parts) / 3, abs=1e-4)
        assert prediction.tokens == tuple(token for part in parts for token in part.tokens)


def test_a_given_translation_is_scored_sentence_by_sentence(model):
    targets = ["c b a.", "E D?", "H G F!"]
    scored = model.score([TEXT], [" ".join(targets)])[0]
    parts = model.score(SENTENCES, targets)
    assert scored.log_probability == pytest.approx(sum(part.log_probability for part in parts), abs=1e-4)
    assert scored.parts == 3
    whole = model.score([TEXT], ["C B A E D H G F!"])[0]  # not as many sentences as the source
    assert whole == replace(model.score([TEXT], ["C B A E D H G F!"], split=False)[0], score=whole.score)


def test_blank_texts_and_texts_of_many_sentences_are_counted_once_by_the_progress(model):
    done = []
    texts = ["", TEXT, "   ", "A b."]
    assert [row[0].text.strip() != "" for row in model.search(texts, progress=done.append)] == [
        False,
        True,
        False,
        True,
    ]
    assert sum(done) == len(texts)


def test_the_command_line_splits_as_well(trained, model):
    one, two, three = model.translate(SENTENCES)
    result = CliRunner().invoke(app, ["translate", str(trained), TEXT])
    assert result.stdout == f"{one}  {two} {three}\n"
    result = CliRunner().invoke(app, ["translate", str(trained), "--no-split", "--json", "A b. D."])
    assert json.loads(result.stdout)[0]["text"] == model.translate("A b. D.", split=False)


def test_training_records_the_share_of_lines_with_several_sentences(toy_recipe, tmp_path):
    source, target = tmp_path / "p.source", tmp_path / "p.target"
    source.write_text("".join(f"A {letter}. B {letter}.\nC {letter}.\n" for letter in "abcdefghij"))
    target.write_text("".join(f"X {letter}. Y {letter}.\nZ {letter}.\n" for letter in "abcdefghij"))
    recipe = toy_recipe(tmp_path / "run", f"data.source={source}", f"data.target={target}", "training.steps=2")
    run = dragoman.train(recipe)
    assert dragoman.load(run.folder).search(["A a. B a."])[0][0].parts == 1
    checkpoint = int(max(run.checkpoints_dir.iterdir()).name)
    assert dragoman.load(run.folder, checkpoint=checkpoint).search(["A a. B a."])[0][0].parts == 1


def test_lines_before_one_that_cannot_be_read_are_translated(model):
    def lines():
        yield from ["A b."] * 5
        raise UserError("line 6 is not UTF-8")

    outputs = []
    with pytest.raises(UserError, match="line 6"):
        outputs.extend(model.predict_lines(lines(), chunk_size=3))
    assert outputs == model.translate(["A b."] * 5)


@pytest.mark.slow
def test_the_command_ends_quietly_if_nobody_reads_its_output(trained):
    """As in `dragoman translate RUN < FILE | head -1`; the exit code is that of a program ended by SIGPIPE."""
    command = [sys.executable, "-m", "dragoman", "translate", str(trained), "--line-by-line"]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe) as process:
        process.stdin.write(b"a b\n")
        process.stdin.flush()
        assert process.stdout.readline()
        process.stdout.close()
        process.stdin.write(b"a b\nc d\n")
        process.stdin.close()
        assert process.stderr.read() == b""
        assert process.wait() == 128 + signal.SIGPIPE
