from hashlib import sha256
from itertools import islice
from random import Random

import pytest

from dragoman.corpora import lexicon
from dragoman.corpora.lexicon import ADJECTIVES, BE, NOUNS, VERBS, Adjective, Noun, Verb
from dragoman.corpora.meanings import (
    HE,
    SHE,
    THEY,
    WE,
    WHAT,
    WHO,
    YOU,
    Clause,
    I,
    Location,
    NounPhrase,
    Predicate,
    RelativeClause,
    SentenceClause,
    SentenceMeaning,
    pronoun_for,
    relative_pronoun,
)
from dragoman.corpora.patterns import (
    ALTHOUGH,
    AND,
    AND_FULL,
    BECAUSE,
    BUT,
    IF,
    PATTERNS,
    THAT,
    WHETHER,
    WHILE,
    contrast,
)
from dragoman.corpora.phrasebook import (
    SPLITS,
    combinations,
    draw_sentences,
    min_sentence_count,
    phrasebook,
    render_pair,
    split_words,
    write_phrasebook,
)
from dragoman.errors import UserError

LAMP = "The lamp is old, but it works.", "Die Lampe ist alt, aber sie funktioniert."


def noun(english: str) -> Noun:
    return next(each for each in NOUNS if each.english == english)


def adjective(english: str) -> Adjective:
    return next(each for each in ADJECTIVES if each.english == english)


def verb(base: str, subject: str = "person") -> Verb:
    return next(each for each in VERBS if each.base == base and subject in each.subjects)


def the(english: str, determiner: str = "the", adj: str = "", *, plural: bool = False) -> NounPhrase:
    return NounPhrase(noun(english), determiner, adjective(adj) if adj else None, plural)


def be(subject, english: str, **rest) -> Clause:
    return Clause(subject, BE, predicate=Predicate(adjective(english)), **rest)


def say(clause: Clause) -> SentenceMeaning:
    return SentenceMeaning((SentenceClause(clause),))


def ask(clause: Clause) -> SentenceMeaning:
    return SentenceMeaning((SentenceClause(clause, "question"),), "?")


def join(main: Clause, conjunction, second: Clause, order="subordinate") -> SentenceMeaning:
    return SentenceMeaning((SentenceClause(main), SentenceClause(second, order, conjunction)))


def after(first: Clause, conjunction, main: Clause) -> SentenceMeaning:
    return SentenceMeaning((SentenceClause(first, "subordinate", conjunction), SentenceClause(main, "inverted")))


def about(phrase: NounPhrase, clause: Clause) -> NounPhrase:
    return phrase._replace(relative=RelativeClause(clause))


TODAY, EVENING = lexicon.PRESENT_TIMES[1], lexicon.HABITS[2]
YESTERDAY, OFTEN, NEVER = lexicon.PAST_TIMES[1], lexicon.FREQUENCIES[1], lexicon.FREQUENCIES[3]
MAN, WOMAN, BOY, CHILD, LAMP_PHRASE = the("man"), the("woman"), the("boy"), the("child"), the("lamp")
WORKS = verb("work", "device")

