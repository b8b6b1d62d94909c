"""The recipe: what is read is what was written, and what is wrong is said in the user's own words."""

import tomllib

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from dragoman.errors import UserError
from dragoman.model_config import TransformerConfig
from dragoman.presets import PLANNED_SETTINGS, PRESETS, TASKS
from dragoman.recipe import (
    DataConfig,
    Recipe,
    TrainingConfig,
    flatten_settings,
    parse_override,
    recipe_differences,
)
from dragoman.recipe_errors import section_classes
from dragoman.run import Run


@pytest.fixture
def recipe_file(tmp_path):
    def written(text):
        path = tmp_path / "recipe.toml"
        path.write_text(text, encoding="utf-8")
        return path

    return written


def refusal(table, overrides=(), **options):
    """Return the lines that a wrong recipe is refused with."""
    with pytest.raises(UserError) as caught:
        Recipe.from_table(tomllib.loads(table), overrides, origin="recipe.toml", **options)
    return str(caught.value).split("\n")


def changed(recipe):
    """Return the settings of a recipe that are not the default."""
    defaults = dict(flatten_settings(Recipe()))
    return {name: value for name, value in flatten_settings(recipe) if value != defaults[name]}


# Written and read again


def read_back(recipe, *, comments=False):
    return Recipe.from_table(tomllib.loads(recipe.to_toml(comments=comments)))


text = st.text(st.characters(exclude_categories=["Cs"]))
shares = st.floats(0, 1, exclude_max=True)
recipes = st.fixed_dictionaries(
    {
        "run": text,
        "data": st.fixed_dictionaries({"source": text.filter(bool), "target": text.filter(bool)}),
        "tokenizer": st.fixed_dictionaries({"lowercase": st.booleans()}),
        "model": st.fixed_dictionaries(
            {"layers": st.integers(1, 200), "dropout": shares}, optional={"key_width": st.integers(1, 65536)}
        ),
        "training": st.fixed_dictionaries(
            {
                "betas": st.lists(shares, min_size=2, max_size=2),
                "clip": st.floats(0, allow_infinity=False),
                "epsilon": st.floats(0, exclude_min=True, allow_infinity=False),
                "seed": st.integers(0, (1 << 31) - 1),
            },
            optional={"rate": st.floats(0, 10, exclude_min=True)},
        ),
    }
)


@given(recipes, st.booleans())
def test_a_recipe_that_is_written_and_read_again_is_the_same(table, comments):
    recipe = Recipe.from_table(table)
    assert read_back(recipe, comments=comments) == recipe


@pytest.mark.parametrize(
    "name",
    [
        'say "so"',
        "C:\\new\\table",
        "two\nlines\r\n",
        "\ttab",
        "# not a comment",
        "nul \0 and bell \a and delete \x7f",
        "line separator \u2028, next line \x85, no-break space \xa0",
        "right to left \u202e, zero width \u200b, byte order mark \ufeff",
        "𝄞 🐉 e\u0301 汉字",
        "'''",
        '"""',
        "",
    ],
)
def test_any_name_of_a_run_survives_the_file(name, tmp_path):
    recipe = Recipe(run=name)
    path = tmp_path / "recipe.toml"
    path.write_text(recipe.to_toml(), encoding="utf-8")
    assert Recipe.from_toml(path) == recipe


def test_a_name_whose_bytes_are_not_utf_8_is_refused_at_the_door():
    """Python hands such names on with half of a surrogate pair in them, and TOML cannot hold that: it was written to
    recipe.toml all the same, and then no command could read the run."""
    with pytest.raises(UserError) as caught:
        Recipe.from_table({"data": {"source": "caf\udce9.txt", "target": "b"}}, origin="options")
    assert str(caught.value) == (
        'options: [data] source is "caf\\U0000dce9.txt"; it is not valid UTF-8, so a recipe cannot store it; '
        "rename the file."
    )


def test_what_is_unset_stays_unset_and_is_shown():
    written = Recipe().to_toml()
    assert "# key_width =" in written.splitlines()
    assert read_back(Recipe()).model.key_width is None


@pytest.mark.parametrize("preset", PRESETS)
def test_the_form_to_edit_parses_and_gives_the_defaults(preset):
    recipe = Recipe.from_table({}, preset=preset)
    assert read_back(recipe, comments=True) == recipe


