"""Time is shared out, experiments are carried out once, and their reports stay."""

import json
from shutil import copytree

import pytest

from dragoman.errors import UserError
from dragoman.lab.driver import (
    EXPERIMENT_SECONDS,
    EXPERIMENTS,
    LabOptions,
    check_budget,
    check_model_is_used,
    default_budget,
    parse_budget,
    run_experiments,
    select_experiments,
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
        return ExperimentReport((f"It found {len(self.budgets)}.",), parts, {"value": 1})


@pytest.fixture
def order(tmp_path, material):
    """Return an order of experiments in a folder of its own."""

    def made(**changes):
        seed, given = changes.pop("seed", 1), changes.pop("given", None)
        return LabOptions(tmp_path / "lab", material, seed, given, "dragoman lab all", **changes)

    return made


def carried_out(experiments, order, seconds=5000.0, listen=lambda _event: None):
    return run_experiments(experiments, order, seconds, listen, StopRequest())


@pytest.mark.parametrize(
    ("text", "seconds"), [("90m", 5400), ("2h", 7200), ("1h30m", 5400), ("45s", 45), ("1.5h", 5400)]
)
def test_a_budget_is_written_as_people_write_times(text, seconds):
    assert parse_budget(text) == seconds


@pytest.mark.parametrize("text", ["", "soon", "10", "-5m", "5 minutes", "m", "1e3s", "m5"])
def test_what_is_no_time_is_refused(text):
    with pytest.raises(UserError, match="write it like 90m, 2h, 1h30m or 45s"):
        parse_budget(text)


def test_an_unknown_experiment_names_the_nearest_known_one():
    with pytest.raises(UserError, match=r'Unknown experiment "posiions"; choose from .* Did you mean "positions"'):
        select_experiments("posiions")


def test_a_budget_in_which_nothing_could_be_trained_is_refused():
    with pytest.raises(UserError, match="A budget of 5 seconds is too small for variations: at least 210 sec"):
        check_budget(select_experiments("variations"), 5)


def test_all_experiments_have_a_share_of_ninety_minutes():
    assert set(EXPERIMENTS) == set(EXPERIMENT_SECONDS)
    assert default_budget(select_experiments("all")) <= 5400


def test_time_is_shared_out_in_proportion_and_what_is_left_over_goes_to_those_after(order):
    quick, slow = Counted(), Counted()
    carried_out({"schedule": quick, "masks": slow}, order(), 400.0)
    assert quick.budgets == [pytest.approx(200, abs=1)]
    assert 210 < slow.budgets[0] <= 400


def test_a_finished_experiment_is_not_made_again_unless_asked_for(order):
    experiment, said = Counted(), []
    first = carried_out({"masks": experiment}, order())
    again = carried_out({"masks": experiment}, order(), listen=said.append)
    assert len(experiment.budgets) == 1
    assert again == first
    assert said == [Notice(f"{order().root / 'masks'} is finished already; use --overwrite to run it again.")]
    carried_out({"masks": experiment}, order(overwrite=True))
    carried_out({"masks": experiment}, order(seed=2))
    assert len(experiment.budgets) == 3


def test_an_interrupted_experiment_goes_on_with_the_time_it_was_given_first(order):
    class Interrupted(Counted):
        def run(self, lab):
            report = super().run(lab)
            if len(self.budgets) == 1:
                raise KeyboardInterrupt
            return report

    experiment = Interrupted()
    with pytest.raises(KeyboardInterrupt):
        carried_out({"masks": experiment}, order(), 500.0)
    carried_out({"masks": experiment}, order(), 100.0)
    assert experiment.budgets[0] == experiment.budgets[1]


class Kept(Counted):
    """An experiment whose measurement is kept."""

    def run(self, lab):
        lab.measure_once("part", lambda: self.budgets.append(lab.budget_seconds), size=3)
        return ExperimentReport(("It was measured.",), (), {})


def test_what_was_measured_with_another_text_of_the_same_name_is_measured_again(order):
    experiment, words = Kept(), order().corpus.test[0]
    carried_out({"masks": experiment}, order())
    words.write_text(words.read_text().replace("a", "b"))
    carried_out({"masks": experiment}, order())
    assert len(experiment.budgets) == 2


def test_another_model_to_look_into_is_looked_into(order, trained, tmp_path):
    experiment, other = Kept(), tmp_path / "other"
    copytree(trained, other)
    for given in (trained, trained, other):
        carried_out({"heads": experiment}, order(given=Run(given)))
    assert len(experiment.budgets) == 2
    (other / "model.safetensors").unlink()
    with pytest.raises(UserError, match=r"model\.safetensors cannot be read: .* --run must name a trained model"):
        carried_out({"heads": experiment}, order(given=Run(other)))


def test_a_model_that_no_experiment_looks_into_is_refused():
    check_model_is_used(select_experiments("all"))
    with pytest.raises(UserError, match="--run names a model for heads and alignment to inspect; masks trains its"):
        check_model_is_used(select_experiments("masks"))


def test_a_report_says_what_is_needed_to_repeat_it(order):
    carried_out({"masks": Counted()}, order())
    found = json.loads((order().root / "masks" / "results.json").read_text())
    assert found["results"] == {"value": 1}
    assert {"command", "date", "corpus", "seed", "budget", "machine"} <= set(found["facts"])
    assert "torch" in found["facts"]["machine"]


def test_several_experiments_make_one_report_with_all_of_them_inside(order):
    carried_out({"schedule": Counted(), "masks": Counted()}, order())
    page = (order().root / "report.html").read_text()
    assert page.count("A question?") == 2
    assert page.count("data:image/svg+xml;base64,") == 2
    assert "![A dot.](masks/dot.svg)" in (order().root / "report.md").read_text()
    assert "![A dot.](dot.svg)" in (order().root / "masks" / "report.md").read_text()
