"""The documentation matches the program: names exist, and shown output is what the program prints."""

import ast
import importlib
import re
import runpy
import shlex
import signal
import tomllib
from pathlib import Path

import pytest
import torch
import typer

import dragoman
from dragoman.cli import main
from dragoman.errors import TrainingDiverged, TrainingStopped, UserError
from dragoman.model_config import MODEL_CONFIGS, ModelConfig
from dragoman.models.transformer import Transformer
from dragoman.presets import PRESETS
from dragoman.recipe import Recipe
from dragoman.recipe_errors import section_classes
from dragoman.tasks.generate import LanguageModel
from dragoman.tasks.translate import Translator
from dragoman.tasks.word_tasks import Pronouncer
from dragoman.viewer.record import AttentionRecord

ROOT = Path(__file__).parents[1]
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])
PROGRAM = typer.main.get_command(main.app)

FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
INLINE = re.compile(r"(?<!`)`([^`\n]+)`(?!`)")
LINK = re.compile(r"\]\(([^)\s]+)\)")


def name(page: Path) -> str:
    return str(page.relative_to(ROOT))


def blocks(page: Path, *languages: str) -> list[str]:
    """Return the code blocks of a page that are in one of these languages."""
    return [text for language, text in FENCE.findall(page.read_text()) if language in languages]


def prose(page: Path) -> str:
    """Return a page without its code blocks."""
    return FENCE.sub("", page.read_text())


def rows(page: Path, heading: str) -> list[list[str]]:
    """Return the cells of the table under a heading, without the line of headings."""
    part = re.split(r"^## ", page.read_text(), flags=re.MULTILINE)
    (wanted,) = [each for each in part if each.startswith(heading + "\n")]
    lines = [line for line in wanted.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[2:]]


def shell_commands(text: str) -> list[list[str]]:
    """Return the simple commands of a shell script as lists of words; pipes and redirections end one."""
    lexer = shlex.shlex(text.replace("\\\n", " "), posix=True, punctuation_chars=True)
    lexer.whitespace = " \t"
    lexer.wordchars += ":,"  # two files as one argument, a.en:a.de; two columns, en,de
    found: list[list[str]] = [[]]
    for word in lexer:
        if word == "\n" or set(word) <= set("|&;<>()"):
            found.append([])
        else:
            found[-1].append(word)
    return [words for words in found if words]


def commands_in(page: Path, program: str) -> list[list[str]]:
    """Return the command lines of a program that a page shows, in blocks or in a line."""
    scripts = [*blocks(page, "sh"), *(code for code in INLINE.findall(prose(page)) if code.startswith(f"{program} "))]
    return [words[1:] for script in scripts for words in shell_commands(script) if Path(words[0]).name == program]


COMMANDS = [
    pytest.param(words, id=f"{name(page)}: {shlex.join(words)}")
    for page in PAGES
    for words in commands_in(page, "dragoman")
    if words[0] != "COMMAND"
]
SETTINGS = list(
    dict.fromkeys(
        (part, key)
        for part in Recipe.model_fields
        for section in section_classes(Recipe, part)
        for key in section.model_fields
    )
)


def test_there_are_commands_to_check():
    assert len(COMMANDS) > 20