def test_the_form_shows_every_setting_with_its_description_and_its_choices():
    form = Recipe().to_toml(comments=True)

    for name, _ in flatten_settings(Recipe()):
        assert any(line.removeprefix("# ").startswith(f"{name.split('.')[-1]} =") for line in form.splitlines()), name
    assert "# layers of the encoder, and of the decoder unless set separately (N)" in form
    assert "# positional encoding (sinusoidal, learned, none)" in form


def test_a_long_value_in_the_form_is_kept_apart_from_its_description():
    long = Recipe(run="runs/" + "x" * 60).to_toml(comments=True).splitlines()[1]
    assert long == f'run = "runs/{"x" * 60}" # the run directory'


def branches():
    return [Recipe, *(section for part in Recipe.model_fields for section in section_classes(Recipe, part))]


@pytest.mark.parametrize("branch", branches())
def test_every_setting_is_described(branch):
    undescribed = [
        name
        for name, field in branch.model_fields.items()
        if not field.description and field.default_factory is None  # a branch is described by its own docstring
    ]
    assert undescribed == []
    assert branch.__doc__


def test_a_recipe_cannot_be_changed():
    with pytest.raises(ValidationError, match="frozen"):
        Recipe().run = "elsewhere"


# Where values come from


def test_without_any_setting_the_recipe_is_the_papers_base_model():
    assert Recipe.from_table({}) == Recipe.from_table({}, preset="base") == Recipe()


def test_a_preset_gives_way_to_the_file_and_the_file_to_overrides(recipe_file):
    path = recipe_file('preset = "tiny"\n[model]\nlayers = 3\nwidth = 64\n')

    model = Recipe.from_toml(path, ["model.width=32"]).model

    assert model.heads == 4  # from the preset
    assert model.layers == 3  # from the file, over the preset
    assert model.width == 32  # from the override, over the file


def test_of_two_overrides_the_later_wins():
    assert Recipe.from_table({}, ["model.layers=3", "model.layers=5"]).model.layers == 5


def test_a_preset_asked_for_wins_over_the_one_in_the_file():
    assert Recipe.from_table({"preset": "big"}, preset="tiny").model.width == 128


def test_what_a_recorded_recipe_lacks_came_later_and_is_off(tmp_path):
    """A parser that was trained before there was `rotary` must not be read with it, although parsers now begin so."""
    recipe = Recipe.from_table({"task": "parse"})
    run = Run(tmp_path)
    run.recipe_file.write_text(recipe.to_toml().replace("rotary = true\n", ""))

    assert recipe.model.rotary
    assert run.read_recipe() == recipe.model_copy(update={"model": recipe.model.model_copy(update={"rotary": False})})


def test_a_preset_can_be_an_override():
    assert Recipe.from_table({"preset": "big"}, ["preset=tiny"]).model.width == 128


def test_using_a_preset_does_not_change_it():
    Recipe.from_table({"model": {"layers": 1}}, ["model.width=64"], preset="tiny")
    assert Recipe.from_table({}, preset="tiny").model.layers == 4


@pytest.mark.parametrize("preset", PRESETS)
def test_a_preset_says_nothing_of_files_words_and_search(preset):
    recipe, default = Recipe.from_table({}, preset=preset), Recipe()
    assert (recipe.data, recipe.tokenizer, recipe.decoding) == (default.data, default.tokenizer, default.decoding)


@pytest.mark.parametrize(
    "override, expected",
    [
        ("model.layers=4", {"model.layers": 4}),
        (" model . layers = 4 ", {"model.layers": 4}),
        ("model.dropout=0", {"model.dropout": 0.0}),
        ("model.norm=pre", {"model.norm": "pre"}),
        ('model.norm="pre"', {"model.norm": "pre"}),
        ("training.betas=[0.8, 0.9]", {"training.betas": (0.8, 0.9)}),
        ("model={layers=3, heads=4}", {"model.layers": 3, "model.heads": 4}),
        ("tokenizer.lowercase=true", {"tokenizer.lowercase": True}),
        ("run=runs/my model", {"run": "runs/my model"}),
        ("run=a=b", {"run": "a=b"}),
        ("run=true", {"run": "true"}),
        ("training.rate=.002", {"training.rate": 0.002}),
        ("training.clip=1.", {"training.clip": 1.0}),
        ("run=.5", {"run": ".5"}),
        ("run=2024", {"run": "2024"}),  # where text is wanted, anything is text
        ("run=2024-05-01", {"run": "2024-05-01"}),
        ('run="2024"', {"run": "2024"}),
        ("run=a\nb", {"run": "a\nb"}),
        ("run=3\nmore=4", {"run": "3\nmore=4"}),
    ],
)
def test_overrides_are_read_as_toml_or_as_plain_words(override, expected):
    assert changed(Recipe.from_table({}, [override])) == expected


