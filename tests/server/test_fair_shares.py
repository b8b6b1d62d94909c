"""S2, D5, D6: no client stops the others. Shares are counted in batches; a request stops wherever it is."""

import json
import logging
from collections import Counter

import pytest
from workers import is_idle, slices_of, work_through, worker_of

import dragoman
from dragoman import native
from dragoman.server.details import merge_sentences
from dragoman.server.encoding import encode_json
from dragoman.server.limits import Limits
from dragoman.server.registry import ModelRegistry
from dragoman.server.scheduler import MAX_SHORT_TOKENS, BatchScheduler, Job
from dragoman.text.sentences import SegmentedText

LONG = " ".join("abcdefgh" * 40)  # longer than the sentences of the training: it is read in several segments


# ---- shares, without a clock


def job(number, client, units=1, size=10, lane=None):
    return Job(number, number, [size] * units, 64, client=client, fixed_lane=lane)


def served(scheduler, batches, seconds=lambda _client: 1.0):
    """Let one thread take so many batches, each of which takes so long; return the number of each client."""
    counts = Counter()
    for _ in range(batches):
        scheduler.recent_load = 0  # nobody waits for further units
        batch = scheduler.next_batch()
        counts[batch.only_client] += 1
        scheduler.charge(batch, seconds(batch.only_client))
        scheduler.record_results(batch, [None] * len(batch.units))
        scheduler.finish_batch(batch)
    return counts


def test_a_client_with_eight_requests_gets_the_same_share_as_one_with_a_single_request():
    scheduler = BatchScheduler(threads=1)
    for number in range(8):
        scheduler.submit(job(number, "many", units=1000))
    scheduler.submit(job(8, "one", units=1000))
    assert served(scheduler, 40) == {"many": 20, "one": 20}


def test_requests_of_one_client_share_its_time():
    scheduler = BatchScheduler(threads=1)
    jobs = [job(number, "one", units=1000) for number in range(4)]
    for each in jobs:
        scheduler.submit(each)
    served(scheduler, 40)
    assert [each.seconds for each in jobs] == [10.0] * 4


def test_shares_are_equal_in_time_and_not_in_batches():
    scheduler = BatchScheduler(threads=1)
    scheduler.submit(job(1, "slow", units=1000, lane="slice"))
    scheduler.submit(job(2, "quick", units=1000))
    counts = served(scheduler, 110, seconds={"slow": 10.0, "quick": 1.0}.get)
    assert counts == {"slow": 10, "quick": 100}


def test_a_new_client_is_next_but_has_no_right_to_the_time_before():
    scheduler = BatchScheduler(threads=1)
    scheduler.submit(job(1, "old", units=1000))
    served(scheduler, 50)
    scheduler.submit(job(2, "new", units=1000))
    assert served(scheduler, 1) == {"new": 1}
    assert served(scheduler, 40) == {"old": 20, "new": 20}


def test_one_thread_is_left_to_the_others():
    scheduler = BatchScheduler(threads=2)
    scheduler.submit(job(1, "other"))
    served(scheduler, 1)
    scheduler.submit(job(2, "greedy", units=1000))
    assert scheduler.next_batch().only_client == "greedy"
    scheduler.submit(job(3, "other"))
    assert scheduler.next_batch().only_client == "other", "although the greedy one has more to do"


def test_between_two_steps_the_work_of_those_who_have_used_less_is_done():
    scheduler = BatchScheduler(threads=2)
    scheduler.submit(job(1, "long", size=MAX_SHORT_TOKENS + 1))
    long = scheduler.next_batch()
    scheduler.submit(job(2, "short", units=100))
    first = scheduler.next_batch()  # of the other thread
    assert first.only_client == "short"
    assert scheduler.next_brief_batch(long) is None, "nobody has used anything yet"
    scheduler.charge(long, 1.0)
    assert scheduler.next_brief_batch(long) is None, "of the same client, which has a thread already"
    scheduler.submit(job(3, "third"))
    assert scheduler.next_brief_batch(long).only_client == "third"


def test_an_idle_thread_takes_what_would_interrupt_another():
    scheduler = BatchScheduler(threads=2)
    scheduler.submit(job(1, "busy", units=100))
    running = scheduler.next_batch()
    scheduler.charge(running, 1.0)
    scheduler.submit(job(2, "other"))
    scheduler.idle_threads = 1
    assert scheduler.next_brief_batch(running) is None
    scheduler.idle_threads = 0
    assert scheduler.next_brief_batch(running).only_client == "other"


