"""Draw phrases and clauses of the phrasebook at random.

The kinds of nouns that a verb takes restrict its subject and object; tense, modal verb and time are drawn to agree.
What would have two translations, or no idiomatic one, is never drawn.
"""

from __future__ import annotations

from functools import cache
from random import Random
from typing import TypeVar

from dragoman.corpora import lexicon
from dragoman.corpora.lexicon import BE, Adjective, Adverb, Modal, Noun, Verb, adjectives_for, nouns_of_kinds
from dragoman.corpora.meanings import (
    HE,
    SHE,
    THEY,
    WE,
    YOU,
    Clause,
    I,
    Location,
    NounPhrase,
    Predicate,
    Pronoun,
    Tense,
    pronoun_for,
)

_Choice = TypeVar("_Choice")

PERSONAL_PRONOUNS = (I, YOU, HE, SHE, WE, THEY)
_SUBJECT_PRONOUNS = (
    I,
    I,
    YOU,
    YOU,
    HE,
    SHE,
    WE,
    THEY,
)  # as subjects; each verb has forms of its own for "ich" and "du"
POSSESSIVES = ("my", "your", "his", "her", "our", "their")
QUANTIFIERS = ("two", "three", "four", "five", "many", "some")
TENSES: tuple[Tense, ...] = ("present", "progressive", "past")
_SEAT_PREPOSITIONS = (("on", "auf"), ("next to", "neben"), ("under", "unter"), ("behind", "hinter"))
PEOPLE = lexicon.expand_kinds("people")
BEINGS = lexicon.expand_kinds("beings")
_PUBLIC_KINDS = frozenset(("room", "building", "outdoors", "goal", "transit"))
_MOSTLY_SINGULAR_KINDS = frozenset(
    ("relative", "room", "building", "outdoors", "goal")
)  # rarely spoken of in the plural
POSSESSABLE_PEOPLE = frozenset(("child", "neighbour", "colleague", "guest", "teacher", "doctor"))
_DEFINITE_DETERMINERS = frozenset(("the", "this", "these", "which", *POSSESSIVES))
_MODALS = (lexicon.CAN, lexicon.MUST, lexicon.SHOULD, lexicon.WILL, lexicon.WANT, lexicon.ALLOWED)
UNNEGATABLE_DETERMINERS = frozenset((*QUANTIFIERS, "every"))


def pick(rng: Random, items: tuple[_Choice, ...]) -> _Choice:
    """Draw one of several items with equal probability."""
    return items[int(rng.random() * len(items))]


def chance(rng: Random, probability: float) -> bool:
    """Return True with the given probability."""
    return rng.random() < probability


def _draw_determiner(rng: Random, noun: Noun, *, plural: bool) -> str:
    """Draw a determiner for a noun."""
    if noun.kind == "relative":
        return pick(rng, POSSESSIVES)
    draw = rng.random()
    if noun.is_mass:
        return "" if draw < 0.6 else "the" if draw < 0.9 else "this"
    if draw < 0.4:
        return "the"
    if draw < 0.55:
        return "these" if plural else "this"
    if draw < 0.7 and noun.kind not in _PUBLIC_KINDS and (noun.kind != "person" or noun.english in POSSESSABLE_PEOPLE):
        return pick(rng, POSSESSIVES)
    if plural:
        counts = ("many", "some") if noun.kind == "footwear" else QUANTIFIERS  # shoes come in pairs
        return pick(rng, counts) if draw < 0.9 else ""
    return "a"


def draw_phrase(rng: Random, noun: Noun, *, plural: float = 0.2, adjective: float = 0.3) -> NounPhrase:
    """Draw a noun phrase."""
    is_plural = noun.kind == "footwear" or (
        not noun.is_mass and noun.kind not in _MOSTLY_SINGULAR_KINDS and chance(rng, plural)
    )
    fitting = _attributive_adjectives(noun.kind)
    attribute = pick(rng, fitting) if fitting and chance(rng, adjective) else None
    return NounPhrase(noun, _draw_determiner(rng, noun, plural=is_plural), attribute, is_plural)


@cache
def _attributive_adjectives(kind: str) -> tuple[Adjective, ...]:
    """Return attributive adjectives: "my patient son" rather than "my thirsty son" or "my old son"."""
    return tuple(
        adjective for adjective in adjectives_for(kind) if kind != "relative" or adjective.scale not in ("state", "age")
    )


def draw_subject(rng: Random, kinds: frozenset[str], *, pronouns: float = 0.3) -> NounPhrase | Pronoun:
    """Draw the subject of a sentence."""
    if "person" in kinds and chance(rng, pronouns):
        return pick(rng, _SUBJECT_PRONOUNS)
    return make_definite(draw_phrase(rng, pick(rng, nouns_of_kinds(kinds)), adjective=0.2))


def make_definite(phrase: NounPhrase) -> NounPhrase:
    """Return a phrase with a definite determiner."""
    return phrase if phrase.determiner in _DEFINITE_DETERMINERS else phrase._replace(determiner="the")