def test_a_number_that_names_a_file_is_a_name():
    assert Recipe.from_table({}, ["data.source=1", "data.target=2.50"]).data == DataConfig(source="1", target="2.50")


@pytest.mark.parametrize("override", ["model.layers", "=4", "model.=4", ".layers=4", "model..layers=4", ""])
def test_an_override_that_is_not_one_is_refused_with_an_example(override):
    with pytest.raises(UserError, match=r'expected section\.key=value, as in "--set model\.layers=4"'):
        parse_override(override)


def test_differences_are_listed_by_name_with_both_values():
    before = Recipe.from_table({"model": {"layers": 4}, "run": "a"})
    after = Recipe.from_table({"model": {"key_width": 7}, "run": "b", "training": {"betas": [0.5, 0.75]}})
    assert recipe_differences(before, after) == [
        'run: "a" before, "b" now',
        "model.layers: 4 before, 6 now",
        "model.key_width: unset before, 7 now",
        "training.betas: [0.9, 0.98] before, [0.5, 0.75] now",
    ]
    assert recipe_differences(before, before) == []


# What is wrong


@pytest.mark.parametrize(
    "table, expected",
    [
        ("[model]\nhead = 8", '[model] has no setting "head". Did you mean "heads"?'),
        ("[modle]\nheads = 8", 'the recipe has no setting "modle". Did you mean "model"?'),
        ("layers = 4", 'the recipe has no setting "layers". It belongs in [model].'),
        ("[model]\nsteps = 4", '[model] has no setting "steps". It belongs in [training].'),
        ("[data]\nbatch_tokens = 4", '[data] has no setting "batch_tokens". It belongs in [training] or [decoding].'),
        ("[decoding]\nrun = 'a'", '[decoding] has no setting "run". It belongs at the top, above the first table.'),
        ("[model]\npreset = 'tiny'", '[model] has no setting "preset". It belongs at the top, above the first table.'),
        ("presett = 'tiny'", 'the recipe has no setting "presett". Did you mean "preset"?'),
        ("[model]\nzzz = 8", '[model] has no setting "zzz".'),
    ],
)
def test_an_unknown_setting_names_the_nearest_known_one_or_where_it_belongs(table, expected):
    assert refusal(table) == [f"recipe.toml: {expected}"]


@pytest.mark.parametrize(
    "table, expected",
    [
        ("[model]\nlayers = 0", "[model] layers is 0; it must be a whole number, at least 1 and at most 200."),
        ("[model]\nlayers = 500", "[model] layers is 500; it must be a whole number, at least 1 and at most 200."),
        ("[model]\nkey_width = 0", "[model] key_width is 0; it must be a whole number, at least 1 and at most 65536."),
        ("[model]\ndropout = 1.0", "[model] dropout is 1.0; it must be a number, at least 0 and below 1."),
        ("[model]\ndropout = nan", "[model] dropout is nan; it must be a number, at least 0 and below 1."),
        ("[training]\nrate = 0", "[training] rate is 0; it must be a number, above 0 and at most 10."),
        ("[training]\nclip = inf", "[training] clip is inf; it must be a finite number, at least 0."),
        ("[training]\nepsilon = nan", "[training] epsilon is nan; it must be a finite number, above 0."),
        ("[model]\nnorm = 'first'", '[model] norm is "first"; it must be one of "post", "pre".'),
        (
            "task = 'paint'",
            'task is "paint"; it must be one of "translate", "pronounce", "inflect", "parse", "generate", '
            '"transcribe".',
        ),
    ],
)
def test_a_value_out_of_range_says_its_range(table, expected):
    assert refusal(table) == [f"recipe.toml: {expected}"]


