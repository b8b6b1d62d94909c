"""`dragoman pronounce` and `dragoman inflect`: a dozen words learned in seconds, asked for and scored."""

import json

import pytest

import dragoman
from dragoman.recipe import Recipe

pytestmark = pytest.mark.slow

WORDS = {
    "ab": ["AH0 B"], "ba": ["B AH1"], "aba": ["AH0 B AH1"], "bab": ["B AH1 B"], "cab": ["K AH1 B"], "bac": ["B AH1 K"],
    "ac": ["AH1 K"], "ca": ["K AH1"], "aca": ["AH0 K AH1", "EY1 K AH0"], "cac": ["K AH1 K"], "abc": ["AH0 B K"],
}  # fmt: skip
FORMS = {
    ("de", "ab", "N;PL"): "abe", ("de", "cab", "N;PL"): "cabe", ("de", "ab", "N;SG"): "ab",
    ("de", "cab", "N;SG"): "cab", ("en", "ab", "N;PL"): "abs", ("en", "cab", "N;PL"): "cab s",
    ("en", "cab", "N;SG"): "cab",
}  # fmt: skip
SMALL = {
    "model": {"layers": 1, "width": 32, "inner_width": 64, "heads": 2, "dropout": 0.0, "norm": "pre"},
    "training": {
        "steps": 120, "batch_tokens": 256, "schedule": "constant", "rate": 0.01, "warmup": 10, "label_smoothing": 0.0,
        "validate_every": 120, "checkpoint_every": 120, "average": 1, "keep": 1, "threads": 1,
    },
}  # fmt: skip


@pytest.fixture(scope="module")
def lexicon(tmp_path_factory):
    file = tmp_path_factory.mktemp("words") / "words.tsv"
    file.write_text("".join(f"{word}\t{phones}\n" for word, several in WORDS.items() for phones in several))
    return file


@pytest.fixture(scope="module")
def speaker(lexicon, tmp_path_factory):
    """A model that has learned the dozen words by heart."""
    files = {"file": str(lexicon), "valid_file": str(lexicon)}
    run = str(tmp_path_factory.mktemp("runs") / "speaker")
    return dragoman.train(Recipe.from_table({"task": "pronounce", "run": run, "data": files, **SMALL})).folder


@pytest.fixture(scope="module")
def inflector(tmp_path_factory):
    """A model that has learned the forms of two languages by heart."""
    folder = tmp_path_factory.mktemp("forms")
    for name in ("de", "en"):
        lines = [f"{lemma}\t{form}\t{tags}\n" for (label, lemma, tags), form in FORMS.items() if label == name]
        (folder / name).write_text("".join(lines))
    corpora = [{"label": name, "file": str(folder / name)} for name in ("de", "en")]
    data = {"corpora": corpora, "valid_corpora": corpora}
    recipe = {"task": "inflect", "run": str(folder / "inflector"), "data": data, **SMALL}
    return dragoman.train(Recipe.from_table(recipe)).folder


def test_words_are_pronounced_one_line_for_each_empty_ones_included(command, speaker):
    outcome = command("pronounce", speaker, "cab", "", "aba")
    assert (outcome.code, outcome.out) == (0, "K AH1 B\n\nAH0 B AH1\n")
    assert command("pronounce", speaker, stdin=b"cab\n\naba\n").out == outcome.out


def test_the_best_few_come_with_scores_or_as_json(command, speaker):
    lines = command("pronounce", speaker, "aca", "--n-best", 2, "--scores").out.splitlines()
    scores, found = zip(*(line.split("\t") for line in lines), strict=True)
    assert set(found) == {"AH0 K AH1", "EY1 K AH0"}
    assert float(scores[0]) >= float(scores[1])
    (ranked,) = map(json.loads, command("pronounce", speaker, "aca", "--n-best", 2, "--json").out.splitlines())
    assert [one["text"] for one in ranked] == list(found)
    assert ranked[0]["tokens"] == found[0].split()


def test_letters_never_seen_are_read_as_unknown_and_said_once(command, speaker):
    outcome = command("pronounce", speaker, "cáz", "zab", stdin=b"")
    assert outcome.code == 0 and len(outcome.out.splitlines()) == 2
    assert outcome.err.splitlines() == ['"cáz": symbols outside the vocabulary, read as unknown: ◌\u0301 z']


def test_a_very_long_or_strange_word_gets_a_line_too(command, speaker):
    words = ["ab" * 300, "\u200b", "a b", "😀", "<fre>", "a;b"]
    assert len(command("pronounce", speaker, *words).out.splitlines()) == len(words)


def test_forms_are_inflected_by_label_and_tags(command, inflector):
    asked = command("inflect", inflector, "de\tab\tN;PL", "en\tcab\tN;PL")
    assert (asked.code, asked.out) == (0, "abe\ncab s\n")
    assert command("inflect", inflector, "ab", "--tags", "N;PL", "--label", "de").out == "abe\n"
    assert command("inflect", inflector, "--label", "en", stdin=b"cab\tN;PL\n\n").out == "cab s\n\n"


