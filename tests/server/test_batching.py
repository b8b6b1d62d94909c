"""D7: batches across clients never mix or change translations."""

import os
from concurrent.futures import ThreadPoolExecutor

import pytest

import dragoman
from dragoman.server.scheduler import BATCHING_DELAY_SECONDS, MAX_SHORT_TOKENS, BatchScheduler, Job


@pytest.fixture(scope="module")
def sentences():
    return [" ".join("abcdefgh"[(number >> 3 * place) & 7] for place in range(1 + number % 6)) for number in range(600)]


def test_concurrent_clients_get_the_same_translations_as_offline(server, run, sentences):
    unique = list(dict.fromkeys(sentences))
    offline = [best.text for best in dragoman.load(run).translate(unique, details=True)]
    with ThreadPoolExecutor(32) as pool:
        served = list(pool.map(server.translate, unique))
    assert served == offline
    assert len(set(offline)) > 100, "a model that always says the same proves nothing"


def test_scores_equal_those_of_offline_translation(server, run):
    alone = dragoman.load(run).translate(["a b c", "d e"], details=True, n_best=3, beam=3)
    asked = server.post("/v1/translate", {"texts": ["a b c", "d e"], "n_best": 3, "beam": 3}).json()["translations"]
    for row, others in zip(asked, alone, strict=True):
        assert [each["text"] for each in row] == [each.text for each in others]
        assert [each["score"] for each in row] == pytest.approx([each.score for each in others], abs=1e-4)


def scheduler_of(threads=2):
    clock = [100.0]
    return BatchScheduler(threads, clock=lambda: clock[0]), clock


def job(number, *sizes, key="k", budget=1024):
    return Job(number, key, sizes or [10], budget)


def taken(batch):
    return [(job.message_id, index) for job, index in batch.units]


def test_a_batch_takes_from_each_request_in_turn():
    scheduler, _ = scheduler_of(threads=1)
    scheduler.submit(job(1, *[10] * 100))
    scheduler.submit(job(2, 10))
    assert taken(scheduler.next_batch())[:3] == [(1, 0), (2, 0), (1, 1)]


def test_a_batch_stays_within_its_budget_and_its_kind():
    scheduler, _ = scheduler_of(threads=1)
    scheduler.submit(job(1, *[32] * 10, budget=128))
    scheduler.submit(job(2, 32, key="other"))
    first = scheduler.next_batch()
    assert taken(first) == [(1, 0), (1, 1), (1, 2), (1, 3)]
    scheduler.cancel(1)
    scheduler.finish_batch(first)
    scheduler.recent_load = 0
    assert taken(scheduler.next_batch()) == [(2, 0)]


@pytest.mark.parametrize(("lane", "alone", "crowded"), [("long", 10, 4), ("slice", 10, 2)])
def test_batches_of_what_takes_long_are_smaller_while_there_are_several_requests(lane, alone, crowded):
    for others, expected in ((0, alone), (1, crowded)):
        scheduler, _ = scheduler_of(threads=1)
        scheduler.submit(Job(1, "k", [64] * 10, 1024, fixed_lane=lane))
        for number in range(others):
            scheduler.submit(Job(2 + number, "other", [64], 1024, fixed_lane="inspect"))
        assert len(scheduler.next_batch().units) == expected


def test_threads_share_the_queued_units():
    scheduler, _ = scheduler_of(threads=2)
    for number in range(64):
        scheduler.submit(job(number))
    assert [len(scheduler.next_batch().units), len(scheduler.next_batch().units)] == [32, 32]


def test_a_single_request_is_not_delayed_and_one_among_many_is_delayed_briefly():
    scheduler, clock = scheduler_of(threads=1)
    scheduler.submit(job(1))
    assert scheduler.batching_delay() == 0
    scheduler.recent_load = 40
    scheduler.queue_started_at = clock[0]
    assert scheduler.batching_delay() == pytest.approx(BATCHING_DELAY_SECONDS)
    clock[0] += BATCHING_DELAY_SECONDS
    assert scheduler.batching_delay() <= 0


def test_while_short_sentences_wait_only_one_thread_decodes_long_ones():
    scheduler, _ = scheduler_of(threads=2)
    scheduler.submit(job(1, *[MAX_SHORT_TOKENS + 1] * 4, budget=MAX_SHORT_TOKENS))
    scheduler.submit(job(2, *[5] * 100))
    assert [scheduler.next_batch().lane, scheduler.next_batch().lane] == ["long", "short"]


def test_a_thread_with_long_sentences_takes_short_ones_if_no_other_thread_does():
    scheduler, _ = scheduler_of(threads=1)
    scheduler.submit(job(1, MAX_SHORT_TOKENS + 1))
    long = scheduler.next_batch()
    assert long.lane == "long"
    assert scheduler.next_brief_batch(long) is None
    scheduler.submit(job(2, 5))
    passing = scheduler.next_brief_batch(long)
    assert passing.lane == "short"
    scheduler.submit(job(3, 5))
    assert scheduler.next_brief_batch(long) is None, "somebody is with short ones"
    scheduler.charge(long, 1.0)
    assert taken(scheduler.next_brief_batch(long)) == [(3, 0)], "they have used less"


def test_one_inspection_runs_at_a_time():
    scheduler, _ = scheduler_of(threads=2)
    for number in range(2):
        scheduler.submit(Job(number, None, [0], 0, fixed_lane="inspect"))
    scheduler.submit(job(2, 5))
    first = scheduler.next_batch()
    assert [first.lane, scheduler.next_batch().lane] == ["inspect", "short"]
    scheduler.submit(job(3, 5))
    assert scheduler.next_batch().lane == "short"
    scheduler.finish_batch(first)
    assert scheduler.next_batch().lane == "inspect"


def test_a_cancelled_request_is_neither_decoded_nor_answered():
    scheduler, _ = scheduler_of(threads=1)
    scheduler.submit(job(1, 10, 10))
    scheduler.submit(job(2, 10))
    batch = scheduler.next_batch()
    scheduler.cancel(1)
    assert batch.is_wanted
    assert [each.message_id for each in scheduler.record_results(batch, ["x"] * len(batch.units))] == [2]
    scheduler.cancel(2)
    assert not batch.is_wanted
    scheduler.finish_batch(batch)
    assert not any(scheduler.queued_units.values())
    assert not scheduler.jobs


@pytest.mark.long
def test_ten_thousand_sentences_are_not_mixed_up(start, run):
    server = start(run, "--languages", "toy=en:de")
    unique = [" ".join("abcdefgh"[(number >> 3 * place) & 7] for place in range(5)) for number in range(10_000)]
    offline = dragoman.load(run).translate(unique)
    with ThreadPoolExecutor(64) as pool:
        assert list(pool.map(server.translate, unique)) == offline
    assert os.path.exists(f"/proc/{server.worker()}")  # noqa: PTH110  the same one is alive