@pytest.mark.parametrize(
    "table, expected",
    [
        ("[training]\nsteps = 'many'", '[training] steps is "many"; it must be a whole number, at least 1.'),
        ("[training]\nsteps = '10'", '[training] steps is "10"; it must be a whole number, at least 1.'),
        (
            "[training]\nsteps = 1e5",
            "[training] steps is 100000.0; it must be a whole number, at least 1 (write 100000).",
        ),
        ("[training]\nsteps = 4.5", "[training] steps is 4.5; it must be a whole number, at least 1."),
        ("[training]\nsteps = true", "[training] steps is true; it must be a whole number, at least 1."),
        ("[training]\nsteps = [1]", "[training] steps is [1]; it must be a whole number, at least 1."),
        ("[training.steps]\na = 1", "[training] steps is {a = 1}; it must be a whole number, at least 1."),
        ("[training]\nrate = 'x'", '[training] rate is "x"; it must be a number, above 0 and at most 10.'),
        ("[tokenizer]\njoint = 'yes'", '[tokenizer] joint is "yes"; it must be true or false.'),
        ("[tokenizer]\njoint = 1", "[tokenizer] joint is 1; it must be true or false."),
        ("[data]\nsource = 5", "[data] source is 5; it must be text in quotation marks."),
        ("run = 2024-05-01", "run is 2024-05-01; it must be text in quotation marks."),
        ("model = 5", "[model] must be a table of settings; found 5."),
        ("[[model]]\nlayers = 3", "[model] must be a table of settings; found [{layers = 3}]."),
    ],
)
def test_a_value_of_the_wrong_type_says_which_type_is_right(table, expected):
    assert refusal(table) == [f"recipe.toml: {expected}"]


@pytest.mark.parametrize("betas", ["[0.9, 1.5]", "[1.5, 2.5]", "[0.9]", "[0.9, 0.98, 0.99]", "0.9", '["a", true]'])
def test_a_list_is_complained_of_as_a_whole_and_once(betas):
    """It used to say "[training] 1 = 1.5: should be less than 1", 1 being the place of the number in the list."""
    assert refusal(f"[training]\nbetas = {betas}") == [
        f"recipe.toml: [training] betas is {betas}; "
        "it must be a list of 2 values, each a number, at least 0 and below 1."
    ]


def test_all_errors_come_at_once():
    table = "[model]\nlayers = 0\nhead = 8\n[training]\nsteps = 'x'\n[data]\nsource = 'a'\nvalid_target = 'b'\n"
    assert refusal(table) == [
        "recipe.toml: [data] source is set but target is not; a parallel corpus needs both.",
        "recipe.toml: [data] valid_target is set but valid_source is not; a parallel corpus needs both.",
        "recipe.toml: [model] layers is 0; it must be a whole number, at least 1 and at most 200.",
        'recipe.toml: [model] has no setting "head". Did you mean "heads"?',
        'recipe.toml: [training] steps is "x"; it must be a whole number, at least 1.',
    ]


def test_an_error_says_whether_the_value_is_the_files_or_an_overrides():
    found = refusal("[model]\nlayers = 0", ["model.width=1", "training.stepps=5", "foo.bar=1"])
    assert [line.split(":")[0] for line in found] == ["recipe.toml", "--set", "--set", "--set"]


