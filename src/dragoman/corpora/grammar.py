"""The grammar of the phrasebook: turns one meaning into an English and a German sentence whose words are linked.

Both languages are made from the values of `meanings` side by side. Every piece of meaning gets a key, every word
carries the keys of what it expresses, and two words are linked when they share one: the alignment is made, not
guessed. So "did not buy a" and "hat kein … gekauft" need no rule of their own: "kein" carries the keys of "not" and
of "a".

The English simple past becomes the German perfect ("bought", "hat gekauft"), but "was" and "had" become "war" and
"hatte", as people speak. The progressive and the simple present both become the German present. "You" is "du".
"""

from __future__ import annotations

from typing import NamedTuple

from dragoman.corpora.lexicon import BE, LIKE, Adverb, Noun, Verb
from dragoman.corpora.meanings import WHO, Case, Clause, Order, Phrase, Predicate, Pronoun, Sentence


class Mention(NamedTuple):
    """What a noun, or a pronoun that takes it up again, speaks of."""

    noun: Noun
    plural: bool
    again: bool = False  # by a pronoun


class Word(NamedTuple):
    """A word of a sentence, with the keys of the meanings that it expresses."""

    text: str
    keys: tuple[object, ...] = ()
    mention: Mention | None = None  # of an English noun, at its last word, and of an English pronoun


class Both(NamedTuple):
    """A piece of a sentence in English and in German."""

    english: list[Word]
    german: list[Word]


# Endings by case and then by gender, "p" for the plural.
STRONG = {
    "nom": {"m": "er", "f": "e", "n": "es", "p": "e"},
    "acc": {"m": "en", "f": "e", "n": "es", "p": "e"},
    "dat": {"m": "em", "f": "er", "n": "em", "p": "en"},
}
MIXED = {
    "nom": {"m": "er", "f": "e", "n": "es", "p": "en"},
    "acc": {"m": "en", "f": "e", "n": "es", "p": "en"},
    "dat": {"m": "en", "f": "en", "n": "en", "p": "en"},
}
WEAK = {
    "nom": {"m": "e", "f": "e", "n": "e", "p": "en"},
    "acc": {"m": "en", "f": "e", "n": "e", "p": "en"},
    "dat": {"m": "en", "f": "en", "n": "en", "p": "en"},
}
EIN = {
    "nom": {"m": "", "f": "e", "n": "", "p": "e"},
    "acc": {"m": "en", "f": "e", "n": "", "p": "e"},
    "dat": {"m": "em", "f": "er", "n": "em", "p": "en"},
}
DEFINITE = {
    "nom": {"m": "der", "f": "die", "n": "das", "p": "die"},
    "acc": {"m": "den", "f": "die", "n": "das", "p": "die"},
    "dat": {"m": "dem", "f": "der", "n": "dem", "p": "den"},
}

# A determiner of each language, the endings it takes itself and those of the adjective after it.
EIN_WORDS = {"my": "mein", "your": "dein", "his": "sein", "her": "ihr", "our": "unser", "their": "ihr", "a": "ein"}
DER_WORDS = {"this": "dies", "these": "dies", "every": "jed", "which": "welch"}
COUNTING_WORDS = {"many": "viel", "some": "einig"}
NUMBERS = {"two": "zwei", "three": "drei", "four": "vier", "five": "fünf", "how many": "wie viele"}

CONTRACTIONS = {
    "in dem": "im",
    "in das": "ins",
    "an dem": "am",
    "zu dem": "zum",
    "zu der": "zur",
    "von dem": "vom",
}

GERMAN_BE = ("bin", "bist", "ist", "sind")
GERMAN_HAVE = ("habe", "hast", "hat", "haben")
PRETERITES = {"be": ("war", "warst", "war", "waren"), "have": ("hatte", "hattest", "hatte", "hatten")}


def spread(text: str, *keys: object) -> list[Word]:
    """Return the words of a text, each with the same keys."""
    return [Word(word, keys) for word in text.split()]


# Noun phrases


