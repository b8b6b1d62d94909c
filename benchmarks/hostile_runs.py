"""How do all commands behave when a run directory was made by an enemy?

Run directories of every task and architecture are changed at random (tests/hostile/mutations.py), and every command
that takes a run is called on each, in forked processes with bounded memory. Counted are tracebacks, calls that take
more than five seconds of the processor or that do not end within twenty, ends by a signal, more than 1 GB of memory,
and whatever is opened, written, started or connected to outside of the run and of the command's own output. Commands
that start processes or train are called for a sample of the cases.

    python benchmarks/hostile_runs.py --count 2000 --jobs 2
"""

import argparse
import contextlib
import importlib
import io
import json
import os
import pkgutil
import resource
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections import Counter
from pathlib import Path
from random import Random
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests" / "hostile"))

from mutations import make_hostile  # noqa: E402

RUNS = {"run", "runs"}  # names of parameters
RELEASED = ROOT / "tests" / "released" / "0.1.0"
SECONDS, KILL_SECONDS, MEMORY, SPARE_ADDRESSES = 5.0, 20.0, 1 << 30, 4 << 30
STOP_AFTER = {"train": 1.5, "plan": 1.5, "quickstart": 1.5, "serve": 4.0, "watch": 3.0, "bench": 4.0, "lab": 4.0}
SAMPLED = {
    "train": 5,
    "plan": 10,
    "quickstart": 50,
    "serve": 40,
    "watch": 40,
    "bench": 100,
    "lab": 100,
}  # one of so many cases
READS_DATA = {"shortlist", "train", "plan", "lab", "bench"}  # commands that read the text that the recipe names
ARGUMENTS = {
    "attention": ["{run}", "a b", "-o", "{out}/page.html"],
    "average": ["{run}", "--last", "2"],
    "bench": ["{run}", "--only", "decoding", "--quick", "--threads", "1", "-o", "{out}/bench"],
    "evaluate": ["{run}", "--source", "{source}", "--reference", "{target}", "-o", "{out}/translations"],
    "export": ["{run}", "-o", "{out}/exported"],
    "generate": ["{run}", "The", "--length", "3"],
    "heads": ["{run}", "--sentences", "4", "--source", "{source}", "--target", "{target}"],
    "inflect": ["{run}", "aba", "--tags", "V;PST"],
    "lab": ["alignment", "--folder", "{out}/lab", "--corpus", "{text}", "--run", "{run}", "--budget", "60s"],
    "plan": ["{run}/recipe.toml"],
    "quickstart": ["--run", "{run}"],
    "serve": ["{run}", "--port", "0"],
    "train": ["{run}/recipe.toml", "--run", "{run}", "--resume"],
    "transcribe": ["{run}", "a.wav"],
    "watch": ["{run}", "--port", "0"],
}
WRITING = {"os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.link", "os.symlink", "os.truncate", "os.chmod"}
STARTING = {"subprocess.Popen", "os.exec", "os.posix_spawn", "os.system", "socket.connect", "socket.bind"}


def commands_with_a_run() -> list[str]:
    """Return the commands that take a run directory, from the program's own table."""
    import typer

    from dragoman.cli.main import app

    table = typer.main.get_command(app).commands
    return [
        name for name, command in table.items() if {"run", "runs"} & {parameter.name for parameter in command.params}
    ]


def arguments_of(command: str) -> list[str]:
    """Return how a command is called; by default with the run, and words for other required arguments."""
    import typer

    from dragoman.cli.main import app

    if command in ARGUMENTS:
        return ARGUMENTS[command]
    parameters = typer.main.get_command(app).commands[command].params
    return [
        "{run}" if parameter.name in ("run", "runs") else "a b"
        for parameter in parameters
        if parameter.param_type_name == "argument"
        and (parameter.name in ("run", "runs", "text", "word") or parameter.required)
    ]


