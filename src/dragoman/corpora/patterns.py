"""The patterns of the phrasebook: what a sentence says, from a plain statement to clauses within clauses.

A pattern is a function from a random generator to a `Sentence`; `PATTERNS` lists them with how often each is drawn.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from random import Random

from dragoman.corpora import lexicon
from dragoman.corpora.drawing import (
    BEINGS,
    COUNTS,
    OWN_PEOPLE,
    PEOPLE,
    PERSONS,
    POSSESSIVES,
    TENSES,
    UNNEGATED,
    chance,
    definite,
    draw_clause,
    draw_event,
    draw_known,
    draw_known_person,
    draw_modal,
    draw_negation,
    draw_phrase,
    draw_said,
    draw_scene,
    draw_subject,
    draw_time,
    hides_past,
    pick,
    said_again,
    verbs_by,
)
from dragoman.corpora.lexicon import BE, Adjective, Verb, adjectives_for, nouns_of, verbs_with
from dragoman.corpora.meanings import (
    WHAT,
    WHO,
    Clause,
    Conjunction,
    I,
    Joined,
    Phrase,
    Place,
    Predicate,
    Pronoun,
    Relative,
    Sentence,
    Tense,
    pronoun_for,
    relative_pronoun,
)

Pattern = Callable[[Random], Sentence]

BUT = Conjunction("but", "aber", english_comma=True)
AND = Conjunction("and", "und", german_comma=False)
BECAUSE = Conjunction("because", "weil")
ALTHOUGH = Conjunction("although", "obwohl")
IF = Conjunction("if", "wenn")
WHILE = Conjunction("while", "während")
THAT = Conjunction("that", "dass")
WHETHER = Conjunction("whether", "ob")

SAID = lexicon.expand("goods print fruit pastry transit beings text opening")


def statement(rng: Random) -> Sentence:
    """Draw "Today the woman is reading a book."."""
    clause = draw_event(rng)
    subject = clause.subject
    if isinstance(subject, Phrase) and subject.determiner == "the" and subject.noun.kind in BEINGS and chance(rng, 0.4):
        often = clause.adverb is not None and clause.adverb.frequency  # "every man never" is no English
        determiner = pick(rng, COUNTS) if subject.plural else "a" if often else pick(rng, ("a", "a", "every"))
        clause = clause._replace(subject=subject._replace(determiner=determiner))
    return Sentence((Joined(draw_negation(rng, clause)),))


def description(rng: Random) -> Sentence:
    """Draw "The old lamp is too expensive."."""
    subject = definite(draw_phrase(rng, pick(rng, nouns_of(SAID)), adjective=0.25))
    clause = draw_said(rng, subject, tense="past" if chance(rng, 0.25) else "present")
    clause = draw_negation(rng, draw_degree(rng, clause))
    return Sentence((Joined(clause, "question"),), "?") if chance(rng, 0.2) else Sentence((Joined(clause),))


def draw_degree(rng: Random, clause: Clause) -> Clause:
    """Strengthen, perhaps, what is said."""
    predicate = clause.predicate
    if predicate is None or not predicate.adjective.english_comparative or not chance(rng, 0.4):
        return clause
    too = predicate.adjective.pleases <= 0 and chance(rng, 0.6)  # nothing is too beautiful
    return clause._replace(predicate=predicate._replace(degree="too" if too else "very"))


def comparison(rng: Random) -> Sentence:
    """Draw "The car is as old as the house." or "The car is older than the house."."""
    kind = pick(rng, COMPARED)
    adjective = pick(rng, comparable(kind))
    nouns = nouns_of(frozenset((kind,)))
    first, second = (definite(draw_phrase(rng, pick(rng, nouns), plural=0.1, adjective=0)) for _ in range(2))
    if first.noun is second.noun and kind == "person" and first.noun.english not in OWN_PEOPLE:
        return comparison(rng)
    if first.noun is second.noun:
        first, second = first._replace(determiner="my"), second._replace(determiner="your", plural=first.plural)
    predicate = Predicate(adjective, "as" if chance(rng, 0.5) else "than", second)
    return Sentence((Joined(draw_negation(rng, Clause(first, BE, predicate=predicate))),))


COMPARED = ("person", "relative", "animal", "device", "vehicle", "furniture", "garment", "container", "print", "text")


@cache
def comparable(kind: str) -> tuple[Adjective, ...]:
    """Return the adjectives of a kind that have a comparative."""
    return tuple(adjective for adjective in adjectives_for(kind) if adjective.english_comparative)


def contrast(rng: Random) -> Sentence:
    """Draw "The lamp is old, but it works." or "The apple is fresh and it is sweet."."""
    subject = draw_known(rng, CONTRASTED)
    first = pick(rng, judging(subject.noun.kind))
    again = pronoun_for(subject)
    opening = Clause(subject, BE, predicate=Predicate(first))
    if subject.noun.kind == "device" and chance(rng, 0.5):
        works = Clause(again, WORK, negated=first.pleases > 0)
        return Sentence((Joined(opening), Joined(works, conjunction=BUT)))
    others = tuple(other for other in judging(subject.noun.kind) if other.scale != first.scale)
    second = pick(rng, others)
    closing = Clause(again, BE, predicate=Predicate(second))
    contrary = first.pleases != second.pleases
    return Sentence((Joined(opening), Joined(closing, conjunction=BUT if contrary else AND_FULL)))


AND_FULL = Conjunction("and", "und", english_comma=True, german_comma=False)
WORK = next(verb for verb in lexicon.VERBS if "device" in verb.subjects and verb.base == "work")


@cache
def judging(kind: str) -> tuple[Adjective, ...]:
    """Return the adjectives of a kind that please or displease."""
    fitting = (adjective for adjective in adjectives_for(kind) if adjective.pleases)
    return tuple(adjective for adjective in fitting if adjective.scale != "age" or kind not in BEINGS)


CONTRASTED = frozenset(kind for kind in SAID if len({each.scale for each in judging(kind)}) > 1)


def question(rng: Random) -> Sentence:
    """Draw "Does the man often visit his aunt?"."""
    clause = draw_event(rng)
    if clause.subject is I and clause.modal is None:  # nobody asks others what he himself is doing
        return question(rng)
    clause = going_on(clause._replace(front="subject"))
    third = clause.subject.person == 3 and not clause.subject.plural
    if clause.tense == "progressive" and not third and "rest" not in clause.verb.marks:
        clause = clause._replace(tense="present", modal=draw_modal(rng, clause.subject))
    return Sentence((Joined(clause, "question"),), "?")


def going_on(clause: Clause) -> Clause:
    """Ask for what is happening, or has happened, rather than for what happens in general, if no time is named."""
    if (
        clause.tense != "present"
        or clause.modal is not None
        or clause.adverb is not None
        or "state" in clause.verb.marks
    ):
        return clause
    return clause._replace(tense="progressive" if clause.verb.progressive else "past")


def question_who(rng: Random) -> Sentence:
    """Draw "Who repaired the lamp?"."""
    clause = draw_event(rng, WHO)
    return Sentence((Joined(going_on(clause._replace(front="subject")), "question"),), "?")


def question_what(rng: Random) -> Sentence:
    """Draw "What is the man reading?", "Who does he help?" or "Which bus is he waiting for?"."""
    verb = pick(rng, ASKED_FOR)
    clause = draw_time(rng, draw_clause(rng, verb))
    if clause.subject is I:
        return question_what(rng)
    if chance(rng, 0.5) or verb.german_preposition:
        direct: Phrase | Pronoun = draw_which(rng, verb)
    else:
        direct = WHO if verb.case == "dat" or verb.objects <= BEINGS else WHAT
    clause = clause._replace(direct=direct, front="direct", adverb=None)
    return Sentence((Joined(going_on(clause), "question"),), "?")


def draw_which(rng: Random, verb: Verb) -> Phrase:
    """Draw what a question asks for: which one, or how many."""
    phrase = draw_phrase(rng, pick(rng, nouns_of(verb.objects - {"relative"})), adjective=0.15)
    counted = phrase.plural and verb.case == "acc" and not verb.german_preposition
    return phrase._replace(determiner="how many" if counted else "which")


ASKED_FOR = tuple(verb for verb in lexicon.VERBS if verb.objects and verb.base not in ("belong", "bring"))


def question_where(rng: Random) -> Sentence:
    """Draw "Where does the dog sleep?", "When will the train arrive?" or "Why is the man selling the car?"."""
    asked = pick(rng, (lexicon.WHERE, lexicon.WHEN, lexicon.WHY))
    if asked is lexicon.WHERE:
        clause = draw_clause(rng, pick(rng, verbs_with("located")))._replace(place=None)
        clause = clause._replace(tense="past" if chance(rng, 0.4) and not hides_past(clause) else "progressive")
    elif asked is lexicon.WHEN:
        clause = draw_clause(rng, pick(rng, EVENTS))
        past = chance(rng, 0.5) and not hides_past(clause)
        clause = clause._replace(tense="past") if past else clause._replace(modal=lexicon.WILL)
    else:
        clause = draw_negation(rng, going_on(draw_time(rng, draw_clause(rng, pick(rng, lexicon.VERBS)))))
    if clause.subject is I:
        return question_where(rng)
    return Sentence((Joined(clause._replace(adverb=asked, front="adverb"), "question"),), "?")


EVENTS = tuple(verb for verb in lexicon.VERBS if "state" not in verb.marks)


@cache
def named(text: str) -> tuple[Verb, ...]:
    """Return the verbs of these names, in order; a particle is joined to its verb with a plus sign."""
    known = {f"{verb.base}+{verb.particle}".rstrip("+"): verb for verb in reversed(lexicon.VERBS)}
    return tuple(known[name] for name in text.split())


# The scales on which a thing must please, or displease, to be a reason for doing something with it.
CHOOSING = {
    "buy": "price looks age use speed comfort interest weight taste ripeness",
    "read": "interest length mood",
    "eat": "taste ripeness",
    "wear": "looks heat comfort age",
}
DISCARDING = {
    "sell": "age looks noise speed interest comfort weight",
    "throw+away": "age looks use interest taste",
    "repair": "use",
    "wash": "dirt",
}
MOTIVES = {name: frozenset(scales.split()) for name, scales in (CHOOSING | DISCARDING).items()}


def draw_motive(rng: Random, name: str, pleases: int, *, plural: float) -> tuple[Verb, Phrase, Adjective]:
    """Draw a thing, and a quality of it that speaks for or against what a verb names."""
    verb = named(name)[0]
    thing = draw_known(rng, motivating(verb, name, pleases), plural=plural)
    qualities = tuple(
        adjective
        for adjective in judging(thing.noun.kind)
        if adjective.pleases == pleases and adjective.scale in MOTIVES[name]
    )
    if thing.determiner in POSSESSIVES and name == "buy":
        thing = thing._replace(determiner="the")
    return verb, thing, pick(rng, qualities)


@cache
def motivating(verb: Verb, name: str, pleases: int) -> frozenset[str]:
    """Return the kinds of thing that have a quality to speak for or against a verb."""
    scales = MOTIVES[name]
    return frozenset(
        kind
        for kind in verb.objects - BEINGS
        if any(each.pleases == pleases and each.scale in scales for each in judging(kind))
    )


def reason(rng: Random) -> Sentence:
    """Draw "The man is buying the lamp because it is cheap."."""
    person, negated = draw_known_person(rng), chance(rng, 0.3)
    chooses = negated or chance(rng, 0.6)
    name = pick(rng, tuple(CHOOSING) if chooses else tuple(DISCARDING))
    because = chance(rng, 0.7) or name in ("repair", "wash")
    pleases = 1 if (chooses != negated) == because else -1
    verb, thing, quality = draw_motive(rng, name, pleases, plural=0.25)
    main = Clause(person, verb, thing, tense=pick(rng, TENSES), negated=negated)
    if hides_past(main):
        main = main._replace(tense="progressive")
    tense: Tense = "past" if main.tense == "past" else "present"
    back = Clause(pronoun_for(thing), BE, predicate=Predicate(quality), tense=tense)
    return Sentence((Joined(main), Joined(back, "subordinate", BECAUSE if because else ALTHOUGH)))


# What one does in a state, and what one does in spite of it.
MOODS = (
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


STATES = {adjective.english: adjective for adjective in lexicon.ADJECTIVES if adjective.scale == "state"}


def draw_mood(rng: Random) -> tuple[Verb, Adjective, bool]:
    """Draw a verb, a state, and whether the state is a reason for doing it."""
    verbs, states, fits = pick(rng, MOODS)
    return pick(rng, named(verbs)), STATES[pick(rng, tuple(states.split()))], fits


def mood(rng: Random) -> Sentence:
    """Draw "The boy is not working because he is tired." or "Although the boy is ill, he is singing."."""
    verb, state, fits = draw_mood(rng)
    person = draw_known_person(rng)
    negated = chance(rng, 0.5) and not fits
    tense = pick(rng, TENSES)
    main = draw_clause(rng, verb, person)._replace(tense=tense, place=None)
    if hides_past(main):
        main = main._replace(tense="progressive")
    main = main._replace(direct=simple(main.direct), negated=negated)
    feeling = Clause(person, BE, predicate=Predicate(state), tense="past" if main.tense == "past" else "present")
    conjunction = BECAUSE if fits or negated else ALTHOUGH
    again = said_again(person)
    if chance(rng, 0.5) or isinstance(main.direct, Pronoun):
        return Sentence((Joined(main), Joined(feeling._replace(subject=again), "subordinate", conjunction)))
    main = main._replace(subject=again)
    return Sentence((Joined(feeling, "subordinate", conjunction), Joined(main, "inverted")))


def simple(phrase: Phrase | Pronoun | None) -> Phrase | Pronoun | None:
    """Make an object one that can be negated and is not long."""
    if not isinstance(phrase, Phrase):
        return phrase
    phrase = phrase._replace(adjective=None)
    if phrase.determiner in UNNEGATED:
        return phrase._replace(determiner="these")
    return definite(phrase) if phrase.noun.kind in PEOPLE else phrase


def condition(rng: Random) -> Sentence:
    """Draw "If the lamp is broken, we must repair it."."""
    chooses = chance(rng, 0.5)
    name = pick(rng, tuple(CHOOSING) if chooses else tuple(DISCARDING))
    verb, thing, quality = draw_motive(rng, name, 1 if chooses else -1, plural=0.15)
    modals = (lexicon.CAN, lexicon.SHOULD, lexicon.WILL, lexicon.WANT, lexicon.MUST)
    main = Clause(pick(rng, PERSONS), verb, thing, modal=pick(rng, modals))
    premise = Clause(thing, BE, predicate=Predicate(quality))
    again = pronoun_for(thing)
    if chance(rng, 0.6):
        main = main._replace(direct=again)
        return Sentence((Joined(premise, "subordinate", IF), Joined(main, "inverted")))
    return Sentence((Joined(main), Joined(premise._replace(subject=again), "subordinate", IF)))


def meanwhile(rng: Random) -> Sentence:
    """Draw "The man is cooking the soup while his sister is sleeping."."""
    first, second = draw_known_person(rng), draw_known(rng, PEOPLE)
    verbs = rng.sample(BUSY, 2)
    clauses = (
        draw_clause(rng, verb, who)._replace(place=None) for verb, who in zip(verbs, (first, second), strict=True)
    )
    main, side = (clause._replace(tense="progressive", direct=simple(clause.direct)) for clause in clauses)
    return Sentence((Joined(main), Joined(side, "subordinate", WHILE)))


BUSY = named("read write eat cook bake sleep work dance sing clean wash wait feed")


def report(rng: Random) -> Sentence:
    """Draw "The man says that …" or "I do not know whether …"."""
    person = draw_known_person(rng)
    event = chance(rng, 0.8)
    content = draw_event(rng)._replace(front="subject") if event else draw_said(rng, draw_known(rng, SAID))
    if chance(rng, 0.3):
        asks = chance(rng, 0.5)
        matrix = Clause(person, lexicon.ASK if asks else lexicon.KNOW, negated=not asks)
        return Sentence((Joined(matrix), Joined(content, "subordinate", WHETHER)))
    verbs = (lexicon.SAY, lexicon.BELIEVE, lexicon.KNOW)
    hoped = event and content.modal in (None, lexicon.CAN, lexicon.WILL)  # nobody hopes that someone should
    verb = pick(rng, (*verbs, lexicon.HOPE) if hoped else verbs)
    matrix = Clause(person, verb, negated=verb is lexicon.BELIEVE and chance(rng, 0.4))
    return Sentence((Joined(matrix), Joined(content, "subordinate", THAT)))


def draw_relative(rng: Random, phrase: Phrase) -> Phrase:
    """Draw a clause about a phrase: who does something, to whom it is done, where it is done."""
    pronoun, kind = relative_pronoun(phrase), phrase.noun.kind
    draw = rng.random()
    if kind == "seat" and draw < 0.6:
        sitter = draw_clause(rng, pick(rng, verbs_with("sit")))
        clause = sitter._replace(place=Place("on", "auf", "dat", pronoun), front="place")
    elif draw < 0.5 and verbs_by(kind):
        clause = draw_clause(rng, pick(rng, verbs_by(kind)), pronoun)
    else:
        clause = draw_clause(rng, pick(rng, verbs_on(kind)))._replace(direct=pronoun, front="direct")
    if "state" not in clause.verb.marks:
        tense = pick(rng, TENSES) if clause.verb.progressive else "past"
        clause = clause._replace(tense="progressive" if hides_past(clause) else tense)
    return phrase._replace(relative=Relative(clause))


@cache
def verbs_on(kind: str) -> tuple[Verb, ...]:
    """Return the verbs whose object may be of this kind."""
    return tuple(verb for verb in lexicon.VERBS if kind in verb.objects and "give" not in verb.marks)


def relative_subject(rng: Random) -> Sentence:
    """Draw "The man who is repairing the lamp is tired."."""
    phrase = draw_known(rng, DESCRIBED)._replace(determiner="the")
    clause = draw_said(rng, phrase)
    return Sentence((Joined(clause._replace(subject=draw_relative(rng, phrase))),))


def relative_object(rng: Random) -> Sentence:
    """Draw "I know the man who is repairing the lamp."."""
    verb = pick(rng, SHORT)
    phrase = draw_phrase(rng, pick(rng, nouns_of(verb.objects - {"relative"})), plural=0.2, adjective=0)
    phrase = draw_relative(rng, phrase._replace(determiner="the"))
    if phrase.relative is not None and phrase.relative.clause.verb is verb:  # "the house that he knows" is known
        return relative_object(rng)
    clause = Clause(draw_subject(rng, verb.subjects, pronouns=0.5), verb, phrase)
    if verb.progressive and chance(rng, 0.5):
        clause = clause._replace(tense="progressive")
    return Sentence((Joined(clause),))


DESCRIBED = lexicon.expand("person animal goods print fruit text")
# Verbs that leave nothing after their object in either language, so that a relative clause can follow it.
SHORT = named("see know look like need visit help love buy wash repair feed believe thank read sell watch")


def attempt(rng: Random) -> Sentence:
    """Draw "The man tries to open the window."."""
    tries = chance(rng, 0.5)
    verb = pick(rng, TRIED if tries else FORGOTTEN)
    person = draw_known_person(rng)
    task = draw_clause(rng, verb, person)
    matrix = Clause(person, lexicon.TRY if tries else lexicon.FORGET, tense="past" if chance(rng, 0.5) else "present")
    return Sentence((Joined(matrix), Joined(task, "infinitive")))


TRIED = named("repair open close switch+on turn+off find sell understand help wake+up call")
FORGOTTEN = named(
    "open close switch+on turn+off wash clean feed invite call thank answer pick+up buy bring+along tidy+up"
)


def liking(rng: Random) -> Sentence:
    """Draw "The woman likes to drink tea."."""
    verb = pick(rng, verbs_with("liked"))
    subject = draw_known_person(rng)
    clause = Clause(subject, verb, modal=lexicon.LIKE, negated=chance(rng, 0.2))
    if verb.objects:
        noun = pick(rng, nouns_of(verb.objects))
        phrase = draw_phrase(rng, noun, plural=1, adjective=0.25)
        clause = clause._replace(direct=phrase if noun.kind == "relative" else phrase._replace(determiner=""))
    elif "located" in verb.marks and not clause.negated and chance(rng, 0.4):
        clause = clause._replace(place=draw_scene(rng, subject))
    if subject is not I and chance(rng, 0.15):
        return Sentence((Joined(clause, "question"),), "?")
    return Sentence((Joined(clause),))


def sequence(rng: Random) -> Sentence:
    """Draw "The man finds the lamp and repairs it."."""
    first, second = (pick(rng, named(names)) for names in pick(rng, SEQUENCES))
    shared = first.objects & second.objects
    thing = draw_known(rng, shared, plural=0.15, adjective=0.15)
    subject = draw_known_person(rng)
    later = Clause(subject, second, pronoun_for(thing))
    return Sentence((Joined(Clause(subject, first, thing)), Joined(later, "shared", AND)))


SEQUENCES = (
    ("find buy", "repair sell throw+away wash carry wear read"),
    ("repair wash", "sell"),
    ("cook bake buy", "eat"),
    ("steal", "sell"),
    ("write", "read"),
    ("meet see visit hear", "greet invite thank help ask"),
    ("wash", "put+on wear"),
)


def possession(rng: Random) -> Sentence:
    """Draw "The woman has a coat, but she never wears it."."""
    verb = pick(rng, named("wear read wash feed"))
    person = draw_known_person(rng)
    noun = pick(rng, nouns_of(verb.objects & OWNED))
    thing = draw_phrase(rng, noun, plural=0, adjective=0.35)._replace(determiner="a")
    adverb = pick(rng, lexicon.FREQUENCIES[1:])
    use = Clause(said_again(person), verb, pronoun_for(thing), adverb=adverb)
    rare = adverb.pieces[0][0] in ("never", "rarely")
    return Sentence((Joined(Clause(person, HAVE, thing)), Joined(use, conjunction=BUT if rare else AND_FULL)))


HAVE = named("have")[0]
OWNED = lexicon.expand("goods print animal") - {"footwear"}  # which comes in pairs

PATTERNS: tuple[tuple[Pattern, int], ...] = (
    (statement, 30),
    (description, 6),
    (comparison, 4),
    (contrast, 6),
    (question, 9),
    (question_who, 3),
    (question_what, 5),
    (question_where, 5),
    (reason, 6),
    (mood, 5),
    (condition, 4),
    (meanwhile, 2),
    (report, 6),
    (relative_subject, 4),
    (relative_object, 4),
    (attempt, 4),
    (liking, 4),
    (sequence, 4),
    (possession, 3),
)
WEIGHTED = tuple(pattern for pattern, weight in PATTERNS for _ in range(weight))


def draw_sentence(rng: Random) -> Sentence:
    """Draw a sentence of any pattern."""
    return pick(rng, WEIGHTED)(rng)
