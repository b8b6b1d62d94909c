from dragoman.viewer.words import Word, words


def test_pieces_are_put_together_at_the_word_mark():
    found = words("It works.", ("▁It", "▁work", "s", ".", "⟨end⟩"))
    assert found == [Word("It", 0, 1), Word("works.", 1, 4), Word("⟨end⟩", 4, 5, special=True)]


def test_a_space_marks_a_word_too():
    assert [word.label for word in words("", ("It", " work", "s", ".", "⟨end⟩"))] == ["It", "works.", "⟨end⟩"]
    assert [word.label for word in words("", ("a", "b", " ", "c"))] == ["ab", "c"]


def test_words_are_named_as_the_text_names_them():
    assert [word.label for word in words("Ünder Café", ("▁u", "nder", "▁cafe"))] == ["Ünder", "Café"]


def test_words_of_another_number_than_the_texts_keep_their_pieces_names():
    assert [word.label for word in words("one two three", ("▁one", "▁two"))] == ["one", "two"]


def test_without_word_marks_every_piece_is_a_word():
    assert [word.label for word in words("古い", ("古", "い", "⟨end⟩"))] == ["古", "い", "⟨end⟩"]


def test_every_piece_belongs_to_exactly_one_word():
    pieces = ("⟨start⟩", "a", "▁b", "⟨end⟩", "c", "▁", "d")
    found = words("", pieces)
    assert [i for word in found for i in range(word.first, word.end)] == list(range(len(pieces)))