def make_bases(folder: Path) -> None:
    """Write run directories of every kind: those of older versions, and new ones with all files that there can be."""
    import dragoman
    from dragoman.recipe import Recipe
    from dragoman.tasks.shortlist import write_shortlist

    data = folder / "data"
    data.mkdir(parents=True)
    random = Random(1)
    lines = [" ".join(random.choice("abcdefgh") for _ in range(random.randint(2, 7))) for _ in range(80)]
    (data / "source").write_text("".join(f"{line}\n" for line in lines))
    (data / "target").write_text("".join(f"{line.upper()}\n" for line in lines))
    for name in ("source", "target"):
        (data / f"few.{name}").write_text("".join((data / name).read_text().splitlines(keepends=True)[:4]))
    training = {
        "steps": 8, "batch_tokens": 64, "validate_every": 4, "checkpoint_every": 3, "keep": 3, "average": 2,
        "threads": 1, "schedule": "noam", "warmup": 4, "accumulate": 1, "clip": 0.0, "patience": 0,
        "validation_sample": 2,
    }  # fmt: skip
    files = {"source": str(data / "source"), "target": str(data / "target"), "held_out": 8}
    model = {"layers": 1, "width": 16, "inner_width": 16, "heads": 2, "dropout": 0.1, "norm": "post"}
    for kind, size in (("bpe", 300), ("wordpiece", 300), ("words", 300), ("characters", 100), ("bytes", 300)):
        table = {
            "run": str(folder / kind), "data": files, "tokenizer": {"kind": kind, "size": size}, "model": model,
            "training": training,
        }  # fmt: skip
        dragoman.train(Recipe.from_table(table))
        write_shortlist(folder / kind, lambda _event: None)
    for released in RELEASED.iterdir():
        if (released / "recipe.toml").is_file():
            shutil.copytree(released, folder / released.name)


