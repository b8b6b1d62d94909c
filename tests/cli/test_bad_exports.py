"""`dragoman export`, asked for what cannot be: code 2, a sentence, and nothing written."""

import shutil

import pytest

pytest.importorskip("ctranslate2", reason='CTranslate2 is not installed: pip install "dragoman[bench]"')


@pytest.fixture
def folder(trained, tmp_path, monkeypatch):
    """A directory to be in, with a run, another directory and a file."""
    shutil.copytree(trained, tmp_path / "run")
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "thesis.txt").write_text("all of it")
    (tmp_path / "file").write_text("")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["run", "-o", "new", "--to", "ctranslate"], '--to "ctranslate" is unknown; choose ctranslate2. Did you mean "ctranslate2"?'),  # noqa: E501
        (["run", "-o", "new", "--quantization", "int4"], '--quantization "int4" is unknown; choose float32, int8,'),
        (["missing", "-o", "new"], "missing: no such run directory. `dragoman train` creates one."),
        (["notes", "-o", "new"], "notes is not a run directory: it has no recipe.toml."),
        (["file", "-o", "new"], "file: no such run directory."),
        (["run", "-o", "file"], "file is a file; --output needs a directory."),
        (["run", "-o", "file/new"], "file/new: this directory cannot be created (File exists)"),
        (["run", "-o", "/proc/new"], "/proc/new: this directory cannot be created"),
        (["run", "-o", "notes"], "notes contains thesis.txt, which is not part of an export; choose another --output."),
        (["run", "-o", "notes", "--overwrite"], "notes contains thesis.txt, which is not part of an export"),
        (["run", "-o", "run", "--overwrite"], "run contains .lock, which is not part of an export"),
        (["run", "-o", ".", "--overwrite"], ". contains file, which is not part of an export"),
        (["run"], "Missing option '--output'"),
    ],
)  # fmt: skip
def test_an_export_that_cannot_be_is_refused(command, folder, arguments, words):
    before = sorted(folder.rglob("*"))
    refused = command("export", *arguments)
    assert refused.code == 2
    assert words in refused.err
    assert refused.out == ""
    assert sorted(folder.rglob("*")) == before


def test_a_run_without_weights_cannot_be_exported(command, folder):
    (folder / "run" / "model.safetensors").unlink()
    shutil.rmtree(folder / "run" / "checkpoints")
    refused = command("export", "run", "-o", "new")
    assert (refused.code, "run has no weights yet" in refused.err) == (2, True)
    assert not (folder / "new").exists()


def test_an_export_says_where_it_is(command, folder):
    outcome = command("export", "run", "--to", "ctranslate2", "--output", "new", "--quantization", "int8")
    assert (outcome.code, outcome.out) == (0, "")
    assert "Wrote new. Its README.md explains how to use it." in outcome.err
    assert (folder / "new" / "model.bin").exists()
    assert command("export", "run", "-o", "new").code == 2
    assert command("export", "run", "-o", "new", "--overwrite").code == 0