HAND_CHECKED = [
    # contrast: the pronoun takes the gender of its noun
    (join(be(LAMP_PHRASE, "old"), BUT, Clause(pronoun_for(LAMP_PHRASE), WORKS), "statement"), *LAMP),
    (
        join(be(the("computer"), "new"), BUT, Clause(pronoun_for(the("computer")), WORKS, negated=True), "statement"),
        "The computer is new, but it does not work.",
        "Der Computer ist neu, aber er funktioniert nicht.",
    ),
    (
        join(be(the("book"), "old"), AND_FULL, be(pronoun_for(the("book")), "boring"), "statement"),
        "The book is old, and it is boring.",
        "Das Buch ist alt und es ist langweilig.",
    ),
    # statements: verb second, time and place, the perfect
    (
        say(Clause(WOMAN, verb("read"), the("book", "a"), adverb=TODAY, tense="progressive", front="adverb")),
        "Today the woman is reading a book.",
        "Heute liest die Frau ein Buch.",
    ),
    (
        say(Clause(MAN, verb("buy"), the("car", "a", "expensive"), tense="past")),
        "The man bought an expensive car.",
        "Der Mann hat ein teures Auto gekauft.",
    ),
    (
        say(
            Clause(
                SHE,
                verb("read"),
                the("letter", "two", plural=True),
                location=Location("in", "in", "dat", the("garden")),
            )
        ),
        "She reads two letters in the garden.",
        "Sie liest im Garten zwei Briefe.",
    ),
    (
        say(Clause(I, verb("read"), the("letter"), location=Location("in", "in", "dat", the("kitchen", "a", "dark")))),
        "I read the letter in a dark kitchen.",
        "Ich lese den Brief in einer dunklen Küche.",
    ),
    (
        say(Clause(the("train"), verb("arrive"), adverb=YESTERDAY, tense="past", front="adverb")),
        "Yesterday the train arrived.",
        "Gestern ist der Zug angekommen.",
    ),
    # case: dative verbs, prepositions of either case, weak nouns, the dative plural
    (say(Clause(WE, verb("help"), BOY)), "We help the boy.", "Wir helfen dem Jungen."),
    (
        say(Clause(the("neighbour", "my"), verb("thank"), the("child", "many", "patient", plural=True), tense="past")),
        "My neighbour thanked many patient children.",
        "Mein Nachbar hat vielen geduldigen Kindern gedankt.",
    ),
    (
        say(Clause(the("aunt", "his"), verb("wait"), the("bus"), tense="progressive")),
        "His aunt is waiting for the bus.",
        "Seine Tante wartet auf den Bus.",
    ),
    (
        say(Clause(YOU, verb("give"), the("apple", "a"), the("child"), adverb=OFTEN)),
        "You often give the child an apple.",
        "Du gibst dem Kind oft einen Apfel.",
    ),
    (
        say(Clause(HE, verb("place"), LAMP_PHRASE, location=Location("on", "auf", "acc", the("table"), bound=True))),
        "He places the lamp on the table.",
        "Er stellt die Lampe auf den Tisch.",
    ),
    (
        say(
            Clause(
                LAMP_PHRASE, verb("stand", "device"), location=Location("on", "auf", "dat", the("table"), bound=True)
            )
        ),
        "The lamp stands on the table.",
        "Die Lampe steht auf dem Tisch.",
    ),
    (
        say(Clause(I, verb("go"), location=Location("to", "zu", "dat", the("bridge"), bound=True), tense="past")),
        "I went to the bridge.",
        "Ich bin zur Brücke gegangen.",
    ),
    # separable verbs and modal verbs
    (
        say(Clause(the("girl"), verb("open"), the("window"), adverb=EVENING)),
        "The girl opens the window in the evening.",
        "Das Mädchen macht am Abend das Fenster auf.",
    ),
    (
        say(Clause(HE, verb("switch"), pronoun_for(LAMP_PHRASE), modal=lexicon.WANT, negated=True)),
        "He does not want to switch it on.",
        "Er will sie nicht einschalten.",
    ),
    (
        say(Clause(the("student", "this"), verb("call"), the("colleague", "our"), modal=lexicon.ALLOWED)),
        "This student is allowed to call our colleague.",
        "Dieser Student darf unseren Kollegen anrufen.",
    ),
    # negation
    (
        say(Clause(MAN, verb("buy"), the("car", "a", "new"), negated=True)),
        "The man does not buy a new car.",
        "Der Mann kauft kein neues Auto.",
    ),
    (
        say(Clause(MAN, verb("buy"), the("car"), negated=True, tense="past")),
        "The man did not buy the car.",
        "Der Mann hat das Auto nicht gekauft.",
    ),
    (
        say(Clause(THEY, verb("drink"), the("milk", "", "cold"), modal=lexicon.CAN, negated=True)),
        "They cannot drink cold milk.",
        "Sie können keine kalte Milch trinken.",
    ),
    (
        say(Clause(the("dog"), verb("sleep"), location=Location("in", "in", "dat", the("yard")), negated=True)),
        "The dog does not sleep in the yard.",
        "Der Hund schläft nicht im Hof.",
    ),
    # questions
    (
        ask(Clause(MAN, verb("visit"), the("aunt", "his"), adverb=OFTEN)),
        "Does the man often visit his aunt?",
        "Besucht der Mann oft seine Tante?",
    ),
    (
        ask(Clause(WHO, verb("repair"), LAMP_PHRASE, tense="past")),
        "Who repaired the lamp?",
        "Wer hat die Lampe repariert?",
    ),
    (ask(Clause(YOU, verb("help"), WHO, front="direct")), "Who do you help?", "Wem hilfst du?"),
    (
        ask(Clause(SHE, verb("look"), WHAT, front="direct", tense="progressive")),
        "What is she looking for?",
        "Was sucht sie?",
    ),
    (
        ask(Clause(MAN, verb("wait"), the("train", "which"), front="direct", tense="progressive")),
        "Which train is the man waiting for?",
        "Auf welchen Zug wartet der Mann?",
    ),
    (
        ask(Clause(YOU, verb("sell"), the("book", "how many", plural=True), front="direct", tense="past")),
        "How many books did you sell?",
        "Wie viele Bücher hast du verkauft?",
    ),
    (
        ask(Clause(WOMAN, verb("cry"), adverb=lexicon.WHY, front="adverb", tense="past")),
        "Why did the woman cry?",
        "Warum hat die Frau geweint?",
    ),
    # subordinate clauses: the verb at the end
    (
        join(
            Clause(SHE, verb("buy"), the("coat"), tense="past"),
            BECAUSE,
            be(pronoun_for(the("coat")), "warm", tense="past"),
        ),
        "She bought the coat because it was warm.",
        "Sie hat den Mantel gekauft, weil er warm war.",
    ),
    (
        after(be(BOY, "tired"), ALTHOUGH, Clause(pronoun_for(BOY), verb("get"), tense="progressive")),
        "Although the boy is tired, he is getting up.",
        "Obwohl der Junge müde ist, steht er auf.",
    ),
    (
        after(be(LAMP_PHRASE, "broken"), IF, Clause(WE, verb("repair"), pronoun_for(LAMP_PHRASE), modal=lexicon.MUST)),
        "If the lamp is broken, we must repair it.",
        "Wenn die Lampe kaputt ist, müssen wir sie reparieren.",
    ),
    (
        join(Clause(I, lexicon.KNOW), THAT, Clause(HE, verb("open"), the("window"))),
        "I know that he opens the window.",
        "Ich weiß, dass er das Fenster aufmacht.",
    ),
    (
        join(Clause(I, lexicon.KNOW, negated=True), WHETHER, Clause(SHE, verb("call"), HE, tense="past")),
        "I do not know whether she called him.",
        "Ich weiß nicht, ob sie ihn angerufen hat.",
    ),
    (
        join(
            Clause(MAN, verb("cook"), the("soup"), tense="progressive"),
            WHILE,
            Clause(CHILD, verb("sleep"), tense="progressive"),
        ),
        "The man is cooking the soup while the child is sleeping.",
        "Der Mann kocht die Suppe, während das Kind schläft.",
    ),
    # relative clauses: the pronoun has the gender of its noun and the case of its own clause
    (
        say(be(about(MAN, Clause(relative_pronoun(MAN), verb("repair"), LAMP_PHRASE)), "tired")),
        "The man who repairs the lamp is tired.",
        "Der Mann, der die Lampe repariert, ist müde.",
    ),
    (
        say(be(about(MAN, Clause(BOY, verb("help"), relative_pronoun(MAN), front="direct")), "ill")),
        "The man whom the boy helps is ill.",
        "Der Mann, dem der Junge hilft, ist krank.",
    ),
    (
        say(
            be(
                about(
                    the("chair"),
                    Clause(
                        the("cat"),
                        verb("sit"),
                        location=Location("on", "auf", "dat", relative_pronoun(the("chair")), bound=True),
                        tense="progressive",
                        front="location",
                    ),
                ),
                "old",
            )
        ),
        "The chair on which the cat is sitting is old.",
        "Der Stuhl, auf dem die Katze sitzt, ist alt.",
    ),
    (
        say(Clause(I, verb("know"), about(WOMAN, Clause(relative_pronoun(WOMAN), verb("feed"), the("goose"))))),
        "I know the woman who feeds the goose.",
        "Ich kenne die Frau, die die Gans füttert.",
    ),
    # infinitives, likings, comparisons, one subject for two verbs
    (
        SentenceMeaning(
            (
                SentenceClause(Clause(MAN, lexicon.TRY)),
                SentenceClause(Clause(MAN, verb("open"), the("door")), "infinitive"),
            )
        ),
        "The man tries to open the door.",
        "Der Mann versucht, die Tür aufzumachen.",
    ),
    (
        say(Clause(WOMAN, verb("drink"), the("tea", ""), modal=lexicon.LIKE, negated=True)),
        "The woman does not like to drink tea.",
        "Die Frau trinkt nicht gern Tee.",
    ),
    (
        say(Clause(the("car"), BE, predicate=Predicate(adjective("old"), "than", the("bicycle", "your")))),
        "The car is older than your bicycle.",
        "Das Auto ist älter als dein Fahrrad.",
    ),
    (
        say(Clause(the("car"), BE, predicate=Predicate(adjective("fast"), "as", the("boat")), negated=True)),
        "The car is not as fast as the boat.",
        "Das Auto ist nicht so schnell wie das Boot.",
    ),
    (
        join(
            Clause(MAN, verb("find"), the("suitcase")),
            AND,
            Clause(MAN, verb("sell"), pronoun_for(the("suitcase"))),
            "shared",
        ),
        "The man finds the suitcase and sells it.",
        "Der Mann findet den Koffer und verkauft ihn.",
    ),
    (
        join(
            Clause(WOMAN, verb("have"), the("jacket", "a")),
            BUT,
            Clause(SHE, verb("wear"), pronoun_for(the("jacket")), adverb=NEVER),
            "statement",
        ),
        "The woman has a jacket, but she never wears it.",
        "Die Frau hat eine Jacke, aber sie trägt sie nie.",
    ),
]