def draw_antecedent(rng: Random, kinds: frozenset[str], *, plural: float = 0.2, adjective: float = 0.0) -> NounPhrase:
    """Draw a definite phrase that a pronoun can refer to unambiguously."""
    noun = pick(rng, nouns_of_kinds(kinds))
    while noun.is_person and noun.gender == "n":  # "das Mädchen … sie" or "es": both are heard
        noun = pick(rng, nouns_of_kinds(kinds))
    return make_definite(draw_phrase(rng, noun, plural=plural, adjective=adjective))


def _draw_object(rng: Random, verb: Verb, subject: NounPhrase | Pronoun) -> NounPhrase | Pronoun | None:
    """Draw an object for a verb."""
    if not verb.objects:
        return None
    if "person" in verb.objects and chance(rng, 0.15):
        return _draw_object_pronoun(rng, subject)
    plural = 0.0 if verb.case == "dat" and not verb.objects & PEOPLE else 0.2
    phrase = draw_phrase(rng, pick(rng, nouns_of_kinds(verb.objects)), plural=plural)
    if phrase.noun is subject.noun:  # "this boy greets a boy"
        return _draw_object(rng, verb, subject)
    if phrase.noun.kind in ("opening", "room") or verb.base in ("like", "love", "know", "understand"):
        return make_definite(phrase)
    if verb.base in ("buy", "have") and phrase.determiner in POSSESSIVES:  # one does not buy one's own things
        return phrase._replace(determiner="the")
    return phrase


def _draw_object_pronoun(rng: Random, subject: NounPhrase | Pronoun) -> Pronoun:
    """Draw a personal pronoun that does not mean the subject itself."""
    others = tuple(person for person in PERSONAL_PRONOUNS if person.person == 3 or person.person != subject.person)
    return pick(rng, others)


def _draw_location_of_verb(rng: Random, verb: Verb, subject: NounPhrase | Pronoun) -> Location | None:
    """Draw the location that a verb requires or allows."""
    marks = verb.marks
    if "put" in marks:
        english, german = pick(rng, _SEAT_PREPOSITIONS)
        return Location(english, german, "acc", _draw_location_phrase(rng, "furniture seat"), bound=True)
    if marks & {"keep", "rest", "sit"}:
        english, german = ("on", "auf") if "sit" in marks else pick(rng, _SEAT_PREPOSITIONS)
        phrase = _draw_location_phrase(rng, "seat" if "sit" in marks else "furniture seat")
        return Location(english, german, "dat", phrase, bound=True)
    if "reach" in marks and ("enter" not in marks or chance(rng, 0.5)):
        return Location("to", "zu", "dat", _draw_location_phrase(rng, "goal"), bound=True)
    if "enter" in marks:
        return Location("into", "in", "acc", _draw_location_phrase(rng, "room building outdoors"), bound=True)
    if "located" in marks and chance(rng, 0.35):
        return draw_scene(rng, subject)
    return None


def draw_scene(rng: Random, subject: NounPhrase | Pronoun) -> Location:
    """Draw where something happens: people anywhere, animals outdoors."""
    if subject.noun is not None and not subject.noun.is_person:
        return Location("in", "in", "dat", _draw_location_phrase(rng, "outdoors"))
    if chance(rng, 0.2):
        return Location("at", "an", "dat", _draw_location_phrase(rng, "goal"))
    return Location("in", "in", "dat", _draw_location_phrase(rng, "room building outdoors"))


def _draw_location_phrase(rng: Random, kinds: str) -> NounPhrase:
    """Draw a location or a piece of furniture."""
    phrase = draw_phrase(rng, pick(rng, nouns_of_kinds(frozenset(kinds.split()))), plural=0, adjective=0.2)
    return phrase if chance(rng, 0.3) else phrase._replace(determiner="the")


# Drawing clauses


def draw_time(rng: Random, clause: Clause) -> Clause:
    """Draw tense, modal verb and time so that they agree."""
    verb, draw = clause.verb, rng.random()
    if "state" in verb.marks:
        return clause
    if draw < 0.3:
        clause = _make_object_generic(
            _draw_adverb(rng, clause, (*lexicon.HABITS, *lexicon.FREQUENCIES, *lexicon.FREQUENCIES), 0.6)
        )
        going_on = clause.adverb is None and verb.progressive and (has_ambiguous_past(clause) or chance(rng, 0.6))
        return clause._replace(tense="progressive") if going_on else clause
    if draw < 0.5 and verb.progressive:
        return _draw_adverb(rng, clause._replace(tense="progressive"), lexicon.PRESENT_TIMES, 0.25)
    if draw < 0.75 and not has_ambiguous_past(clause):
        return _draw_adverb(rng, clause._replace(tense="past"), lexicon.PAST_TIMES[not clause.direct :], 0.4)
    if "rest" in verb.marks:
        return clause
    modal = draw_modal(rng, clause.subject) if verb.progressive else pick(rng, (lexicon.CAN, lexicon.WILL))
    return _draw_adverb(rng, clause._replace(modal=modal), lexicon.FUTURE_TIMES[not clause.direct :], 0.4)