@pytest.mark.parametrize(
    "table, expected",
    [
        (
            "[model]\nwidth = 512\nheads = 7",
            "[model] width 512 is not divisible by 7 heads; the next divisible width is 518.",
        ),
        (
            "[model]\nwidth = 7\nheads = 7",
            "[model] width 7 is odd, but sinusoidal positions need an even width.",
        ),
        (
            "[model]\narchitecture = 'decoder_only'\ndecoder_layers = 2",
            '[model] has no setting "decoder_layers" for architecture "decoder_only"; it belongs to "transformer", '
            '"recurrent", "convs2s", "bytenet".',
        ),
        (
            "[model]\narchitecture = 'recurrent'\nrotary = true",
            '[model] has no setting "rotary" for architecture "recurrent"; it belongs to "transformer", '
            '"decoder_only".',
        ),
        (
            "[model]\nscore = 'additive'\nrotary = true",
            '[model] rotary needs a dot product, but score is "additive"; set score = "scaled_dot" or "dot".',
        ),
        (
            "[model]\nkey_width = 5\nrotary = true",
            "[model] rotary needs an even key_width, got 5.",
        ),
        ("[training]\naverage = 9", "[training] average is 9, but only 5 checkpoints are kept; raise keep."),
        ("[data]\ntarget = 'b'", "[data] target is set but source is not; a parallel corpus needs both."),
        (
            "[data]\npairs = 'a'\nsource = 'b'\ntarget = 'c'",
            "[data] pairs and source/target cannot both be set; remove one of them.",
        ),
        (
            "[tokenizer]\njoint = false",
            "[model] share_embeddings needs one vocabulary for source and target, but [tokenizer] joint is false; "
            "set share_embeddings = false.",
        ),
        (
            "[model]\npositions = 'learned'\nlongest = 305",
            "[model] longest = 305 is too small for learned positions: a source may have 256 tokens ([data] longest) "
            "and its output 50 more ([decoding] extra_length); set longest to 306 or more, or lower one of the other "
            "two settings.",
        ),
        (
            "[model]\narchitecture = 'decoder_only'\npositions = 'learned'\nlongest = 561",
            "[model] longest = 561 is too small for learned positions: a source may have 256 tokens ([data] longest) "
            "and its output 50 more ([decoding] extra_length), in one sequence; set longest to 562 or more, or "
            "lower one of the other two settings.",
        ),
        (
            "[model]\narchitecture = 'decoder_only'\nnormalisation = 'batch'",
            '[model] has no setting "normalisation" for architecture "decoder_only"; it belongs to "transformer".',
        ),
        (
            "[model]\narchitecture = 'convs2s'\nscore = 'general'",
            '[model] score is "general"; it must be one of "scaled_dot", "dot", "additive".',
        ),
        (
            "[model]\nscore = 'location'",
            '[model] score is "location"; it must be one of "scaled_dot", "dot", "additive".',
        ),
        (
            "[model]\nscore = 'none'",
            '[model] score is "none"; it must be one of "scaled_dot", "dot", "additive".',
        ),
        (
            "[model]\narchitecture = 'recurrent'\nnormalisation = 'batch'",
            '[model] has no setting "normalisation" for architecture "recurrent"; it belongs to "transformer".',
        ),
        (
            "[model]\narchitecture = 'recurrent'\npattern = 'window'",
            '[model] has no setting "pattern" for architecture "recurrent"; it belongs to "transformer", '
            '"decoder_only".',
        ),
        (
            "[model]\npattern = 'sparse'\nscore = 'additive'",
            '[model] pattern "sparse" needs score = "scaled_dot", got "additive".',
        ),
        (
            "[model]\ncell = 'gru'",
            '[model] has no setting "cell" for architecture "transformer"; it belongs to "recurrent".',
        ),
        (
            "[model]\narchitecture = 'joined'",
            '[model] architecture = "joined" was replaced by architecture = "decoder_only".',
        ),
        (
            "[model]\narchitecture = 'averaged'\nlayers = 1",
            '[model] architecture = "averaged" was replaced by architecture = "bag_of_embeddings", '
            'pooling = "average".',
        ),
        ("[model]\nguide = 'words'", '[model] guide = "words" was replaced by next_word = true.'),
        (
            "[model]\narchitecture = 'lstm'",
            '[model] architecture is "lstm"; it must be one of "transformer", "decoder_only", "recurrent", "convs2s", '
            '"bytenet", "bag_of_embeddings".',
        ),
        (
            "[model]\narchitecture = 'bytenet'\nwidth = 7",
            "[model] width 7 is odd, but sinusoidal positions need an even width.",
        ),
    ],
)
def test_settings_that_contradict_each_other_are_refused_with_a_way_out(table, expected):
    assert refusal(table) == [f"recipe.toml: {expected}"]