@pytest.fixture(scope="module")
def train():
    return list(phrasebook("train", 8_000))


@pytest.fixture(scope="module")
def unseen():
    return list(phrasebook("test", 1_000))


@pytest.mark.parametrize(("sentence", "english", "german"), HAND_CHECKED, ids=[case[1] for case in HAND_CHECKED])
def test_a_sentence_has_the_translation_that_a_speaker_gave_it(sentence, english, german):
    drawn = render_pair(sentence)
    assert (drawn.source, drawn.target) == (english, german)


@pytest.mark.parametrize(
    ("english", "expected"),
    [
        ("The lamp is old, but it works.", "0-0 1-1 2-2 3-3 4-4 5-5 6-6 7-7 8-8"),
        # hat and gekauft both say bought; nicht comes after the object
        ("The man did not buy the car.", "0-0 1-1 2-2 2-6 3-5 4-2 4-6 5-3 6-4 7-7"),
        # kein says not and a
        ("The man does not buy a new car.", "0-0 1-1 2-2 3-3 4-2 5-3 6-4 7-5 8-6"),
        # macht … auf is one verb; am says in and the
        ("The girl opens the window in the evening.", "0-0 1-1 2-2 2-7 3-5 4-6 5-3 6-3 7-4 8-8"),
        # the verb goes to the end; the German commas stand alone
        ("The man who repairs the lamp is tired.", "0-0 1-1 2-3 3-6 4-4 5-5 6-8 7-9 8-10"),
        # the infinitive's to is inside the German word
        ("The man tries to open the door.", "0-0 1-1 2-2 3-6 4-6 5-4 6-5 7-7"),
    ],
)
def test_the_links_of_a_pair_are_those_drawn_by_hand(english, expected):
    sentence = next(sentence for sentence, source, _ in HAND_CHECKED if source == english)
    assert " ".join(f"{i}-{j}" for i, j in render_pair(sentence).links) == expected


