import pytest

from dragoman.errors import UserError
from dragoman.viewer.line_picture import parse_head_name, query_and_key_words, save_line_picture, word_weights


@pytest.mark.parametrize(("heads", "opening"), [("encoder.2", b"\x89PNG"), ("cross.1.3", b"\x89PNG")])
def test_heads_are_drawn_as_lines(record, tmp_path, heads, opening):
    save_line_picture(record, tmp_path / "lines.png", heads)
    assert (tmp_path / "lines.png").read_bytes().startswith(opening)


def test_one_word_alone_has_fewer_lines_than_all(record, tmp_path):
    save_line_picture(record, tmp_path / "all.svg", "encoder.2.1")
    save_line_picture(record, tmp_path / "it.svg", "encoder.2.1", "It")
    assert 1000 < (tmp_path / "it.svg").stat().st_size < (tmp_path / "all.svg").stat().st_size


def test_heads_are_counted_as_people_do(record):
    assert parse_head_name(record, "decoder.4") == ("decoder", 3, [0, 1, 2, 3])
    assert parse_head_name(record, "cross.1.2") == ("cross", 0, [1])


@pytest.mark.parametrize("name", ["encoder", "encoder.0", "encoder.5", "cross.1.5", "both.1", "cross.1.1.1", "cross.x"])
def test_heads_that_are_not_there_are_refused_with_those_that_are(record, name):
    with pytest.raises(UserError, match="a layer from 1 to 4 and optionally a head from 1 to 4"):
        parse_head_name(record, name)


def test_a_word_that_is_not_there_is_refused_with_those_that_are(record, tmp_path):
    with pytest.raises(UserError, match=r"'lamb'; available words: The, lamp, is, old,"):
        save_line_picture(record, tmp_path / "a.png", "encoder.1", "lamb")


def test_an_unknown_ending_is_refused(record, tmp_path):
    with pytest.raises(UserError, match=r"the file name must end in \.png"):
        save_line_picture(record, tmp_path / "a.html", "encoder.1")


@pytest.mark.parametrize("kind", ["encoder", "decoder", "cross"])
def test_weights_between_words_still_sum_to_one(record, kind):
    weights = word_weights(record.weights(kind)[0, 0], *query_and_key_words(record, kind))
    assert weights.sum(1) == pytest.approx(1, abs=1e-5)
