"""Text as people type it, cut into words as the Penn Treebank has them."""

import pytest

from dragoman.text.penn_words import penn_words

CUT = {
    "The dog runs.": "The dog runs .",
    "The dog doesn't run.": "The dog does n't run .",
    '"No," said Mr. Smith (the baker\'s son).': "`` No , '' said Mr. Smith -LRB- the baker 's son -RRB- .",
    "Pay $1,000.50 at 5:30!": "Pay $ 1,000.50 at 5:30 !",
    "Dogs' tails... wag -- why?": "Dogs ' tails ... wag -- why ?",
    "See https://a.b/c?d=1, or mail me@x.org.": "See https://a.b/c?d=1 , or mail me@x.org .",
    "I cannot; we've": "I can not ; we 've",
    "The words stand already .": "The words stand already .",
    "": "",
    " \u00a0 ": "",
}


@pytest.mark.parametrize(("typed", "words"), CUT.items())
def test_punctuation_and_clitics_are_words(typed, words):
    assert " ".join(penn_words(typed)) == words


def test_what_was_cut_is_not_cut_further():
    once = penn_words('"I can\'t," she said, "pay (yet)."')
    assert penn_words(" ".join(once)) == once