def _make_object_generic(clause: Clause) -> Clause:
    """Make the object of a habit generic: "often sells old beds"."""
    direct = clause.direct
    if clause.adverb is None or not isinstance(direct, NounPhrase) or direct.determiner != "a":
        return clause
    return clause._replace(direct=direct._replace(determiner="", plural=True))


def has_ambiguous_past(clause: Clause) -> bool:
    """Return whether the English past looks like the present: "they read", "they put on"."""
    subject = clause.subject
    return clause.verb.past == clause.verb.base and (subject.plural or subject.person != 3)


def draw_modal(rng: Random, subject: NounPhrase | Pronoun) -> Modal:
    """Draw a modal verb: only people must, should or may; things only will."""
    kind = subject.noun.kind if subject.noun is not None else "person"
    if kind in PEOPLE:
        return pick(rng, _MODALS)
    return pick(rng, (lexicon.CAN, lexicon.WILL, lexicon.WANT)) if kind == "animal" else lexicon.WILL


def _draw_adverb(rng: Random, clause: Clause, adverbs: tuple[Adverb, ...], probability: float) -> Clause:
    """Add one of several adverbs with the given probability, sometimes at the front."""
    if not chance(rng, probability):
        return clause
    adverb = pick(rng, adverbs)
    # With a pronoun as object the order after a fronted adverb is unsettled: "Heute sieht ihn der Mann".
    movable = (
        not adverb.frequency and not isinstance(clause.direct, Pronoun) and not isinstance(clause.receiver, Pronoun)
    )
    return clause._replace(adverb=adverb, front="adverb" if movable and chance(rng, 0.5) else "subject")


def draw_negation(rng: Random, clause: Clause, probability: float = 0.18) -> Clause:
    """Negate a clause with the given probability, if the negation is unambiguous."""
    phrases = (clause.subject, clause.direct, clause.receiver)
    counted = any(isinstance(phrase, NounPhrase) and phrase.determiner in UNNEGATABLE_DETERMINERS for phrase in phrases)
    vague = isinstance(clause.subject, NounPhrase) and clause.subject.determiner == "a"
    often = clause.adverb in lexicon.FREQUENCIES or clause.adverb in lexicon.HABITS  # "nicht jeden Tag"
    located = clause.location is not None and clause.direct is not None and not clause.location.bound
    if counted or vague or often or located or clause.modal is lexicon.MUST or not chance(rng, probability):
        return clause
    return clause._replace(negated=True)


def draw_clause(rng: Random, verb: Verb, subject: NounPhrase | Pronoun | None = None) -> Clause:
    """Draw all but the time of a clause with a given verb."""
    phrase = draw_subject(rng, verb.subjects) if subject is None else subject
    if verb.base == "belong" and isinstance(phrase, NounPhrase):
        phrase = phrase._replace(determiner="these" if phrase.plural else "this")
    receiver = _draw_receiver(rng, phrase) if "give" in verb.marks else None
    return Clause(phrase, verb, _draw_object(rng, verb, phrase), receiver, _draw_location_of_verb(rng, verb, phrase))


def _draw_receiver(rng: Random, subject: NounPhrase | Pronoun) -> NounPhrase | Pronoun:
    """Draw someone to give something to."""
    if chance(rng, 0.3):
        return _draw_object_pronoun(rng, subject)
    return make_definite(draw_phrase(rng, pick(rng, nouns_of_kinds(PEOPLE)), adjective=0.15))


def draw_event(rng: Random, subject: NounPhrase | Pronoun | None = None) -> Clause:
    """Draw a clause with any verb that fits the subject, if one is given."""
    if subject is None:
        return draw_time(rng, draw_clause(rng, pick(rng, lexicon.VERBS)))
    kind = subject.noun.kind if subject.noun is not None else "person"
    return draw_time(rng, draw_clause(rng, pick(rng, verbs_with_subject(kind)), subject))


@cache
def verbs_with_subject(kind: str) -> tuple[Verb, ...]:
    """Return the verbs that allow a subject of this kind."""
    return tuple(verb for verb in lexicon.VERBS if kind in verb.subjects)


def draw_predication(rng: Random, phrase: NounPhrase | Pronoun, *, tense: Tense = "present") -> Clause:
    """Draw a predicate adjective for a phrase."""
    kind = phrase.noun.kind if phrase.noun is not None else "person"
    attribute = phrase.adjective if isinstance(phrase, NounPhrase) else None
    fitting = tuple(
        adjective for adjective in adjectives_for(kind) if attribute is None or adjective.scale != attribute.scale
    )
    return Clause(phrase, BE, predicate=Predicate(pick(rng, fitting)), tense=tense)


def anaphoric_pronoun(phrase: NounPhrase | Pronoun) -> Pronoun:
    """Return the pronoun that refers to a phrase; a pronoun refers to itself."""
    return phrase if isinstance(phrase, Pronoun) else pronoun_for(phrase)


def draw_person_antecedent(rng: Random) -> NounPhrase | Pronoun:
    """Draw a person that a pronoun can refer to."""
    return (
        pick(rng, _SUBJECT_PRONOUNS) if chance(rng, 0.35) else draw_antecedent(rng, PEOPLE, plural=0.1, adjective=0.15)
    )