def german_determiner(
    determiner: str, case: Case, gender: str, *, negated: bool
) -> tuple[str, dict[str, dict[str, str]]]:
    """Return the German determiner and the endings that an adjective takes after it."""
    if negated:
        return "kein" + EIN[case][gender], MIXED
    if determiner == "the":
        return DEFINITE[case][gender], WEAK
    if determiner in EIN_WORDS:
        return EIN_WORDS[determiner] + EIN[case][gender], MIXED
    if determiner in DER_WORDS:
        return DER_WORDS[determiner] + STRONG[case][gender], WEAK
    if determiner in COUNTING_WORDS:
        return COUNTING_WORDS[determiner] + STRONG[case][gender], STRONG
    return NUMBERS.get(determiner, ""), STRONG


def german_noun(noun: Noun, case: Case, *, plural: bool) -> str:
    """Return the form of a German noun."""
    if not plural:
        return noun.german if case == "nom" else noun.oblique
    return noun.german_plural + ("n" if case == "dat" and noun.german_plural[-1] not in "ns" else "")


def noun_phrase(phrase: Phrase | Pronoun, case: Case, negation: object = None) -> Both:
    """Render a phrase; a negation given here is expressed by "kein"."""
    if isinstance(phrase, Pronoun):
        key = object()
        form = phrase.english if case == "nom" else phrase.english_object
        again = None if phrase.noun is None else Mention(phrase.noun, phrase.plural, again=True)
        return Both([Word(form, (key,), again)], [Word(getattr(phrase, case), (key,))])
    noun, adjective, plural = phrase.noun, phrase.adjective, phrase.plural
    gender = "p" if plural else noun.gender
    which, what = object(), object()
    determiner, endings = german_determiner(phrase.determiner, case, gender, negated=negation is not None)
    english = spread(phrase.determiner, which)
    german = spread(determiner, *((which,) if negation is None else (which, negation)))
    if adjective is not None:
        how = object()
        english.append(Word(adjective.english, (how,)))
        german.append(Word(adjective.stem + endings[case][gender], (how,)))
    english += spread(noun.english_plural if plural else noun.english, what)
    english[-1] = english[-1]._replace(mention=Mention(noun, plural))
    german.append(Word(german_noun(noun, case, plural=plural), (what,)))
    if phrase.determiner == "a" and english[1].text[0] in "aeiou":
        english[0] = Word("an", (which,))
    if phrase.relative is not None:
        inner = render_clause(phrase.relative.clause, "subordinate")
        english += inner.english
        german += [Word(","), *inner.german, Word(",")]
    return Both(english, german)


def contracted(preposition: Word, rest: list[Word], *, definite: bool) -> list[Word]:
    """Join a German preposition and the article after it, where people do: "im", "zur"."""
    short = CONTRACTIONS.get(f"{preposition.text} {rest[0].text}") if definite else None
    if short is None:
        return [preposition, *rest]
    return [Word(short, preposition.keys + rest[0].keys), *rest[1:]]


def prepositional(english: str, german: str, phrase: Phrase | Pronoun, case: Case, key: object) -> Both:
    """Render a phrase after a preposition, which is expressed under the given key."""
    inner = noun_phrase(phrase, case)
    definite = isinstance(phrase, Phrase) and phrase.determiner == "the"
    words = inner.english
    if english and words[0].text == "that":  # the relative pronoun after a preposition: "on which"
        words = [words[0]._replace(text="which")]
    return Both(spread(english, key) + words, contracted(Word(german, (key,)), inner.german, definite=definite))


# Verbs


def form_index(subject: Phrase | Pronoun) -> int:
    """Return which verb form a subject takes: ich 0, du 1, er 2, and 3 for every plural."""
    return 3 if subject.plural else subject.person - 1


def english_present(base: str, third: str, index: int) -> str:
    """Return the present form of an English verb."""
    if base == "be":
        return ("am", "are", "is", "are")[index]
    return third if index == 2 else base


def english_past(verb: Verb, index: int) -> str:
    """Return the past form of an English verb."""
    return ("was", "were", "was", "were")[index] if verb.base == "be" else verb.past