class Watch:
    """An audit hook that notes what a call does outside of the directories that it may use."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.busy = True
        self.heard: list[str] = []
        self.allowed: list[str] = []
        self.readable: list[str] = []
        sys.addaudithook(self.hear)

    def begin(self, command: str) -> None:
        """Start to watch a call of a command."""
        bases = self.folder.parent / "bases"
        system = ["/proc", "/sys", "/dev/null", "/usr", "/etc/mime.types", sys.prefix, sys.base_prefix, ROOT / "src"]
        texts = [self.folder / "outside", self.folder / "current", bases, "/etc/passwd", "/dev/zero"]
        readable = [*system, bases / "data", *(texts if command in READS_DATA else [])]
        allowed = [*(self.folder / name for name in ("run", "out", "tmp", "cache", "messages")), "/dev/null"]
        self.allowed, self.readable = ([os.path.realpath(path) for path in paths] for paths in (allowed, readable))
        self.heard = []
        self.busy = command in SAMPLED and command not in ("train", "plan")

    def hear(self, event: str, arguments: tuple[Any, ...]) -> None:
        """Judge one event; what a library opens in C is not heard."""
        if self.busy:
            return
        self.busy = True
        try:
            if event == "open" and isinstance(arguments[0], str | bytes):
                path, _, flags = arguments
                if not Path(os.fsdecode(path)).is_absolute() and (flags or 0) & os.O_NOFOLLOW:
                    return  # below an open directory
                writes = bool((flags or 0) & (os.O_WRONLY | os.O_RDWR | os.O_CREAT))
                self.judge(event, path, self.allowed if writes else self.allowed + self.readable)
            elif event in WRITING:
                below_directory = any(isinstance(argument, int) and argument >= 0 for argument in arguments[1:])
                for path in arguments[:2]:
                    if isinstance(path, str | bytes) and not below_directory:
                        self.judge(event, path, self.allowed)
            elif event == "ctypes.dlopen" and isinstance(arguments[0], str):
                self.judge(event, arguments[0], self.readable)
            elif event in STARTING:
                self.note(event, arguments[:2])
        finally:
            self.busy = False

    def judge(self, event: str, path: str | bytes, fitting: list[str]) -> None:
        """Note an event unless its path, with all links followed, is below one of the fitting directories."""
        real = os.path.realpath(os.fsdecode(path))
        if not any(real == place or real.startswith(f"{place}/") for place in fitting):
            self.note(event, real)

    def note(self, event: str, what: Any) -> None:
        """Note an event."""
        self.heard.append(f"{event} {what}")


def be_a_program(calls: list[tuple[str, list[str]]], folder: Path, results: Path) -> None:
    """Call commands one after the other, in a forked process, and write down how each ended."""
    addresses = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize() + SPARE_ADDRESSES
    resource.setrlimit(resource.RLIMIT_AS, (addresses, addresses))
    os.chdir(folder / "current")
    os.environ.update(TMPDIR=str(folder / "tmp"), DRAGOMAN_CACHE=str(folder / "cache"))
    tempfile.tempdir = None
    watch, before = Watch(folder), set(snapshot(folder / "outside"))
    record = os.open(results, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    for command, words in calls:
        watch.busy = True
        make_copy(folder)
        os.write(record, f"{json.dumps({'command': command, 'began': time.monotonic()})}\n".encode())
        started, processor = time.monotonic(), time.process_time()
        watch.begin(command)
        code = call(command, words, folder / "messages")
        watch.busy = True
        seconds = time.monotonic() - started
        used = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10
        found = judge_output(code, folder, watch.heard, before) + (["memory"] if used > MEMORY else [])
        row = {"command": command, "found": found, "processor": time.process_time() - processor, "memory": used}
        os.write(record, f"{json.dumps(row | {'seconds': seconds, 'code': code})}\n".encode())
    os._exit(0)


def call(command: str, words: list[str], messages: Path) -> int:
    """Run the program and return its exit code; its output goes to a file."""
    import dragoman.cli.main

    out = os.open(messages, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    for stream, target in ((0, os.open(os.devnull, os.O_RDONLY)), (1, out), (2, out)):
        os.dup2(target, stream)
        os.close(target) if stream != 1 else None
    sys.stdin = io.TextIOWrapper(io.FileIO(0, closefd=False))
    sys.stdout = io.TextIOWrapper(io.FileIO(1, "w", closefd=False), encoding="utf-8", errors="surrogateescape")
    sys.stderr = io.TextIOWrapper(io.FileIO(2, "w", closefd=False), errors="backslashreplace", write_through=True)
    sys.argv = ["dragoman", command, *words]
    code = 1
    try:
        dragoman.cli.main.main()
    except SystemExit as left:
        code = left.code if isinstance(left.code, int) else 0 if left.code is None else 1
    except BaseException:
        traceback.print_exc()
    with contextlib.suppress(BaseException):
        sys.stdout.flush()
    return code


def judge_output(code: int, folder: Path, heard: list[str], before: set[tuple[str, bytes]]) -> list[str]:
    """Return what went wrong in a call that has ended."""
    text = (folder / "messages").read_text(encoding="utf-8", errors="replace")
    found = []
    if "Traceback (most recent call last)" in text or "panicked at" in text or code == 1:
        found.append(f"traceback: {text[-1500:]}")
    if heard:
        found.append(f"outside: {heard[:3]}"[:500])
    changed = set(snapshot(folder / "outside")) ^ before | set(snapshot(folder / "current"))
    if changed:
        found.append(f"written: {changed}"[:200])
    return found


def snapshot(folder: Path) -> list[tuple[str, bytes]]:
    """Return what is in a directory."""
    return sorted((path.name, path.read_bytes() if path.is_file() else b"") for path in folder.rglob("*"))


def make_copy(folder: Path) -> None:
    """Bring the hostile run back to what it was, and empty the other directories."""
    for name in ("out", "current"):
        for path in (folder / name).iterdir():
            shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()
    if listing(folder / "run") != listing(folder / "original"):
        shutil.rmtree(folder / "run", ignore_errors=True)
        os.system(f"cp -a --sparse=always {folder}/original {folder}/run")


def listing(folder: Path) -> list[tuple[str, int, int]]:
    """Return names, sizes and times of what is in a directory."""
    found = [(path, path.lstat()) for path in folder.rglob("*")]
    return sorted((str(path.relative_to(folder)), status.st_size, status.st_mtime_ns) for path, status in found)


def run_calls(calls: list[tuple[str, list[str]]], folder: Path) -> list[dict[str, Any]]:
    """Call commands in a forked process, and in another one those after a call that ended or hung the process."""
    rows: list[dict[str, Any]] = []
    while len(rows) < len(calls):
        command = calls[len(rows)][0]
        batch = calls[len(rows) : len(rows) + 1] if command in SAMPLED else [
            call for call in calls[len(rows) :] if call[0] not in SAMPLED
        ]  # fmt: skip
        ended = run_process(batch, folder)
        rows += ended
    return rows


def run_process(calls: list[tuple[str, list[str]]], folder: Path) -> list[dict[str, Any]]:
    """Call commands in one forked process; return how those ended that did, and the one that it ended with."""
    results = folder / "results"
    results.unlink(missing_ok=True)
    process, stopped = os.fork(), 0.0
    if process == 0:
        with contextlib.suppress(OSError):
            os.setpgid(0, 0)
        try:
            be_a_program(calls, folder, results)
        except BaseException:
            traceback.print_exc()
        os._exit(1)
    while True:
        ended, status, used = os.wait4(process, os.WNOHANG)
        lines = [json.loads(line) for line in results.read_text().splitlines()] if results.exists() else []
        if ended:
            break
        now, last = time.monotonic(), lines[-1] if lines else {}
        began = last.get("began", now)
        if calls[0][0] in STOP_AFTER and not stopped and now - began > STOP_AFTER[calls[0][0]]:
            stopped = now
            os.kill(process, signal.SIGTERM)
        elif now - max(began, stopped) > KILL_SECONDS:
            end_group(process)
            _, status, used = os.wait4(process, 0)
            break
        time.sleep(0.005)
    end_group(process)
    rows = [line for line in lines if "began" not in line]
    code = os.waitstatus_to_exitcode(status)
    if len(rows) < len(calls):
        found = [f"abort: signal {-code}"] if code != -signal.SIGKILL else ["hang"]
        if stopped and code == -signal.SIGTERM:
            found = []
        command = calls[len(rows)][0]
        seconds = used.ru_utime + used.ru_stime
        rows.append({"command": command, "found": found, "processor": seconds, "memory": used.ru_maxrss << 10})
    for row in rows:  # of the processor: another program may have it; a call that waits for ever is ended above
        if row["processor"] > SECONDS and row["command"] not in STOP_AFTER:
            row["found"].append("hang")
    return rows


def end_group(process: int) -> None:
    """End a process that this one has started, and all that it has started itself."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process, signal.SIGKILL)