def test_a_batch_of_several_clients_has_few_units_of_each():
    scheduler = BatchScheduler(threads=1)
    for number in range(4):
        scheduler.submit(Job(number, "key", [10], 1024, client=f"short {number}"))
    scheduler.submit(Job(9, "key", [10] * 2500, 1024, client="huge"))
    assert Counter(each.client for each, _ in scheduler.next_batch().units)["huge"] == 2


# ---- one worker, driven by hand


@pytest.fixture(scope="module")
def registry(run, other_runs):
    loaded = ModelRegistry("cpu")
    loaded.load_all([str(run), str(other_runs["generate"])], {"toy": ("en", "de")})
    return loaded


TRANSLATE = {"id": 1, "operation": "translate", "model": "toy"}


def test_details_are_computed_in_slices_and_stop_when_the_request_is_cancelled(registry):
    """The deadline and a closed connection arrive in the worker as the same message."""
    worker, channel = worker_of(registry)
    texts = [f"{first} {second} {third}" for first in "abcdefgh" for second in "abcdefgh" for third in "abcdefgh"]
    question = {**TRANSLATE, "texts": texts, "details": True}
    worker.handle_messages([question])
    slices = 0

    def count(batch):
        nonlocal slices
        slices += batch.units[0][0].key == ("details", id(registry.models["toy"]))
        if slices == 2:
            worker.handle_messages([{"id": 1, "operation": "cancel"}])

    work_through(worker, count)
    assert slices == 2
    assert not channel.results and not channel.problems
    assert is_idle(worker.scheduler)
    worker.handle_messages([question])
    slices = 3
    assert work_through(worker, count) > 40, "512 translations of 20 tokens take many slices of 256"
    assert len(channel.results[0]) == 512


def test_a_short_request_comes_between_two_slices_of_details(registry):
    worker, channel = worker_of(registry)
    texts = [f"{first} {second} {third}" for first in "abcdefgh" for second in "abcdefgh" for third in "abcdefgh"]
    worker.handle_messages([{**TRANSLATE, "texts": texts, "details": True, "client": "a"}])
    done, details = [], ("details", id(registry.models["toy"]))

    def ask(batch):
        done.append(batch.units[0][0].key)
        if done[-1] == details and done.count(details) == 2:
            worker.handle_messages([{**TRANSLATE, "id": 2, "texts": ["a b c"], "client": "b"}])

    work_through(worker, ask)
    assert done.count(details) > 10
    assert [len(result) for result in channel.results] == [1, 512]


def interrupt_first_search(worker, monkeypatch, message):
    """Let a message arrive when the first search has made a step, and interrupt brief work at once."""
    monkeypatch.setattr("dragoman.server.worker._BRIEF_SECONDS", 0.0)
    monkeypatch.setattr("dragoman.native.model._ROWS_BETWEEN_PAUSES", 1)
    charge, arriving = BatchScheduler.charge, [message]

    def charge_and_receive(self, batch, seconds):
        charge(self, batch, 1.0)
        if batch.lane == "short" and arriving:
            worker.handle_messages([arriving.pop()])

    monkeypatch.setattr(BatchScheduler, "charge", charge_and_receive)


@pytest.mark.skipif(not native.is_available(), reason="built without kernels")
def test_a_batch_of_short_sentences_lets_other_clients_go_first(registry, monkeypatch):
    """A batch of sentences that are not long was once decoded to its end: 90 ms with a wide beam."""
    worker, channel = worker_of(registry)
    interrupt_first_search(worker, monkeypatch, {**TRANSLATE, "id": 2, "texts": ["a b c"], "client": "b"})
    worker.handle_messages([{**TRANSLATE, "texts": ["a b c d e f g h"] * 8, "client": "a"}])
    assert work_through(worker) == 1, "the batch of the other client is a part of it"
    assert [len(result) for result in channel.results] == [1, 8]
    assert is_idle(worker.scheduler)


