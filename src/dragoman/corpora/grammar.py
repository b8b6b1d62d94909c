"""The grammar of the phrasebook: render a meaning as an English and a German sentence with their word alignment.

Both languages are rendered from the values of `meanings`. Every piece of meaning has a key, every word has the keys of
what it expresses, and two words are linked if they share a key, so the alignment is exact. "did not buy a" and "hat
kein … gekauft" need no special rule: "kein" has the keys of "not" and of "a".

The English simple past becomes the German perfect ("bought", "hat gekauft"), but "was" and "had" become "war" and
"hatte", as people speak. The progressive and the simple present both become the German present. "You" is "du".
"""

from __future__ import annotations

from typing import NamedTuple

from dragoman.corpora.lexicon import BE, LIKE, Adverb, Noun, Verb
from dragoman.corpora.meanings import (
    WHO,
    Clause,
    ClauseOrder,
    GrammaticalCase,
    NounPhrase,
    Predicate,
    Pronoun,
    SentenceMeaning,
)


class Mention(NamedTuple):
    """What a noun, or a pronoun that refers to it, denotes."""

    noun: Noun
    plural: bool
    again: bool = False  # by a pronoun


class AlignedWord(NamedTuple):
    """A word of a sentence, with the keys of the meanings that it expresses."""

    text: str
    keys: tuple[object, ...] = ()
    mention: Mention | None = None  # of an English noun, at its last word, and of an English pronoun


class _BilingualWords(NamedTuple):
    """A piece of a sentence in English and in German."""

    english: list[AlignedWord]
    german: list[AlignedWord]


# Endings by case and then by gender, "p" for the plural.
_STRONG_ENDINGS = {
    "nom": {"m": "er", "f": "e", "n": "es", "p": "e"},
    "acc": {"m": "en", "f": "e", "n": "es", "p": "e"},
    "dat": {"m": "em", "f": "er", "n": "em", "p": "en"},
}
_MIXED_ENDINGS = {
    "nom": {"m": "er", "f": "e", "n": "es", "p": "en"},
    "acc": {"m": "en", "f": "e", "n": "es", "p": "en"},
    "dat": {"m": "en", "f": "en", "n": "en", "p": "en"},
}
_WEAK_ENDINGS = {
    "nom": {"m": "e", "f": "e", "n": "e", "p": "en"},
    "acc": {"m": "en", "f": "e", "n": "e", "p": "en"},
    "dat": {"m": "en", "f": "en", "n": "en", "p": "en"},
}
_EIN_ENDINGS = {
    "nom": {"m": "", "f": "e", "n": "", "p": "e"},
    "acc": {"m": "en", "f": "e", "n": "", "p": "e"},
    "dat": {"m": "em", "f": "er", "n": "em", "p": "en"},
}
_DEFINITE_ARTICLES = {
    "nom": {"m": "der", "f": "die", "n": "das", "p": "die"},
    "acc": {"m": "den", "f": "die", "n": "das", "p": "die"},
    "dat": {"m": "dem", "f": "der", "n": "dem", "p": "den"},
}

# A determiner of each language, the endings it takes itself and those of the adjective after it.
_EIN_WORDS = {"my": "mein", "your": "dein", "his": "sein", "her": "ihr", "our": "unser", "their": "ihr", "a": "ein"}
_DER_WORDS = {"this": "dies", "these": "dies", "every": "jed", "which": "welch"}
_QUANTITY_WORDS = {"many": "viel", "some": "einig"}
_NUMBERS = {"two": "zwei", "three": "drei", "four": "vier", "five": "fünf", "how many": "wie viele"}

_CONTRACTIONS = {
    "in dem": "im",
    "in das": "ins",
    "an dem": "am",
    "zu dem": "zum",
    "zu der": "zur",
    "von dem": "vom",
}

_GERMAN_BE = ("bin", "bist", "ist", "sind")
_GERMAN_HAVE = ("habe", "hast", "hat", "haben")
_PRETERITES = {"be": ("war", "warst", "war", "waren"), "have": ("hatte", "hattest", "hatte", "hatten")}


def _words_with_keys(text: str, *keys: object) -> list[AlignedWord]:
    """Return the words of a text, each with the same keys."""
    return [AlignedWord(word, keys) for word in text.split()]


# Noun phrases


