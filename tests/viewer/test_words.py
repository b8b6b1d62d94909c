from itertools import pairwise

from dragoman.viewer.words import WordSpan, group_words


def test_pieces_are_put_together_at_the_word_mark():
    found = group_words("It works.", ("▁It", "▁work", "s", ".", "⟨end⟩"))
    assert found == [WordSpan("It", 0, 1), WordSpan("works.", 1, 4), WordSpan("⟨end⟩", 4, 5, special=True)]


def test_a_space_marks_a_word_too():
    assert [word.label for word in group_words("", ("It", " work", "s", ".", "⟨end⟩"))] == ["It", "works.", "⟨end⟩"]
    assert [word.label for word in group_words("", ("a", "b", " ", "c"))] == ["ab", "c"]


def test_words_are_named_as_the_text_names_them():
    assert [word.label for word in group_words("Ünder Café", ("▁u", "nder", "▁cafe"))] == ["Ünder", "Café"]


def test_words_of_another_number_than_the_texts_keep_their_pieces_names():
    assert [word.label for word in group_words("one two three", ("▁one", "▁two"))] == ["one", "two"]


def test_without_word_marks_every_piece_is_a_word():
    assert [word.label for word in group_words("古い", ("古", "い", "⟨end⟩"))] == ["古", "い", "⟨end⟩"]


def test_every_piece_belongs_to_exactly_one_word():
    pieces = ("⟨start⟩", "a", "▁b", "⟨end⟩", "c", "▁", "d")
    found = group_words("", pieces)
    assert [i for word in found for i in range(word.first, word.end)] == list(range(len(pieces)))


def spelled(text: str, *cuts: int) -> tuple[tuple[str, ...], tuple[tuple[int, int], ...]]:
    """Return a text cut at these places as pieces with their spans, and its end."""
    edges = [0, *cuts, len(text)]
    spans = list(pairwise(edges))
    return (*(text[start:stop] for start, stop in spans), "⟨end⟩"), (*spans, (len(text),) * 2)


def test_with_their_places_known_pieces_make_the_words_of_the_text():
    text = "It doesn't work, well-known “things”!"
    found = group_words(text, *spelled(text, 2, 8, 10, 15, 16, 21, 22, 27, 29, 35, 36))
    labels = ["It", "doesn't", "work", ",", "well-known", "“", "things", "”", "!", "⟨end⟩"]
    assert [word.label for word in found] == labels
    assert all(text[slice(*word.span)] == word.label for word in found if word.span)


def test_a_piece_of_several_words_is_one():
    text = "so. it is"
    assert [word.label for word in group_words(text, *spelled(text, 3))] == ["so.", "it is", "⟨end⟩"]


def test_a_character_in_several_pieces_is_one_word():
    text = "a 🙂 b"
    pieces, spans = (
        ("a", " ", "⟨F0⟩", "⟨9F⟩", "⟨82⟩", " b", "⟨end⟩"),
        ((0, 1), (1, 2), (2, 2), (2, 2), (2, 3), (3, 5), (5, 5)),
    )
    assert [(word.label, word.first, word.end) for word in group_words(text, pieces, spans)] == [
        ("a", 0, 1), ("🙂", 1, 5), ("b", 5, 6), ("⟨end⟩", 6, 7),
    ]  # fmt: skip


def test_where_a_script_has_no_spaces_each_piece_is_a_word():
    text = "ランプは古い"
    assert [word.label for word in group_words(text, *spelled(text, 3, 4))] == ["ランプ", "は", "古い", "⟨end⟩"]


def test_vowel_signs_belong_to_their_word():
    text = "हिन्दी भाषा"
    assert [word.label for word in group_words(text, *spelled(text, 3, 6))] == ["हिन्दी", "भाषा", "⟨end⟩"]
