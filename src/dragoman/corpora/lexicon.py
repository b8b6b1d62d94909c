"""The lexicon of the phrasebook: English nouns, adjectives, verbs and adverbs with one German translation each.

Every English word has exactly one translation, so every sentence has exactly one, too. The words are the lines of
`lexicon.toml`, easy to read and to correct; the functions below parse them.
"""

from __future__ import annotations

import tomllib
from functools import cache
from importlib.resources import files
from typing import Any, NamedTuple

_TABLES: dict[str, Any] = tomllib.loads((files("dragoman.corpora") / "lexicon.toml").read_text(encoding="utf-8"))


class Noun(NamedTuple):
    """A noun in both languages."""

    english: str
    english_plural: str
    german: str
    german_plural: str
    oblique: str  # German singular outside the nominative
    gender: str  # m, f or n
    kind: str

    @property
    def is_mass(self) -> bool:
        """Whether this is a mass noun."""
        return not self.german_plural

    @property
    def is_person(self) -> bool:
        """Whether its English pronoun is he or she."""
        return self.kind in ("person", "relative")


class Adjective(NamedTuple):
    """An adjective in both languages, with the kinds of nouns it can describe."""

    english: str
    english_comparative: str
    german: str
    german_comparative: str
    stem: str  # German, before an ending
    scale: str
    polarity: int  # 1, 0 or -1
    kinds: frozenset[str]


class Verb(NamedTuple):
    """A verb in both languages, with the kinds of nouns it takes."""

    base: str
    third: str
    past: str
    progressive: str
    particle: str
    preposition: str
    infinitive: str  # German, without the prefix
    ich: str
    du: str
    er: str
    participle: str
    prefix: str
    german_preposition: str
    case: str  # of the German object
    auxiliary: str  # of the German perfect
    subjects: frozenset[str]
    objects: frozenset[str]
    marks: frozenset[str]


class Adverb(NamedTuple):
    """A fixed expression of time or manner, piece by piece: the English words and the German words that they mean."""

    pieces: tuple[tuple[str, str], ...]
    frequency: bool = False


class Modal(NamedTuple):
    """A verb that takes another verb, which German moves to the end of the clause."""

    base: str
    third: str
    rest: str  # what follows in English: "to", "allowed to"
    german: tuple[str, str, str, str]  # ich, du, er, wir; empty words stand for "gern" beside the verb itself


def expand_kinds(text: str) -> frozenset[str]:
    """Return the kinds named by a list of kinds and groups."""
    return frozenset(kind for word in text.split() for kind in _TABLES["kind_groups"].get(word, word).split())


def _parse_optional(word: str) -> str:
    return "" if word == "-" else word.replace("_", " ")


def _parse_noun(entry: str, kind: str) -> Noun:
    english, german = entry.split(" = ")
    singular, _, plural = english.partition("/")
    article, forms = german.split(" ", 1)
    word, german_plural, oblique = (*forms.split("/"), "", "")[:3]
    gender = {"der": "m", "die": "f", "das": "n"}[article]
    return Noun(singular, plural or singular + "s", word, german_plural, oblique or word, gender, kind)


def _parse_nouns() -> tuple[Noun, ...]:
    lines = ((line, kind) for kind, table in _TABLES["nouns"].items() for line in table.splitlines())
    return tuple(_parse_noun(entry.strip(), kind) for line, kind in lines for entry in line.split(";"))


def _parse_adjective(line: str) -> Adjective:
    english, german, scale, kinds = line.split(";")
    word, comparative = english.split()
    german_word, german_comparative = german.split()
    name, sign = scale.split()
    return Adjective(
        word,
        _parse_optional(comparative),
        german_word,
        _parse_optional(german_comparative),
        _TABLES["adjective_stems"].get(german_word, german_word),
        name,
        {"+": 1, "0": 0, "-": -1}[sign],
        expand_kinds(kinds),
    )


def _first_person(infinitive: str, er: str) -> str:
    if not er.endswith("t"):  # mögen and wissen: ich mag, er mag
        return er
    return infinitive[:-1] if infinitive.endswith("en") else infinitive[:-1] + "e"