def _german_determiner(
    determiner: str, case: GrammaticalCase, gender: str, *, negated: bool
) -> tuple[str, dict[str, dict[str, str]]]:
    """Return the German determiner and the endings that an adjective takes after it."""
    if negated:
        return "kein" + _EIN_ENDINGS[case][gender], _MIXED_ENDINGS
    if determiner == "the":
        return _DEFINITE_ARTICLES[case][gender], _WEAK_ENDINGS
    if determiner in _EIN_WORDS:
        return _EIN_WORDS[determiner] + _EIN_ENDINGS[case][gender], _MIXED_ENDINGS
    if determiner in _DER_WORDS:
        return _DER_WORDS[determiner] + _STRONG_ENDINGS[case][gender], _WEAK_ENDINGS
    if determiner in _QUANTITY_WORDS:
        return _QUANTITY_WORDS[determiner] + _STRONG_ENDINGS[case][gender], _STRONG_ENDINGS
    return _NUMBERS.get(determiner, ""), _STRONG_ENDINGS


def _german_noun(noun: Noun, case: GrammaticalCase, *, plural: bool) -> str:
    """Return the form of a German noun."""
    if not plural:
        return noun.german if case == "nom" else noun.oblique
    return noun.german_plural + ("n" if case == "dat" and noun.german_plural[-1] not in "ns" else "")


def _render_noun_phrase(
    phrase: NounPhrase | Pronoun, case: GrammaticalCase, negation: object = None
) -> _BilingualWords:
    """Render a phrase; a negation given here is expressed by "kein"."""
    if isinstance(phrase, Pronoun):
        key = object()
        form = phrase.english if case == "nom" else phrase.english_object
        again = None if phrase.noun is None else Mention(phrase.noun, phrase.plural, again=True)
        return _BilingualWords([AlignedWord(form, (key,), again)], [AlignedWord(getattr(phrase, case), (key,))])
    noun, adjective, plural = phrase.noun, phrase.adjective, phrase.plural
    gender = "p" if plural else noun.gender
    determiner_key, noun_key = object(), object()
    determiner, endings = _german_determiner(phrase.determiner, case, gender, negated=negation is not None)
    english = _words_with_keys(phrase.determiner, determiner_key)
    german = _words_with_keys(determiner, *((determiner_key,) if negation is None else (determiner_key, negation)))
    if adjective is not None:
        adjective_key = object()
        english.append(AlignedWord(adjective.english, (adjective_key,)))
        german.append(AlignedWord(adjective.stem + endings[case][gender], (adjective_key,)))
    english += _words_with_keys(noun.english_plural if plural else noun.english, noun_key)
    english[-1] = english[-1]._replace(mention=Mention(noun, plural))
    german.append(AlignedWord(_german_noun(noun, case, plural=plural), (noun_key,)))
    if phrase.determiner == "a" and english[1].text[0] in "aeiou":
        english[0] = AlignedWord("an", (determiner_key,))
    if phrase.relative is not None:
        inner = _render_clause(phrase.relative.clause, "subordinate")
        english += inner.english
        german += [AlignedWord(","), *inner.german, AlignedWord(",")]
    return _BilingualWords(english, german)


def _contract_article(preposition: AlignedWord, rest: list[AlignedWord], *, definite: bool) -> list[AlignedWord]:
    """Contract a German preposition with the article after it: "im", "zur"."""
    short = _CONTRACTIONS.get(f"{preposition.text} {rest[0].text}") if definite else None
    if short is None:
        return [preposition, *rest]
    return [AlignedWord(short, preposition.keys + rest[0].keys), *rest[1:]]


def _render_prepositional_phrase(
    english: str, german: str, phrase: NounPhrase | Pronoun, case: GrammaticalCase, key: object
) -> _BilingualWords:
    """Render a prepositional phrase; the preposition gets the given key."""
    inner = _render_noun_phrase(phrase, case)
    definite = isinstance(phrase, NounPhrase) and phrase.determiner == "the"
    words = inner.english
    if english and words[0].text == "that":  # the relative pronoun after a preposition: "on which"
        words = [words[0]._replace(text="which")]
    return _BilingualWords(
        _words_with_keys(english, key) + words,
        _contract_article(AlignedWord(german, (key,)), inner.german, definite=definite),
    )


# Verbs


def _verb_form_index(subject: NounPhrase | Pronoun) -> int:
    """Return which verb form a subject takes: ich 0, du 1, er 2, and 3 for every plural."""
    return 3 if subject.plural else subject.person - 1


def _english_present(base: str, third: str, index: int) -> str:
    """Return the present form of an English verb."""
    if base == "be":
        return ("am", "are", "is", "are")[index]
    return third if index == 2 else base


def _english_past(verb: Verb, index: int) -> str:
    """Return the past form of an English verb."""
    return ("was", "were", "was", "were")[index] if verb.base == "be" else verb.past