def test_case(number: int, seed: int, bases: list[Path], folder: Path) -> list[dict[str, Any]]:
    """Make one hostile run and call all commands on it; calls that took too long are repeated alone."""
    random = Random(f"{seed} {number}")
    base = random.choice(bases)
    shutil.rmtree(folder, ignore_errors=True)
    for name in ("outside", "out", "tmp", "cache", "current", "run"):
        (folder / name).mkdir(parents=True)
    (folder / "outside" / "secret").write_text("a secret\n")
    shutil.copytree(base, folder / "original")
    changes = make_hostile(folder / "original", random)
    data = folder.parent / "bases" / "data"
    names = {
        "run": folder / "run", "out": folder / "out", "text": f"{data}/source:{data}/target",
        "source": data / "few.source", "target": data / "few.target",
    }  # fmt: skip
    commands = sorted(commands_with_a_run(), key=SAMPLED.__contains__)
    calls = [
        (command, [word.format(**names) for word in arguments_of(command)])
        for command in commands
        if number % SAMPLED.get(command, 1) == 0
    ]
    rows = run_calls(calls, folder)
    for index, row in enumerate(rows):
        for _ in range(2):
            if "hang" in rows[index]["found"]:  # the machine may have been busy with something else
                rows[index] = run_process([calls[index]], folder)[0]
        if rows[index]["found"]:
            print(f"case {number} ({base.name}; {', '.join(changes)}) {row['command']}:", flush=True)
            print("\n".join(map(str, rows[index]["found"])), "\n", flush=True)
    return rows


