"""The driver: budgets, stored results and reports."""

import json
from itertools import count
from shutil import copytree

import pytest

from dragoman.errors import UserError
from dragoman.lab.driver import (
    EXPERIMENT_SECONDS,
    EXPERIMENTS,
    LabOptions,
    parse_budget,
    plan_experiments,
    run_experiments,
)
from dragoman.report import ExperimentReport, ReportPicture, ReportTable
from dragoman.run import Run
from dragoman.tasks.events import Notice
from dragoman.training.events import StopRequest


class Counted:
    """An experiment that notes how often it is made, and with how much time."""

    TITLE = "A title"
    QUESTION = "A question?"
    CLAIM = "An answer."

    def __init__(self):
        self.budgets = []

    def run(self, lab):
        self.budgets.append(lab.budget_seconds)
        (lab.folder / "dot.svg").write_text("<svg xmlns='http://www.w3.org/2000/svg'/>")
        parts = ("A paragraph.", ReportTable("T", ("a", "b"), (("x", 1.5),)), ReportPicture("dot.svg", "A dot."))
        return ExperimentReport((f"It result {len(self.budgets)}.",), parts, {"value": 1})


@pytest.fixture
def order(tmp_path, corpus):
    """Return an order of experiments in a folder of its own."""

    def made(**changes):
        seed, given = changes.pop("seed", 1), changes.pop("given", None)
        return LabOptions(tmp_path / "lab", corpus, seed, given, "dragoman lab all", **changes)

    return made


def run_all(experiments, order, seconds=5000.0, on_event=lambda _event: None):
    return run_experiments(experiments, order, seconds, on_event, StopRequest(), now=count(step=20.0).__next__)


@pytest.mark.parametrize(
    ("text", "seconds"), [("90m", 5400), ("2h", 7200), ("1h30m", 5400), ("45s", 45), ("1.5h", 5400)]
)
def test_a_budget_is_parsed_as_a_duration(text, seconds):
    assert parse_budget(text) == seconds


@pytest.mark.parametrize("text", ["", "soon", "10", "-5m", "5 minutes", "m", "1e3s", "m5"])
def test_a_budget_that_is_not_a_duration_is_an_error(text):
    with pytest.raises(UserError, match="expected a value such as 90m, 2h, 1h30m or 45s"):
        parse_budget(text)


@pytest.mark.parametrize(
    ("name", "budget", "message"),
    [
        ("posiions", None, r'Unknown experiment "posiions"; choose from .* Did you mean "positions"'),
        ("variations", "5s", "A budget of 5 seconds is too small for variations: at least 210 seconds are needed"),
        ("all", "1m", "A budget of 60 seconds is too small for these experiments"),
        ("masks", None, "--run is supported only by heads and alignment; masks trains its own models. Remove --run."),
    ],
)
def test_what_cannot_be_run_is_an_error(name, budget, message):
    with pytest.raises(UserError, match=message):
        plan_experiments(name, budget, has_model=True)


def test_all_experiments_have_a_share_of_ninety_minutes():
    assert set(EXPERIMENTS) == set(EXPERIMENT_SECONDS)
    assert plan_experiments("all", None, has_model=True) == (EXPERIMENTS, 5250)
    assert plan_experiments("heads", "20m", has_model=True) == ({"heads": EXPERIMENTS["heads"]}, 1200)


def test_time_is_divided_in_proportion_and_unused_time_goes_to_later_experiments(order):
    quick, slow = Counted(), Counted()
    run_all({"schedule": quick, "masks": slow}, order(), 400.0)
    assert quick.budgets == [190.0]  # half of the 380 seconds that are left when it starts
    assert slow.budgets == [360.0]


def test_a_finished_experiment_runs_again_only_with_overwrite(order):
    experiment, message = Counted(), []
    first = run_all({"masks": experiment}, order())
    again = run_all({"masks": experiment}, order(), on_event=message.append)
    assert len(experiment.budgets) == 1
    assert again == first
    assert message == [Notice(f"{order().root / 'masks'} is already finished; use --overwrite to run it again.")]
    run_all({"masks": experiment}, order(overwrite=True))
    run_all({"masks": experiment}, order(seed=2))
    assert len(experiment.budgets) == 3


def test_an_interrupted_experiment_continues_with_its_first_budget(order):
    class Interrupted(Counted):
        def run(self, lab):
            report = super().run(lab)
            if len(self.budgets) == 1:
                raise KeyboardInterrupt
            return report

    experiment = Interrupted()
    with pytest.raises(KeyboardInterrupt):
        run_all({"masks": experiment}, order(), 500.0)
    run_all({"masks": experiment}, order(), 100.0)
    assert experiment.budgets[0] == experiment.budgets[1]


class Kept(Counted):
    """An experiment whose measurement is kept."""

    def run(self, lab):
        lab.measure_once("part", lambda: self.budgets.append(lab.budget_seconds), size=3)
        return ExperimentReport(("It was measured.",), (), {})


def test_measurements_are_repeated_if_the_text_has_changed(order):
    experiment, words = Kept(), order().corpus.test[0]
    run_all({"masks": experiment}, order())
    words.write_text(words.read_text().replace("a", "b"))
    run_all({"masks": experiment}, order())
    assert len(experiment.budgets) == 2


def test_measurements_are_repeated_for_another_model(order, trained, tmp_path):
    experiment, other = Kept(), tmp_path / "other"
    copytree(trained, other)
    for given in (trained, trained, other):
        run_all({"heads": experiment}, order(given=Run(given)))
    assert len(experiment.budgets) == 2
    (other / "model.safetensors").unlink()
    with pytest.raises(UserError, match=r"model\.safetensors cannot be read: .* --run must name a trained model"):
        run_all({"heads": experiment}, order(given=Run(other)))


def test_a_report_has_the_facts_needed_to_repeat_it(order):
    run_all({"masks": Counted()}, order())
    result = json.loads((order().root / "masks" / "results.json").read_text())
    assert result["results"] == {"value": 1}
    assert {"command", "date", "corpus", "seed", "budget", "machine"} <= set(result["facts"])
    assert "torch" in result["facts"]["machine"]


def test_several_experiments_share_one_report(order):
    run_all({"schedule": Counted(), "masks": Counted()}, order())
    page = (order().root / "report.html").read_text()
    assert page.count("A question?") == 2
    assert page.count("data:image/svg+xml;base64,") == 2
    assert "![A dot.](masks/dot.svg)" in (order().root / "report.md").read_text()
    assert "![A dot.](dot.svg)" in (order().root / "masks" / "report.md").read_text()
