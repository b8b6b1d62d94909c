import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dragoman.text.sentences import split_long_text, split_sentences

TEXTS = st.text(st.one_of(st.sampled_from('a. \n\r\t!?。“"<>&;'), st.characters(codec="utf-8")))


def words(text):
    return len(text.split())


@given(TEXTS, st.booleans())
def test_sentences_and_gaps_make_up_the_text(text, split):
    layout = split_sentences(text, lines_only=not split)
    taken = "".join(part for pair in zip(layout.gaps, (*layout.sentences, ""), strict=True) for part in pair)
    assert taken == text
    assert all(sentence == sentence.strip() != "" for sentence in layout.sentences)


@given(TEXTS)
def test_line_breaks_are_kept_whatever_the_translations_are(text):
    layout = split_sentences(text)
    written = layout.fill(["Übersetzung." for _ in layout.sentences])
    assert written.count("\n") == text.count("\n")
    assert [not line.strip() for line in written.split("\n")] == [not line.strip() for line in text.split("\n")]


@pytest.mark.parametrize(
    ("text", "sentences"),
    [
        ("Hello there. It is me.", ["Hello there.", "It is me."]),
        ("Mr. Smith met J. R. Tolkien on 3. May. He left.", ["Mr. Smith met J. R. Tolkien on 3. May.", "He left."]),
        ("z. B. Das hier, d.h. Alles.", ["z. B. Das hier, d.h. Alles."]),
        ('"Stop!" "Why?" He ran.', ['"Stop!"', '"Why?"', "He ran."]),
        ("他走了。她来了。", ["他走了。", "她来了。"]),
        ("One line\nanother", ["One line", "another"]),
        ("Version 2.5 is out... and so on.", ["Version 2.5 is out... and so on."]),
        ("I wanted to, but I couldn't. Tom ate an egg. Ask us. Go.", 4),
        ("She lived to be 97. Her son is 70. He came on Oct. 2. It rained.", 4),
        ("Er kam am 3. Mai. Er wohnt im 2. Stock. Sie ist 30. Wir nicht.", 4),
        ("1. Open the file. 2. Read it.", ["1. Open the file.", "2. Read it."]),
        ("He got a D. I take vitamin C. George W. Bush met Mr J. Smith.", 3),
        ("They live in the U.S. The U.S. Senate met.", ["They live in the U.S.", "The U.S. Senate met."]),
        ("„Wo ist sie?“ – „Sie schläft.“ Er ging.", ["„Wo ist sie?“", "– „Sie schläft.“", "Er ging."]),
        ("« Où est-elle ? » Il part. « Je ne sais pas. »", ["« Où est-elle ? »", "Il part.", "« Je ne sais pas. »"]),
        ("« Viens ! », dit-elle. Il vient.", ["« Viens ! », dit-elle.", "Il vient."]),
        ('"Who is it?" she asked. "Me."', ['"Who is it?" she asked.', '"Me."']),
        ("Он ушёл. Она пришла! Почему?", 3),
        ("ذهب الرجل؟ جاءت المرأة۔ نعم.", 3),
        ("वह गया। वह आई। क्यों?", 3),
        ("「なぜ？」と聞いた。答えはない！", ["「なぜ？」と聞いた。", "答えはない！"]),
        ("本当か?嘘だ!", ["本当か?", "嘘だ!"]),
        ("안녕하세요. 반갑습니다! 누구세요?", 3),
    ],
)
def test_sentences_end_where_a_reader_would_end_them(text, sentences):
    found = split_sentences(text).sentences
    assert (len(found) if isinstance(sentences, int) else list(found)) == sentences


def test_the_target_language_decides_about_spaces():
    assert split_sentences("One. Two.").fill(["他走了。", "她来了。"]) == "他走了。她来了。"
    assert split_sentences("他走了。她来了。").fill(["He left.", "She came."]) == "He left. She came."
    assert split_sentences("One.\n  Two.").fill(["他。", "她。"]) == "他。\n  她。"


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
def test_a_very_long_line_is_split_with_work_proportional_to_its_length(part):
    """Bound the characters that are counted: a quadratic algorithm would count many times as many."""
    text = part * (100_000 // len(part))
    read = 0

    def count(chunk):
        nonlocal read
        read += len(chunk)
        return len(chunk)

    chunks = split_long_text(text, 100, count)
    assert "".join(chunks) == text
    assert max(map(len, chunks)) <= 100
    assert read <= 6 * len(text)


def test_a_long_sentence_is_split_further_and_joined_again():
    text = split_sentences("Short one.\n  When the rain had stopped, we left. Go!").split_long(4, words)
    assert text.sentences == ("Short one.", "When the rain had", "stopped,", "we left.", "Go!")
    assert text.fill(text.sentences) == "Short one.\n  When the rain had stopped, we left. Go!"


def test_outputs_are_joined_with_spaces_where_the_script_has_them():
    def join(*texts):
        return split_sentences("One. Two.").fill(texts)

    assert join("Er kam. ", " Niemand da.") == "Er kam. Niemand da."
    assert join("今日は雨です。", "行きましょう。") == "今日は雨です。行きましょう。"
    assert join("안녕하세요.", "반갑습니다.") == "안녕하세요. 반갑습니다."
    assert join("Hi 😀", "there") == "Hi 😀 there"