def _english_verbs(
    clause: Clause, key: object, modal_key: object, *, needs_auxiliary: bool
) -> tuple[list[AlignedWord], list[AlignedWord]]:
    """Return the auxiliary (do-support if `needs_auxiliary`, for "not" and questions) and the other verbs."""
    verb, modal, index = clause.verb, clause.modal, _verb_form_index(clause.subject)
    if modal is not None:
        rest = _words_with_keys(modal.rest, modal_key) + _words_with_keys(verb.base, key)
        if modal.rest == "to":  # want to, like to: verbs like any other
            if needs_auxiliary:
                return _words_with_keys("does" if index == 2 else "do", modal_key), _words_with_keys(
                    modal.base, modal_key
                ) + rest
            return [], _words_with_keys(_english_present(modal.base, modal.third, index), modal_key) + rest
        return _words_with_keys(_english_present(modal.base, modal.third, index), modal_key), rest
    if verb is BE:
        return _words_with_keys(
            _english_past(BE, index) if clause.tense == "past" else _english_present("be", "is", index), key
        ), []
    if clause.tense == "progressive":
        return _words_with_keys(_english_present("be", "is", index), key), _words_with_keys(verb.progressive, key)
    if needs_auxiliary:
        support = "did" if clause.tense == "past" else "does" if index == 2 else "do"
        return _words_with_keys(support, key), _words_with_keys(verb.base, key)
    return [], _words_with_keys(
        verb.past if clause.tense == "past" else _english_present(verb.base, verb.third, index), key
    )


def _german_verbs(clause: Clause, key: object, modal_key: object) -> tuple[AlignedWord, list[AlignedWord], str]:
    """Return the finite verb, the words at the end of the clause, and the separated prefix of the finite verb."""
    verb, modal, index = clause.verb, clause.modal, _verb_form_index(clause.subject)
    if modal is not None and modal is not LIKE:
        return AlignedWord(modal.german[index], (modal_key,)), [AlignedWord(verb.prefix + verb.infinitive, (key,))], ""
    if clause.tense == "past" and verb.base in _PRETERITES:
        return AlignedWord(_PRETERITES[verb.base][index], (key,)), [], ""
    if clause.tense == "past":
        auxiliary = _GERMAN_BE if verb.auxiliary == "sein" else _GERMAN_HAVE
        return AlignedWord(auxiliary[index], (key,)), [AlignedWord(verb.participle, (key,))], ""
    present = _GERMAN_BE if verb is BE else (verb.ich, verb.du, verb.er, verb.infinitive)
    return AlignedWord(present[index], (key,)), [], verb.prefix


# Clauses


class _ClauseParts(NamedTuple):
    """The phrases of a clause in both languages, not yet ordered; absent phrases are empty."""

    subject: _BilingualWords
    direct: _BilingualWords
    receiver: _BilingualWords
    location: _BilingualWords
    adverb: _BilingualWords
    predicate: _BilingualWords
    verb: object  # keys
    preposition: object
    modal: object
    negation: object
    infinitive_marker: object  # of the infinitive's "to"
    has_kein: bool  # whether the object expresses the negation


def _negates_with_kein(clause: Clause) -> bool:
    """Return whether the object expresses the negation of a clause (not a, not any)."""
    return (
        clause.negated
        and isinstance(clause.direct, NounPhrase)
        and clause.direct.determiner in ("a", "")
        and not clause.verb.german_preposition
        and clause.modal is not LIKE
    )


def _render_adverb(adverb: Adverb | None) -> _BilingualWords:
    """Render a fixed expression."""
    both = _BilingualWords([], [])
    for english, german in adverb.pieces if adverb is not None else ():
        key = object()
        both.english.extend(_words_with_keys(english, key))
        both.german.extend(_words_with_keys(german, key))
    return both


def _render_predicate(predicate: Predicate | None) -> _BilingualWords:
    """Render a predicate adjective."""
    if predicate is None:
        return _BilingualWords([], [])
    adjective_key, degree, adjective = object(), object(), predicate.adjective
    plain = _BilingualWords(
        _words_with_keys(adjective.english, adjective_key), _words_with_keys(adjective.german, adjective_key)
    )
    if predicate.degree in ("very", "too"):
        german = {"very": "sehr", "too": "zu"}[predicate.degree]
        return _BilingualWords(
            [AlignedWord(predicate.degree, (degree,)), *plain.english], [AlignedWord(german, (degree,)), *plain.german]
        )
    if predicate.other is None:
        return plain
    other, joint = _render_noun_phrase(predicate.other, "nom"), object()
    if predicate.degree == "as":
        english = [AlignedWord("as", (degree,)), *plain.english, AlignedWord("as", (joint,)), *other.english]
        return _BilingualWords(
            english, [AlignedWord("so", (degree,)), *plain.german, AlignedWord("wie", (joint,)), *other.german]
        )
    english = [
        *_words_with_keys(adjective.english_comparative, adjective_key),
        AlignedWord("than", (joint,)),
        *other.english,
    ]
    return _BilingualWords(
        english,
        [*_words_with_keys(adjective.german_comparative, adjective_key), AlignedWord("als", (joint,)), *other.german],
    )