def _parse_verb(line: str) -> Verb:
    english, german, subjects, objects, marks = (*line.split(";"), "", "")[:5]
    base, third, past, progressive, *rest = english.split()
    infinitive, du, er, participle, *government = german.split()
    prefix, _, stem = infinitive.rpartition("-")
    preposition, case = next((word.split(":") for word in government if ":" in word), ("", ""))
    return Verb(
        base=base,
        third=third,
        past=past,
        progressive=_parse_optional(progressive),
        particle=next((word[1:] for word in rest if word.startswith("+")), ""),
        preposition=next((word for word in rest if not word.startswith("+")), ""),
        infinitive=stem,
        ich=_first_person(stem, er),
        du=du,
        er=er,
        participle=participle,
        prefix=prefix,
        german_preposition=preposition,
        case=case or ("dat" if "dative" in government else "acc"),
        auxiliary="sein" if "sein" in government else "haben",
        subjects=expand_kinds(subjects),
        objects=expand_kinds(objects),
        marks=frozenset(marks.split()),
    )


def _parse_adverb(text: str, *, frequency: bool = False) -> Adverb:
    """Read "every=jeden day=Tag"; a plus sign joins words of one piece."""
    pieces = (piece.split("=") for piece in text.split())
    return Adverb(tuple((english.replace("+", " "), german.replace("+", " ")) for english, german in pieces), frequency)


def _parse_adverbs(text: str, *, frequency: bool = False) -> tuple[Adverb, ...]:
    return tuple(_parse_adverb(part, frequency=frequency) for part in text.split(";"))


NOUNS = _parse_nouns()
ADJECTIVES = tuple(_parse_adjective(line) for line in _TABLES["adjectives"].splitlines())
VERBS = tuple(_parse_verb(line) for line in _TABLES["verbs"].splitlines())

# "Be" is every sentence's own verb rather than one to draw; the others here take a whole clause as their object.
BE = _parse_verb("be is was -; sein bist ist gewesen sein;;; state")._replace(ich="bin")
SAY = _parse_verb("say says said -; sagen sagst sagt gesagt; people;; state")
BELIEVE = _parse_verb("believe believes believed -; glauben glaubst glaubt geglaubt; people;; state")
HOPE = _parse_verb("hope hopes hoped -; hoffen hoffst hofft gehofft; people;; state")
KNOW = _parse_verb("know knows knew -; wissen weißt weiß gewusst; people;; state")
ASK = _parse_verb("ask asks asked -; fragen fragst fragt gefragt; people;; state")
TRY = _parse_verb("try tries tried -; versuchen versuchst versucht versucht; people;; state")
FORGET = _parse_verb("forget forgets forgot -; vergessen vergisst vergisst vergessen; people;; state")

PAST_TIMES = _parse_adverbs("last=letzte week=Woche; yesterday=gestern; on=am Monday=Montag; on=am Saturday=Samstag")
FUTURE_TIMES = _parse_adverbs("next=nächste week=Woche; tomorrow=morgen; on=am Friday=Freitag; today=heute")
PRESENT_TIMES = _parse_adverbs("now=jetzt; today=heute; at+the=im moment=Moment")
HABITS = _parse_adverbs(
    "every=jeden day=Tag; in+the=am morning=Morgen; in+the=am evening=Abend; at+the=am weekend=Wochenende"
)
FREQUENCIES = _parse_adverbs("always=immer; often=oft; sometimes=manchmal; never=nie; rarely=selten", frequency=True)
WHERE, WHEN, WHY = _parse_adverbs("where=wo; when=wann; why=warum")

CAN = Modal("can", "can", "", ("kann", "kannst", "kann", "können"))
MUST = Modal("must", "must", "", ("muss", "musst", "muss", "müssen"))
SHOULD = Modal("should", "should", "", ("sollte", "solltest", "sollte", "sollten"))
WILL = Modal("will", "will", "", ("werde", "wirst", "wird", "werden"))
ALLOWED = Modal("be", "is", "allowed to", ("darf", "darfst", "darf", "dürfen"))
WANT = Modal("want", "wants", "to", ("will", "willst", "will", "wollen"))
LIKE = Modal("like", "likes", "to", ("", "", "", ""))


@cache
def nouns_of_kinds(kinds: frozenset[str]) -> tuple[Noun, ...]:
    """Return the nouns of any of these kinds."""
    return tuple(noun for noun in NOUNS if noun.kind in kinds)


@cache
def adjectives_for(kind: str) -> tuple[Adjective, ...]:
    """Return the adjectives that can describe nouns of this kind."""
    return tuple(adjective for adjective in ADJECTIVES if kind in adjective.kinds)


@cache
def verbs_with_mark(mark: str) -> tuple[Verb, ...]:
    """Return the verbs with this mark."""
    return tuple(verb for verb in VERBS if mark in verb.marks)
