"""Conventions that keep the code searchable, and an interface that changes only on purpose."""

import ast
import re
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest
import typer
from pydantic import BaseModel

from dragoman.cli import main
from dragoman.recipe import Recipe

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "dragoman"
FROZEN = Path(__file__).with_name("frozen_interface.txt")
MODULES = {path: ast.parse(path.read_text(encoding="utf-8")) for path in sorted(SOURCE.rglob("*.py"))}

FUNCTION = ast.FunctionDef | ast.AsyncFunctionDef
IRREGULAR = {
    "begun", "bent", "bound", "bought", "broken", "brought", "built", "caught", "chosen", "done", "drawn", "driven",
    "eaten", "fallen", "felt", "forgotten", "found", "frozen", "given", "gone", "grown", "had", "heard", "held",
    "hidden", "kept", "known", "laid", "learnt", "led", "left", "lent", "lost", "made", "meant", "met", "paid",
    "risen", "said", "seen", "sent", "shown", "slept", "slid", "sought", "spent", "spoken", "spoilt", "spread",
    "stolen", "struck", "stuck", "sung", "sunk", "taken", "taught", "thought", "thrown", "told", "torn", "understood",
    "woken", "won", "worn", "wound", "written",
}  # fmt: skip
UNPICKLING = {"pickle", "cPickle", "dill", "cloudpickle", "joblib", "marshal", "shelve"}
VERBS_IN_ED = {
    "bleed",
    "breed",
    "embed",
    "exceed",
    "feed",
    "heed",
    "need",
    "proceed",
    "seed",
    "shed",
    "speed",
    "succeed",
}


def is_participle(name: str) -> bool:
    return name in IRREGULAR or (name.endswith("ed") and "_" not in name and name not in VERBS_IN_ED)


def type_names(module: ast.Module) -> Iterator[str]:
    """Yield the names of classes and type aliases that a module defines."""
    for node in module.body:
        if isinstance(node, ast.ClassDef):
            yield node.name
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            target = node.targets[0] if isinstance(node, ast.Assign) else node.target
            if isinstance(target, ast.Name) and re.fullmatch(r"_?[A-Z]\w*[a-z]\w*", target.id):
                yield target.id


def functions(module: ast.Module) -> Iterator[tuple[str, ast.FunctionDef]]:
    """Yield the functions and methods of a module with their qualified names."""
    for node in module.body:
        if isinstance(node, ast.FunctionDef):
            yield node.name, node
        elif isinstance(node, ast.ClassDef):
            yield from ((f"{node.name}.{one.name}", one) for one in node.body if isinstance(one, ast.FunctionDef))


def is_property(function: ast.FunctionDef) -> bool:
    return any("property" in ast.unparse(decorator) for decorator in function.decorator_list)


def test_no_class_or_type_alias_is_defined_twice():
    homes = defaultdict(list)
    for path, module in MODULES.items():
        for name in type_names(module):
            homes[name.lstrip("_")].append(str(path.relative_to(SOURCE)))
    assert {name: paths for name, paths in homes.items() if len(paths) > 1} == {}


def test_no_public_function_is_named_by_a_bare_participle():
    """A function is named by a verb (`load_checkpoint`) or by what it returns (`attention_mask`)."""
    named_so = [
        f"{path.relative_to(SOURCE)}: {name}"
        for path, module in MODULES.items()
        for name, function in functions(module)
        if is_participle(function.name) and not is_property(function)
    ]
    assert named_so == []


def public_definitions(module: ast.Module) -> Iterator[str]:
    """Yield the public names that a module defines, without functions that a decorator registers."""
    for node in module.body:
        if isinstance(node, ast.ClassDef) or (isinstance(node, FUNCTION) and not node.decorator_list):
            names = [node.name]
        else:
            targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
            names = [target.id for target in targets if isinstance(target, ast.Name)]
        yield from (name for name in names if not name.startswith("_"))


def annotations(module: ast.Module) -> Iterator[ast.expr | None]:
    """Yield the types in the signatures of a module: of public functions, of fields, and base classes."""
    for node in ast.walk(module):
        if isinstance(node, FUNCTION) and not re.match("_[^_]", node.name):
            yield node.returns
            yield from (part.annotation for part in ast.walk(node.args) if isinstance(part, ast.arg))
        elif isinstance(node, ast.AnnAssign):
            yield node.annotation
        elif isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
            yield from node.bases


