"""Every command with every file that it reads missing, of another kind, empty, unreadable or full of bytes (C).

The table is the program's own, so that a command or an option that is added is tried too.
"""

import os
import random
import typing
from pathlib import Path

import pytest
import typer

from dragoman.cli.main import app

# Options that are strings, some of which name files; whoever adds one says which it is.
FILES = {
    "file", "hypotheses", "pairs", "parameters", "recording", "reference", "source", "target", "valid_file",
    "valid_pairs", "valid_source", "valid_target",
}  # fmt: skip
TEXTS = {
    "allow_host", "attention target", "budget", "columns", "corpus", "device", "experiment", "form", "gold", "host",
    "label", "languages", "lemma", "limit", "lines", "only", "overrides", "precision", "prefix", "preset", "prompt",
    "quantization", "run", "size", "stop", "tags", "task", "text", "to", "token", "word",
}  # fmt: skip
WRITTEN = {"folder", "output", "quickstart run", "train run"}
RUNS = {"run", "runs", "against", "compare"}
# What a command needs besides the file in question; where nothing is said, the file alone.
PAIR, VALID = (
    ["--source", "{source}", "--target", "{target}"],
    ["--valid-source", "{source}", "--valid-target", "{target}"],
)
NEEDED = {
    "attention run": ["a b", "-o", "{new}.html"],
    "attention compare": ["{run}", "a b", "-o", "{new}.html"],
    "attention output": ["{run}", "a b"],
    "bench output": ["{run}", "--only", "decoding", "--quick"],
    "bench source": ["--quick", "--target", "{target}", "-o", "{new}"],
    "bench target": ["--quick", "--source", "{source}", "-o", "{new}"],
    "check source": ["--target", "{target}"],
    "check target": ["--source", "{source}"],
    "check valid_source": [*PAIR, *VALID[2:]],
    "check valid_target": [*PAIR, *VALID[:2]],
    "check valid_pairs": PAIR,
    "check file": ["--task", "transcribe"],
    "check valid_file": ["--task", "transcribe", "--file", "{recordings}"],
    "evaluate run": ["--source", "{source}", "--reference", "{target}"],
    "evaluate source": ["{run}", "--reference", "{target}"],
    "evaluate reference": ["{run}", "--source", "{source}"],
    "evaluate pairs": ["{run}"],
    "evaluate hypotheses": ["--reference", "{target}"],
    "evaluate against": ["{run}", "--source", "{source}", "--reference", "{target}"],
    "evaluate output": ["{run}", "--source", "{source}", "--reference", "{target}", "--beam", "1"],
    "evaluate parameters": ["--task", "parse", "--hypotheses", "{trees}", "--reference", "{trees}"],
    "export output": ["{run}"],
    "export run": ["-o", "{new}"],
    "heads source": ["{run}", "--target", "{target}"],
    "heads target": ["{run}", "--source", "{source}"],
    "lab folder": ["masks"],
    "parse output": [str(Path(__file__).parents[1] / "released" / "0.1.0" / "parse"), "the dog sees a cat"],
    "train run": PAIR,
    "transcribe run": ["{source}"],
    "lab run": ["alignment", "--folder", "{new}"],
    **{
        f"{verb} {name}": [*needed, "--run", "{new}"]
        for verb in ("plan", "train")
        for name, needed in {
            "source": ["--target", "{target}"],
            "target": ["--source", "{source}"],
            "pairs": [],
            "valid_source": [*PAIR, *VALID[2:]],
            "valid_target": [*PAIR, *VALID[:2]],
            "valid_pairs": PAIR,
            "file": ["--task", "generate"],
            "valid_file": ["--task", "generate", "--file", "{source}"],
        }.items()
    },
}
BEFORE = {"transcribe recording": ["{transcriber}"]}  # arguments before the file
# A page of a run that need not exist yet.
SERVED = ("missing", "escape", "loop", "empty directory", "bytes in a directory")
ACCEPTED = {("watch run", kind) for kind in SERVED}
UNNAMED = {("plan recipe", "empty"), ("train recipe", "empty")}  # a recipe without settings, which has no data


