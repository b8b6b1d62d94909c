"""The meaning of a sentence of the phrasebook, independent of word order, agreement and case."""

from __future__ import annotations

from typing import Literal, NamedTuple

from dragoman.corpora.lexicon import Adjective, Adverb, Modal, Noun, Verb

GrammaticalCase = Literal["nom", "acc", "dat"]
ClauseOrder = Literal["statement", "inverted", "shared", "question", "subordinate", "infinitive"]
_FrontedPart = Literal["subject", "adverb", "direct", "location"]
Tense = Literal["present", "progressive", "past"]


class Pronoun(NamedTuple):
    """A word that stands for a noun phrase: personal, interrogative or relative."""

    english: str
    english_object: str
    nom: str
    acc: str
    dat: str
    person: int = 3
    plural: bool = False
    noun: Noun | None = None  # the noun it refers to, if that was mentioned


class RelativeClause(NamedTuple):
    """A relative clause; one of its phrases is the relative pronoun, which comes first."""

    clause: Clause


class NounPhrase(NamedTuple):
    """A noun with its determiner, adjective and relative clause; an empty determiner means none."""

    noun: Noun
    determiner: str = "the"
    adjective: Adjective | None = None
    plural: bool = False
    relative: RelativeClause | None = None
    person: int = 3


class Location(NamedTuple):
    """Where something is (dative) or where it goes (mostly accusative)."""

    english: str
    german: str
    case: GrammaticalCase
    phrase: NounPhrase | Pronoun
    bound: bool = False  # whether the verb requires it


class Predicate(NamedTuple):
    """A predicate adjective: very old, too old, as old as the house, older than the house."""

    adjective: Adjective
    degree: Literal["", "very", "too", "as", "than"] = ""
    other: NounPhrase | None = None


class Clause(NamedTuple):
    """Who does what to whom, where and when."""

    subject: NounPhrase | Pronoun
    verb: Verb
    direct: NounPhrase | Pronoun | None = None
    receiver: NounPhrase | Pronoun | None = None
    location: Location | None = None
    adverb: Adverb | None = None
    predicate: Predicate | None = None
    tense: Tense = "present"
    modal: Modal | None = None
    negated: bool = False
    front: _FrontedPart = "subject"


class Conjunction(NamedTuple):
    """A conjunction, and whether a comma precedes it in each language."""

    english: str
    german: str
    english_comma: bool = False
    german_comma: bool = True


class SentenceClause(NamedTuple):
    """A clause with its word order and conjunction in a sentence."""

    clause: Clause
    order: ClauseOrder = "statement"
    conjunction: Conjunction | None = None


class SentenceMeaning(NamedTuple):
    """A sentence: its clauses in order and the final punctuation mark."""

    clauses: tuple[SentenceClause, ...]
    mark: str = "."


I = Pronoun("I", "me", "ich", "mich", "mir", 1)  # noqa: E741
YOU = Pronoun("you", "you", "du", "dich", "dir", 2)
HE = Pronoun("he", "him", "er", "ihn", "ihm")
SHE = Pronoun("she", "her", "sie", "sie", "ihr")
WE = Pronoun("we", "us", "wir", "uns", "uns", 1, plural=True)
THEY = Pronoun("they", "them", "sie", "sie", "ihnen", plural=True)
WHO = Pronoun("who", "who", "wer", "wen", "wem")
WHAT = Pronoun("what", "what", "was", "was", "was")

_GERMAN_PRONOUNS = {"m": ("er", "ihn", "ihm"), "f": ("sie", "sie", "ihr"), "n": ("es", "es", "ihm")}
_RELATIVE_PRONOUNS = {
    "m": ("der", "den", "dem"),
    "f": ("die", "die", "der"),
    "n": ("das", "das", "dem"),
    "p": ("die", "die", "denen"),
}


def pronoun_for(phrase: NounPhrase) -> Pronoun:
    """Return the pronoun that stands for a phrase: German gives it the gender of the noun, English does not."""
    if phrase.plural:
        return THEY._replace(noun=phrase.noun)
    english, english_object = "it", "it"
    if phrase.noun.is_person:
        english, english_object = ("he", "him") if phrase.noun.gender == "m" else ("she", "her")
    return Pronoun(english, english_object, *_GERMAN_PRONOUNS[phrase.noun.gender], noun=phrase.noun)


def relative_pronoun(phrase: NounPhrase) -> Pronoun:
    """Return the relative pronoun for a phrase."""
    english, english_object = ("who", "whom") if phrase.noun.is_person else ("that", "that")
    forms = _RELATIVE_PRONOUNS["p" if phrase.plural else phrase.noun.gender]
    return Pronoun(english, english_object, *forms, plural=phrase.plural, noun=phrase.noun)
