"""Reading TOML of any origin: bounded in size and depth, whatever is in its strings and comments."""

import tomllib

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from dragoman import toml
from dragoman.errors import UserError
from dragoman.recipe import Recipe
from dragoman.toml import MAX_BYTES, MAX_DEPTH, parse_toml, parse_value, read_toml, toml_value

FULL = MAX_BYTES - 100
TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x00"), max_size=30)
SCALARS = TEXT | st.integers(-(2**63), 2**63 - 1) | st.booleans()
VALUES = st.recursive(SCALARS, lambda inner: st.lists(inner, max_size=3), max_leaves=6)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a" + ".a" * (FULL // 2) + " = 1", r"a key has more than 8 parts \(at line 1\)"),
        ("\n\n[a" + " . a" * (FULL // 4) + "]", r"a key has more than 8 parts \(at line 3\)"),
        ("'a'" + ".'a'" * (FULL // 4) + " = 1", "a key has more than 8 parts"),
        ("a = " + "[" * FULL, "nested more than 8 levels"),
        ("a = " + "{a=" * (FULL // 3), "nested more than 8 levels"),
        ("a = '''\n" + "x" * FULL, "Expected \"'''\""),
        ("a = " + "9" * FULL, "Exceeds the limit"),
        ("a = 1" + " " * MAX_BYTES, "not a recipe: larger than 256 KiB"),
    ],
)
def test_a_file_that_would_take_the_memory_of_the_machine_is_refused(text, words):
    """Issue 17, M5: 100 KB of dotted parts took 9 GB and 49 s."""
    with pytest.raises(UserError, match=r"^recipe.toml: .*" + words):
        parse_toml(text.encode(), "recipe.toml")


def test_a_file_without_end_is_read_up_to_the_limit(tmp_path):
    (tmp_path / "recipe.toml").symlink_to("/dev/zero")
    with pytest.raises(UserError, match="larger than 256 KiB"):
        read_toml(tmp_path / "recipe.toml")


@pytest.mark.parametrize(
    "dots",
    [
        "{} = '.......... [[[[[[[[[[ {{{{'",
        '{} = 1 # "..........[[[[[[[[[[',
        '"{}.........." = 1',
        '{} = """\n..........\n[[[[[[[[[[ \\" ""\n"""',
        "{} = '''\n'[[[[[[[[[['\n'''''",
    ],
)
def test_strings_and_comments_have_no_depth(dots):
    assert len(parse_toml(dots.format("a").replace("{{", "{").encode(), "recipe.toml")) == 1


@given(st.dictionaries(TEXT, VALUES, max_size=4))
def test_whatever_we_write_is_read_again(table):
    text = "".join(f"{toml_value(key)} = {toml_value(value)}\n" for key, value in table.items())
    assert parse_toml(text.encode(), "recipe.toml") == table


def depth(value):
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return 1 + max(map(depth, inner), default=0)


PIECES = ["a", "b", ".", "=", ",", "\n", "[", "]", "{", "}", '"', "'", '"""', "'''", "\\", "#", " ", "1", "a.", "a={",
          "a=[", "\n[a.b]\n", "\na=", '"a"', "'.'", '"""\n.']  # fmt: skip


@pytest.mark.parametrize("count", [40, pytest.param(400, marks=pytest.mark.long)])
def test_nothing_that_the_library_would_read_passes_the_limit_on_depth(count, monkeypatch):
    monkeypatch.setattr(toml, "MAX_DEPTH", 2)

    @given(st.lists(st.sampled_from(PIECES), max_size=count).map("".join))
    @example('"""a""".a.a.a=1')
    @example("a='''b'''''\na.a.a.a=1")
    @example('a="\\""\nb=\'\\\'\nc.c.c.c=1')
    @example("a=\"#\"\nb='#'#'\nc.c.c.c=1")
    def check(text):
        try:
            table = parse_toml(text.encode(), "recipe.toml")
        except UserError:
            return
        assert table == tomllib.loads(text)
        assert depth(table) <= 2 + 2 * (1 + 2) + 1  # a header, keys at each level of inline tables, the value

    check()


@given(st.text(max_size=200))
def test_any_text_is_a_value(text):
    parse_value(text, is_text=False)


def test_a_setting_of_many_parts_is_refused():
    with pytest.raises(UserError, match=r"expected section\.key=value"):
        Recipe.from_table({}, ["a" + ".a" * MAX_DEPTH + "=1"])


@pytest.mark.parametrize(
    "text",
    [
        "".join(f"k{number} = 1\n" for number in range(20_000)),
        "[model]\n" + "".join(f"k{number} = 1\n" for number in range(20_000)),
        "[data]\ncorpora = [" + "1, " * 50_000 + "]",
        "[[data.corpora]]\n" * 10_000,
        "[model]\nwidth = '" + "9" * 200_000 + "'",
        "task = '" + "t" * 200_000 + "'",
        "preset = '" + "t" * 200_000 + "'",
    ],
)
def test_a_recipe_with_thousands_of_errors_has_a_short_message(text):
    with pytest.raises(UserError) as refused:
        Recipe.from_table(parse_toml(text.encode(), "recipe.toml"), origin="recipe.toml")
    assert len(str(refused.value)) < 5000