def test_the_lamp_sentence_is_drawn_by_its_pattern():
    rng = Random(1)
    drawn = (render_pair(contrast(rng)) for _ in range(50_000))
    assert next(each.target for each in drawn if each.source == LAMP[0]) == LAMP[1]


@pytest.mark.parametrize("pattern", [pattern for pattern, _ in PATTERNS], ids=lambda pattern: pattern.__name__)
def test_every_pattern_draws_many_sentences_and_never_fails(pattern):
    rng = Random(5)
    assert len({render_pair(pattern(rng)).source for _ in range(300)}) > 150


def test_links_stay_within_the_sentence_and_come_in_order(train):
    for each in train[:3000]:
        assert list(each.links) == sorted(set(each.links))
        assert max(i for i, _ in each.links) < len(split_words(each.source))
        assert max(j for _, j in each.links) < len(split_words(each.target))


def test_only_commas_have_no_counterpart(train):
    for each in train[:3000]:
        linked_source, linked_target = {i for i, _ in each.links}, {j for _, j in each.links}
        assert {word for i, word in enumerate(split_words(each.source)) if i not in linked_source} <= {","}
        assert {word for j, word in enumerate(split_words(each.target)) if j not in linked_target} <= {","}


def test_an_english_sentence_has_one_translation_and_one_split():
    seen: dict[str, tuple[str, str]] = {}
    for split in SPLITS:
        for seed in (1, 2):
            for each in phrasebook(split, 200, seed=seed):
                assert seen.setdefault(each.source, (each.target, split)) == (each.target, split)


