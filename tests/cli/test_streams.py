"""Closed and full streams, control characters, interrupts and temporary files: what a terminal or a script can do."""

import os
import pty
import shlex
import signal
import subprocess
import sys
import time

import pytest

from dragoman.cli.main import app
from dragoman.processes import available_cores
from dragoman.streams import escape_controls

ESCAPED = {
    "\x1b[2J": r"\x1b[2J", "a\rb": r"a\rb", "\x9b31m": r"\x9b31m", "\u202eevil\u2066": r"\u202eevil\u2066",
    "\x7f\x00": r"\x7f\x00", "\u2028": r"\u2028", "a\tb\nü漢👩‍👧": "a\tb\nü漢👩‍👧", "\\x1b": "\\x1b",
}  # fmt: skip
COMMANDS = [command.callback.__name__ for command in app.registered_commands]
FULL = "The results cannot be written to standard output: No space left on device."
CLOSED = "The results cannot be written to standard output: it is closed."


@pytest.fixture
def run(nursery, tmp_path):
    """Run the program as a process; return its exit code and what it wrote to standard error."""
    err = tmp_path / "err"

    def called(*arguments, **options):
        err.unlink(missing_ok=True)
        code = nursery.run(*arguments, err=err, **options)
        said = err.read_text()
        assert "Traceback" not in said and "Exception" not in said, said
        return code, said

    return called


@pytest.mark.parametrize(("text", "shown"), ESCAPED.items(), ids=range(len(ESCAPED)))
def test_control_characters_are_shown_and_other_text_stays_as_it_is(text, shown):
    assert escape_controls(text) == shown
    assert escape_controls(shown) == shown


# Standard output


@pytest.mark.parametrize("command", ["--version", *COMMANDS])
def test_help_that_cannot_be_written_is_no_success(run, command):
    arguments = [command] if command == "--version" else [command, "--help"]
    assert run(*arguments, out="/dev/full") == (2, f"dragoman: {FULL}\n")
    assert run(*arguments, closed=[1]) == (2, f"dragoman: {CLOSED}\n")


@pytest.fixture
def results(trained, toy_files, tmp_path):
    """Commands that write results to standard output."""
    files = ["--source", toy_files[0], "--target", toy_files[1]]
    return {
        "translate": ["translate", trained, "a b"],
        "json": ["translate", trained, "a b", "--json", "--n-best", 2],
        "evaluate": ["evaluate", trained, "--source", toy_files[0], "--reference", toy_files[1], "--worst", 2],
        "info": ["info", trained],
        "check": ["check", *files],
        "attention": ["attention", trained, "a b", "-o", tmp_path / "page.html"],
        "heads": ["heads", trained, "--no-importance"],
        "init": ["init", "translate"],
    }


def test_results_that_cannot_be_written_are_no_success(run, results):
    for arguments in results.values():
        for options, reason in (({"out": "/dev/full"}, FULL), ({"closed": [1]}, CLOSED)):
            code, said = run(*arguments, **options)
            assert (code, said.splitlines()[-1:]) == (2, [f"dragoman: {reason}"]), arguments


