"""A metrics file that is read while somebody else writes it, replaces it or has not made it yet."""

import json
import os

import pytest

from dragoman.watch.metrics import MetricsFile


def train_line(step, **values):
    numbers = {"loss": 2.0, "nll": 1.5, "rate": 0.001, "tokens_per_second": 900, "seconds": step / 2}
    return json.dumps({"event": "train", "step": step, **numbers, **values}) + "\n"


def validation_line(step, **values):
    numbers = {"loss": 1.2, "perplexity": 3.3, "score": 20.0, "measure": "BLEU"}
    return json.dumps({"event": "validation", "step": step, **numbers, **values}) + "\n"


@pytest.fixture
def path(tmp_path):
    return tmp_path / "metrics.jsonl"


def steps(file):
    return [int(step) for step in file.metrics.training["step"]]


def test_a_file_that_is_not_there_yet_is_read_when_it_is(path):
    file = MetricsFile(path)
    assert not file.refresh()
    assert len(file.metrics) == 0
    path.write_text(train_line(1))
    assert file.refresh()
    assert steps(file) == [1]
    assert not file.refresh()


def test_a_half_written_line_is_read_when_it_is_whole(path):
    whole = train_line(1) + train_line(2)
    for end in range(len(whole) + 1):
        path.write_text(whole[:end])
        file = MetricsFile(path)
        file.refresh()
        assert steps(file) == [1, 2][: whole[:end].count("\n")]
        with path.open("a") as rest:
            rest.write(whole[end:])
        file.refresh()
        assert steps(file) == [1, 2]


def test_only_what_is_new_is_read(path, monkeypatch):
    path.write_text("".join(train_line(step) for step in range(1, 1001)))
    file = MetricsFile(path)
    file.refresh()
    with path.open("a") as end:
        end.write(train_line(1001))
    monkeypatch.setattr(file.metrics, "validations", before := file.metrics.validations)
    file.refresh()
    assert file.metrics.validations is before
    assert steps(file) == list(range(1, 1002))


@pytest.mark.parametrize("content", [train_line(7), train_line(7) * 50, ""], ids=["shorter", "longer", "empty"])
def test_a_file_that_is_overwritten_is_read_anew(path, content):
    path.write_text("".join(train_line(step) for step in range(1, 10)))
    file = MetricsFile(path)
    file.refresh()
    path.write_text(content)
    file.refresh()
    assert steps(file) == [7] * content.count("\n")


def test_a_file_that_is_replaced_by_a_longer_one_with_the_same_beginning_is_read_anew(path, tmp_path):
    path.write_text(train_line(1) + train_line(2))
    file = MetricsFile(path)
    file.refresh()
    other = tmp_path / "other"
    other.write_text(train_line(1) + train_line(5) + train_line(6))
    other.replace(path)
    file.refresh()
    assert steps(file) == [1, 5, 6]


def test_a_file_that_is_gone_leaves_nothing(path):
    path.write_text(train_line(1))
    file = MetricsFile(path)
    file.refresh()
    path.unlink()
    assert file.refresh()
    assert len(file.metrics) == 0
    assert not file.refresh()


def test_what_is_no_event_is_passed_over(path):
    events = ['{"event": 1, "step": 2}', '{"event": "train"}', '{"event": "train", "step": true}']
    lines = ["{", "[]", "null", "7", *events, "[" * 9999, train_line(3)]
    path.write_bytes(b"\xff\xfe\n" + "\n".join(lines).encode())
    file = MetricsFile(path)
    file.refresh()
    assert steps(file) == [3]


def test_numbers_that_are_none_are_left_out(path):
    bare = '{"event": "validation", "step": 2}\n'
    path.write_text(train_line(1, nll="x", rate=10**400) + validation_line(1, loss=None, score="y", measure=7) + bare)
    file = MetricsFile(path)
    file.refresh()
    assert file.metrics.training["nll"][0] != file.metrics.training["nll"][0]  # not a number
    first, second = file.metrics.validations
    assert (first.loss, first.perplexity, first.score, second.loss) == (None, 3.3, None, None)


def test_a_score_is_read_as_this_version_writes_it_and_as_the_first_did(path):
    old = {"event": "validation", "step": 1, "loss": 1.2, "perplexity": 3.3, "bleu": 20.0}
    new = validation_line(2, score=31.5, measure="WER")
    path.write_text(json.dumps(old) + "\n" + new + validation_line(3, score=None, measure=""))
    file = MetricsFile(path)
    file.refresh()
    found = [(each.score, each.measure) for each in file.metrics.validations]
    assert found == [(20.0, "BLEU"), (31.5, "WER"), (None, "")]


def test_samples_are_read_as_this_version_writes_them_and_as_the_first_did(path):
    sample = {"source": "a b", "reference": "B A", "translation": "B"}
    path.write_text(
        validation_line(1, source="a", translation="A") + validation_line(2, samples=[sample, 7]) + validation_line(3)
    )
    file = MetricsFile(path)
    file.refresh()
    assert [found.samples for found in file.metrics.validations] == [
        [{"source": "a", "reference": "", "translation": "A"}], [sample], [],
    ]  # fmt: skip


@pytest.mark.parametrize("make", [os.mkfifo, lambda path: path.symlink_to("/dev/zero")], ids=["FIFO", "device"])
def test_what_is_not_a_regular_file_is_not_read(path, make):
    path.write_text(train_line(1))
    file = MetricsFile(path)
    assert file.refresh()
    path.unlink()
    make(path)
    assert file.refresh()
    assert len(file.metrics) == 0
    assert not file.refresh()


def test_a_line_without_end_is_passed_over(path):
    file = MetricsFile(path)
    with path.open("wb") as written:
        written.write(train_line(1).encode())
        written.seek(40 << 20)
        written.write(b"\n" + train_line(2).encode())
    assert file.refresh()
    assert steps(file) == [1, 2]
