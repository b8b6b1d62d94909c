"""The memory experiment: run with a tiny budget, stopped and resumed; its statistics on small examples."""

import json
import math
import re
from itertools import count

import pytest
import torch
from small_lab import check_report
from toy_lab import toy_lab

from dragoman.corpora.stories import Story, stories
from dragoman.errors import TrainingStopped
from dragoman.lab import memory
from dragoman.lab.memory_training import (
    MemoryTrainingConfig,
    build_memory_network,
    build_vocabulary,
    encode_stories,
    predict,
    train_memory_network,
)
from dragoman.report import ReportTable
from dragoman.tasks.events import Notice, ProgressUpdate
from dragoman.training.events import StopRequest

STORY = Story(
    ("Ada walked to the attic.", "Emil walked to the cellar.", "Ada took the violin.", "Emil sneezed."),
    "Where is the violin?",
    "attic",
    (0, 2),
)


def parts_of(lab):
    return {file.name: file.stat().st_mtime_ns for file in (lab.folder / "parts").iterdir()}


def test_the_experiment_writes_a_report_within_a_second_and_repeats_nothing(tmp_path, corpus):
    events = []
    lab = toy_lab(tmp_path, corpus, seconds=1.0, name="memory", on_event=events.append)

    report = memory.run(lab)

    rights, looks, starts = [part for part in report.parts if isinstance(part, ReportTable)]
    assert [row[0] for row in rights.rows] == ["one fact", "two facts", "three facts"]
    assert all(0 <= cell <= 100 for row in rights.rows for cell in row[1:])
    assert len(looks.rows) == len(starts.rows) == 9
    check_report(report, lab, tables=3, pictures=4)
    nothing = ": Nothing was learned in this budget; it needs about 3 minutes"
    assert sum(nothing in finding for finding in report.findings) == 3
    assert report.parts[0].startswith("9 networks with up to 1 start each")
    assert any(isinstance(event, ProgressUpdate) and event.total == 100 for event in events)

    made, events[:] = parts_of(lab), []
    again = memory.run(toy_lab(tmp_path, corpus, seconds=1.0, name="memory", on_event=events.append))
    assert parts_of(lab) == made and len(made) == 12
    assert [type(event) for event in events] == [Notice]  # the plan
    assert json.dumps(again.results) == json.dumps(report.results) and again.findings == report.findings


def test_a_stopped_experiment_keeps_finished_trainings(tmp_path, corpus):
    stop = StopRequest()

    def stop_at_the_first_network_with_two_hops(event):
        stop.requested = isinstance(event, ProgressUpdate) and bool(re.search("2 hops|hops-2", event.description))

    on_event = stop_at_the_first_network_with_two_hops
    lab = toy_lab(tmp_path, corpus, seconds=1.0, name="memory", on_event=on_event, stop=stop)
    with pytest.raises(TrainingStopped, match="one fact, 2 hops"):
        memory.run(lab)
    assert "facts-1-hops-1-start-1.json" in parts_of(lab)
    assert "facts-1-hops-2-start-1.json" not in parts_of(lab)


def test_trainings_and_starts_grow_with_the_budget_and_stay_within_it():
    for seconds in (10, 18, 60, 180, 1000):
        planned = sum(
            3 * memory.starts_within(seconds) * memory.training_seconds(facts, seconds) for facts in (1, 2, 3)
        )
        assert 0.8 * seconds < planned < 0.9 * seconds
    assert [memory.starts_within(seconds) for seconds in (9, 180, 1000)] == [1, 2, 5]
    assert memory.story_counts(180)["train"] == memory.story_counts(1000)["train"] == 10_000
    assert memory.story_counts(18)["train"] < 4000


def test_the_last_mention_answers_with_the_nearest_place_before_it():
    assert (
        memory.answer_by_last_mention(STORY) == "cellar"
    )  # the last sentence about the violin names none; before it, Emil went
    about_emil = Story(STORY.sentences, "Where is Emil?", "cellar", (1,))
    assert memory.answer_by_last_mention(about_emil) == "cellar"
    before = Story((*STORY.sentences, "Ada ran to the stable."), "Where was the violin before the stable?", "attic", ())
    assert memory.answer_by_last_mention(before) == "cellar"


def test_a_hop_finds_a_fact_if_it_has_the_largest_weight():
    weights = torch.tensor([[[0.7, 0.1, 0.1, 0.1], [0.1, 0.2, 0.6, 0.1]], [[0.7, 0.1, 0.1, 0.1], [0.1, 0.6, 0.2, 0.1]]])
    result = memory.supporting_fact_rates(weights, [STORY, STORY])
    assert result == {"hops": [1.0, 0.5], "all": 0.5}


def test_a_difference_within_the_interval_is_not_reported():
    assert memory.describe_gain(0.50, 0.52, 1000) == "makes no clear difference"
    assert memory.describe_gain(0.50, 0.90, 1000) == "raises the accuracy by 40.0 points"
    assert memory.describe_gain(0.90, 0.50, 1000) == "lowers the accuracy by 40.0 points"


def test_networks_that_have_not_learned_are_not_compared():
    baseline = {"usual": 0.2, "last mention": 0.4, "unigram loss": 2.0}
    poor, good = {"test": 0.3, "loss": 1.9}, {"test": 0.9, "loss": 0.2}

    def finding(*networks):
        return memory.accuracy_finding(1, baseline, dict(zip([(1, 1), (1, 2), (1, 3)], networks, strict=True)), 1000, 3)

    assert finding(poor, poor, poor).startswith("Questions that depend on one fact: Nothing was learned in this budget")
    assert "a second hop makes no clear difference, a third hop makes no clear" in finding(good, good, good)
    partly = finding(poor, good, good)
    assert "30 %" not in partly and "second hop" not in partly
    assert partly.endswith("a third hop makes no clear difference. Did not learn in this budget: 1 hop.")


def test_the_unigram_loss_of_answers_is_their_entropy():
    many = [Story((), "", answer, ()) for answer in ("attic", "cellar") for _ in range(10_000)]
    assert memory.unigram_answer_loss(many, many) == pytest.approx(math.log(2), rel=0.001)


def test_encoded_stories_can_be_decoded():
    numbers = build_vocabulary([STORY])
    encoded = encode_stories([STORY, Story(STORY.sentences[:1], "Where is Ada?", "attic", (0,))], numbers)
    known = {number: word for word, number in numbers.items()}
    assert [known[token] for token in encoded.story[0, 2].tolist() if token] == ["ada", "took", "the", "violin"]
    assert encoded.story.shape == (2, 4, 5)
    assert encoded.story[1, 1:].count_nonzero() == 0
    assert known[int(encoded.answer[1])] == "attic"


def test_a_network_memorises_a_few_stories_and_then_stops():
    few = list(stories(1, "train", 40))
    vocabulary = build_vocabulary(few)
    encoded = encode_stories(few, vocabulary)
    config = MemoryTrainingConfig(hops=2, seconds=10_000, linear_share=0.0, seed=1)
    model = build_memory_network(encoded, vocabulary, config)

    one_second_per_step = count().__next__
    curve = train_memory_network(model, encoded, encoded, config, lambda _share: None, now=one_second_per_step)

    assert curve[0][1] < 0.6 and curve[-1][1] == 1
    assert curve[-1][0] < 10_000
    assert (predict(model, encoded)[0] == encoded.answer).all()
