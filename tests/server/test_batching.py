"""D7: batches are made across clients, and never mix or change an answer."""

import os
from concurrent.futures import ThreadPoolExecutor

import pytest

import dragoman
from dragoman.server.line import PATIENCE, SHORT, Job, Line


@pytest.fixture(scope="module")
def sentences():
    return [" ".join("abcdefgh"[(number >> 3 * place) & 7] for place in range(1 + number % 6)) for number in range(600)]


def test_many_clients_get_the_very_answers_that_one_gets_alone(server, run, sentences):
    unique = list(dict.fromkeys(sentences))
    offline = [best.text for best in dragoman.load(run).translate(unique, details=True)]
    with ThreadPoolExecutor(32) as pool:
        served = list(pool.map(server.translate, unique))
    assert served == offline
    assert len(set(offline)) > 100, "a model that always says the same proves nothing"


def test_scores_are_those_of_translating_alone(server, run):
    alone = dragoman.load(run).translate(["a b c", "d e"], details=True, n_best=3, beam=3)
    asked = server.post("/v1/translate", {"texts": ["a b c", "d e"], "n_best": 3, "beam": 3}).json()["translations"]
    for row, others in zip(asked, alone, strict=True):
        assert [each["text"] for each in row] == [each.text for each in others]
        assert [each["score"] for each in row] == pytest.approx([each.score for each in others], abs=1e-4)


def line_of(threads=2):
    clock = [100.0]
    return Line(threads, now=lambda: clock[0]), clock


def job(number, *sizes, key="k", budget=1024):
    return Job(number, key, sizes or [10], budget)


def taken(batch):
    return [(each.number, place) for each, place in batch.units]


def test_a_batch_takes_from_each_request_in_turn():
    line, _ = line_of(threads=1)
    line.put(job(1, *[10] * 100))
    line.put(job(2, 10))
    assert taken(line.take())[:3] == [(1, 0), (2, 0), (1, 1)]


def test_a_batch_stays_within_its_budget_and_its_kind():
    line, _ = line_of(threads=1)
    line.put(job(1, *[32] * 10, budget=128))
    line.put(job(2, 32, key="other"))
    first = line.take()
    assert taken(first) == [(1, 0), (1, 1), (1, 2), (1, 3)]
    line.cancel(1)
    line.done(first)
    line.lately = 0
    assert taken(line.take()) == [(2, 0)]


def test_threads_share_what_is_there():
    line, _ = line_of(threads=2)
    for number in range(64):
        line.put(job(number))
    assert [len(line.take().units), len(line.take().units)] == [32, 32]


def test_a_lone_request_does_not_wait_for_company_and_one_in_a_crowd_does_so_briefly():
    line, clock = line_of(threads=1)
    line.put(job(1))
    assert line.worth_waiting() == 0
    line.lately = 40
    line.first_at = clock[0]
    assert line.worth_waiting() == pytest.approx(PATIENCE)
    clock[0] += PATIENCE
    assert line.worth_waiting() <= 0


def test_while_short_sentences_wait_only_one_thread_is_with_long_ones():
    line, _ = line_of(threads=2)
    line.put(job(1, *[SHORT + 1] * 4, budget=SHORT))
    line.put(job(2, *[5] * 100))
    assert [line.take().lane, line.take().lane] == ["long", "short"]


def test_a_thread_with_long_sentences_lets_short_ones_pass_if_no_other_does():
    line, _ = line_of(threads=1)
    line.put(job(1, SHORT + 1))
    assert line.take().lane == "long"
    assert line.pass_by() is None
    line.put(job(2, 5))
    passing = line.pass_by()
    assert passing.lane == "short"
    line.put(job(3, 5))
    assert line.pass_by() is None, "somebody is with short ones"
    line.done(passing)
    assert taken(line.pass_by()) == [(3, 0)]


def test_of_looks_there_is_one_at_a_time():
    line, _ = line_of(threads=2)
    for number in range(2):
        line.put(Job(number, None, [0], 0, own_lane="look"))
    line.put(job(2, 5))
    first = line.take()
    assert [first.lane, line.take().lane] == ["look", "short"]
    assert line.next_lane() is None
    line.done(first)
    assert line.next_lane() == "look"


def test_a_request_that_is_gone_is_neither_taken_nor_answered():
    line, _ = line_of(threads=1)
    line.put(job(1, 10, 10))
    line.put(job(2, 10))
    batch = line.take()
    line.cancel(1)
    assert batch.wanted
    assert [each.number for each in line.settle(batch, ["x"] * len(batch.units))] == [2]
    line.cancel(2)
    assert not batch.wanted
    line.done(batch)
    assert not any(line.counts.values())
    assert not line.jobs


@pytest.mark.long
def test_ten_thousand_sentences_none_mixed(start, run):
    server = start(run, "--languages", "toy=en:de")
    unique = [" ".join("abcdefgh"[(number >> 3 * place) & 7] for place in range(5)) for number in range(10_000)]
    offline = dragoman.load(run).translate(unique)
    with ThreadPoolExecutor(64) as pool:
        assert list(pool.map(server.translate, unique)) == offline
    assert os.path.exists(f"/proc/{server.worker()}")  # noqa: PTH110  the same one is alive
