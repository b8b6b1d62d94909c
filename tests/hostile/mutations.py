"""Run directories as an enemy would make them: real ones of every kind, changed in one or several ways.

A mutation is a function of a run directory and a random generator, which Hypothesis or a seed provides.
"""

import contextlib
import copy
import hashlib
import json
import os
import pickle
import shutil
import socket
import stat
import struct
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

Mutation = Callable[[Path, Random], None]

MAX_BYTES = 8 << 20  # of a file that is changed once more
ESCAPE = "\x1b]0;owned\x07\x1b[2J"
NUMBERS = [0, 1, -1, 2, 7, 255, 65535, 65536, 10**6, 10**9, 2**31, 2**63, -(2**63), 10**18]
TEXTS = [
    "",
    " ",
    ESCAPE,
    "\u202eabc",
    "../../outside/secret",
    "/etc/passwd",
    "/dev/zero",
    "os.system",
    "a" * 10_000,
    "⁇",
]
SETTINGS = [0.5, True, "nan", "inf", "1e400", "[]", "{}", "9" * 5000, "1979-05-27"]
LINES = [
    "[model]", "a" + ".a" * 5000 + " = 1", "a = " + "[" * 5000, "class = 'os.system'", "x = '''",
    "[[data.corpora]]\nfile = '/etc/passwd'", '"' + "k" * 5000 + '" = 1',
]  # fmt: skip
FACTS = ["1", "9" * 5000, "-1", "NaN", "١٢", "1e9", "0.5", "2", "100000"]
ODD_VALUES: list[Any] = [
    *NUMBERS, *TEXTS, None, True, False, 0.0, -0.0, 1e308, -1e308, 0.5, float("nan"), float("inf"), [], {}, [[]], ["a"],
    [1, 2, 3], {"a": 1}, {"type": "Replace", "pattern": {"Regex": "(a+)+$"}, "content": ESCAPE}, [None] * 1000,
    {"__class__": "os.system", "args": ["touch owned"]},
]  # fmt: skip
FILES = ["recipe.toml", "tokenizer.json", "tokenizer.source.json", "tokenizer.target.json", "model.safetensors"]
FOLDERS = ["checkpoints", "events", "heads"]


class Bomb:
    """A pickle that would leave a trace."""

    def __reduce__(self) -> Any:
        return os.system, ("touch owned",)


def can_be_read(path: Path) -> bool:
    """Return whether a path is a regular file and not one of those that an earlier change has made enormous."""
    return path.is_file() and not path.is_symlink() and path.stat().st_size <= MAX_BYTES


def files_of(run: Path) -> list[Path]:
    """Return the regular files of a run, those that are always read most often."""
    found = [path for path in sorted(run.rglob("*")) if can_be_read(path)]
    return found + 3 * [path for path in found if path.name in FILES]


def pick(run: Path, random: Random, *suffixes: str) -> Path | None:
    """Return one of the run's files, with one of these suffixes if any are given."""
    fitting = [path for path in files_of(run) if not suffixes or path.suffix in suffixes]
    return random.choice(fitting) if fitting else None


def renew_manifest(path: Path) -> None:
    """Make the manifest of a checkpoint right again, so that the change is read and not only noticed."""
    manifest = path.parent / "manifest.json"
    if path == manifest or not can_be_read(manifest):
        return
    try:
        content = json.loads(manifest.read_bytes())
        for name in content["files"]:
            if not can_be_read(manifest.parent / name):
                return
            data = (manifest.parent / name).read_bytes()
            content["files"][name] = {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}
        manifest.write_bytes((json.dumps(content, ensure_ascii=False) + "\n").encode())
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return


def rewrite(path: Path, content: bytes, random: Random) -> None:
    """Replace the content of a file, and most times what is recorded about it."""
    path.write_bytes(content)
    if random.random() < 0.8:
        renew_manifest(path)


def change_bytes(run: Path, random: Random) -> None:
    """Flip, cut, insert or repeat bytes of a file."""
    path = pick(run, random)
    if path is None:
        return
    content = path.read_bytes()
    at = random.randrange(len(content) + 1)
    choices = [
        content[:at], content[at:], content[:at] + random.randbytes(random.choice([1, 8, 4096])) + content[at:],
        content[:at] + bytes([random.randrange(256)]) + content[at + 1 :], content * 2, b"", b"\xff\xfe" + content,
        b"\xef\xbb\xbf" + content, content.replace(b"\n", b"\r\n"), bytes(len(content)),
    ]  # fmt: skip
    rewrite(path, random.choice(choices), random)


def _replace(run: Path, path: Path, random: Random) -> None:
    """Put something else at a path: a link, a FIFO, a socket, a device, a directory, an enormous file."""
    outside = run.parent / "outside"
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
    kind = random.randrange(14)
    if kind < 6:
        targets = [outside / "secret", outside, Path("/dev/zero"), Path("/etc/passwd"), path, Path("nowhere")]
        path.symlink_to(targets[kind])
    elif kind == 6:
        os.mkfifo(path)
    elif kind == 7:
        make_socket(path)
    elif kind == 8:
        path.mkdir()
    elif kind == 9:
        make_device(path)
    elif kind == 10:
        os.link(outside / "secret", path)
    elif kind in (11, 12):
        with path.open("wb") as file:
            file.write(random.choice([b"", b"{", struct.pack("<Q", 64) + b'{"a":']))
            file.truncate(random.choice([2 << 20, 300 << 20, 1 << 30, 40 << 30]))
    else:
        path.write_bytes(pickle.dumps(Bomb()))