@pytest.mark.skipif(not native.is_available(), reason="built without kernels")
def test_a_batch_of_short_sentences_stops_when_its_request_is_cancelled(registry, monkeypatch):
    worker, channel = worker_of(registry)
    interrupt_first_search(worker, monkeypatch, {"id": 1, "operation": "cancel"})
    worker.handle_messages([{**TRANSLATE, "texts": ["a b c d e f g h"] * 8}])
    batch = worker.scheduler.next_batch()
    worker.decode_batch(batch)
    assert batch.jobs[0].remaining == len(batch.jobs[0].sizes)
    assert not channel.results and not channel.problems
    assert is_idle(worker.scheduler)


def test_a_text_without_sentence_ends_is_split_and_tokenized_in_slices(registry, monkeypatch):
    worker, channel = worker_of(registry)
    slices = slices_of(worker, monkeypatch)
    worker.handle_messages([{**TRANSLATE, "texts": [LONG], "beam": 1}])
    work_through(worker)
    assert sum(getattr(run, "__name__", "") == "_split_chunks" for run in slices) > 100
    assert len(channel.results) == 1


def test_an_answer_for_a_layout_is_merged_and_encoded_in_slices(registry, monkeypatch):
    """The HTTP process once merged and encoded megabytes, and nobody else was answered meanwhile."""
    worker, channel = worker_of(registry)
    sentences, gaps = ["a b c", "d e", "f g", "h"], [["", "\n", " ", ""], ["  ", "\n"]]
    texts = [SegmentedText(("a b c", "d e", "f g"), tuple(gaps[0])), SegmentedText(("h",), tuple(gaps[1]))]
    options = {"n_best": 3, "beam": 3, "details": True, "details_of": "all"}
    worker.handle_messages([{**TRANSLATE, "texts": sentences, **options}])
    work_through(worker)
    slices = slices_of(worker, monkeypatch)
    monkeypatch.setattr("dragoman.server.stage._BRIEF_SIZE", 0)
    worker.handle_messages([{**TRANSLATE, "texts": sentences, "layout": gaps, **options}])
    work_through(worker)
    ranked, encoded = channel.results
    merged = [
        [merge_sentences(text, [row[rank] for row in rows]) for rank in range(3)]
        for text, rows in zip(texts, [ranked[:3], ranked[3:]], strict=True)
    ]
    assert encoded == encode_json(merged)
    assert (
        Counter(run.__qualname__ for run in slices if hasattr(run, "__qualname__"))[
            "TranslationRequest._encode.<locals>.run"
        ]
        > 6 + 9
    ), "after each translation, and after each sentence with details"


def test_an_empty_text_of_a_layout_is_one_empty_translation(registry):
    worker, channel = worker_of(registry)
    worker.handle_messages([{**TRANSLATE, "texts": [], "layout": [["\n"]]}])
    work_through(worker)
    (encoded,) = channel.results
    assert json.loads(encoded) == [[{"text": "\n", "score": 0.0, "log_probability": 0, "truncated": False}]]


STOPPED = {
    "stream": {"operation": "stream", "model": "toy", "texts": ["a b c d e f g h"]},
    "prefix": {"operation": "translate", "model": "toy", "texts": [LONG], "prefix": "a b c"},
    "sampling": {"operation": "generate", "model": "generate", "texts": ["The"], "length": 500, "n_best": 8},
    "inspection": {
        "operation": "inspect", "model": "toy", "text": "a b c", "prefix": "", "ablate_heads": [], "trace": True,
    },
}  # fmt: skip


@pytest.mark.parametrize("kind", STOPPED)
def test_a_cancelled_request_stops_at_the_next_step(registry, kind, monkeypatch):
    worker, channel = worker_of(registry)
    scheduler, steps, charge = worker.scheduler, [], BatchScheduler.charge

    def cancel_at_the_third_step(self, batch, seconds):
        charge(self, batch, seconds)
        steps.append(batch.lane)
        if len(steps) == 3:
            worker.handle_messages([{"id": 7, "operation": "cancel"}])

    monkeypatch.setattr(BatchScheduler, "charge", cancel_at_the_third_step)
    worker.handle_messages([{"id": 7, **STOPPED[kind]}])
    work_through(worker)
    assert len(steps) <= 5, "the third step, the end of its batch, and nothing else"
    assert not channel.results and not channel.problems
    assert is_idle(scheduler)


