"""Some validation sentences are written down at every validation, as they were translated then."""

from traces import journal

from dragoman.tasks.task import Example
from dragoman.training.trainer import MAX_SAMPLE_CHARACTERS, MAX_SAMPLES, select_samples


def test_each_validation_in_the_journal_has_its_samples(trained):
    validations = [entry for entry in journal(trained) if entry["event"] == "validation"]
    assert [entry["step"] for entry in validations] == [4, 8]
    for entry in validations:
        assert [set(sample) for sample in entry["samples"]] == [{"source", "reference", "translation"}] * 2
    first, last = ([sample["source"] for sample in entry["samples"]] for entry in validations)
    assert first == last


def test_the_first_sentence_and_others_far_from_it_are_shown():
    texts = [str(number) for number in range(200)]
    samples = select_samples([Example(text, (text,)) for text in texts], texts)
    assert [sample.source for sample in samples] == ["0", "34", "68", "102", "136", "170"]
    assert len(samples) == MAX_SAMPLES


def test_few_sentences_are_all_shown_and_long_ones_cut():
    (sample,) = select_samples([Example("a" * 9999, ("b", "another"))], ["c"])
    assert (len(sample.source), sample.reference, sample.translation) == (MAX_SAMPLE_CHARACTERS, "b", "c")