def english_verbs(clause: Clause, key: object, modal_key: object, *, supported: bool) -> tuple[list[Word], list[Word]]:
    """Return the auxiliary, which "not" and questions need and so get one if supported, and the other verbs."""
    verb, modal, index = clause.verb, clause.modal, form_index(clause.subject)
    if modal is not None:
        rest = spread(modal.rest, modal_key) + spread(verb.base, key)
        if modal.rest == "to":  # want to, like to: verbs like any other
            if supported:
                return spread("does" if index == 2 else "do", modal_key), spread(modal.base, modal_key) + rest
            return [], spread(english_present(modal.base, modal.third, index), modal_key) + rest
        return spread(english_present(modal.base, modal.third, index), modal_key), rest
    if verb is BE:
        return spread(
            english_past(BE, index) if clause.tense == "past" else english_present("be", "is", index), key
        ), []
    if clause.tense == "progressive":
        return spread(english_present("be", "is", index), key), spread(verb.progressive, key)
    if supported:
        support = "did" if clause.tense == "past" else "does" if index == 2 else "do"
        return spread(support, key), spread(verb.base, key)
    return [], spread(verb.past if clause.tense == "past" else english_present(verb.base, verb.third, index), key)


def german_verbs(clause: Clause, key: object, modal_key: object) -> tuple[Word, list[Word], str]:
    """Return the finite verb, the words at the end of the clause, and the prefix that the finite verb has lost."""
    verb, modal, index = clause.verb, clause.modal, form_index(clause.subject)
    if modal is not None and modal is not LIKE:
        return Word(modal.german[index], (modal_key,)), [Word(verb.prefix + verb.infinitive, (key,))], ""
    if clause.tense == "past" and verb.base in PRETERITES:
        return Word(PRETERITES[verb.base][index], (key,)), [], ""
    if clause.tense == "past":
        auxiliary = GERMAN_BE if verb.auxiliary == "sein" else GERMAN_HAVE
        return Word(auxiliary[index], (key,)), [Word(verb.participle, (key,))], ""
    present = GERMAN_BE if verb is BE else (verb.ich, verb.du, verb.er, verb.infinitive)
    return Word(present[index], (key,)), [], verb.prefix


# Clauses


class Parts(NamedTuple):
    """A clause's phrases in both languages, before either language orders them; absent ones are empty."""

    subject: Both
    direct: Both
    receiver: Both
    place: Both
    adverb: Both
    predicate: Both
    verb: object  # keys
    preposition: object
    modal: object
    negation: object
    end: object  # of the infinitive's "to"
    kein: bool  # whether the object expresses the negation


def says_kein(clause: Clause) -> bool:
    """Tell whether the negation of a clause goes into its object: not a, not any."""
    return (
        clause.negated
        and isinstance(clause.direct, Phrase)
        and clause.direct.determiner in ("a", "")
        and not clause.verb.german_preposition
        and clause.modal is not LIKE
    )


def render_adverb(adverb: Adverb | None) -> Both:
    """Render a fixed expression."""
    both = Both([], [])
    for english, german in adverb.pieces if adverb is not None else ():
        key = object()
        both.english.extend(spread(english, key))
        both.german.extend(spread(german, key))
    return both


def render_predicate(predicate: Predicate | None) -> Both:
    """Render what is said with "be"."""
    if predicate is None:
        return Both([], [])
    how, degree, adjective = object(), object(), predicate.adjective
    plain = Both(spread(adjective.english, how), spread(adjective.german, how))
    if predicate.degree in ("very", "too"):
        german = {"very": "sehr", "too": "zu"}[predicate.degree]
        return Both([Word(predicate.degree, (degree,)), *plain.english], [Word(german, (degree,)), *plain.german])
    if predicate.other is None:
        return plain
    other, joint = noun_phrase(predicate.other, "nom"), object()
    if predicate.degree == "as":
        english = [Word("as", (degree,)), *plain.english, Word("as", (joint,)), *other.english]
        return Both(english, [Word("so", (degree,)), *plain.german, Word("wie", (joint,)), *other.german])
    english = [*spread(adjective.english_comparative, how), Word("than", (joint,)), *other.english]
    return Both(english, [*spread(adjective.german_comparative, how), Word("als", (joint,)), *other.german])