@pytest.mark.slow
def test_a_reader_that_has_gone_ends_the_program_quietly():
    command = [sys.executable, "-m", "dragoman", "--help"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        process.stdout.close()
        assert process.stderr.read() == b""
    assert process.returncode == 128 + signal.SIGPIPE


# Standard input and standard error


def test_input_that_cannot_be_read_is_an_error(run, trained, other_runs, tmp_path):
    for command, model in (("translate", trained), ("generate", other_runs["generate"])):
        for options, reason in (({"closed": [0]}, "it is closed"), ({"input": str(tmp_path)}, "Is a directory")):
            code, said = run(command, model, **options)
            assert code == 2
            assert said.endswith(f"dragoman: Standard input cannot be read: {reason}.\n")


def test_without_standard_error_the_code_and_the_results_are_the_same(run, nursery, results, tmp_path):
    with_all = nursery.run(*results["translate"], err=tmp_path / "err", out=str(tmp_path / "with"))
    without = nursery.run(*results["translate"], err=tmp_path / "err", out=str(tmp_path / "without"), closed=[0, 2])
    assert (with_all, without) == (0, 0)
    assert (tmp_path / "with").read_text() == (tmp_path / "without").read_text() != ""
    assert run("info", "nowhere", closed=[0, 1, 2]) == (2, "")
    assert nursery.run("info", "nowhere", err="/dev/full", out=str(tmp_path / "out")) == 2


def test_a_training_goes_on_if_its_messages_cannot_be_written(nursery, toy_recipe, tmp_path):
    for number, options in enumerate(({"err": "/dev/full"}, {"err": tmp_path / "err", "closed": [0, 1, 2]})):
        recipe = tmp_path / f"recipe{number}.toml"
        recipe.write_text(toy_recipe(tmp_path / f"run{number}").to_toml())
        assert nursery.run("train", recipe, out=str(tmp_path / "out"), **options) == 0
        assert (tmp_path / f"run{number}" / "model.safetensors").exists()


# Control characters


EVIL = "[red]\x1b[2J\u202eevil"
SHOWN = r"[red]\x1b[2J\u202eevil"


def test_messages_show_the_control_characters_of_a_path(run, trained, tmp_path):
    assert run("info", EVIL) == (2, f"dragoman: {SHOWN}: no such run directory. `dragoman train` creates one.\n")
    assert SHOWN in run("info", f"--{EVIL}")[1]
    code, said = run("attention", trained, "a b", "-o", tmp_path / f"{EVIL}.html")
    assert code == 0
    assert f"Wrote {tmp_path}/{SHOWN}.html.\n" in said


def test_tables_show_the_control_characters_of_data(command, tmp_path):
    (tmp_path / "text").write_text(f"{EVIL}\n")
    files = [option for name in ("source", "reference", "hypotheses") for option in (f"--{name}", tmp_path / "text")]
    result = command("evaluate", *files, "--worst", 1)
    assert result.out.count(SHOWN) == 3
    assert "\x1b" not in result.out and "\u202e" not in result.out


def read_terminal(master: int) -> str:
    """Return what was written to a terminal that nobody uses any more."""
    text = b""
    while True:
        try:
            text += os.read(master, 1 << 16)
        except OSError:  # the other end is closed
            return text.decode().replace("\r\n", "\n")


def test_results_keep_their_control_characters_in_a_file_and_show_them_on_a_terminal(run, other_runs, tmp_path):
    arguments = ["generate", other_runs["generate"], EVIL, "--length", 2]
    assert run(*arguments, out=str(tmp_path / "out"))[0] == 0
    assert (tmp_path / "out").read_text().startswith(EVIL)
    master, terminal = pty.openpty()
    assert run(*arguments, out=os.ttyname(terminal))[0] == 0
    os.close(terminal)
    assert read_terminal(master).startswith(SHOWN)
    os.close(master)


def test_progress_is_drawn_on_a_terminal(nursery, results):
    master, terminal = pty.openpty()
    name = os.ttyname(terminal)
    assert nursery.run(*results["evaluate"], err=name, set={"TERM": "xterm"}) == 0
    os.close(terminal)
    assert "\x1b[?25l" in read_terminal(master)  # hides the cursor
    os.close(master)


# Interrupts and temporary files


def wait_until(condition) -> None:
    while not condition():
        time.sleep(0.02)


def test_an_interrupted_command_says_so_in_one_line(nursery, trained, tmp_path):
    os.mkfifo(tmp_path / "input")
    files = {"input": str(tmp_path / "input"), "out": str(tmp_path / "out"), "err": tmp_path / "err"}
    process = nursery.start("translate", trained, "--line-by-line", **files)
    with (tmp_path / "input").open("w") as lines:
        print("a b", file=lines, flush=True)
        wait_until(lambda: (tmp_path / "out").read_text() if (tmp_path / "out").exists() else "")
        os.kill(process, signal.SIGINT)
        assert nursery.wait(process) == 130
    assert (tmp_path / "err").read_text().splitlines()[-1] == "dragoman: interrupted."
    assert "Traceback" not in (tmp_path / "err").read_text()


@pytest.fixture
def temporary(tmp_path):
    folder = tmp_path / "tmp"
    folder.mkdir()
    return folder


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)])
def test_an_interrupted_plan_leaves_no_temporary_files(nursery, toy_files, tmp_path, temporary, number, code):
    arguments = ["plan", "--source", toy_files[0], "--target", toy_files[1], "--steps", 10]
    options = {"err": tmp_path / "err", "set": {"TMPDIR": str(temporary)}}
    process = nursery.start(*arguments, pause=["prepare", 0], **options)
    wait_until((tmp_path / "err.paused").exists)
    assert list(temporary.iterdir()) != []
    os.kill(process, number)
    assert nursery.wait(process) == code
    assert "Traceback" not in (tmp_path / "err").read_text()
    assert list(temporary.iterdir()) == []


def test_commands_leave_no_temporary_files(run, results, toy_files, toy_recipe, trained, tmp_path, temporary):
    recipe = tmp_path / "recipe.toml"
    recipe.write_text(toy_recipe(tmp_path / "run").to_toml())
    files = ["--source", toy_files[0], "--target", toy_files[1]]
    more = {
        "train": ["train", recipe],
        "plan": ["plan", *files, "--steps", 10],
        "export": ["export", trained, "-o", tmp_path / "exported"],
        "picture": ["attention", trained, "a b", "-o", tmp_path / "picture.png"],
    }
    for name, arguments in {**results, **more}.items():
        assert run(*arguments, set={"TMPDIR": str(temporary)})[0] == 0, name
        assert [path.name for path in temporary.iterdir()] == [], name


# The surroundings


def test_a_current_directory_that_was_deleted_is_an_error(tmp_path, trained):
    (tmp_path / "gone").mkdir()
    command = f"rmdir ../gone && exec {shlex.join([sys.executable, '-P', '-m', 'dragoman', 'info', str(trained)])}"
    result = subprocess.run(["sh", "-c", command], cwd=tmp_path / "gone", capture_output=True, text=True)
    assert result.returncode == 2
    message = "The current directory cannot be used (No such file or directory); change to another one."
    assert result.stderr == f"dragoman: {message}\n"


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ({"WORLD_SIZE": "two"}, 'The environment variable WORLD_SIZE is "two"; it must be a number'),
        ({"WORLD_SIZE": "-1"}, 'The environment variable WORLD_SIZE is "-1"; it must be a number'),
        ({"RANK": "x\x1b[2J"}, r'The environment variable RANK is "x\x1b[2J"; it must be a number'),
        ({"WORLD_SIZE": "2", "RANK": "0"}, "The 2 processes of WORLD_SIZE cannot be connected: "),
    ],
)
def test_settings_of_torchrun_that_are_wrong_are_errors(run, toy_recipe, tmp_path, setting, message):
    recipe = tmp_path / "recipe.toml"
    recipe.write_text(toy_recipe(tmp_path / "run").to_toml())
    code, said = run("train", recipe, set=setting, unset=["MASTER_ADDR", "MASTER_PORT"])
    assert code == 2
    assert message in said


@pytest.mark.parametrize("number", ["0", "x", ""])
def test_a_number_of_processes_that_makes_no_sense_does_not_matter(number, monkeypatch):
    monkeypatch.setenv("LOCAL_WORLD_SIZE", number)
    assert available_cores() >= 1
