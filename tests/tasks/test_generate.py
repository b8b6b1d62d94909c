"""A language model from its text to its commands: a verse that it learns by heart, nearly."""

import json
import math
from dataclasses import asdict

import pytest

import dragoman
from dragoman.errors import UserError
from dragoman.recipe import Recipe
from dragoman.run import read_metrics
from dragoman.tasks.generate import LanguageModel

pytestmark = pytest.mark.slow

VERSE = "One for the master,\nTwo for the dame,\nThree for the boy,\n\nWho lives down the lane.\n\n"


def settings(folder, **more):
    (folder / "train.txt").write_text(VERSE * 40)
    (folder / "dev.txt").write_text(VERSE * 3)
    return {
        "task": "generate",
        "run": str(folder / "run"),
        "data": {"file": str(folder / "train.txt"), "valid_file": str(folder / "dev.txt"), "longest": 32},
        "tokenizer": {"kind": "characters"},
        "model": {"layers": 1, "width": 32, "inner_width": 64, "heads": 2, "dropout": 0.0, "norm": "pre"},
        "training": {
            "steps": 60, "batch_tokens": 512, "rate": 0.01, "warmup": 10, "validate_every": 30, "checkpoint_every": 60,
            "keep": 1, "average": 1, "threads": 1,
        },
        **more,
    }  # fmt: skip


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A run that has learned the verse, to be read and not to be changed."""
    return dragoman.train(Recipe.from_table(settings(tmp_path_factory.mktemp("verse"))))


@pytest.fixture(scope="module")
def model(run):
    return dragoman.load(run.folder)


def test_it_learns_and_says_how_well_in_bits_per_character(run):
    first, *_, last = [entry for entry in read_metrics(run.metrics_file) if entry["event"] == "validation"]
    assert last["measure"] == "bits per character"
    assert last["score"] == pytest.approx(last["loss"] / math.log(2), rel=0.01)  # END is a token and no character
    assert last["score"] < first["score"] < 6
    assert last["samples"][0]["translation"]
    card = run.card_file.read_text()
    assert "A language model trained with Dragoman" in card
    assert "bits per character" in card and "window:32|stride:16" in card
    assert " windows: " in card and "pairs" not in card


def test_the_same_seed_writes_the_same_text_however_it_is_asked_for(model):
    text = model.generate("Two for", length=60, seed=3)
    assert text == "".join(model.stream("Two for", length=60, seed=3))
    assert text == model.generate("Two for", length=60, seed=3, samples=2)[0]
    assert len({*model.generate("Two for", length=60, temperature=2.0, samples=4)}) == 4


def test_greedily_it_goes_on_with_what_it_has_learned(model):
    assert model.generate("Three for t", length=3, temperature=0) == "he "


def test_what_is_out_of_sight_is_said_once_and_the_text_goes_on(model):
    said = []
    found = list(model.stream("One for", length=100, on_notice=said.append))
    assert len("".join(found)) == 100
    assert len(said) == 1 and "context window of the model is 32 tokens" in said[0]
    assert model.generate(VERSE * 9, length=5, details=True).context_truncated  # a prompt longer than the window


def test_it_stops_before_the_string_to_stop_at(model):
    whole = model.generate("One for the", length=30, temperature=0)
    found = model.generate("One for the", length=30, temperature=0, stop=whole[10:14], details=True)
    assert found.finish_reason == "stop_sequence" and found.text == whole[: whole.index(whole[10:14])]
    assert model.generate("One", length=3, details=True).finish_reason == "length"


def test_characters_that_it_has_never_seen_are_named_and_read_as_unknown(model):
    said = []
    assert len("".join(model.stream("Ünd für", length=5, on_notice=said.append))) == 5
    assert "unknown tokens: 'Ü', 'ü'." in said[0]


def test_perplexity_and_its_cousins_are_one_sum_divided_by_different_counts(model, run, command):
    found = json.loads(command("evaluate", run.folder, "--reference", run.folder.parent / "dev.txt", "--json").out)
    assert (found["characters"], found["words"], found["tokens"]) == (len(VERSE) * 3, 51, len(VERSE) * 3)
    assert found["bits_per_character"] == pytest.approx(found["nats"] / math.log(2) / found["characters"])
    assert found["perplexity_per_word"] == pytest.approx(math.exp(found["nats"] / 51))
    assert found["nats_per_character"] < 2.5
    table = command("evaluate", run.folder, "--reference", run.folder.parent / "dev.txt").out
    assert f"{found['bits_per_character']:.4f}" in table and table.endswith(found["signature"] + "\n")


def test_the_command_prints_the_prompt_and_what_follows(model, run, command):
    text = model.generate("Who", length=20, seed=5)
    shown = command("generate", run.folder, "Who", "--length", 20, "--seed", 5)
    assert shown.out == f"Who{text}\n"
    assert command("generate", run.folder, "Who", "--length", 20, "--seed", 5, "--no-stream").out == shown.out
    assert command("generate", run.folder, "--length", 20, "--seed", 5, stdin=b"Who\n").out == shown.out
    two = command("generate", run.folder, "Who", "--length", 20, "--seed", 5, "--samples", 2, "--json").out
    old_names = {"ended": "length", "slid": False}
    expected = asdict(model.generate("Who", length=20, seed=5, details=True))
    assert json.loads(two.splitlines()[0]) == {**expected, **old_names}
    assert len(two.splitlines()) == 2


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--temperature", "nan"], "--temperature"),
        (["--top-p", "0"], "top_p must be above 0 and at most 1, got 0.0"),
        (["--device", "abacus"], 'Device "abacus" is not available'),
    ],
)
def test_the_command_refuses_what_cannot_be(run, command, options, words):
    outcome = command("generate", run.folder, "Who", *options)
    assert outcome.code == 2 and words in outcome.err


def test_a_translator_does_not_continue_a_text(trained, command):
    outcome = command("generate", trained, "Who")
    assert outcome.code == 2 and "is a translator; use `dragoman translate`" in outcome.err
    with pytest.raises(UserError, match="is a translator"):
        LanguageModel.load(trained)


def test_pieces_that_hold_their_space_leave_none_to_the_prompt(tmp_path):
    """With "for " the next piece would have to be a word without its space, which training has never shown."""
    table = settings(tmp_path, tokenizer={"kind": "bpe", "size": 290})
    table["model"]["pattern"], table["model"]["window"] = "window", 8
    del table["data"]["valid_file"]
    model = dragoman.load(dragoman.train(Recipe.from_table(table)).folder)
    for seed in range(5):
        assert not model.generate("One for ", length=3, seed=seed).startswith(" ")
    text = model.generate("One for", length=40, seed=1, details=True)
    assert text.text == model.generate("One for", length=40, seed=1) and text.tokens == 40


def test_attention_shows_the_heads_over_the_text_itself(model, run, command, tmp_path):
    record = model.inspect("Two for")
    assert record.kinds == ("decoder",) and record.decoder.shape == (1, 2, 8, 8)
    assert record.target_text == "Two for" and record.source_pieces == ()
    assert all(step.top_choices for step in record.steps)
    outcome = command("attention", run.folder, "Two for", "-o", tmp_path / "page.html")
    assert outcome.code == 0 and (tmp_path / "page.html").stat().st_size > 10_000
    with pytest.raises(UserError, match="at most 31 fit into the context window"):
        model.inspect(VERSE)


def test_whoever_asks_for_a_translation_gets_what_follows(model):
    first, second = model.predict(["Two for", "Who"], details=True)
    assert len(first.tokens) == 50 and first.truncated and first.text and second.text


@pytest.mark.parametrize(
    ("setting", "words"),
    [
        ("model.architecture=transformer", 'needs [model] architecture = "decoder_only", not "transformer"'),
        ("tokenizer.kind=words", "needs [tokenizer] kind"),
        ("data.pairs=a.txt", 'task "generate" reads [data] file'),
    ],
)
def test_a_recipe_that_no_language_model_can_have_is_refused(tmp_path, setting, words):
    with pytest.raises(UserError) as refused:
        Recipe.from_table(settings(tmp_path), [setting])
    assert words in str(refused.value)


def test_a_text_too_short_to_hold_some_of_it_out_is_refused(tmp_path):
    table = settings(tmp_path)
    del table["data"]["valid_file"]
    (tmp_path / "train.txt").write_text(VERSE)
    with pytest.raises(UserError, match="too short to hold out a part"):
        dragoman.train(Recipe.from_table(table))