def render_direct(clause: Clause, key: object, negation: object) -> Both:
    """Render the object with the prepositions that either language wants before it, expressed under the given key."""
    verb, direct = clause.verb, clause.direct
    if direct is None:
        return Both([], [])
    # English leaves the preposition behind when the object moves to the front: "What is she looking for?"
    english = "" if clause.front == "direct" else verb.preposition
    if verb.german_preposition:
        return prepositional(english, verb.german_preposition, direct, case_of(verb), key)
    inner = noun_phrase(direct, case_of(verb), negation if says_kein(clause) else None)
    return Both(spread(english, key) + inner.english, inner.german)


def case_of(verb: Verb) -> Case:
    """Return the case of a verb's object."""
    return "dat" if verb.case == "dat" else "acc"


def parts_of(clause: Clause) -> Parts:
    """Render the phrases of a clause."""
    verb, negation, place = object(), object(), clause.place
    preposition = object() if clause.verb.german_preposition else verb  # "looks for" is one word, "sucht"
    return Parts(
        subject=noun_phrase(clause.subject, "nom"),
        direct=render_direct(clause, preposition, negation),
        receiver=Both([], []) if clause.receiver is None else noun_phrase(clause.receiver, "dat"),
        place=Both([], [])
        if place is None
        else prepositional(place.english, place.german, place.phrase, place.case, object()),
        adverb=render_adverb(clause.adverb),
        predicate=render_predicate(clause.predicate),
        verb=verb,
        preposition=preposition,
        modal=object(),
        negation=negation,
        end=object(),
        kein=says_kein(clause),
    )


def english_clause(clause: Clause, parts: Parts, order: Order) -> list[Word]:
    """Put the English words of a clause in order."""
    front = clause.front
    inverts = order == "question" and clause.subject is not WHO
    auxiliary, verbs = english_verbs(clause, parts.verb, parts.modal, supported=clause.negated or inverts)
    often = parts.adverb.english if clause.adverb is not None and clause.adverb.frequency and front != "adverb" else []
    later = parts.adverb.english if front != "adverb" and not often else []
    fronted = {"adverb": parts.adverb, "direct": parts.direct, "place": parts.place}.get(front)
    first = fronted.english if fronted is not None else []
    rest = english_objects(clause, parts) + ([] if front == "place" else parts.place.english) + later
    if order == "infinitive":
        return [Word("to", (parts.end,)), Word(clause.verb.base, (parts.verb,)), *rest]
    subject = [] if order == "shared" else parts.subject.english
    not_ = [Word("not", (parts.negation,))] if clause.negated else []
    if inverts:
        opening = [*auxiliary, *subject, *not_]
    elif clause.negated and auxiliary[0].text == "can":  # written as one word, unless a question parts them
        opening = [*subject, Word("cannot", (parts.modal, parts.negation))]
    else:
        opening = [*subject, *auxiliary, *not_]
    return [*first, *opening, *often, *verbs, *parts.predicate.english, *rest]


def english_objects(clause: Clause, parts: Parts) -> list[Word]:
    """Return receiver, object and particle: "switches on the lamp", but "switches it on"."""
    particle = spread(clause.verb.particle, parts.verb)
    if clause.front == "direct":
        return [*parts.receiver.english, *particle, *spread(clause.verb.preposition, parts.preposition)]
    if isinstance(clause.direct, Pronoun):
        return [*parts.receiver.english, *parts.direct.english, *particle]
    return [*parts.receiver.english, *particle, *parts.direct.english]