@pytest.mark.parametrize(
    "table",
    [
        "[model]\nheads = 7\nkey_width = 4\nvalue_width = 4",
        "[model]\nwidth = 7\nheads = 7\npositions = 'learned'",
        "[training]\naverage = 9\nkeep = 9",
        "[tokenizer]\njoint = false\n[model]\nshare_embeddings = false",
        "[model]\npositions = 'learned'\nlongest = 306",
        "[model]\narchitecture = 'decoder_only'\npositions = 'learned'\nlongest = 562",
        "[model]\narchitecture = 'recurrent'\nscore = 'general'\nwidth = 7",  # no heads, no sines
        "[model]\narchitecture = 'recurrent'\nscore = 'none'\ncell = 'gru'",
        "[model]\npositions = 'none'\nwidth = 15\nheads = 3",
        "[model]\nscore = 'additive'\nnormalisation = 'batch'\nnorm = 'pre'",
        "[model]\nlongest = 8",  # without learned positions it does not matter
        "[data]\npairs = 'a'\nvalid_source = 'b'\nvalid_target = 'c'",
    ],
)
def test_the_ways_out_of_a_contradiction_are_open(table):
    Recipe.from_table(tomllib.loads(table))


@pytest.mark.parametrize("longest, extra_length", [(16, 4), (8, 1), (31, 9)])
def test_learned_positions_reach_as_far_as_the_longest_sentence_and_its_translation(longest, extra_length):
    """A source has its END too, and a prefix its START; so both need one place more than they have pieces."""
    table = {
        "data": {"longest": longest},
        "model": {"positions": "learned", "longest": longest + extra_length},
        "decoding": {"extra_length": extra_length},
    }
    recipe = Recipe.from_table(table)
    assert recipe.model.longest >= recipe.data.longest + 1


@pytest.mark.parametrize("name", ["tinny", "TINY", "", 5, ["tiny"], True])
def test_an_unknown_preset_names_those_there_are(name):
    with pytest.raises(UserError, match=r"unknown preset .*; expected one of tiny, small, base, big"):
        Recipe.from_table({"preset": name})


def test_a_misspelt_preset_names_the_nearest():
    assert refusal("preset = 'tinny'")[0].endswith('Did you mean "tiny"?')


# Files that are no recipes


def test_a_file_that_is_not_there_says_how_to_get_one(tmp_path):
    expected = r"nowhere\.toml: no such file\. Run `dragoman init translate > .*` to create one"
    with pytest.raises(UserError, match=expected):
        Recipe.from_toml(tmp_path / "nowhere.toml")


def test_a_folder_is_no_recipe(tmp_path):
    with pytest.raises(UserError, match="cannot be read"):
        Recipe.from_toml(tmp_path)


@pytest.mark.parametrize("text", ["[model", "layers 4", "a = 1\na = 2", "[model]\n[model]", f"a = {'9' * 5000}"])
def test_a_file_that_is_not_toml_says_so(recipe_file, text):
    with pytest.raises(UserError, match=r"recipe\.toml: not valid TOML: "):
        Recipe.from_toml(recipe_file(text))


def test_a_key_given_twice_names_the_line(recipe_file):
    with pytest.raises(UserError, match=r"Cannot overwrite a value \(at line 3"):
        Recipe.from_toml(recipe_file("[model]\nlayers = 1\nlayers = 2\n"))


def test_a_file_nested_a_hundred_thousand_deep_is_refused_and_not_followed(recipe_file):
    with pytest.raises(UserError, match="nested more than 8 levels deep"):
        Recipe.from_toml(recipe_file("a = " + "[" * 100_000))


def test_a_file_in_another_encoding_names_the_byte(tmp_path):
    path = tmp_path / "recipe.toml"
    path.write_bytes("run = 'café'".encode("latin-1"))
    with pytest.raises(UserError, match="not UTF-8 at byte 10; save the recipe as UTF-8"):
        Recipe.from_toml(path)


def test_a_byte_order_mark_and_windows_line_ends_do_no_harm(tmp_path):
    path = tmp_path / "recipe.toml"
    path.write_bytes(b"\xef\xbb\xbf[model]\r\nlayers = 3\r\n")
    assert Recipe.from_toml(path).model.layers == 3


def test_parts_can_be_built_in_python():
    recipe = Recipe(model=TransformerConfig(layers=2), training=TrainingConfig(betas=(0.5, 0.75)))
    assert changed(recipe) == {"model.layers": 2, "training.betas": (0.5, 0.75)}


@pytest.mark.parametrize(
    ("task", "kept"), [("translate", False), ("pronounce", True), ("inflect", False), ("parse", True)]
)
def test_upper_case_is_folded_on_both_sides_unless_the_target_is_made_of_symbols(task, kept):
    source, target = Recipe.from_table({"task": task, "tokenizer": {"lowercase": True}}).tokenizer.sides
    assert source.lowercase
    assert target.lowercase is not kept


