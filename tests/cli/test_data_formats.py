"""`dragoman train`, `check` and `evaluate` on files of pairs in other formats, and on several corpora with labels."""

import json
from xml.sax.saxutils import escape

import pytest
from tiny_training import tiny

import dragoman
from dragoman.recipe import Recipe

pytestmark = pytest.mark.slow

TINY = (*tiny("words"), "--set", "training.schedule=noam")  # which may be resumed with more steps


@pytest.fixture
def files(tmp_path, toy_pairs):
    """The toy language in three formats."""
    units = "".join(
        f'<tu><tuv xml:lang="de-AT"><seg>{escape(target)}</seg></tuv>'
        f'<tuv xml:lang="en"><seg>{escape(source)}</seg></tuv></tu>\n'
        for source, target in toy_pairs
    )
    header = '<!DOCTYPE tmx SYSTEM "tmx14.dtd">\n<tmx version="1.4"><header srclang="en"/><body>\n'
    contents = {
        "company.tmx": f'<?xml version="1.0"?>\n{header}{units}</body></tmx>\n',
        "pairs.csv": "id,en,de\n" + "".join(f'{n},"{a}","{b}"\n' for n, (a, b) in enumerate(toy_pairs)),
        "pairs.jsonl": "".join(json.dumps({"translation": {"en": a, "de": b}}) + "\n" for a, b in toy_pairs),
    }
    for name, content in contents.items():
        (tmp_path / name).write_text(content)
    return {name: tmp_path / name for name in contents}


@pytest.mark.parametrize("name", ["company.tmx", "pairs.csv", "pairs.jsonl"])
def test_train_resume_and_evaluate_read_every_format(command, files, tmp_path, name):
    run = tmp_path / "run"
    given = ("--pairs", files[name], "--columns", "en,de", "--run", run, *TINY)
    assert command("train", *given).code == 0
    assert Recipe.from_toml(run / "recipe.toml").data.languages == ("en", "de")
    resumed = command("train", *given, "--resume", "--set", "training.steps=3")
    assert (resumed.code, resumed.err.count("cannot be resumed")) == (0, 0)
    scored = command("evaluate", run, "--pairs", files[name], "--columns", "en,de", "--json")
    assert scored.code == 0, scored.err
    assert "bleu" in scored.out.lower()


def test_a_run_is_not_resumed_on_other_pairs(command, files, tmp_path):
    given = ("--pairs", files["pairs.csv"], "--run", tmp_path / "run", *TINY)
    assert command("train", *given).code == 0
    files["pairs.csv"].write_text(files["pairs.csv"].read_text() + '99,"z","Z"\n')
    refused = command("train", *given, "--resume", "--set", "training.steps=3")
    assert refused.code == 2
    assert f"the training text ({files['pairs.csv']}): the contents differ" in refused.err


@pytest.mark.parametrize("name", ["company.tmx", "pairs.csv", "pairs.jsonl"])
def test_check_reads_every_format(command, files, name):
    checked = command("check", "--pairs", files[name], "--valid-pairs", files[name])
    assert checked.code == 0
    assert f"training text: 80 pairs in {files[name]}" in checked.out
    assert "80 × validation text: pairs that are also in the training text" in checked.out


def test_check_names_the_lines_of_the_file(command, tmp_path):
    (tmp_path / "t.csv").write_text('en,fr\n"a\nb",c\nsame,same\nd,e\n')
    checked = command("check", "--pairs", tmp_path / "t.csv")
    assert "line 4: same | same" in checked.out


REFUSED = {
    "one name": (("--columns", "en"), "--columns en: expected two different names, as in --columns en,fr."),
    "one name twice": (("--columns", "en,en"), "--columns en,en: expected two different names"),
    "no such language": (("--columns", "en,fr"), 'no unit has both "en" and "fr"; the languages are de-AT, en.'),
}