def words(text: str) -> set[str]:
    return set(re.findall(r"\w+", text))


def test_what_only_one_module_uses_is_private():
    """A public name is used by another module, a test or the documentation, or is a type in a public signature."""
    patterns = ("src/**/*.py", "tests/**/*.py", "benchmarks/*.py", "docs/**/*.py", "docs/**/*.md", "*.md")
    files = {path: words(path.read_text(encoding="utf-8")) for pattern in patterns for path in ROOT.glob(pattern)}
    homes = Counter(name for names in files.values() for name in names)
    unused = [
        f"{path.relative_to(SOURCE)}: {name}"
        for path, module in MODULES.items()
        for name in set(public_definitions(module))
        - words(" ".join(ast.unparse(kind) for kind in annotations(module) if kind))
        if homes[name] == 1
    ]
    assert sorted(unused) == []


def test_parameters_of_settings_are_called_config():
    others = [
        f"{path.relative_to(SOURCE)}:{part.lineno}: {part.arg}"
        for path, module in MODULES.items()
        for part in ast.walk(module)
        if isinstance(part, ast.arg) and part.annotation and re.fullmatch(r"\w+Config", ast.unparse(part.annotation))
        if part.arg.lstrip("_") != "config"
    ]
    assert others == []


def imported_modules(module: ast.Module) -> set[str]:
    nodes = list(ast.walk(module))
    names = [alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names]
    names += [node.module for node in nodes if isinstance(node, ast.ImportFrom) and node.module]
    return {name.partition(".")[0] for name in names}


def test_nothing_imports_a_module_that_can_unpickle():
    """E1: what such a module reads can run code."""
    importing = {str(path.relative_to(SOURCE)) for path in MODULES if imported_modules(MODULES[path]) & UNPICKLING}
    assert importing == set()


def test_no_two_test_files_have_one_name():
    """pytest imports test files by their names alone."""
    names = [path.name for path in ROOT.glob("tests/**/*.py") if path.name != "conftest.py"]
    assert sorted(names) == sorted(set(names))


def settings(model: type[BaseModel], prefix: str) -> Iterator[str]:
    for name, field in model.model_fields.items():
        branches = [
            kind
            for kind in (field.annotation, *getattr(field.annotation, "__args__", ()))
            if isinstance(kind, type) and issubclass(kind, BaseModel)
        ]
        if branches:
            for branch in branches:
                yield from settings(branch, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}"


def options() -> Iterator[str]:
    program = typer.main.get_command(main.app)
    for verb, command in sorted(program.commands.items()):  # type: ignore[attr-defined]
        yield verb
        for parameter in command.params:
            yield f"{verb} {'|'.join(parameter.opts)}"


def interface() -> str:
    parts = {"settings": sorted(set(settings(Recipe, ""))), "command line": list(options())}
    return "".join(
        f"# {title}: {len(lines)}\n" + "".join(f"{line}\n" for line in lines) for title, lines in parts.items()
    )


def test_the_settings_and_options_are_the_frozen_ones():
    """Whoever adds, renames or removes one edits the file, and so the CHANGELOG and the documentation, on purpose."""
    frozen = FROZEN.read_text(encoding="utf-8")
    added = sorted(set(interface().splitlines()) - set(frozen.splitlines()))
    removed = sorted(set(frozen.splitlines()) - set(interface().splitlines()))
    hint = f"`python {FROZEN.parent.name}/test_conventions.py` writes {FROZEN.name}"
    assert (added, removed) == ([], []), hint


@pytest.mark.parametrize("script", sorted((ROOT / "benchmarks").glob("*.py")), ids=lambda path: path.name)
def test_what_a_benchmark_script_imports_exists(script):
    """The scripts are run by hand, so nothing else would notice that a name they use was renamed."""
    import importlib

    for node in ast.walk(ast.parse(script.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("dragoman"):
            module = importlib.import_module(node.module)
            missing = [alias.name for alias in node.names if not hasattr(module, alias.name)]
            assert missing == [], f"{node.module} has no {missing}"


if __name__ == "__main__":
    FROZEN.write_text(interface(), encoding="utf-8")
