"""Names and places that programs trip over (C15)."""

import os
import shutil
from pathlib import Path

import pytest
from tiny_training import tiny

pytestmark = pytest.mark.slow

ODD = ['it\'s "odd" ünï 漢字 🙂 $HOME;ls*[a-z]? %s{0} \\', "-dash\tand\nnewline"]
TINY = tiny("words")


@pytest.mark.parametrize("name", ODD)
def test_files_and_runs_may_have_any_name(command, toy_files, tmp_path, name):
    folder = tmp_path / name
    folder.mkdir()
    for file, side in zip(toy_files, ("en", "de"), strict=True):
        shutil.copy(file, folder / f"{name}.{side}")
    files = ["--source", folder / f"{name}.en", "--target", folder / f"{name}.de"]
    assert command("train", *files, "--run", folder / "run", *TINY).code == 0
    assert command("train", folder / "run" / "recipe.toml", "--resume").code == 0
    assert command("translate", folder / "run", "a b").code == 0
    assert command("info", folder / "run").code == 0


def test_names_that_are_no_unicode_are_refused_where_they_cannot_be_kept_and_fine_elsewhere(
    nursery, toy_files, trained, tmp_path
):
    odd = Path(os.fsdecode(os.fsencode(tmp_path) + b"/caf\xe9.en"))
    run = Path(os.fsdecode(os.fsencode(tmp_path) + b"/r\xfcn"))
    shutil.copy(toy_files[0], odd)
    shutil.copytree(trained, run)
    for code, *arguments in (
        (2, "train", "--source", odd, "--target", toy_files[1], "--run", tmp_path / "run"),
        (0, "check", "--source", odd, "--target", toy_files[1]),
        (0, "evaluate", trained, "--source", odd, "--reference", toy_files[1], "--beam", 1),
        (2, "translate", run, "a b"),
        (0, "attention", trained, "a b", "-o", odd.with_suffix(".html")),
    ):
        assert nursery.run(*arguments, err=tmp_path / "err") == code, arguments
    said = (tmp_path / "err").read_bytes()
    assert b"it is not valid UTF-8, so a recipe cannot store it; rename the file" in said
    assert b"the safetensors library only opens paths that are valid UTF-8; rename the directory." in said
    assert b"80 pairs in " + os.fsencode(odd) in said
    assert odd.with_suffix(".html").exists()


def test_all_works_without_a_home_in_a_place_where_nothing_can_be_written(nursery, toy_files, tmp_path):
    """/proc takes no new files from anyone, not even from root."""
    options = {"folder": "/proc", "unset": ["HOME", "DRAGOMAN_CACHE", "XDG_CACHE_HOME"], "err": tmp_path / "err"}
    files = ["--source", toy_files[0], "--target", toy_files[1]]
    assert nursery.run("train", *files, "--run", tmp_path / "run", *TINY, **options) == 0
    assert nursery.run("translate", tmp_path / "run", "a b", **options) == 0
    assert nursery.run("attention", tmp_path / "run", "a b", "-o", tmp_path / "page.png", **options) == 0
    assert nursery.run("train", *files, "--run", "here", *TINY, **options) == 2
    said = (tmp_path / "err").read_text()
    assert "here: this directory cannot be created" in said
    assert "choose another directory." in said
    assert "Traceback" not in said