def test_a_request_that_costs_too_much_is_refused_before_anything_is_decoded(registry):
    worker, channel = worker_of(registry, Limits(request_work=1000))
    lanes = []
    for number, options in enumerate([{"beam": 1}, {"beam": 8}, {"beam": 1, "details": True, "n_best": 1}], 1):
        worker.handle_messages([{**TRANSLATE, "id": number, "texts": [LONG], **options}])
        work_through(worker, lambda batch: lanes.append(batch.lane))
    assert len(channel.results) == 1, "320 tokens with one hypothesis each"
    assert [problem[:2] for problem in channel.problems] == [(422, "too_much_work")] * 2
    assert "this server accepts 1,000" in channel.problems[0][2]
    sample = {"operation": "generate", "model": "generate", "texts": ["The"], "length": 300}
    worker.handle_messages([{"id": 9, **sample}])
    assert channel.problems[-1][1] == "too_much_work"


def test_a_sentence_that_is_too_long_to_read_at_once_is_refused(registry):
    worker, channel = worker_of(registry, Limits(sentence_tokens=4))
    for number, text in enumerate(["a b c", "a b c d e f"]):
        worker.handle_messages([{**TRANSLATE, "id": number, "texts": [text]}])
        work_through(worker)
    assert len(channel.results) == 1
    assert "A sentence has 7 tokens; this server accepts at most 4." in channel.problems[0][2]


def test_settings_of_a_recipe_are_subject_to_the_limits_of_the_server(run, monkeypatch):
    warnings = []
    monkeypatch.setattr(
        logging.getLogger("dragoman.server"), "warning", lambda *words: warnings.append(words[0] % words[1:])
    )
    limits = Limits(recipe_beam=2, recipe_extra_length=5, recipe_batch_tokens=64)
    strict = ModelRegistry("cpu", limits=limits)
    strict.load_all([str(run)], {"toy": ("en", "de")})
    config = strict.models["toy"].decoding_config(None, 1)
    assert (config.beam, config.extra_length, config.batch_tokens) == (2, 5, 64)
    assert strict.models["toy"].describe()["beam"] == 2
    assert "[decoding] beam = 4 exceeds what the server accepts; 2 is used" in warnings[0]


# ---- a real server


def test_a_request_that_costs_too_much_is_refused_with_the_cost_and_the_limit(server):
    for texts, options in ((["a\n" * 2500] * 32, {}), (["a " * 2500] * 32, {"beam": 8, "n_best": 8, "details": True})):
        decoded = server.metric("decoded_total")
        answer = server.post("/v1/translate", {"texts": texts, **options})
        assert (answer.status, answer.json()["code"]) == (422, "too_much_work")
        assert "units of work" in answer.json()["error"] and "250,000" in answer.json()["error"]
        assert server.metric("decoded_total") == decoded


def test_the_best_translation_has_details_and_the_others_on_request(server, run):
    question = {"text": "a b c.\nd e", "n_best": 3, "beam": 3, "details": True}
    best = server.post("/v1/translate", question).json()["translations"][0]
    assert ["alignment" in each for each in best] == [True, False, False]
    every = server.post("/v1/translate", {**question, "details_of": "all"}).json()["translations"][0]
    assert ["alignment" in each for each in every] == [True, True, True]
    assert every[0] == best[0]
    record = dragoman.load(run).inspect("a b c.", target=every[0]["text"].split("\n")[0])
    assert len(record.target_spans) - 1 == sum(token["end"] <= len(record.target_text) for token in best[0]["tokens"])


def test_a_sentence_that_is_read_in_several_parts_is_streamed(server):
    """The parts of a sentence were once taken for sentences."""
    whole = server.translate(LONG)
    body = server.post("/v1/translate", {"text": LONG, "stream": True}).body.decode()
    events = [json.loads(line.removeprefix("data: ")) for line in body.splitlines() if line.startswith("data: ")]
    assert events[-1]["translations"][0][0]["text"] == whole
    assert whole.startswith(events[-2]["text"][:100]), "the first parts are complete"


def test_limits_that_are_lower_than_those_of_the_schema_apply(start, run):
    lower = start(run, "--languages", "toy=en:de", "--limit", "beam=2", "--limit", "texts=1")
    for path, question in (
        ("/v1/translate", {"text": "a", "beam": 3}),
        ("/v1/translate", {"text": "a", "n_best": 3}),
        ("/v1/translate", {"texts": ["a", "b"]}),
        ("/v1/attention", {"text": "a", "beam": 3}),
        ("/translate", {"q": "a", "source": "en", "target": "de", "alternatives": 2}),
    ):
        assert lower.post(path, question).status == 422