def work(share: range, seed: int, bases: list[Path], folder: Path, record: Path) -> None:
    """Test a share of the cases, one after the other; making them must not take the machine's memory either."""
    resource.setrlimit(resource.RLIMIT_AS, (2 * SPARE_ADDRESSES, resource.RLIM_INFINITY))
    with record.open("w") as file:
        for number in share:
            try:
                results = test_case(number, seed, bases, folder)
            except Exception:
                print(f"case {number} could not be made")
                traceback.print_exc()
                continue
            for result in results:
                print(json.dumps({"case": number, **result}), file=file, flush=True)
    shutil.rmtree(folder, ignore_errors=True)


def main() -> None:
    """Make the runs, test them in parallel, print a table."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--count", type=int, default=100)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--seed", type=int, default=17)
    parser.add_argument("--jobs", type=int, default=1)
    options = parser.parse_args()
    os.environ.update(OMP_NUM_THREADS="1", TOKENIZERS_PARALLELISM="false", MPLBACKEND="agg")
    import dragoman

    for module in pkgutil.walk_packages(dragoman.__path__, "dragoman."):
        if not module.name.endswith("__main__"):
            importlib.import_module(module.name)
    importlib.import_module("torch._dynamo")
    importlib.import_module("matplotlib.pyplot")
    import torch

    torch.set_num_threads(1)
    started = time.time()
    with tempfile.TemporaryDirectory(prefix="hostile-") as name:
        folder = Path(name)
        if os.fork() == 0:
            make_bases(folder / "bases")
            os._exit(0)
        os.wait()
        bases = sorted(path for path in (folder / "bases").iterdir() if path.name != "data")
        last, processes = options.first + options.count, []
        for job in range(options.jobs):
            processes.append(os.fork())
            if processes[-1] == 0:
                share = range(options.first + job, last, options.jobs)
                try:
                    work(share, options.seed, bases, folder / f"case-{job}", folder / f"record-{job}")
                except BaseException:
                    traceback.print_exc()
                os._exit(0)
        for process in processes:
            os.waitpid(process, 0)
        records = [json.loads(line) for path in folder.glob("record-*") for line in path.read_text().splitlines()]
    print_table(records, time.time() - started)


def print_table(records: list[dict[str, Any]], seconds: float) -> None:
    """Print what was counted, by command."""
    kinds = ["traceback", "hang", "abort", "memory", "outside", "written"]
    print("| command | calls | " + " | ".join(kinds) + " | longest, s of processor | most memory, MB |")
    print("| --- " * (len(kinds) + 4) + "|")
    for command in [*sorted({record["command"] for record in records}), "all"]:
        rows = [record for record in records if command in ("all", record["command"])]
        counts = Counter(kind.partition(":")[0] for record in rows for kind in record["found"])
        longest, most = max(row["processor"] for row in rows), max(row["memory"] for row in rows)
        cells = [command, f"{len(rows):,}", *(str(counts[kind]) for kind in kinds), f"{longest:.1f}", f"{most >> 20}"]
        print(f"| {' | '.join(cells)} |")
    cases = {record["case"] for record in records}
    failed = {record["case"] for record in records if record["found"]}
    print(f"{len(cases):,} cases, {len(failed)} with failures; {seconds / 60:.0f} min")


if __name__ == "__main__":
    main()