def parameters_that_name_files(*, written):
    """Return each command, each parameter that names something to read (or to write), and the option that sets it."""
    found, commands = [], typer.main.get_command(app).commands
    for name, callback in ((command.callback.__name__, command.callback) for command in app.registered_commands):
        kinds = typing.get_type_hints(callback)
        for parameter in commands[name].params:
            both, kind = f"{name} {parameter.name}", str(kinds[parameter.name])
            names = {parameter.name, both}
            is_path = "Path" in kind
            is_file = bool(names & FILES) and both not in TEXTS
            known = is_path or is_file or "str" not in kind or names & (FILES | TEXTS) or "Literal" in kind
            assert known, f"{both} is a string: add it to FILES or to TEXTS"
            if names & WRITTEN if written else (is_path or is_file) and not names & WRITTEN:
                option = parameter.opts[0] if parameter.param_type_name == "option" else None
                found.append(pytest.param(name, parameter.name, option, id=both))
    return found


def bad_files(folder, *, is_run):
    """Return bad files by what is wrong with them."""
    noise = random.Random(1).randbytes(3000)
    kinds = {
        "missing": folder / "missing",
        "escape": folder / "missing\x1b[31m\x07",
        "empty": folder / "empty",
        "bytes": folder / "bytes",
        "loop": folder / "loop",
    }
    kinds["empty"].touch()
    kinds["bytes"].write_bytes(noise)
    kinds["loop"].symlink_to("loop")
    if os.geteuid() != 0:  # root reads everything
        kinds["unreadable"] = folder / "unreadable\x1b[31m"
        kinds["unreadable"].write_text("a b\n")
        kinds["unreadable"].chmod(0)
    kinds["empty directory"] = folder / "directory"
    kinds["empty directory"].mkdir()
    if is_run:
        kinds["bytes in a directory"] = folder / "bytes-in-it"
        kinds["bytes in a directory"].mkdir()
        for name in ("recipe.toml", "model.safetensors", "tokenizer.json"):
            (kinds["bytes in a directory"] / name).write_bytes(noise)
    return kinds


@pytest.fixture
def words(trained, transcriber, morse_corpus, toy_files, tmp_path):
    """What the words in braces stand for."""
    trees = tmp_path / "trees"
    trees.write_text("(TOP (NN dog))\n")
    source, target = toy_files
    runs = {"run": trained, "transcriber": transcriber, "recordings": morse_corpus / "valid.tsv"}
    return {**runs, "source": source, "target": target, "trees": trees, "new": tmp_path / "new"}


@pytest.mark.parametrize("name, parameter, option", parameters_that_name_files(written=False))
def test_a_bad_file_is_refused_by_name_with_exit_code_2(name, parameter, option, command, words, tmp_path):
    both = f"{name} {parameter}"
    needed = [word.format(**words) for word in NEEDED.get(both, [])]
    for kind, path in bad_files(tmp_path, is_run=parameter in RUNS).items():
        if (both, kind) in ACCEPTED:
            continue
        given = [option, path] if option else [*(word.format(**words) for word in BEFORE.get(both, [])), path]
        outcome = command(name, *(given + needed if option is None else needed + given))
        said = outcome.out if name == "check" else outcome.err  # what `check` finds is its result
        assert outcome.code == 2, f"{kind}: {outcome}"
        assert said.startswith(("dragoman: ", "error: ", "Usage: ")), f"{kind}: {outcome}"
        assert path.name.partition("\x1b")[0] in said or (both, kind) in UNNAMED, f"{kind}: {outcome}"
        assert "\x1b" not in outcome.out + outcome.err, f"{kind}: {outcome}"
        assert "Traceback" not in outcome.err
        assert name == "check" or outcome.out == ""
        assert not any(tmp_path.glob("new/**/*.*")), f"{kind}: something was written"


@pytest.mark.parametrize("name, parameter, option", parameters_that_name_files(written=True))
def test_a_place_that_cannot_be_written_is_refused_by_name_with_exit_code_2(
    name, parameter, option, command, words, tmp_path
):
    """/proc takes no new files from anyone, not even from root."""
    (tmp_path / "file").touch()
    needed = [word.format(**words) for word in NEEDED.get(f"{name} {parameter}", [])]
    for path in (tmp_path / "file" / "below.html", Path("/proc/new.html"), tmp_path / f"{'long' * 70}.html"):
        outcome = command(name, *needed, option, path)
        assert outcome.code == 2, outcome
        assert "dragoman: " in outcome.err, outcome
        assert path.name in outcome.err.replace("\n", ""), outcome
        assert "Traceback" not in outcome.err
