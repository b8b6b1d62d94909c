"""The tasks whose input is one word: what a person gives and sees, and how it is scored."""

import pytest

from dragoman.data.split import split_held_out
from dragoman.errors import UserError
from dragoman.recipe import DataConfig, Recipe
from dragoman.tasks.lexicon import Lexicon
from dragoman.tasks.registry import task_for
from dragoman.tasks.task import Example
from dragoman.tasks.word_tasks import InflectionTask, PronunciationTask

JOINT = PronunciationTask(labels=("fre", "ger"))


def test_a_word_is_read_in_letters():
    assert PronunciationTask().to_model_input(" eau ") == "e a u"
    assert PronunciationTask().to_model_input("New York") == "N e w ␣ Y o r k"


def test_a_question_of_inflection_is_read_with_its_tags_first():
    assert InflectionTask().to_model_input("gehen\tV;PST;3;SG") == "V; PST; 3; SG; g e h e n"
    assert InflectionTask(labels=("ger",)).to_model_input("ger\tgehen\tV;PST") == "<ger> V; PST; g e h e n"


def test_a_label_stands_before_the_letters():
    assert JOINT.to_model_input("fre\teau") == "<fre> e a u"


def test_an_empty_line_stays_empty():
    assert (
        PronunciationTask().to_model_input("")
        == JOINT.to_model_input(" ")
        == InflectionTask().to_model_input("\t")
        == ""
    )


def test_what_the_model_wrote_is_shown_as_a_person_writes_it():
    assert PronunciationTask().from_model_output("e a u", "o") == "o"
    assert InflectionTask().from_model_output("V; e i n", "t e i l ␣ e i n") == "teil ein"


MISREAD = {
    "a tab without labels": (PronunciationTask(), "fre\teau", '"fre<tab>eau": expected the word, without tabs'),
    "no label": (JOINT, "eau", "expected a label and the word, separated by tabs.*fre<tab>word.*--label.*fre, ger"),
    "an unknown label": (JOINT, "gre\teau", 'no label "gre"; it has fre, ger. Did you mean'),
    "an empty word": (JOINT, "fre\t", '"fre<tab>": expected a label and the word'),
    "no tags": (InflectionTask(), "gehen", '"gehen": expected the lemma and the tags, separated by .* or give --tags'),
    "no label and no tags": (
        InflectionTask(labels=("ger",)),
        "gehen",
        r'expected a label, the lemma and the tags, .*V;PST", or give --label and --tags\. The model',
    ),
    "tags without a tag": (InflectionTask(), "gehen\t;", '"gehen" has no tags'),
    "a whole line of a table": (InflectionTask(), "gehen\tging\tV;PST", "expected the lemma and the tags"),
}  # fmt: skip


@pytest.mark.parametrize("case", MISREAD)
def test_what_cannot_be_read_is_refused_with_what_was_expected(case):
    task, text, words = MISREAD[case]
    with pytest.raises(UserError, match=words):
        task.to_model_input(text)


def test_the_answers_of_a_word_are_one_example_that_can_be_read_again():
    pairs = [("r e a d", "R IY D"), ("t h e", "DH AH"), ("r e a d", "R EH D")]
    examples = PronunciationTask().examples_from_pairs(pairs)
    assert examples == [Example("read", ("R IY D", "R EH D")), Example("the", ("DH AH",))]
    assert [PronunciationTask().to_model_input(one.source) for one in examples] == ["r e a d", "t h e"]


def test_examples_with_labels_and_tags_can_be_read_again():
    source = "<ger> V; PST; ; a ␣ b"
    (example,) = InflectionTask(labels=("ger",)).examples_from_pairs([(source, "a ␣ c")])
    assert example == Example("ger\t;a b\tV;PST", ("a c",))
    assert InflectionTask(labels=("ger",)).to_model_input(example.source) == source


def test_a_task_learns_its_labels_from_the_recipe():
    recipe = Recipe.from_table(
        {"task": "pronounce", "data": {"corpora": [{"label": label, "file": "a"} for label in ("fre", "ger", "fre")]}}
    )
    assert task_for(recipe).labels == ("fre", "ger")
    assert task_for(Recipe.from_table({"task": "pronounce", "data": {"file": "a"}})).labels == ()


@pytest.fixture
def dev(tmp_path):
    file = tmp_path / "dev.tsv"
    file.write_text("read\tR IY1 D\nthe\tDH AH0\nread\tR EH1 D\n")
    return str(file)


