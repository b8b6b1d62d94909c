import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dragoman.text.sentences import join_texts, split_long_text


def words(text):
    return len(text.split())


@given(st.text(alphabet="ab .,!?。、\n\"'—é字", max_size=400), st.integers(1, 30))
@settings(max_examples=200, deadline=None)
def test_the_chunks_joined_are_the_text_and_each_fits(text, longest):
    chunks = split_long_text(text, longest, len)
    assert "".join(chunks) == text
    assert all(len(chunk) <= longest for chunk in chunks)


@given(st.text(max_size=300), st.integers(1, 20))
@settings(max_examples=100, deadline=None)
def test_bytes_are_counted_as_well_as_characters(text, longest):
    chunks = split_long_text(text, longest, lambda chunk: len(chunk.encode(errors="surrogatepass")))
    assert "".join(chunks) == text
    assert all(len(chunk.encode()) <= longest or len(chunk) == 1 for chunk in chunks)


@given(st.text(alphabet="ab .", max_size=200), st.integers(3, 20))
@settings(max_examples=100, deadline=None)
def test_chunks_fit_even_if_parts_together_have_more_pieces_than_apart(text, longest):
    def grudging(chunk):
        return len(chunk) + chunk.count(" ") // 2

    chunks = split_long_text(text, longest, grudging)
    assert "".join(chunks) == text
    assert all(grudging(chunk) <= longest for chunk in chunks)


def test_text_that_fits_stays_whole():
    assert split_long_text("One. Two.", 10, words) == ["One. Two."]
    assert split_long_text("", 10, words) == [""]


def test_text_is_cut_at_sentence_ends_first():
    text = 'He came. "Who is it?" she asked. Nobody answered, as always.'
    assert split_long_text(text, 6, words) == ["He came. ", '"Who is it?" she asked. ', "Nobody answered, as always."]


def test_whole_sentences_are_packed_together():
    assert split_long_text("A b. C d. E f. G h.", 4, words) == ["A b. C d. ", "E f. G h."]


def test_a_sentence_that_is_too_long_is_cut_after_its_clauses():
    text = "Short one. When the rain had stopped, and the sun was out again, we left."
    assert split_long_text(text, 6, words) == [
        "Short one. ",
        "When the rain had stopped, ",
        "and the sun was out again, ",
        "we left.",
    ]


def test_a_clause_that_is_too_long_is_cut_at_spaces():
    assert split_long_text("one two three four five", 2, words) == ["one two ", "three four ", "five"]


def test_a_word_that_is_too_long_is_cut_into_even_windows():
    assert split_long_text("abcdefghij", 4, len) == ["abcd", "efgh", "ij"]


def test_numbers_and_abbreviations_without_a_space_are_not_ends():
    assert split_long_text("It cost 1,000.50 dollars. We paid.", 4, words) == ["It cost 1,000.50 dollars. ", "We paid."]


def test_scripts_without_spaces_are_cut_at_their_own_marks():
    assert split_long_text("今日は雨です。明日は晴れます。行きましょう！", 9, len) == [
        "今日は雨です。",
        "明日は晴れます。",
        "行きましょう！",
    ]
    assert split_long_text("雨が止んで、日が出た。", 6, len) == ["雨が止んで、", "日が出た。"]


@pytest.mark.parametrize("part", [". ", ".", "a", " ", '."', "。", ", ", "\n", "All of it, as I said, was there. "])
def test_a_line_of_a_megabyte_is_split_with_work_proportional_to_its_length(part):
    """Bound the characters that are counted: a quadratic algorithm would count many times as many."""
    text = part * (1_000_000 // len(part))
    read = 0

    def count(chunk):
        nonlocal read
        read += len(chunk)
        return len(chunk)

    chunks = split_long_text(text, 100, count)
    assert "".join(chunks) == text
    assert max(map(len, chunks)) <= 100
    assert read <= 6 * len(text)


def test_outputs_are_joined_with_spaces_where_the_script_has_them():
    assert join_texts(["Er kam. ", "", " Niemand da."]) == "Er kam. Niemand da."
    assert join_texts(["今日は雨です。", "行きましょう。"]) == "今日は雨です。行きましょう。"
    assert join_texts(["안녕하세요.", "반갑습니다."]) == "안녕하세요. 반갑습니다."
    assert join_texts(["Hi 😀", "there"]) == "Hi 😀 there"
    assert join_texts([]) == ""