def _render_object(clause: Clause, key: object, negation: object) -> _BilingualWords:
    """Render the object with the preposition of each language, which gets the given key."""
    verb, direct = clause.verb, clause.direct
    if direct is None:
        return _BilingualWords([], [])
    # English leaves the preposition behind when the object moves to the front: "What is she looking for?"
    english = "" if clause.front == "direct" else verb.preposition
    if verb.german_preposition:
        return _render_prepositional_phrase(english, verb.german_preposition, direct, _object_case(verb), key)
    inner = _render_noun_phrase(direct, _object_case(verb), negation if _negates_with_kein(clause) else None)
    return _BilingualWords(_words_with_keys(english, key) + inner.english, inner.german)


def _object_case(verb: Verb) -> GrammaticalCase:
    """Return the case of a verb's object."""
    return "dat" if verb.case == "dat" else "acc"


def _render_parts(clause: Clause) -> _ClauseParts:
    """Render the phrases of a clause."""
    verb, negation, location = object(), object(), clause.location
    preposition = object() if clause.verb.german_preposition else verb  # "looks for" is one word, "sucht"
    return _ClauseParts(
        subject=_render_noun_phrase(clause.subject, "nom"),
        direct=_render_object(clause, preposition, negation),
        receiver=_BilingualWords([], []) if clause.receiver is None else _render_noun_phrase(clause.receiver, "dat"),
        location=_BilingualWords([], [])
        if location is None
        else _render_prepositional_phrase(location.english, location.german, location.phrase, location.case, object()),
        adverb=_render_adverb(clause.adverb),
        predicate=_render_predicate(clause.predicate),
        verb=verb,
        preposition=preposition,
        modal=object(),
        negation=negation,
        infinitive_marker=object(),
        has_kein=_negates_with_kein(clause),
    )


def _english_clause(clause: Clause, parts: _ClauseParts, order: ClauseOrder) -> list[AlignedWord]:
    """Order the English words of a clause."""
    front = clause.front
    inverts = order == "question" and clause.subject is not WHO
    auxiliary, verbs = _english_verbs(clause, parts.verb, parts.modal, needs_auxiliary=clause.negated or inverts)
    often = parts.adverb.english if clause.adverb is not None and clause.adverb.frequency and front != "adverb" else []
    later = parts.adverb.english if front != "adverb" and not often else []
    fronted = {"adverb": parts.adverb, "direct": parts.direct, "location": parts.location}.get(front)
    first = fronted.english if fronted is not None else []
    rest = _english_objects(clause, parts) + ([] if front == "location" else parts.location.english) + later
    if order == "infinitive":
        return [AlignedWord("to", (parts.infinitive_marker,)), AlignedWord(clause.verb.base, (parts.verb,)), *rest]
    subject = [] if order == "shared" else parts.subject.english
    not_ = [AlignedWord("not", (parts.negation,))] if clause.negated else []
    if inverts:
        opening = [*auxiliary, *subject, *not_]
    elif clause.negated and auxiliary[0].text == "can":  # written as one word, unless a question parts them
        opening = [*subject, AlignedWord("cannot", (parts.modal, parts.negation))]
    else:
        opening = [*subject, *auxiliary, *not_]
    return [*first, *opening, *often, *verbs, *parts.predicate.english, *rest]


def _english_objects(clause: Clause, parts: _ClauseParts) -> list[AlignedWord]:
    """Return receiver, object and particle: "switches on the lamp", but "switches it on"."""
    particle = _words_with_keys(clause.verb.particle, parts.verb)
    if clause.front == "direct":
        return [*parts.receiver.english, *particle, *_words_with_keys(clause.verb.preposition, parts.preposition)]
    if isinstance(clause.direct, Pronoun):
        return [*parts.receiver.english, *parts.direct.english, *particle]
    return [*parts.receiver.english, *particle, *parts.direct.english]


