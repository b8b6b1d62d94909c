"""What a pronoun stands for, judged by German: there it has the gender of its noun, which English does not show."""

from random import Random

import pytest

from dragoman.corpora.lexicon import NOUNS, VERBS
from dragoman.corpora.meanings import Clause, NounPhrase, SentenceClause, SentenceMeaning, pronoun_for
from dragoman.corpora.patterns import (
    AND,
    contrast,
    mood,
    possession,
    reason,
    relative_object,
    relative_subject,
    sequence,
)
from dragoman.corpora.phrasebook import PERSONAL_PRONOUN_WORDS, phrasebook, render_pair, split_words, write_phrasebook

GENDERS = {
    "er": "m", "ihn": "m", "ihm": "mn", "es": "n", "sie": "fp", "ihr": "f", "ihnen": "p",
    "der": "mf", "den": "m", "dem": "mn", "die": "fp", "das": "n", "denen": "p",
}  # fmt: skip


@pytest.fixture(scope="module")
def drawn():
    return list(phrasebook("test", 1000))


@pytest.fixture(scope="module")
def gender_of():
    """Return the gender that each English noun, by its last word, has in German; "p" for its plural."""
    singular = {noun.english.split()[-1]: noun.gender for noun in NOUNS}
    return {**{noun.english_plural.split()[-1]: "p" for noun in NOUNS if noun.english_plural}, **singular}


def named(each):
    said = split_words(each.source)
    return [(said[pronoun], said[noun]) for pronoun, noun in each.antecedents]


def test_the_german_pronoun_has_the_gender_of_the_antecedent(drawn, gender_of):
    judged = 0
    for each in drawn:
        said, translated = split_words(each.source), split_words(each.target)
        for pronoun, noun in each.antecedents:
            (german,) = [translated[j].lower() for i, j in each.links if i == pronoun]
            assert gender_of[said[noun]] in GENDERS[german], each
            judged += 1
    assert judged > 300


def test_the_antecedent_is_a_noun_and_stands_before_its_pronoun(drawn, gender_of):
    for each in drawn:
        for pronoun, noun in each.antecedents:
            assert noun < pronoun and noun in each.nouns and pronoun not in each.nouns
        assert all(split_words(each.source)[position] in gender_of for position in each.nouns)


def test_every_it_stands_for_something_that_was_said(drawn):
    for each in drawn:
        said = split_words(each.source)
        taken_up = {pronoun for pronoun, _ in each.antecedents}
        assert taken_up >= {position for position, word in enumerate(said) if word.lower() == "it"}, each


def test_pronouns_for_people_who_were_not_named_have_no_antecedent(drawn):
    alone = [each for each in drawn if split_words(each.source)[0] in ("He", "She", "They", "I", "We", "You")]
    assert alone and all(pronoun > 0 for each in alone for pronoun, _ in each.antecedents)


@pytest.mark.parametrize(
    ("pattern", "english", "expected"),
    [
        (contrast, "The lamp is old, but it works.", [("it", "lamp")]),
        (reason, "You are buying the alarm clock because it is cheap.", [("it", "clock")]),
        (possession, "The man has a shirt, and he often washes it.", [("he", "man"), ("it", "shirt")]),
        (sequence, "Her tall aunt sees the man and helps him.", [("him", "man")]),
        (mood, "Because the guest is hungry, he is baking a pancake.", [("he", "guest")]),
        (mood, "I fell asleep because I was tired.", []),
    ],
)
def test_the_antecedents_are_those_that_a_reader_names(pattern, english, expected):
    rng = Random(1)
    found = next(each for each in (render_pair(pattern(rng)) for _ in range(50_000)) if each.source == english)
    assert named(found) == expected


def test_of_two_people_of_one_name_an_object_is_the_one_met_and_not_the_one_meeting():
    man = NounPhrase(next(noun for noun in NOUNS if noun.english == "man"))
    meet, greet = (next(verb for verb in VERBS if verb.base == base) for base in ("meet", "greet"))
    both = SentenceClause(Clause(man, meet, man)), SentenceClause(Clause(man, greet, pronoun_for(man)), "shared", AND)
    found = render_pair(SentenceMeaning(both))
    assert found.source == "The man meets the man and greets him."
    assert found.antecedents == ((7, 4),)


@pytest.mark.parametrize("pattern", [relative_subject, relative_object])
def test_a_relative_pronoun_stands_for_the_noun_right_before_it(pattern):
    rng = Random(3)
    for each in (render_pair(pattern(rng)) for _ in range(200)):
        relative = [
            (i, j) for i, j in each.antecedents if split_words(each.source)[i] in ("who", "whom", "that", "which")
        ]
        assert len(relative) == 1
        (pronoun, noun) = relative[0]
        assert pronoun - noun == (2 if split_words(each.source)[pronoun] == "which" else 1)  # on which, in which
        assert (pronoun, noun) not in each.anaphora


def test_a_sample_can_be_drawn_of_sentences_with_a_personal_pronoun_alone():
    only = list(phrasebook("valid", 50, accept=lambda each: bool(each.anaphora)))
    everything = [each for each in phrasebook("valid", 400) if each.anaphora]
    assert len(only) == 50 and only[: len(everything)] == everything[:50]
    assert all(
        split_words(each.source)[pronoun].lower() in PERSONAL_PRONOUN_WORDS
        for each in only
        for pronoun, _ in each.anaphora
    )


def test_the_antecedents_are_written_beside_the_links(tmp_path):
    write_phrasebook(tmp_path, {"test": 40})
    lines = (tmp_path / "test.antecedents").read_text().split("\n")
    expected = [" ".join(f"{i}-{j}" for i, j in each.antecedents) for each in phrasebook("test", 40)]
    assert lines == [*expected, ""] and any(expected)