def german_middle(clause: Clause, parts: Parts) -> list[Word]:
    """Put in order what stands between the German verbs: what is known first, then when, where, and what is new."""
    direct, adverb, place = parts.direct.german, parts.adverb.german, parts.place.german
    front, verb = clause.front, clause.verb
    direct = [] if front == "direct" else direct
    adverb = [] if front == "adverb" else adverb
    place = [] if front == "place" else place
    pronoun = isinstance(clause.direct, Pronoun)
    new = isinstance(clause.direct, Phrase) and clause.direct.determiner not in KNOWN_DETERMINERS
    not_ = [Word("nicht", (parts.negation,))] if clause.negated and not parts.kein else []
    gern = [Word("gern", (parts.modal,))] if clause.modal is LIKE else []
    receiver = parts.receiver.german
    if verb.german_preposition:
        return [*adverb, *not_, *gern, *place, *direct, *parts.predicate.german]
    if new and clause.modal is LIKE:
        return [*adverb, *not_, *gern, *place, *direct]
    if pronoun or not_ or (verb.case == "dat" and not new):
        return [*receiver, *direct, *adverb, *not_, *gern, *place, *parts.predicate.german]
    if new and clause.place is not None and not clause.place.bound:
        return [*receiver, *adverb, *gern, *place, *direct]
    return [*receiver, *adverb, *gern, *direct, *place, *parts.predicate.german]


KNOWN_DETERMINERS = frozenset(("the", "this", "these", "my", "your", "his", "her", "our", "their"))


def german_clause(clause: Clause, parts: Parts, order: Order) -> list[Word]:
    """Put the German words of a clause in order: the verb second, first, or last."""
    finite, tail, prefix = german_verbs(clause, parts.verb, parts.modal)
    middle = german_middle(clause, parts)
    fronted = {"adverb": parts.adverb, "direct": parts.direct, "place": parts.place}.get(clause.front)
    first = fronted.german if fronted is not None else []
    subject = parts.subject.german
    if order == "infinitive":
        return [*middle, *german_infinitive(clause.verb, parts)]
    if order == "subordinate":
        return [*first, *subject, *middle, *tail, Word(prefix + finite.text, finite.keys)]
    end = [*tail, *spread(prefix, parts.verb)]
    if order == "shared":
        return [finite, *middle, *end]
    if first or order == "inverted" or (order == "question" and clause.subject is not WHO):
        return [*first, finite, *subject, *middle, *end]
    return [*subject, finite, *middle, *end]


def german_infinitive(verb: Verb, parts: Parts) -> list[Word]:
    """Return the infinitive with "zu", which goes inside a separable verb."""
    if verb.prefix:
        return [Word(f"{verb.prefix}zu{verb.infinitive}", (parts.end, parts.verb))]
    return [Word("zu", (parts.end,)), Word(verb.infinitive, (parts.verb,))]


def render_clause(clause: Clause, order: Order) -> Both:
    """Render a clause in both languages."""
    parts = parts_of(clause)
    return Both(english_clause(clause, parts, order), german_clause(clause, parts, order))


# Sentences


def render(sentence: Sentence) -> Both:
    """Render a sentence in both languages, without capitals."""
    both = Both([], [])
    for number, joined in enumerate(sentence.clauses):
        conjunction, key = joined.conjunction, object()
        after_front = joined.order == "inverted"
        if number and (after_front or (conjunction is not None and conjunction.english_comma)):
            both.english.append(Word(",", (key,)))
        if number and (after_front or conjunction is None or conjunction.german_comma):
            both.german.append(Word(",", (key,)))
        if conjunction is not None:
            link = object()
            both.english.extend(spread(conjunction.english, link))
            both.german.extend(spread(conjunction.german, link))
        clause = render_clause(joined.clause, joined.order)
        both.english.extend(clause.english)
        both.german.extend(clause.german)
    mark = Word(sentence.mark, (object(),))
    return Both([*both.english, mark], without_double_commas([*both.german, mark]))


def without_double_commas(line: list[Word]) -> list[Word]:
    """Drop a comma that stands before another mark."""
    after = [*line[1:], Word("")]
    return [
        word for word, following in zip(line, after, strict=True) if word.text != "," or following.text not in ",.?"
    ]
