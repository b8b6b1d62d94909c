"""Sentence patterns of the phrasebook, from simple statements to nested clauses.

A pattern is a function from a random generator to a `Sentence`; `PATTERNS` lists them with how often each is drawn.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from random import Random

from dragoman.corpora import lexicon
from dragoman.corpora.lexicon import BE, Adjective, Verb, adjectives_for, nouns_of_kinds, verbs_with_mark
from dragoman.corpora.meanings import (
    WHAT,
    WHO,
    Clause,
    Conjunction,
    I,
    Location,
    NounPhrase,
    Predicate,
    Pronoun,
    RelativeClause,
    SentenceClause,
    SentenceMeaning,
    Tense,
    pronoun_for,
    relative_pronoun,
)
from dragoman.corpora.phrases import (
    BEINGS,
    PEOPLE,
    PERSONAL_PRONOUNS,
    POSSESSABLE_PEOPLE,
    POSSESSIVES,
    QUANTIFIERS,
    TENSES,
    UNNEGATABLE_DETERMINERS,
    anaphoric_pronoun,
    chance,
    draw_antecedent,
    draw_clause,
    draw_event,
    draw_modal,
    draw_negation,
    draw_person_antecedent,
    draw_phrase,
    draw_predication,
    draw_scene,
    draw_subject,
    draw_time,
    has_ambiguous_past,
    make_definite,
    pick,
    verbs_with_subject,
)

_SentencePattern = Callable[[Random], SentenceMeaning]

BUT = Conjunction("but", "aber", english_comma=True)
AND = Conjunction("and", "und", german_comma=False)
BECAUSE = Conjunction("because", "weil")
ALTHOUGH = Conjunction("although", "obwohl")
IF = Conjunction("if", "wenn")
WHILE = Conjunction("while", "während")
THAT = Conjunction("that", "dass")
WHETHER = Conjunction("whether", "ob")

_DESCRIBABLE_KINDS = lexicon.expand_kinds("goods print fruit pastry transit beings text opening")


def _statement(rng: Random) -> SentenceMeaning:
    """Draw "Today the woman is reading a book."."""
    clause = draw_event(rng)
    subject = clause.subject
    if (
        isinstance(subject, NounPhrase)
        and subject.determiner == "the"
        and subject.noun.kind in BEINGS
        and chance(rng, 0.4)
    ):
        often = clause.adverb is not None and clause.adverb.frequency  # "every man never" is no English
        determiner = pick(rng, QUANTIFIERS) if subject.plural else "a" if often else pick(rng, ("a", "a", "every"))
        clause = clause._replace(subject=subject._replace(determiner=determiner))
    return SentenceMeaning((SentenceClause(draw_negation(rng, clause)),))


def _description(rng: Random) -> SentenceMeaning:
    """Draw "The old lamp is too expensive."."""
    subject = make_definite(draw_phrase(rng, pick(rng, nouns_of_kinds(_DESCRIBABLE_KINDS)), adjective=0.25))
    clause = draw_predication(rng, subject, tense="past" if chance(rng, 0.25) else "present")
    clause = draw_negation(rng, _draw_degree(rng, clause))
    return (
        SentenceMeaning((SentenceClause(clause, "question"),), "?")
        if chance(rng, 0.2)
        else SentenceMeaning((SentenceClause(clause),))
    )


def _draw_degree(rng: Random, clause: Clause) -> Clause:
    """Add, with some probability, "very" or "too"."""
    predicate = clause.predicate
    if predicate is None or not predicate.adjective.english_comparative or not chance(rng, 0.4):
        return clause
    too = predicate.adjective.polarity <= 0 and chance(rng, 0.6)  # nothing is too beautiful
    return clause._replace(predicate=predicate._replace(degree="too" if too else "very"))


def _comparison(rng: Random) -> SentenceMeaning:
    """Draw "The car is as old as the house." or "The car is older than the house."."""
    kind = pick(rng, _COMPARED_KINDS)
    adjective = pick(rng, _comparable_adjectives(kind))
    nouns = nouns_of_kinds(frozenset((kind,)))
    first, second = (make_definite(draw_phrase(rng, pick(rng, nouns), plural=0.1, adjective=0)) for _ in range(2))
    if first.noun is second.noun and kind == "person" and first.noun.english not in POSSESSABLE_PEOPLE:
        return _comparison(rng)
    if first.noun is second.noun:
        first, second = first._replace(determiner="my"), second._replace(determiner="your", plural=first.plural)
    predicate = Predicate(adjective, "as" if chance(rng, 0.5) else "than", second)
    return SentenceMeaning((SentenceClause(draw_negation(rng, Clause(first, BE, predicate=predicate))),))


_COMPARED_KINDS = (
    "person",
    "relative",
    "animal",
    "device",
    "vehicle",
    "furniture",
    "garment",
    "container",
    "print",
    "text",
)


@cache
def _comparable_adjectives(kind: str) -> tuple[Adjective, ...]:
    """Return the adjectives of a kind that have a comparative."""
    return tuple(adjective for adjective in adjectives_for(kind) if adjective.english_comparative)


def contrast(rng: Random) -> SentenceMeaning:
    """Draw "The lamp is old, but it works." or "The apple is fresh and it is sweet."."""
    subject = draw_antecedent(rng, _CONTRASTED_KINDS)
    first = pick(rng, _evaluative_adjectives(subject.noun.kind))
    again = pronoun_for(subject)
    opening = Clause(subject, BE, predicate=Predicate(first))
    if subject.noun.kind == "device" and chance(rng, 0.5):
        works = Clause(again, _WORK, negated=first.polarity > 0)
        return SentenceMeaning((SentenceClause(opening), SentenceClause(works, conjunction=BUT)))
    others = tuple(other for other in _evaluative_adjectives(subject.noun.kind) if other.scale != first.scale)
    second = pick(rng, others)
    closing = Clause(again, BE, predicate=Predicate(second))
    contrary = first.polarity != second.polarity
    return SentenceMeaning(
        (SentenceClause(opening), SentenceClause(closing, conjunction=BUT if contrary else AND_FULL))
    )


AND_FULL = Conjunction("and", "und", english_comma=True, german_comma=False)
_WORK = next(verb for verb in lexicon.VERBS if "device" in verb.subjects and verb.base == "work")


@cache
def _evaluative_adjectives(kind: str) -> tuple[Adjective, ...]:
    """Return the adjectives of a kind that please or displease."""
    fitting = (adjective for adjective in adjectives_for(kind) if adjective.polarity)
    return tuple(adjective for adjective in fitting if adjective.scale != "age" or kind not in BEINGS)


_CONTRASTED_KINDS = frozenset(
    kind for kind in _DESCRIBABLE_KINDS if len({adjective.scale for adjective in _evaluative_adjectives(kind)}) > 1
)


def _question(rng: Random) -> SentenceMeaning:
    """Draw "Does the man often visit his aunt?"."""
    clause = draw_event(rng)
    if clause.subject is I and clause.modal is None:  # not a natural question
        return _question(rng)
    clause = _make_ongoing(clause._replace(front="subject"))
    third = clause.subject.person == 3 and not clause.subject.plural
    if clause.tense == "progressive" and not third and "rest" not in clause.verb.marks:
        clause = clause._replace(tense="present", modal=draw_modal(rng, clause.subject))
    return SentenceMeaning((SentenceClause(clause, "question"),), "?")


def _make_ongoing(clause: Clause) -> Clause:
    """Use the progressive or the past instead of the simple present, if no time is named."""
    if (
        clause.tense != "present"
        or clause.modal is not None
        or clause.adverb is not None
        or "state" in clause.verb.marks
    ):
        return clause
    return clause._replace(tense="progressive" if clause.verb.progressive else "past")


def _question_who(rng: Random) -> SentenceMeaning:
    """Draw "Who repaired the lamp?"."""
    clause = draw_event(rng, WHO)
    return SentenceMeaning((SentenceClause(_make_ongoing(clause._replace(front="subject")), "question"),), "?")


def _question_what(rng: Random) -> SentenceMeaning:
    """Draw "What is the man reading?", "Who does he help?" or "Which bus is he waiting for?"."""
    verb = pick(rng, _TRANSITIVE_VERBS)
    clause = draw_time(rng, draw_clause(rng, verb))
    if clause.subject is I:
        return _question_what(rng)
    if chance(rng, 0.5) or verb.german_preposition:
        direct: NounPhrase | Pronoun = _draw_which(rng, verb)
    else:
        direct = WHO if verb.case == "dat" or verb.objects <= BEINGS else WHAT
    clause = clause._replace(direct=direct, front="direct", adverb=None)
    return SentenceMeaning((SentenceClause(_make_ongoing(clause), "question"),), "?")


def _draw_which(rng: Random, verb: Verb) -> NounPhrase:
    """Draw the object of a question: which one, or how many."""
    phrase = draw_phrase(rng, pick(rng, nouns_of_kinds(verb.objects - {"relative"})), adjective=0.15)
    counted = phrase.plural and verb.case == "acc" and not verb.german_preposition
    return phrase._replace(determiner="how many" if counted else "which")


_TRANSITIVE_VERBS = tuple(verb for verb in lexicon.VERBS if verb.objects and verb.base not in ("belong", "bring"))


def _question_where(rng: Random) -> SentenceMeaning:
    """Draw "Where does the dog sleep?", "When will the train arrive?" or "Why is the man selling the car?"."""
    adverb = pick(rng, (lexicon.WHERE, lexicon.WHEN, lexicon.WHY))
    if adverb is lexicon.WHERE:
        clause = draw_clause(rng, pick(rng, verbs_with_mark("located")))._replace(location=None)
        clause = clause._replace(tense="past" if chance(rng, 0.4) and not has_ambiguous_past(clause) else "progressive")
    elif adverb is lexicon.WHEN:
        clause = draw_clause(rng, pick(rng, _EVENT_VERBS))
        past = chance(rng, 0.5) and not has_ambiguous_past(clause)
        clause = clause._replace(tense="past") if past else clause._replace(modal=lexicon.WILL)
    else:
        clause = draw_negation(rng, _make_ongoing(draw_time(rng, draw_clause(rng, pick(rng, lexicon.VERBS)))))
    if clause.subject is I:
        return _question_where(rng)
    return SentenceMeaning((SentenceClause(clause._replace(adverb=adverb, front="adverb"), "question"),), "?")


_EVENT_VERBS = tuple(verb for verb in lexicon.VERBS if "state" not in verb.marks)


@cache
def _verbs_by_name(text: str) -> tuple[Verb, ...]:
    """Return the verbs of these names, in order; a particle is joined to its verb with a plus sign."""
    known = {f"{verb.base}+{verb.particle}".rstrip("+"): verb for verb in reversed(lexicon.VERBS)}
    return tuple(known[name] for name in text.split())


# The scales on which a thing must please, or displease, to be a reason for doing something with it.
_CHOOSING = {
    "buy": "price looks age use speed comfort interest weight taste ripeness",
    "read": "interest length mood",
    "eat": "taste ripeness",
    "wear": "looks heat comfort age",
}
_DISCARDING = {
    "sell": "age looks noise speed interest comfort weight",
    "throw+away": "age looks use interest taste",
    "repair": "use",
    "wash": "dirt",
}
_MOTIVES = {name: frozenset(scales.split()) for name, scales in (_CHOOSING | _DISCARDING).items()}


def _draw_motive(rng: Random, name: str, pleases: int, *, plural: float) -> tuple[Verb, NounPhrase, Adjective]:
    """Draw a verb, a thing, and a quality of the thing that is a reason for or against the action."""
    verb = _verbs_by_name(name)[0]
    thing = draw_antecedent(rng, _motivating_kinds(verb, name, pleases), plural=plural)
    qualities = tuple(
        adjective
        for adjective in _evaluative_adjectives(thing.noun.kind)
        if adjective.polarity == pleases and adjective.scale in _MOTIVES[name]
    )
    if thing.determiner in POSSESSIVES and name == "buy":
        thing = thing._replace(determiner="the")
    return verb, thing, pick(rng, qualities)


@cache
def _motivating_kinds(verb: Verb, name: str, pleases: int) -> frozenset[str]:
    """Return the kinds of things with a quality that is a reason for or against an action."""
    scales = _MOTIVES[name]
    return frozenset(
        kind
        for kind in verb.objects - BEINGS
        if any(
            adjective.polarity == pleases and adjective.scale in scales for adjective in _evaluative_adjectives(kind)
        )
    )


def reason(rng: Random) -> SentenceMeaning:
    """Draw "The man is buying the lamp because it is cheap."."""
    person, negated = draw_person_antecedent(rng), chance(rng, 0.3)
    chooses = negated or chance(rng, 0.6)
    name = pick(rng, tuple(_CHOOSING) if chooses else tuple(_DISCARDING))
    because = chance(rng, 0.7) or name in ("repair", "wash")
    pleases = 1 if (chooses != negated) == because else -1
    verb, thing, quality = _draw_motive(rng, name, pleases, plural=0.25)
    main = Clause(person, verb, thing, tense=pick(rng, TENSES), negated=negated)
    if has_ambiguous_past(main):
        main = main._replace(tense="progressive")
    tense: Tense = "past" if main.tense == "past" else "present"
    back = Clause(pronoun_for(thing), BE, predicate=Predicate(quality), tense=tense)
    return SentenceMeaning(
        (SentenceClause(main), SentenceClause(back, "subordinate", BECAUSE if because else ALTHOUGH))
    )


# Verbs, states, and whether the state is a reason for the action or an obstacle to it.
_MOODS = (
    ("eat cook bake", "hungry", True),
    ("drink", "thirsty", True),
    ("sleep fall+asleep", "tired", True),
    ("sleep", "ill", True),
    ("cry", "sad angry", True),
    ("sing dance", "happy", True),
    ("work get+up swim sing dance read help cook visit travel", "tired", False),
    ("work get+up travel swim cook sing visit", "ill", False),
    ("sing dance", "sad angry", False),
    ("answer thank help greet", "angry nervous", False),
    ("eat drink sleep", "nervous", False),
)


_STATES = {adjective.english: adjective for adjective in lexicon.ADJECTIVES if adjective.scale == "state"}


def _draw_mood(rng: Random) -> tuple[Verb, Adjective, bool]:
    """Draw a verb, a state, and whether the state is a reason for doing it."""
    verbs, states, fits = pick(rng, _MOODS)
    return pick(rng, _verbs_by_name(verbs)), _STATES[pick(rng, tuple(states.split()))], fits


def mood(rng: Random) -> SentenceMeaning:
    """Draw "The boy is not working because he is tired." or "Although the boy is ill, he is singing."."""
    verb, state, fits = _draw_mood(rng)
    person = draw_person_antecedent(rng)
    negated = chance(rng, 0.5) and not fits
    tense = pick(rng, TENSES)
    main = draw_clause(rng, verb, person)._replace(tense=tense, location=None)
    if has_ambiguous_past(main):
        main = main._replace(tense="progressive")
    main = main._replace(direct=_simplify_object(main.direct), negated=negated)
    feeling = Clause(person, BE, predicate=Predicate(state), tense="past" if main.tense == "past" else "present")
    conjunction = BECAUSE if fits or negated else ALTHOUGH
    again = anaphoric_pronoun(person)
    if chance(rng, 0.5) or isinstance(main.direct, Pronoun):
        return SentenceMeaning(
            (SentenceClause(main), SentenceClause(feeling._replace(subject=again), "subordinate", conjunction))
        )
    main = main._replace(subject=again)
    return SentenceMeaning((SentenceClause(feeling, "subordinate", conjunction), SentenceClause(main, "inverted")))


def _simplify_object(phrase: NounPhrase | Pronoun | None) -> NounPhrase | Pronoun | None:
    """Return a short object that can be negated."""
    if not isinstance(phrase, NounPhrase):
        return phrase
    phrase = phrase._replace(adjective=None)
    if phrase.determiner in UNNEGATABLE_DETERMINERS:
        return phrase._replace(determiner="these")
    return make_definite(phrase) if phrase.noun.kind in PEOPLE else phrase


def _condition(rng: Random) -> SentenceMeaning:
    """Draw "If the lamp is broken, we must repair it."."""
    chooses = chance(rng, 0.5)
    name = pick(rng, tuple(_CHOOSING) if chooses else tuple(_DISCARDING))
    verb, thing, quality = _draw_motive(rng, name, 1 if chooses else -1, plural=0.15)
    modals = (lexicon.CAN, lexicon.SHOULD, lexicon.WILL, lexicon.WANT, lexicon.MUST)
    main = Clause(pick(rng, PERSONAL_PRONOUNS), verb, thing, modal=pick(rng, modals))
    premise = Clause(thing, BE, predicate=Predicate(quality))
    again = pronoun_for(thing)
    if chance(rng, 0.6):
        main = main._replace(direct=again)
        return SentenceMeaning((SentenceClause(premise, "subordinate", IF), SentenceClause(main, "inverted")))
    return SentenceMeaning((SentenceClause(main), SentenceClause(premise._replace(subject=again), "subordinate", IF)))


def _meanwhile(rng: Random) -> SentenceMeaning:
    """Draw "The man is cooking the soup while his sister is sleeping."."""
    first, second = draw_person_antecedent(rng), draw_antecedent(rng, PEOPLE)
    verbs = rng.sample(_ACTIVITIES, 2)
    clauses = (
        draw_clause(rng, verb, subject)._replace(location=None)
        for verb, subject in zip(verbs, (first, second), strict=True)
    )
    main, side = (clause._replace(tense="progressive", direct=_simplify_object(clause.direct)) for clause in clauses)
    return SentenceMeaning((SentenceClause(main), SentenceClause(side, "subordinate", WHILE)))


_ACTIVITIES = _verbs_by_name("read write eat cook bake sleep work dance sing clean wash wait feed")


def _reported_speech(rng: Random) -> SentenceMeaning:
    """Draw "The man says that …" or "I do not know whether …"."""
    person = draw_person_antecedent(rng)
    event = chance(rng, 0.8)
    content = (
        draw_event(rng)._replace(front="subject")
        if event
        else draw_predication(rng, draw_antecedent(rng, _DESCRIBABLE_KINDS))
    )
    if chance(rng, 0.3):
        asks = chance(rng, 0.5)
        matrix = Clause(person, lexicon.ASK if asks else lexicon.KNOW, negated=not asks)
        return SentenceMeaning((SentenceClause(matrix), SentenceClause(content, "subordinate", WHETHER)))
    verbs = (lexicon.SAY, lexicon.BELIEVE, lexicon.KNOW)
    hoped = event and content.modal in (None, lexicon.CAN, lexicon.WILL)  # "hope that someone should" is not idiomatic
    verb = pick(rng, (*verbs, lexicon.HOPE) if hoped else verbs)
    matrix = Clause(person, verb, negated=verb is lexicon.BELIEVE and chance(rng, 0.4))
    return SentenceMeaning((SentenceClause(matrix), SentenceClause(content, "subordinate", THAT)))


def _draw_relative_clause(rng: Random, phrase: NounPhrase) -> NounPhrase:
    """Draw a clause about a phrase: who does something, to whom it is done, where it is done."""
    pronoun, kind = relative_pronoun(phrase), phrase.noun.kind
    draw = rng.random()
    if kind == "seat" and draw < 0.6:
        sitter = draw_clause(rng, pick(rng, verbs_with_mark("sit")))
        clause = sitter._replace(location=Location("on", "auf", "dat", pronoun), front="location")
    elif draw < 0.5 and verbs_with_subject(kind):
        clause = draw_clause(rng, pick(rng, verbs_with_subject(kind)), pronoun)
    else:
        clause = draw_clause(rng, pick(rng, _verbs_with_object(kind)))._replace(direct=pronoun, front="direct")
    if "state" not in clause.verb.marks:
        tense = pick(rng, TENSES) if clause.verb.progressive else "past"
        clause = clause._replace(tense="progressive" if has_ambiguous_past(clause) else tense)
    return phrase._replace(relative=RelativeClause(clause))


@cache
def _verbs_with_object(kind: str) -> tuple[Verb, ...]:
    """Return the verbs whose object may be of this kind."""
    return tuple(verb for verb in lexicon.VERBS if kind in verb.objects and "give" not in verb.marks)


def relative_subject(rng: Random) -> SentenceMeaning:
    """Draw "The man who is repairing the lamp is tired."."""
    phrase = draw_antecedent(rng, _RELATIVE_SUBJECT_KINDS)._replace(determiner="the")
    clause = draw_predication(rng, phrase)
    return SentenceMeaning((SentenceClause(clause._replace(subject=_draw_relative_clause(rng, phrase))),))


def relative_object(rng: Random) -> SentenceMeaning:
    """Draw "I know the man who is repairing the lamp."."""
    verb = pick(rng, _VERBS_BEFORE_RELATIVE)
    phrase = draw_phrase(rng, pick(rng, nouns_of_kinds(verb.objects - {"relative"})), plural=0.2, adjective=0)
    phrase = _draw_relative_clause(rng, phrase._replace(determiner="the"))
    if phrase.relative is not None and phrase.relative.clause.verb is verb:  # "the house that he knows" is known
        return relative_object(rng)
    clause = Clause(draw_subject(rng, verb.subjects, pronouns=0.5), verb, phrase)
    if verb.progressive and chance(rng, 0.5):
        clause = clause._replace(tense="progressive")
    return SentenceMeaning((SentenceClause(clause),))


_RELATIVE_SUBJECT_KINDS = lexicon.expand_kinds("person animal goods print fruit text")
# Verbs that leave nothing after their object in either language, so that a relative clause can follow it.
_VERBS_BEFORE_RELATIVE = _verbs_by_name(
    "see know look like need visit help love buy wash repair feed believe thank read sell watch"
)


def _attempt(rng: Random) -> SentenceMeaning:
    """Draw "The man tries to open the window."."""
    tries = chance(rng, 0.5)
    verb = pick(rng, _TRIED_VERBS if tries else _FORGOTTEN_VERBS)
    person = draw_person_antecedent(rng)
    task = draw_clause(rng, verb, person)
    matrix = Clause(person, lexicon.TRY if tries else lexicon.FORGET, tense="past" if chance(rng, 0.5) else "present")
    return SentenceMeaning((SentenceClause(matrix), SentenceClause(task, "infinitive")))


_TRIED_VERBS = _verbs_by_name("repair open close switch+on turn+off find sell understand help wake+up call")
_FORGOTTEN_VERBS = _verbs_by_name(
    "open close switch+on turn+off wash clean feed invite call thank answer pick+up buy bring+along tidy+up"
)


def _liking(rng: Random) -> SentenceMeaning:
    """Draw "The woman likes to drink tea."."""
    verb = pick(rng, verbs_with_mark("liked"))
    subject = draw_person_antecedent(rng)
    clause = Clause(subject, verb, modal=lexicon.LIKE, negated=chance(rng, 0.2))
    if verb.objects:
        noun = pick(rng, nouns_of_kinds(verb.objects))
        phrase = draw_phrase(rng, noun, plural=1, adjective=0.25)
        clause = clause._replace(direct=phrase if noun.kind == "relative" else phrase._replace(determiner=""))
    elif "located" in verb.marks and not clause.negated and chance(rng, 0.4):
        clause = clause._replace(location=draw_scene(rng, subject))
    if subject is not I and chance(rng, 0.15):
        return SentenceMeaning((SentenceClause(clause, "question"),), "?")
    return SentenceMeaning((SentenceClause(clause),))


def sequence(rng: Random) -> SentenceMeaning:
    """Draw "The man finds the lamp and repairs it."."""
    first, second = (pick(rng, _verbs_by_name(names)) for names in pick(rng, _SEQUENCES))
    shared = first.objects & second.objects
    thing = draw_antecedent(rng, shared, plural=0.15, adjective=0.15)
    subject = draw_person_antecedent(rng)
    later = Clause(subject, second, pronoun_for(thing))
    return SentenceMeaning((SentenceClause(Clause(subject, first, thing)), SentenceClause(later, "shared", AND)))


_SEQUENCES = (
    ("find buy", "repair sell throw+away wash carry wear read"),
    ("repair wash", "sell"),
    ("cook bake buy", "eat"),
    ("steal", "sell"),
    ("write", "read"),
    ("meet see visit hear", "greet invite thank help ask"),
    ("wash", "put+on wear"),
)


def possession(rng: Random) -> SentenceMeaning:
    """Draw "The woman has a coat, but she never wears it."."""
    verb = pick(rng, _verbs_by_name("wear read wash feed"))
    person = draw_person_antecedent(rng)
    noun = pick(rng, nouns_of_kinds(verb.objects & _OWNED_KINDS))
    thing = draw_phrase(rng, noun, plural=0, adjective=0.35)._replace(determiner="a")
    adverb = pick(rng, lexicon.FREQUENCIES[1:])
    use = Clause(anaphoric_pronoun(person), verb, pronoun_for(thing), adverb=adverb)
    rare = adverb.pieces[0][0] in ("never", "rarely")
    return SentenceMeaning(
        (SentenceClause(Clause(person, _HAVE, thing)), SentenceClause(use, conjunction=BUT if rare else AND_FULL))
    )


_HAVE = _verbs_by_name("have")[0]
_OWNED_KINDS = lexicon.expand_kinds("goods print animal") - {"footwear"}  # which comes in pairs

PATTERNS: tuple[tuple[_SentencePattern, int], ...] = (
    (_statement, 30),
    (_description, 6),
    (_comparison, 4),
    (contrast, 6),
    (_question, 9),
    (_question_who, 3),
    (_question_what, 5),
    (_question_where, 5),
    (reason, 6),
    (mood, 5),
    (_condition, 4),
    (_meanwhile, 2),
    (_reported_speech, 6),
    (relative_subject, 4),
    (relative_object, 4),
    (_attempt, 4),
    (_liking, 4),
    (sequence, 4),
    (possession, 3),
)
_WEIGHTED_PATTERNS = tuple(pattern for pattern, weight in PATTERNS for _ in range(weight))


def draw_sentence(rng: Random) -> SentenceMeaning:
    """Draw a sentence of any pattern."""
    return pick(rng, _WEIGHTED_PATTERNS)(rng)