def _german_middle_field(clause: Clause, parts: _ClauseParts) -> list[AlignedWord]:
    """Order the German middle field: known phrases, time, location, new phrases."""
    direct, adverb, location = parts.direct.german, parts.adverb.german, parts.location.german
    front, verb = clause.front, clause.verb
    direct = [] if front == "direct" else direct
    adverb = [] if front == "adverb" else adverb
    location = [] if front == "location" else location
    pronoun = isinstance(clause.direct, Pronoun)
    new = isinstance(clause.direct, NounPhrase) and clause.direct.determiner not in _DEFINITE_DETERMINERS
    not_ = [AlignedWord("nicht", (parts.negation,))] if clause.negated and not parts.has_kein else []
    gern = [AlignedWord("gern", (parts.modal,))] if clause.modal is LIKE else []
    receiver = parts.receiver.german
    if verb.german_preposition:
        return [*adverb, *not_, *gern, *location, *direct, *parts.predicate.german]
    if new and clause.modal is LIKE:
        return [*adverb, *not_, *gern, *location, *direct]
    if pronoun or not_ or (verb.case == "dat" and not new):
        return [*receiver, *direct, *adverb, *not_, *gern, *location, *parts.predicate.german]
    if new and clause.location is not None and not clause.location.bound:
        return [*receiver, *adverb, *gern, *location, *direct]
    return [*receiver, *adverb, *gern, *direct, *location, *parts.predicate.german]


_DEFINITE_DETERMINERS = frozenset(("the", "this", "these", "my", "your", "his", "her", "our", "their"))


def _german_clause(clause: Clause, parts: _ClauseParts, order: ClauseOrder) -> list[AlignedWord]:
    """Order the German words of a clause: verb second, first or last."""
    finite, tail, prefix = _german_verbs(clause, parts.verb, parts.modal)
    middle = _german_middle_field(clause, parts)
    fronted = {"adverb": parts.adverb, "direct": parts.direct, "location": parts.location}.get(clause.front)
    first = fronted.german if fronted is not None else []
    subject = parts.subject.german
    if order == "infinitive":
        return [*middle, *_german_infinitive(clause.verb, parts)]
    if order == "subordinate":
        return [*first, *subject, *middle, *tail, AlignedWord(prefix + finite.text, finite.keys)]
    end = [*tail, *_words_with_keys(prefix, parts.verb)]
    if order == "shared":
        return [finite, *middle, *end]
    if first or order == "inverted" or (order == "question" and clause.subject is not WHO):
        return [*first, finite, *subject, *middle, *end]
    return [*subject, finite, *middle, *end]


def _german_infinitive(verb: Verb, parts: _ClauseParts) -> list[AlignedWord]:
    """Return the infinitive with "zu", inside a separable verb."""
    if verb.prefix:
        return [AlignedWord(f"{verb.prefix}zu{verb.infinitive}", (parts.infinitive_marker, parts.verb))]
    return [AlignedWord("zu", (parts.infinitive_marker,)), AlignedWord(verb.infinitive, (parts.verb,))]


def _render_clause(clause: Clause, order: ClauseOrder) -> _BilingualWords:
    """Render a clause in both languages."""
    parts = _render_parts(clause)
    return _BilingualWords(_english_clause(clause, parts, order), _german_clause(clause, parts, order))


# Sentences


def render_sentence(sentence: SentenceMeaning) -> _BilingualWords:
    """Render a sentence in both languages, without capitals."""
    both = _BilingualWords([], [])
    for number, joined in enumerate(sentence.clauses):
        conjunction, key = joined.conjunction, object()
        after_front = joined.order == "inverted"
        if number and (after_front or (conjunction is not None and conjunction.english_comma)):
            both.english.append(AlignedWord(",", (key,)))
        if number and (after_front or conjunction is None or conjunction.german_comma):
            both.german.append(AlignedWord(",", (key,)))
        if conjunction is not None:
            link = object()
            both.english.extend(_words_with_keys(conjunction.english, link))
            both.german.extend(_words_with_keys(conjunction.german, link))
        clause = _render_clause(joined.clause, joined.order)
        both.english.extend(clause.english)
        both.german.extend(clause.german)
    mark = AlignedWord(sentence.mark, (object(),))
    return _BilingualWords([*both.english, mark], _drop_double_commas([*both.german, mark]))


def _drop_double_commas(words: list[AlignedWord]) -> list[AlignedWord]:
    """Drop commas before another punctuation mark."""
    after = [*words[1:], AlignedWord("")]
    return [
        word for word, following in zip(words, after, strict=True) if word.text != "," or following.text not in ",.?"
    ]
