"""The wording that messages share: counts, and hints for misspelt names."""

import pytest

from dragoman.errors import did_you_mean, did_you_mean_path, format_count


@pytest.mark.parametrize(
    "number, expected",
    [(0, "0 steps"), (1, "1 step"), (2, "2 steps"), (12_345, "12,345 steps"), (1.0, "1 step"), (1.04, "1 step"),
     (0.5, "0.5 steps"), (10_000.0, "10,000 steps")],
)  # fmt: skip
def test_only_one_thing_is_named_in_the_singular(number, expected):
    assert format_count(number, "step") == expected


def test_the_most_similar_word_is_suggested_and_an_unrelated_one_is_not():
    assert did_you_mean("smal", ["tiny", "small", "big"]) == ' Did you mean "small"?'
    assert did_you_mean("paint", ["translate", "inflect"]) == ""


@pytest.mark.parametrize(
    "given, expected",
    [("trian.en", "train.en"), ("valid.en", "valid.en.gz"), ("train.en.gz", "train.en"), ("train.de", None),
     ("train.en", None), ("nowhere/train.en", None)],
)  # fmt: skip
def test_a_file_with_a_similar_name_and_the_same_suffix_is_suggested(given, expected, tmp_path):
    for name in ("train.en", "valid.en.gz"):
        (tmp_path / name).touch()
    hint = did_you_mean_path(tmp_path / given)
    assert hint == (f' Did you mean "{tmp_path / expected}"?' if expected else "")