@pytest.mark.parametrize("verb", ["train", "check", "evaluate"])
@pytest.mark.parametrize("case", REFUSED)
def test_columns_that_are_not_there_are_refused(command, files, trained, tmp_path, verb, case):
    options, words = REFUSED[case]
    more = {"train": ("--run", tmp_path / "run"), "check": (), "evaluate": ()}[verb]
    runs = (trained,) if verb == "evaluate" else ()
    refused = command(verb, *runs, "--pairs", files["company.tmx"], *options, *more)
    assert refused.code == 2
    assert words in refused.err + refused.out
    assert "Traceback" not in refused.err


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--source", "a", "--reference", "b", "--columns", "en,fr"), "--columns is for a file of --pairs"),
        (("--pairs", "a", "--reference", "b"), "--pairs has both source and reference"),
        ((), "--reference is missing: give a file of reference translations, one per line, or --pairs"),
    ],
)
def test_evaluate_refuses_what_is_given_twice_or_not_at_all(command, trained, options, words):
    refused = command("evaluate", trained, *options)
    assert (refused.code, words in refused.err) == (2, True)


def test_a_word_document_is_named(command, tmp_path):
    import zipfile

    with zipfile.ZipFile(tmp_path / "company.docx", "w") as archive:
        archive.writestr("word/document.xml", "<xml/>")
    refused = command("train", "--pairs", tmp_path / "company.docx", "--run", tmp_path / "run")
    words = f"{tmp_path / 'company.docx'} is a Word document; export it as plain text, TMX or CSV first."
    assert (refused.code, words in refused.err) == (2, True)


@pytest.fixture
def labelled_run(files, toy_files, tmp_path):
    """A run trained on three corpora of different formats, two of them with the same label."""
    corpora = [
        {"file": str(files["company.tmx"]), "languages": ["en", "de"], "label": "up"},
        {"source": str(toy_files[0]), "target": str(toy_files[1]), "label": "up"},
        {"file": str(files["pairs.jsonl"]), "languages": ["de", "en"], "label": "down"},
    ]
    valid = [{"file": str(files["pairs.csv"]), "languages": ["en", "de"], "label": "up"}]
    table = {
        "run": str(tmp_path / "labels"),
        "data": {"corpora": corpora, "valid_corpora": valid},
        "tokenizer": {"kind": "words"},
        "model": {"layers": 1, "width": 16, "inner_width": 16, "heads": 2},
        "training": {"steps": 4, "batch_tokens": 64, "warmup": 4, "checkpoint_every": 4, "threads": 1},
    }
    return dragoman.train(Recipe.from_table(table)).folder


def test_several_corpora_with_labels_are_one_model(command, labelled_run, files):
    card = (labelled_run / "README.md").read_text()
    assert f"Trained on 240 pairs: {files['company.tmx']}, " in card
    model = dragoman.load(labelled_run)
    assert model.task.labels == ("up", "down")
    assert [piece.text for piece in model.source_tokenizer.pieces("<up> a")] == ["<up>", "a"]
    assert model.split_text("<up> a b. C d.").sentences == ("<up> a b.", "<up> C d.")
    labelled = command("translate", labelled_run, "--label", "up", "a b", "")
    assert labelled.code == 0
    assert labelled.out.splitlines() == [*model.translate(["up\ta b"]), ""]
    assert command("evaluate", labelled_run, "--pairs", files["pairs.csv"], "--label", "up", "--json").code == 0


def test_a_label_that_is_missing_or_unknown_is_named(command, labelled_run):
    missing = command("translate", labelled_run, "a b")
    assert missing.code == 2
    assert '"a b": expected a label and a tab before the text. Write "up<tab>a b", or give --label.' in missing.err
    unknown = command("translate", labelled_run, "--label", "upp", "a b")
    assert 'The model has no label "upp"; it has up, down. Did you mean "up"?' in unknown.err


def test_a_model_without_labels_accepts_none(command, trained):
    refused = command("translate", trained, "--label", "up", "a b")
    assert (refused.code, "was trained without labels; remove --label" in refused.err) == (2, True)