def test_a_run_is_scored_against_a_lexicon(command, speaker, lexicon, tmp_path):
    outcome = command("evaluate", speaker, "--reference", lexicon, "--output", tmp_path / "found")
    assert outcome.code == 0
    assert [line.split()[:2] for line in outcome.out.splitlines()] == [
        ["WER", "0.00"], ["PER", "0.00"], ["accuracy", "100.00"], ["edit", "distance"]
    ]  # fmt: skip
    assert "0 of 11 words wrong" in outcome.out and "nrefs:1-2|" in outcome.out
    assert (tmp_path / "found").read_text().startswith("ab\tAH0 B\nba\tB AH1\n")
    again = command("evaluate", "--task", "pronounce", "--hypotheses", tmp_path / "found", "--reference", lexicon)
    assert again.out == outcome.out


def test_a_run_with_labels_is_scored_with_each_file_apart_and_their_mean(command, inflector):
    files = ",".join(f"{name}={inflector.parent / name}" for name in ("de", "en"))
    rates, by_label = command("evaluate", inflector, "--reference", files).out.strip().split("\n\n")
    assert "7 of 7 words right" in rates
    assert [line.split()[0] for line in by_label.splitlines()] == ["label", "de", "en", "mean"]


def test_a_file_of_a_run_with_labels_needs_one(command, inflector):
    found = json.loads(command("evaluate", inflector, "--reference", f"en={inflector.parent / 'en'}", "--json").out)
    assert found["accuracy"]["value"] == 100 and found["words"] == 3
    refused = command("evaluate", inflector, "--reference", inflector.parent / "en")
    assert refused.code == 2 and "the label is missing. Write de=" in refused.err


@pytest.fixture
def found(tmp_path, lexicon):
    """What somebody else made of the words: one wrong in a phone, one in stress."""
    lines = [f"{word}\t{phones[0]}" for word, phones in WORDS.items()]
    lines[:2] = ["ab\tAH0 P", "ba\tB AH0"]
    (tmp_path / "found.tsv").write_text("\n".join(lines) + "\n")
    return ("--task", "pronounce", "--hypotheses", tmp_path / "found.tsv", "--reference", lexicon)


def test_the_worst_words_and_what_was_taken_for_what_are_shown(command, found):
    rates, confusions, first, second = command("evaluate", *found, "--worst", 5).out.strip().split("\n\n")
    assert "2 of 11 words wrong" in rates
    assert confusions.splitlines()[1].split() == ["AH1", "AH0", "1"]
    assert first == "word 1, ab: 1 edit in 2 phones\n  output     AH0 P\n  reference  AH0 B"
    assert second.startswith("word 2, ba")


def test_stress_can_be_ignored(command, found):
    written = json.loads(command("evaluate", *found, "--ignore-stress", "--json", "--worst", 5).out)
    assert written["wer"]["counted"] == "1 of 11 words wrong"
    assert "phones without stress" in written["per"]["signature"]
    assert [one["source"] for one in written["worst"]] == ["ab"]


def test_what_cannot_be_asked_is_refused_with_what_can(command, speaker, inflector, lexicon):
    for arguments, words in (
        (("pronounce", speaker, "de\tab"), '"de<tab>ab": expected the word, without tabs'),
        (("inflect", inflector, "ab", "--label", "de"), '"de<tab>ab": expected a label, the lemma and the tags'),
        (
            ("inflect", inflector, "ab", "--label", "dee", "--tags", "N"),
            'no label "dee"; it has de, en. Did you mean "de"?',
        ),
        (("inflect", speaker, "ab", "--tags", "N"), "is a pronouncer; use `dragoman pronounce`"),
        (("translate", speaker, "ab"), "is a pronouncer; use `dragoman pronounce`"),
        (("evaluate", speaker), "--reference is missing: give a lexicon"),
        (("evaluate", "--task", "pronounce", "--reference", lexicon), "Give either a RUN"),
        (("evaluate", speaker, "--reference", lexicon, "--source", lexicon), "--source is not supported for"),
        (
            ("evaluate", speaker, "--reference", lexicon, "--task", "inflect"),
            "was trained for task pronounce; remove --task inflect.",
        ),
        (("evaluate", inflector, "--reference", lexicon, "--ignore-stress"), "--ignore-stress is not supported for"),
    ):
        outcome = command(*arguments)
        assert (outcome.code, outcome.out) == (2, "")
        assert words in outcome.err


def test_python_pronounces_and_says_how_sure_it_is(speaker):
    model = dragoman.load(speaker)
    assert model.pronounce("cab") == "K AH1 B"
    assert model.pronounce(["cab", ""], n_best=1) == ["K AH1 B", ""]
    best = model.pronounce("cab", details=True)
    assert best.score <= 0 and best.tokens == ("K", "AH1", "B")