@pytest.mark.parametrize("task", TASKS)
def test_python_files_and_options_have_the_same_defaults(task, recipe_file):
    recipes = [Recipe(task=task), Recipe.from_table({"task": task}), Recipe.from_toml(recipe_file(f'task = "{task}"'))]
    assert recipes[0] == recipes[1] == recipes[2]
    assert recipes[0].given_settings == recipes[1].given_settings == recipes[2].given_settings


def test_the_defaults_of_a_task_also_complete_parts_that_are_built_in_python():
    recipe = Recipe(task="pronounce", model=TransformerConfig(width=64))
    assert (recipe.model.width, recipe.model.share_embeddings) == (64, False)


def test_a_mistake_in_python_is_explained_like_one_in_a_file():
    with pytest.raises(UserError, match=r'Recipe: the recipe has no setting "file"'):
        Recipe(task="pronounce", file="words.tsv")
    with pytest.raises(UserError, match=r'\[model\] has no setting "layer". Did you mean "layers"\?'):
        Recipe(model={"layer": 3})


def test_a_recipe_shows_the_settings_that_it_has_been_given():
    assert "width" not in repr(Recipe(task="generate"))
    assert "'layers': 3" in repr(Recipe(model={"layers": 3})) == str(Recipe(model={"layers": 3}))


def test_a_recipe_knows_which_settings_are_still_to_be_planned():
    everything = [f"{section}.{name}" for section, names in PLANNED_SETTINGS.items() for name in names]
    assert Recipe(task="generate").unplanned_settings == [name for name in everything if name != "model.decoder_layers"]
    given = Recipe.from_table({"model": {"width": 64}}, ["training.steps=9"], preset="tiny").unplanned_settings
    preset = {"model.layers", "model.width", "model.inner_width", "model.heads"}
    assert set(everything) - set(given) == {*preset, "training.steps", "tokenizer.kind"}


def test_settings_that_are_still_to_be_planned_have_no_value_in_the_file_and_stay_to_be_planned():
    recipe = Recipe.from_table({"training": {"steps": 9}})
    assert "# width =" in recipe.to_toml().splitlines()
    assert read_back(recipe, comments=True).unplanned_settings == recipe.unplanned_settings


def test_an_architecture_has_only_its_own_settings_to_be_planned():
    recipe = Recipe.from_table({"model": {"architecture": "recurrent"}})
    assert "model.heads" not in recipe.unplanned_settings
    assert "model.decoder_layers" in recipe.unplanned_settings


CORPORA = {
    "no label": ([{"file": "a"}], r"\[\[data.corpora\]\] 1 has no label; expected label and file"),
    "no file": ([{"label": "a", "file": "a"}, {"label": "b"}], r"\[\[data.corpora\]\] 2 has no file"),
    "an odd label": ([{"label": "a b", "file": "a"}], r'label is "a b"; a label must not be empty and must not have'),
    "an unknown key": (
        [{"label": "a", "file": "a", "lang": "b"}],
        r'1 has no setting "lang"; expected file, languages, source, target, label.',
    ),
    "a number": ([{"label": 1, "file": "a"}], "label is 1; it must be text in quotation marks"),
    "text": (["a=b"], r'1 must be a table of settings; found "a=b"'),
    "no list": ("a=b", 'corpora is "a=b"; it must be a list of tables with settings such as file, '),
}


@pytest.mark.parametrize("case", CORPORA)
def test_a_corpus_that_is_not_label_and_file_is_refused(case):
    corpora, words = CORPORA[case]
    with pytest.raises(UserError, match=words):
        Recipe.from_table({"task": "inflect", "data": {"corpora": corpora}})


TRANSLATION_CORPORA = {
    "nothing": ([{}], r"\[\[data.corpora\]\] 1: expected either file, or source and target"),
    "both": ([{"file": "a", "source": "b", "target": "c"}], "1: expected either file, or source and target"),
    "one side": ([{"file": "a"}, {"source": "b"}], "2 has only one of source and target"),
    "one language": ([{"file": "a", "languages": ["en"]}], "1: languages is"),
    "a number": (
        [{"file": "a", "languages": ["en", 1]}],
        "1: languages is 1; it must be a list of 2 values, each text",
    ),
    "equal": ([{"file": "a", "languages": ["en", "en"]}], r'is \["en", "en"\]; source and target must differ'),
    "languages of text": (
        [{"source": "a", "target": "b", "languages": ["en", "de"]}],
        "1 has languages, which are for",
    ),
    "some labels": ([{"file": "a", "label": "x"}, {"file": "b"}], "2: either all corpora need a label or none"),
}