def test_a_test_sentence_has_a_combination_that_training_never_shows():
    shown = set().union(*(combinations(sentence) for sentence in islice(draw_sentences("train", 1), 8_000)))
    for split in ("valid", "test"):
        for sentence in islice(draw_sentences(split, 1), 800):
            assert combinations(sentence) - shown


def test_every_single_word_of_the_test_split_occurs_in_training(train, unseen):
    for side in ("source", "target"):
        taught = {word for each in train for word in split_words(getattr(each, side))}
        assert {word for each in unseen for word in split_words(getattr(each, side))} <= taught


def test_the_same_arguments_give_the_same_pairs_and_others_give_others(train):
    assert list(phrasebook("train", 200)) == train[:200]
    assert list(phrasebook("train", 200, seed=2)) != train[:200]


def test_no_pair_is_drawn_twice(train):
    assert len({each.source for each in train}) == len(train) == 8_000


def test_sentences_have_four_to_twenty_words_and_about_nine_on_average(train):
    lengths = [len(split_words(each.source)) for each in train]
    assert min(lengths) >= 4 and max(lengths) <= 20
    assert 8 <= sum(lengths) / len(lengths) <= 9.5


def test_every_sentence_is_written_as_one(train):
    for each in train:
        for text in (each.source, each.target):
            assert text[0].isupper() and text[-1] in ".?" and "  " not in text and ",," not in text


def test_there_are_millions_of_sentences():
    assert min_sentence_count() > 1_000_000


def test_words_and_marks_are_counted_apart():
    assert split_words("Der Mann, dem ich helfe, ist müde.") == [
        "Der",
        "Mann",
        ",",
        "dem",
        "ich",
        "helfe",
        ",",
        "ist",
        "müde",
        ".",
    ]


def test_an_unknown_split_names_the_known_ones():
    with pytest.raises(UserError, match=r'no split "tests" .*train, valid, test\. Did you mean "test"'):
        phrasebook("tests", 1)


def test_the_files_of_a_split_run_line_by_line(tmp_path):
    write_phrasebook(tmp_path / "corpus", {"train": 30, "test": 10})
    assert sorted(path.name for path in (tmp_path / "corpus").iterdir()) == [
        f"{split}.{suffix}" for split in ("test", "train") for suffix in ("antecedents", "de", "en", "links")
    ]
    texts = [(tmp_path / "corpus" / f"test.{suffix}").read_bytes().decode() for suffix in ("en", "de", "links")]
    expected = list(phrasebook("test", 10))
    assert texts[0] == "".join(f"{each.source}\n" for each in expected)
    assert texts[1] == "".join(f"{each.target}\n" for each in expected)
    assert texts[2].splitlines()[3] == " ".join(f"{i}-{j}" for i, j in expected[3].links)


def test_the_phrasebook_is_the_one_that_results_were_measured_on():
    """A change of these sentences changes every figure that docs/results.md reports of the phrasebook."""
    text = "\n".join(
        f"{pair.source}\t{pair.target}\t{pair.links}\t{pair.anaphora}"
        for split, count in (("train", 500), ("valid", 100), ("test", 100))
        for pair in phrasebook(split, count)
    )
    assert sha256(text.encode()).hexdigest() == "88e639a93fee72b0a7685e6c8e14350dc854562ea74ebaa2de522b350a07e84a"