def make_socket(path: Path) -> None:
    """Make a socket; the path of one must be short."""
    with socket.socket(socket.AF_UNIX) as server:
        before = Path.cwd()
        try:
            os.chdir(path.parent)
            server.bind(path.name)
        finally:
            os.chdir(before)


def make_device(path: Path) -> None:
    """Make the device of zeros, or a FIFO where only the administrator can."""
    try:
        os.mknod(path, stat.S_IFCHR | 0o666, os.makedev(1, 5))
    except OSError:
        os.mkfifo(path)


def replace_a_file(run: Path, random: Random) -> None:
    """Put something else in place of a file."""
    path = pick(run, random)
    if path is not None:
        _replace(run, path, random)


def replace_a_folder(run: Path, random: Random) -> None:
    """Put something else in place of a directory, or where there was nothing."""
    names = [*FOLDERS, ".lock", "metrics.jsonl", "shortlist.safetensors", "skipped.jsonl", "curves.png", "README.md"]
    _replace(run, run / random.choice(names), random)


def replace_a_checkpoint(run: Path, random: Random) -> None:
    """Put something else in place of a checkpoint."""
    found = sorted((run / "checkpoints").glob("*"))
    if found:
        _replace(run, random.choice(found), random)


def odd_value(random: Random) -> Any:
    """Return a value that nobody expects."""
    value = copy.deepcopy(random.choice(ODD_VALUES))  # the tree that it is put into may be changed again
    for _ in range(random.choice([0, 0, 0, 3, 50])):
        value = random.choice([[value], {"type": value}, {"a": value}])
    return value


def change_tree(tree: Any, random: Random) -> Any:
    """Return a JSON tree with one value changed, removed or added."""
    if not isinstance(tree, dict | list) or not tree or random.random() < 0.15:
        return odd_value(random)
    keys = list(tree) if isinstance(tree, dict) else list(range(len(tree)))
    key = random.choice(keys[:20])
    action = random.random()
    if action < 0.1:
        del tree[key]
    elif action < 0.2 and isinstance(tree, dict):
        tree[random.choice([*TEXTS, "type", "dropout", "step"])] = odd_value(random)
    else:
        tree[key] = change_tree(tree[key], random)
    return tree


def dump(tree: Any, random: Random) -> str:
    """Return a tree as JSON, sometimes with what only some parsers read, or nested beyond all bounds."""
    try:
        text = json.dumps(tree, ensure_ascii=random.random() < 0.5)
    except RecursionError:
        text = "[" * 100_000
    edits = [text] * 12 + [
        text.replace(": 0", ": " + "9" * 5000, 1), text.replace(": 1", ": -1", 1), text.replace("null", "NaN", 1),
        "[" * 100_000 + text, '{"a":' * 100_000, text[:-1] + ', "added_tokens": [1]}', text.replace('"', '"\\ud800', 1),
        text.replace("{", '{"model": 1, ', 1),
    ]  # fmt: skip
    return random.choice(edits)


def change_json(run: Path, random: Random) -> None:
    """Change a value of a JSON file."""
    path = pick(run, random, ".json", ".jsonl")
    if path is None:
        return
    text = path.read_text(encoding="utf-8", errors="replace")
    lines = text.split("\n") if path.suffix == ".jsonl" else [text]
    index = random.randrange(len(lines))
    try:
        tree = json.loads(lines[index])
    except (ValueError, RecursionError):
        tree = {"step": 1, "event": "validation"}
    for _ in range(random.choice([1, 1, 3])):
        tree = change_tree(tree, random)
    lines[index] = dump(tree, random)
    rewrite(path, "\n".join(lines).encode("utf-8", "surrogatepass"), random)


def change_recipe(run: Path, random: Random) -> None:
    """Change settings of the recipe."""
    path = run / "recipe.toml"
    if not can_be_read(path):
        return
    lines = path.read_text(encoding="utf-8", errors="replace").split("\n")
    settings = [index for index, line in enumerate(lines) if " = " in line]
    for index in random.sample(settings, min(len(settings), random.choice([1, 1, 2, 5]))):
        name = lines[index].partition(" = ")[0].removeprefix("# ")
        value = random.choice(
            [*NUMBERS, *TEXTS, 0.5, True, "nan", "inf", "1e400", "[]", "{}", "9" * 5000, "1979-05-27"]
        )
        quoted = json.dumps(value) if isinstance(value, str) and random.random() < 0.6 else str(value).lower()
        lines[index] = f"{name} = {quoted}"
    extra = random.choice([""] * len(LINES) + LINES)
    path.write_bytes("\n".join([*lines, extra]).encode("utf-8", "replace"))