@pytest.mark.parametrize("case", TRANSLATION_CORPORA)
def test_a_corpus_of_translations_that_is_no_corpus_is_refused(case):
    corpora, words = TRANSLATION_CORPORA[case]
    with pytest.raises(UserError, match=words):
        Recipe.from_table({"data": {"corpora": corpora}})


@pytest.mark.parametrize(
    ("data", "words"),
    [
        ({"corpora": [{"file": "a"}], "pairs": "b"}, "pairs and corpora cannot both be set"),
        ({"source": "a", "target": "b", "languages": ["en", "fr"]}, "languages is set but pairs is not"),
        ({"pairs": "a", "languages": ["en"]}, r"languages is \[\"en\"\]; it must be a list of 2 values, each text"),
        ({"pairs": "a", "languages": "en,fr"}, 'languages is "en,fr"; it must be a list of 2 values, each text'),
    ],
)
def test_data_that_contradicts_itself_is_refused(data, words):
    with pytest.raises(UserError, match=words):
        Recipe.from_table({"data": data})


def test_a_task_of_words_has_no_languages():
    corpora = [{"label": "a", "file": "b", "languages": ["en", "de"]}]
    with pytest.raises(UserError, match=r'1 has languages; task "inflect" expects label and file'):
        Recipe.from_table({"task": "inflect", "data": {"corpora": corpora}})


def test_corpora_of_translations_are_written_and_read_again(tmp_path):
    file = tmp_path / "recipe.toml"
    corpora = [{"file": "a.tmx", "languages": ["en", "de"]}, {"source": "b.en", "target": "b.de"}]
    recipe = Recipe.from_table({"data": {"corpora": corpora}})
    file.write_text(recipe.to_toml())
    assert Recipe.from_toml(file) == recipe
    assert (
        'corpora = [{file = "a.tmx", languages = ["en", "de"]}, {source = "b.en", target = "b.de"}]' in file.read_text()
    )


def test_several_corpora_are_written_and_read_again(tmp_path):
    file = tmp_path / "recipe.toml"
    file.write_text(
        'task = "inflect"\n[[data.corpora]]\nlabel = "de"\nfile = "a"\n[[data.corpora]]\nlabel = "en"\nfile = "b"\n'
    )
    recipe = Recipe.from_toml(file)
    assert [(corpus.label, corpus.file) for corpus in recipe.data.corpora] == [("de", "a"), ("en", "b")]
    file.write_text(recipe.to_toml())
    assert Recipe.from_toml(file) == recipe


def test_labelled_files_of_version_0_1_are_read_from_a_run_and_refused_with_the_new_key_elsewhere():
    table = {"task": "inflect", "model": {}, "data": {"labelled": ["de=a=b", "en=c"], "valid_labelled": []}}
    recipe = Recipe.from_table(table, is_complete=True)
    assert [(corpus.label, corpus.file) for corpus in recipe.data.corpora] == [("de", "a=b"), ("en", "c")]
    with pytest.raises(UserError, match=r"\[data\] labelled was replaced by \[\[data.corpora\]\] tables"):
        Recipe.from_table(table)


@pytest.mark.parametrize(("beam", "extra_length"), [(4, 100_000), (512, 1000), (21, 2000)])
def test_a_search_that_would_take_minutes_is_refused(beam, extra_length):
    """A recipe of somebody else must not be able to occupy the machine with one sentence."""
    with pytest.raises(UserError, match=rf"beam = {beam} and extra_length = {extra_length} would .* at most"):
        Recipe.from_table({"decoding": {"beam": beam, "extra_length": extra_length}})


@pytest.mark.parametrize(("beam", "extra_length"), [(4, 2000), (512, 150), (21, 300), (1, 4000)])
def test_wide_beams_and_long_outputs_are_possible(beam, extra_length):
    assert Recipe.from_table({"decoding": {"beam": beam, "extra_length": extra_length}}).decoding.beam == beam