@pytest.mark.parametrize("words", COMMANDS)
def test_a_command_in_the_docs_names_a_verb_and_options_that_exist(words):
    verb, *rest = words
    assert verb in PROGRAM.commands, f"there is no verb {verb}"
    options = {option for parameter in PROGRAM.commands[verb].params for option in parameter.opts}
    assert {word.split("=")[0] for word in rest if re.match(r"--?[a-z]", word)} <= options


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_command_lines_in_blocks_can_be_parsed_whole(page):
    scripts = [words for script in blocks(page, "sh") for words in shell_commands(script)]
    for words in scripts:
        if words[0] == "dragoman":
            PROGRAM.commands[words[1]].make_context(words[1], words[2:])  # raises on a wrong value or a missing one


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_the_settings_of_set_in_the_docs_exist(page):
    shown = re.findall(r"--set (\w+)\.(\w+)=", page.read_text())
    assert set(shown) <= {*SETTINGS, ("section", "key"), ("PART", "KEY")}


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_make_has_the_targets_that_the_docs_name(page):
    targets = set(re.findall(r"^([a-z][a-z-]*):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    assert {words[0] for words in commands_in(page, "make")} <= targets


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_every_link_within_the_project_leads_somewhere(page):
    for target in LINK.findall(prose(page)):
        if not re.match(r"https?:", target):
            file, _, heading = target.partition("#")
            there = (page.parent / file).resolve() if file else page
            assert there.exists(), f"{name(page)} links to {target}, which does not exist"
            assert not heading or heading in headings(there), f"{name(page)}: {file} has no heading #{heading}"


PRESENT = [page for page in PAGES if page.name not in ("CHANGELOG.md", "log.md") and "lab" not in page.parts]


@pytest.mark.parametrize("page", PRESENT, ids=name)
def test_dotted_names_in_the_docs_can_be_imported(page):
    for dotted in re.findall(r"`(dragoman(?:\.\w+)+)", prose(page)):
        assert can_be_imported(dotted), f"{name(page)} names {dotted}, which does not exist"


def can_be_imported(dotted: str) -> bool:
    """Return whether a dotted name is a module, or can be reached from one."""
    module, _, rest = dotted.rpartition(".")
    try:
        importlib.import_module(dotted)
    except ModuleNotFoundError:
        return bool(module) and can_be_imported(module) and exists(importlib.import_module(module), rest)
    return True


@pytest.mark.parametrize("page", PRESENT, ids=name)
def test_files_that_the_docs_name_exist(page):
    folders = (ROOT, ROOT / "src", ROOT / "src/dragoman", ROOT / "docs")
    for file in re.findall(r"`(\w[\w/-]*/[\w-]+\.(?:py|js|c|toml))`", prose(page)):
        assert any((folder / file).exists() for folder in folders), f"{name(page)} names {file}, which does not exist"


def headings(page: Path) -> set[str]:
    """Return the anchors of a page's headings."""
    titles = re.findall(r"^#+ (.+)$", prose(page), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


def test_the_script_of_screenshots_uses_elements_that_exist():
    script = (ROOT / "docs/make_screenshots.py").read_text()
    page = (ROOT / "src/dragoman/server/page/index.html").read_text()
    for element in set(re.findall(r'[" ]#([\w-]+)', script)):
        assert f'id="{element}"' in page


def test_the_page_of_commands_is_what_the_program_prints():
    generator = runpy.run_path(str(ROOT / "docs" / "generate_commands.py"))
    assert (ROOT / "docs" / "commands.md").read_text() == generator["page"](), "stale: run `make docs`"


def test_the_page_of_the_python_api_is_up_to_date():
    generator = runpy.run_path(str(ROOT / "docs" / "generate_api.py"))
    assert (ROOT / "docs" / "api.md").read_text() == generator["page"](), "out of date: run `make docs`"


@pytest.mark.parametrize(("part", "key"), SETTINGS)
def test_every_setting_is_described_on_the_page_of_commands(part, key):
    page = (ROOT / "docs/commands.md").read_text()
    for section in section_classes(Recipe, part):
        if key in section.model_fields:
            description = section.model_fields[key].description
            assert re.search(rf"^(# )?{key} =.*# {re.escape(description)}", page, re.MULTILINE)


PAPER = ROOT / "docs" / "paper.md"
ARCHITECTURES = ROOT / "docs" / "architectures.md"
SECTIONS = "1, 2, 3, 3.1, 3.2, 3.2.1, 3.2.2, 3.2.3, 3.3, 3.4, 3.5, 4, 5, 5.1, 5.2, 5.3, 5.4, 6, 6.1, 6.2, 6.3, 7"
PLACES = [
    pytest.param(what, where, id=what)
    for heading in ("Sections", "Equations and formulas", "Tables", "Figures")
    for what, where, _ in rows(PAPER, heading)
]


def test_the_map_of_the_paper_is_complete():
    assert ", ".join(row[0].split()[0] for row in rows(PAPER, "Sections")) == SECTIONS
    formulas = " ".join(row[0] for row in rows(PAPER, "Equations and formulas"))
    assert all(each in formulas for each in ("equation 1:", "equation 2:", "equation 3:", "MultiHead(", "PE("))
    assert [row[0].split(":")[0] for row in rows(PAPER, "Tables")] == [f"table {number}" for number in range(1, 5)]
    assert [row[0].split(":")[0] for row in rows(PAPER, "Figures")] == [f"figure {number}" for number in range(1, 6)]


@pytest.mark.parametrize(("what", "where"), PLACES)
def test_what_the_map_of_the_paper_names_exists(what, where):
    named = [] if where in ("—", "not yet") else [place.strip().split("): ") for place in where.split("; ")]
    for link, symbols in named:
        path = re.fullmatch(r"\[`([\w/]+)\.py`\]\(\.\./src/dragoman/\1\.py", link)
        assert path, f"{link} does not name a file as [`x.py`](../src/dragoman/x.py)"
        module = importlib.import_module(f"dragoman.{path[1].replace('/', '.')}")
        for symbol in symbols.split(", "):
            assert exists(module, symbol.strip("`")), f"{path[1]}.py has no {symbol}"


def exists(home: object, dotted: str) -> bool:
    """Say whether a name can be reached; the settings of a recipe are fields, not attributes."""
    for part in dotted.split("."):
        if part in getattr(home, "model_fields", {}):
            return True
        if not hasattr(home, part):
            return False
        home = getattr(home, part)
    return True


def test_the_first_release_in_the_changelog_is_this_version():
    first = re.search(r"^## \[(\d[^\]]*)\]", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert first
    assert first[1] == dragoman.__version__


def test_the_presets_are_as_the_docs_say():
    shown = rows(ROOT / "docs/training.md", "Recipes and presets")
    assert [row[0].strip("`") for row in shown] == list(PRESETS)
    for preset, *numbers in shown:
        recipe = Recipe.from_table({}, preset=preset.strip("`"))
        model, size = recipe.model, recipe.tokenizer.size
        with torch.device("meta"):
            parameters = sum(each.numel() for each in Transformer(model, size, size).parameters())
        assert numbers == [
            f"{model.layers} + {model.layers}",
            *map(str, (model.width, model.inner_width, model.heads)),
            f"{parameters / 1e6:.1f} million",
        ]


def test_each_architecture_has_the_settings_that_the_docs_list():
    shown = {
        cells[0].strip("`"): set(re.findall(r"`(\w+)`", cells[1])) for cells in rows(ARCHITECTURES, "The architectures")
    }
    common = ModelConfig.model_fields.keys()
    assert shown == {name: config.model_fields.keys() - common for name, config in MODEL_CONFIGS.items()}


def test_parameters_with_the_papers_vocabulary_are_as_the_docs_say():
    """Both the page on training and decision 8 state them; the paper says 65 and 213 million."""
    for preset, count in (("base", "63.1"), ("big", "214.2")):
        with torch.device("meta"):
            model = Transformer(Recipe.from_table({}, preset=preset).model, 37_000, 37_000)
        assert f"{sum(each.numel() for each in model.parameters()) / 1e6:.1f}" == count
        assert count in (ROOT / "docs/training.md").read_text()
        assert count in (ROOT / "docs/decisions/0008-parameter-counts.md").read_text()


def test_the_exit_codes_are_as_the_docs_say():
    codes = {"0", "1", *(str(kind.exit_code) for kind in (UserError, TrainingDiverged, TrainingStopped))}
    codes |= {str(128 + number) for number in (signal.SIGHUP, signal.SIGINT, signal.SIGPIPE, signal.SIGTERM)}
    assert {row[0] for row in rows(ROOT / "docs/training.md", "Exit codes")} == codes
    decided = (ROOT / "docs/decisions/0002-exit-codes.md").read_text()
    assert set(re.findall(r"^\| (\d+) \|", decided, re.MULTILINE)) == codes


@pytest.mark.parametrize(
    ("page", "model"),
    [
        ("README.md", Translator),
        ("docs/api.md", Translator),
        ("docs/viewer.md", Translator),
        ("docs/pronunciation.md", Pronouncer),
        ("docs/generation.md", LanguageModel),
    ],
)
def test_python_in_the_docs_uses_names_that_exist(page, model):
    homes = {"dragoman": dragoman, "model": model, "record": AttentionRecord}
    for tree in [ast.parse(block) for block in blocks(ROOT / page, "python") if "import dragoman" in block]:
        for node in ast.walk(tree):
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in homes:
                home = homes[node.value.id]
                assert hasattr(home, node.attr) or node.attr in getattr(home, "__dataclass_fields__", ()), node.attr


def test_every_requirement_is_explained_with_its_licence():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    required = {re.split(r"[<>=~! \[]", line)[0] for line in project["dependencies"]}
    lines = (ROOT / "docs/decisions/0001-dependencies.md").read_text().splitlines()
    explained = {cells[1].strip(): cells[3].strip() for line in lines if len(cells := line.split("|")) == 6}
    assert required <= explained.keys()
    assert all(explained[package] for package in required)