def read_tensors(path: Path) -> tuple[dict[str, Any], bytes]:
    """Return the header of a safetensors file and what follows."""
    content = path.read_bytes()
    length = int.from_bytes(content[:8], "little")
    return json.loads(content[8 : 8 + length]), content[8 + length :]


def change_weights(run: Path, random: Random) -> None:
    """Change the header, the facts or the values of a safetensors file."""
    path = pick(run, random, ".safetensors")
    if path is None:
        return
    try:
        header, data = read_tensors(path)
    except (ValueError, OSError, RecursionError):
        return
    if not isinstance(header, dict) or not all(isinstance(entry, dict) for entry in header.values()):
        return
    names = [name for name in header if name != "__metadata__"]
    action = random.randrange(9)
    if action < 3 and "__metadata__" in header and "dragoman" in header["__metadata__"]:
        facts = {"format": "dragoman-1", "longest_source": "7"}
        with contextlib.suppress(ValueError, TypeError, RecursionError):
            facts = dict(json.loads(header["__metadata__"]["dragoman"]))
        name = random.choice([*facts, "longest_source", "paragraph_share", "steps", "format"])
        facts[name] = random.choice(
            [odd_value(random), "1", "9" * 5000, "-1", "NaN", "١٢", "1e9", "0.5", "2", "100000"]
        )
        header["__metadata__"]["dragoman"] = dump(facts, random)
    elif action == 3 and names:
        header[random.choice(names)]["dtype"] = random.choice(["F64", "I8", "BF16", "C64", "F4", "BOOL", ESCAPE, 1])
    elif action == 4 and names:
        entry = header[random.choice(names)]
        entry["shape"] = random.choice(
            [[], [0], [1] * 100, [2**40, 2**40], [2**62, 0], [-1], entry["shape"][::-1], ["a"]]
        )
    elif action == 5 and names:
        entry = header[random.choice(names)]
        entry["data_offsets"] = random.choice([[0, 0], [0, 2**63], [8, 4], [-4, 0], [len(data), len(data) + 4], [0]])
    elif action == 6 and names:
        name = random.choice(names)
        header[random.choice([ESCAPE, "foreign", name.replace("0", "1"), "a" * 5000])] = header.pop(name)
    elif action == 7 and len(data) >= 8:
        at = random.randrange(len(data) // 4) * 4
        odd = struct.pack("<f", random.choice([float("nan"), float("inf"), 3e38, -3e38, 0.0, 1e-45]))
        data = data[:at] + odd + data[at + 4 :]
        if random.random() < 0.3:
            data = odd * (len(data) // 4) + b"\0" * (len(data) % 4)
    else:
        header = change_tree(header, random)
    text = json.dumps(header).encode()
    length = random.choice([len(text)] * 8 + [0, len(text) - 1, len(text) + 8, 2**63, 90_000_000])
    rewrite(path, struct.pack("<Q", length) + text + data, random)


def add_files(run: Path, random: Random) -> None:
    """Add files that some program would run or follow."""
    owned = "import pathlib; pathlib.Path('owned').touch()\n"
    names = {
        "torch.py": owned, "sitecustomize.py": owned, "evil.py": owned, "matplotlibrc": "text.usetex: True\n",
        "config.json": '{"auto_map": {"AutoModel": "evil.Model"}}', "pytorch_model.bin": "x", "-rf": "x", ESCAPE: "x",
        "checkpoints/999999999/manifest.json": "{}", "checkpoints/0/manifest.json": "{}", "checkpoints/٣/x": "",
        "heads/model.json": '{"format": 1, "heads": [1], "weights": "x"}', "heads/000000001.json": "[" * 9999,
        ".lock": '{"process": 1, "host": "\\u001b[2J", "started_at": 1}', "conftest.py": owned, "kernels.so": "\x7fELF",
    }  # fmt: skip
    for name in random.sample(sorted(names), 3):
        path = run / name
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.open("x").close()  # neither through a link nor into a FIFO
            path.write_text(names[name])
        except OSError:
            continue


def remove_files(run: Path, random: Random) -> None:
    """Remove files."""
    for _ in range(random.choice([1, 3])):
        path = pick(run, random)
        if path is not None:
            path.unlink()


def mix_up(run: Path, random: Random) -> None:
    """Copy one file over another."""
    paths = [pick(run, random), pick(run, random)]
    if None not in paths and paths[0] != paths[1]:
        rewrite(paths[1], paths[0].read_bytes(), random)


MUTATIONS: dict[str, Mutation] = {
    function.__name__: function
    for function in (
        change_bytes, replace_a_file, replace_a_folder, replace_a_checkpoint, change_json, change_recipe,
        change_weights, add_files, remove_files, mix_up,
    )
}  # fmt: skip
WEIGHTS = [2, 2, 1, 1, 5, 4, 5, 1, 1, 1]


def make_hostile(run: Path, random: Random) -> list[str]:
    """Change a run directory in place; return the names of the mutations. Beside it there must be outside/secret."""
    names = random.choices(list(MUTATIONS), WEIGHTS, k=random.choice([1, 1, 2, 4]))
    for name in names:
        MUTATIONS[name](run, random)
    return names