def test_a_reference_is_a_lexicon_and_is_read_with_its_notices(dev):
    notices = []
    assert PronunciationTask().read_examples(None, dev, notices.append) == [
        Example("read", ("R IY1 D", "R EH1 D")), Example("the", ("DH AH0",))
    ]  # fmt: skip
    assert JOINT.read_examples(None, f"ger={dev}", notices.append)[1] == Example("ger\tthe", ("DH AH0",))
    assert notices == []


def test_a_reference_without_the_label_it_needs_is_refused(dev):
    for given, words in (
        (dev, "the label is missing. Write fre="),
        (f"spa={dev}", 'no label "spa"'),
        (None, "--reference"),
    ):
        with pytest.raises(UserError, match=words):
            JOINT.read_examples(None, given, print)
    with pytest.raises(UserError, match="--reference without --source"):
        PronunciationTask().read_examples("words.txt", dev, print)


def test_the_quick_number_is_the_first_score_without_its_interval(dev):
    examples = PronunciationTask().read_examples(None, dev, print)
    outputs = ["R EH1 D", "DH IY0"]
    assert PronunciationTask().validation_score(examples, outputs) == 50
    assert [rate.name for rate in PronunciationTask().score(examples, outputs)] == [
        "WER",
        "PER",
        "accuracy",
        "edit distance",
    ]
    forms = [Example("gehen\tV;PST", ("ging", "gieng"))]
    assert InflectionTask().validation_score(forms, ["gieng"]) == 100
    assert [rate.name for rate in InflectionTask().score(forms, ["gang"])] == ["accuracy", "edit distance"]


def test_answers_made_elsewhere_are_read_in_turn_or_beside_their_words(dev, tmp_path):
    examples, file = PronunciationTask().read_examples(None, dev, print), tmp_path / "found"
    for lines in ("R EH1 D\nDH AH0\n", "the\tDH AH0\nread\tR EH1 D\nread\tsecond\n"):
        file.write_text(lines)
        assert PronunciationTask().read_outputs(str(file), examples, print) == ["R EH1 D", "DH AH0"]


def test_an_answer_is_written_as_a_line_of_a_lexicon_that_can_be_read_back(tmp_path):
    examples = [Example("gehen\tV;PST", ("ging",)), Example("sein\tV;PST", ("war",))]
    lines = [InflectionTask().format_entry(one, output) for one, output in zip(examples, ["ging", ""], strict=True)]
    assert lines == ["gehen\tging\tV;PST", "sein\t\tV;PST"]
    (tmp_path / "found").write_text("\n".join(lines))
    assert InflectionTask().read_outputs(str(tmp_path / "found"), examples, print) == ["ging", ""]
    assert JOINT.format_entry(Example("fre\teau", ("o",)), "o") == "fre\teau\to"


def test_answers_that_do_not_fit_the_words_are_refused(dev, tmp_path):
    examples, file = PronunciationTask().read_examples(None, dev, print), tmp_path / "found"
    for lines, words in (
        ("A\n", "has 1 line but the reference has 2 different words"),
        ("read\tR\n", 'no line for 1 word; the first is "the"'),
        ("read\tR\tx\n", "line 1: expected word, phones"),
    ):
        file.write_text(lines)
        with pytest.raises(UserError, match=words):
            PronunciationTask().read_outputs(str(file), examples, print)


def test_words_are_held_out_with_all_their_answers(tmp_path):
    file = tmp_path / "words.tsv"
    file.write_text("".join(f"w{n}\tA\nw{n}\tB\nw{n}\tC\n" for n in range(40)))
    corpus, _ = PronunciationTask().open_corpora(DataConfig(file=str(file)))
    split = PronunciationTask().split_validation(corpus, Recipe.from_table({"data": {"held_out": 12}}))
    held = [source for source, target in corpus.pairs() if split.validation.contains(source, target)]
    assert len(held) == split.held_out == 12 and len(set(held)) == 4
    assert split.validation.fingerprint != split_held_out(corpus, 12, 1).validation.fingerprint


def test_words_to_validate_with_that_are_trained_on_and_letters_never_seen_are_told(tmp_path):
    (tmp_path / "train").write_text("eau\to\nchat\tʃ a\n")
    (tmp_path / "valid").write_text("eau\to\nça\ts a\n")
    train, valid = (Lexicon((("", tmp_path / name),), PronunciationTask.layout) for name in ("train", "valid"))
    warnings = [(remark.text, remark.serious) for remark in PronunciationTask().check_data(train, valid)]
    assert warnings == [
        (f"{valid}: the training data also contains 1 of the 2 words, which inflates the scores.", True),
        (f"{valid}: characters not in the training data are read as unknown: ◌\u0327", False),
    ]
    assert not list(PronunciationTask().check_data(train, None))
