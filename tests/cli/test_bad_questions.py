"""`dragoman evaluate` and `dragoman attention`, asked for what cannot be."""

import pytest


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A directory with some files of text, to be in."""
    (tmp_path / "two").write_text("a b\nc d\n")
    (tmp_path / "three").write_text("A\nB\nC\n")
    (tmp_path / "empty").write_text("")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--hypotheses", "two"], "--reference is missing: give a file of reference translations"),
        (["--reference", "two"], "Give either a RUN, which translates --source, or --hypotheses"),
        (["--hypotheses", "two", "--reference", "three"], "There are 2 hypotheses but 3 references"),
        (["--hypotheses", "empty", "--reference", "three"], "empty: the file is empty"),
        (["--hypotheses", "missing", "--reference", "three"], "missing: no such file."),
        (["--hypotheses", "two", "--reference", "two", "--task", "dance"], 'Unknown task "dance"'),
        (["--hypotheses", "two", "--reference", "two", "--against", "run"], "--source is missing"),
    ],
)
def test_a_score_that_cannot_be_is_refused(command, folder, options, words):
    refused = command("evaluate", *options)
    assert refused.code == 2
    assert words in refused.err
    assert refused.out == ""


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--reference", "two"], "--source is missing: give the text that the run translates."),
        (["--source", "two"], "--reference is missing: give a file of reference translations"),
        (["--source", "two", "--reference", "three"], "--source has 2 lines but --reference has 3; the files must be"),
        (["--source", "two", "--reference", "two", "--hypotheses", "two"], "Give either a RUN"),
        (["--source", "two", "--reference", "two", "--against", "missing"], "missing: no such run directory"),
        (["--source", "two", "--reference", "two", "-o", "no/such/place"], "no/such/place: No such file or directory"),
    ],
)
def test_a_score_of_a_run_that_cannot_be_is_refused(command, folder, trained, options, words):
    refused = command("evaluate", trained, *options)
    assert refused.code == 2
    assert words in refused.err
    assert refused.out == ""


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["", "-o", "page.html"], "The text to inspect is empty."),
        (["  ", "-o", "page.html"], "The text to inspect is empty."),
        (["a b", "-o", "page.txt"], "page.txt: the file name must end in .html (a page) or in .png, .svg, .pdf."),
        (["a b", "-o", "page"], "page: the file name must end in .html"),
        (["a " * 300, "-o", "page.html"], "The text has 300 tokens"),
        (["a b", "--target", "a " * 300], "The text has 300 tokens; the model reads at most 256"),
        (["a b", "-o", "no/such/page.html"], "no/such/page.html: No such file or directory"),
    ],
)
def test_a_look_at_what_cannot_be_shown_is_refused(command, folder, trained, arguments, words):
    refused = command("attention", trained, *arguments)
    assert refused.code == 2
    assert words in refused.err
    assert not list(folder.glob("page*"))
