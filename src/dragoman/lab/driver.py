"""How time is shared out, and how an experiment is carried out from its first part to its report.

What an experiment was given when it began (its seconds, seed and corpus) is kept beside it: when it goes on after an
interruption it goes on with that, so that nothing that is finished has to be made again.
"""

import re
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from hashlib import file_digest
from pathlib import Path
from shutil import rmtree
from typing import Any, Protocol

import torch

from dragoman.bench.machine import describe_machine
from dragoman.errors import UserError, did_you_mean
from dragoman.lab.corpus import SplitCorpus
from dragoman.lab.laboratory import Laboratory, read_json
from dragoman.lab.report import (
    ExperimentReport,
    Json,
    Picture,
    ReportPart,
    ReportSection,
    ReportTable,
    render_html,
    render_markdown,
)
from dragoman.processes import available_cores
from dragoman.run import Run
from dragoman.storage import make_directory, to_json, write_atomically
from dragoman.tasks.events import Notice, OnEvent
from dragoman.training.events import StopRequest

_REFERENCE_SECONDS = 300  # of ninety minutes, for the model that `heads` and `alignment` look into
EXPERIMENT_SECONDS = {  # of ninety minutes, for each experiment; in this order
    "complexity": 420, "scaling": 240, "schedule": 180, "masks": 180, "positions": 420, "normalisation": 360,
    "architectures": 1500, "variations": 1260, "heads": 180, "alignment": 30, "memory": 180,
}  # fmt: skip
_TIME_KEYS = ("seconds", "reference_seconds")  # in a plan; all else says what the experiment is about
_MIN_BUDGET_SHARE = 1 / 6  # of that: with less, no model would learn anything
_INSPECTING_EXPERIMENTS = ("heads", "alignment")


class Experiment(Protocol):
    """A module of this package that makes one table or figure."""

    TITLE: str
    QUESTION: str
    CLAIM: str  # of the paper

    def run(self, lab: Laboratory) -> ExperimentReport:
        """Make the experiment."""
        ...


@dataclass(frozen=True)
class LabOptions:
    """What was asked for on the command line."""

    root: Path
    corpus: SplitCorpus
    seed: int
    given_run: Run | None
    command: str
    overwrite: bool = False


def parse_budget(text: str) -> float:
    """Read a time such as 90m, 2h, 1h30m or 45s; return its seconds."""
    found = re.fullmatch(r"(?:(\d+(?:\.\d+)?)h)?(?:(\d+(?:\.\d+)?)m)?(?:(\d+(?:\.\d+)?)s)?", text.strip().lower())
    if not found or not any(found.groups()):
        raise UserError(f'--budget "{text}" is no time; write it like 90m, 2h, 1h30m or 45s.')
    hours, minutes, seconds = (float(part or 0) for part in found.groups())
    return 3600 * hours + 60 * minutes + seconds


def default_budget(names: Mapping[str, Any]) -> float:
    """Return the seconds that some experiments get in ninety minutes for all."""
    shared = _REFERENCE_SECONDS if any(name in _INSPECTING_EXPERIMENTS for name in names) else 0
    return shared + sum(EXPERIMENT_SECONDS[name] for name in names)


def check_experiment_name(name: str) -> None:
    """Say which experiments there are."""
    if name != "all" and name not in EXPERIMENT_SECONDS:
        known = [*EXPERIMENT_SECONDS, "all"]
        raise UserError(f'There is no experiment "{name}"; there are {", ".join(known)}.{did_you_mean(name, known)}')


def check_budget(names: Mapping[str, Any], budget_seconds: float) -> None:
    """Refuse a budget in which nothing could be trained."""
    least = _MIN_BUDGET_SHARE * default_budget(names)
    if budget_seconds < least:
        what = "these experiments" if len(names) > 1 else next(iter(names))
        raise UserError(
            f"A budget of {budget_seconds:g} seconds is too small for {what}: with less than {least:.0f} seconds no "
            f"model learns anything; {default_budget(names) / 60:.0f} minutes give results like those in "
            "docs/results.md."
        )


def check_model_is_used(names: Mapping[str, Any]) -> None:
    """Refuse a model that none of the experiments would look into."""
    if not any(name in _INSPECTING_EXPERIMENTS for name in names):
        alone = next(iter(names))
        raise UserError(
            f"--run names a model for {' and '.join(_INSPECTING_EXPERIMENTS)} to look into; {alone} trains its own."
        )


def run_experiments(
    experiments: Mapping[str, Experiment],
    options: LabOptions,
    budget_seconds: float,
    on_event: OnEvent,
    stop: StopRequest,
) -> list[ReportSection]:
    """Make experiments one after the other within a time for all; what one leaves over goes to those after it."""
    check_budget(experiments, budget_seconds)
    torch.set_num_threads(available_cores())
    left, chapters = dict(experiments), []
    until = time.monotonic() + budget_seconds
    for name, experiment in experiments.items():
        remaining = max(until - time.monotonic(), _MIN_BUDGET_SHARE * default_budget(left))
        rate = remaining / default_budget(left)
        lab = _open_laboratory(name, options, rate, on_event, stop)
        chapters.append(_run_experiment(experiment, lab, options))
        del left[name]
    if len(chapters) > 1:
        write_reports("The paper’s laboratory", chapters, options.root)
    return chapters


def _open_laboratory(
    name: str, options: LabOptions, time_scale: float, on_event: OnEvent, stop: StopRequest
) -> Laboratory:
    """Return the place of an experiment, with the time it was given when it began."""
    folder = options.root / name
    if options.overwrite and folder.exists():
        rmtree(folder)
    make_directory(folder)
    file = folder / "plan.json"
    what = {"seed": options.seed, "corpus": options.corpus.name, "text": options.corpus.fingerprint}
    what |= (
        _model_fingerprint(options.given_run)
        if options.given_run is not None and name in _INSPECTING_EXPERIMENTS
        else {}
    )
    plan = read_json(file)
    if not isinstance(plan, dict) or {key: plan[key] for key in plan if key not in _TIME_KEYS} != what:
        plan = {
            "seconds": EXPERIMENT_SECONDS[name] * time_scale,
            "reference_seconds": _REFERENCE_SECONDS * time_scale,
            **what,
        }
        (folder / "results.json").unlink(missing_ok=True)
        rmtree(folder / "parts", ignore_errors=True)  # measured with another text or another model
        write_atomically(file, to_json(plan))
    return Laboratory(
        name, folder, options.root, plan["seconds"], options.seed, options.corpus, on_event, stop,
        plan["reference_seconds"], options.given_run,
    )  # fmt: skip


def _model_fingerprint(run: Run) -> dict[str, str]:
    """Return what tells a model from any other: where it is, and a sum of its weights."""
    try:
        with run.weights_file.open("rb") as weights:
            return {"model": str(run), "weights": file_digest(weights, "sha256").hexdigest()[:16]}
    except OSError as error:
        raise UserError(f"{run.weights_file} cannot be read: {error.strerror}. --run names a trained model.") from None


def _run_experiment(experiment: Experiment, lab: Laboratory, options: LabOptions) -> ReportSection:
    """Make an experiment and write its report, or find it made."""
    there = read_json(lab.folder / "results.json")
    if isinstance(there, dict):
        lab.on_event(Notice(f"{lab.folder} is finished already; --overwrite makes it again."))
        return _report_section(experiment, lab, _report_from_json(there), there["facts"])
    began_at = time.monotonic()
    report = experiment.run(lab)
    facts = {
        "command": options.command,
        "date": f"{datetime.now(UTC):%Y-%m-%d}",
        "corpus": f"{lab.corpus.name} (fingerprint {lab.corpus.fingerprint})",
        "seed": str(lab.seed),
        **({"model": str(lab.given_run)} if lab.given_run is not None and lab.name in _INSPECTING_EXPERIMENTS else {}),
        "time given": f"{lab.budget_seconds:.0f} s",
        "time taken": f"{time.monotonic() - began_at:.0f} s, without what was kept from an earlier beginning",
        "machine": str(describe_machine(torch.get_num_threads(), available_cores())),
    }
    made = _report_section(experiment, lab, report, facts)
    write_reports(experiment.TITLE, [made], lab.folder)
    write_atomically(lab.folder / "results.json", to_json(_section_to_json(made)))
    return made


def _report_section(
    experiment: Experiment, lab: Laboratory, report: ExperimentReport, facts: dict[str, str]
) -> ReportSection:
    """Put a report under the title of its experiment."""
    return ReportSection(lab.name, experiment.TITLE, experiment.QUESTION, lab.folder, report, facts, experiment.CLAIM)


def _section_to_json(section: ReportSection) -> dict[str, Json]:
    """Return all of a chapter that a program wants to read."""
    report = section.report
    return {
        "experiment": section.name, "facts": dict(section.facts), "results": report.results,
        "findings": list(report.findings), "parts": [_part_to_json(part) for part in report.parts],
    }  # fmt: skip


def _part_to_json(part: ReportPart) -> Json:
    """Return a part as JSON, with a word for its kind."""
    return part if isinstance(part, str) else {"kind": type(part).__name__.lower(), **asdict(part)}


def _report_from_json(stored: dict[str, Json]) -> ExperimentReport:
    """Read a report as it was written."""
    return ExperimentReport(tuple(stored["findings"]), tuple(map(_part_from_json, stored["parts"])), stored["results"])


def _part_from_json(part: Json) -> ReportPart:
    """Read a part as it was written."""
    if isinstance(part, str):
        return part
    if part["kind"] == "picture":
        return Picture(part["file"], part["caption"])
    rows = tuple(tuple(row) for row in part["rows"])
    return ReportTable(part["title"], tuple(part["header"]), rows, part["note"])


def write_reports(title: str, sections: list[ReportSection], folder: Path) -> None:
    """Write what was found as a page and as Markdown."""
    write_atomically(folder / "report.html", render_html(title, sections).encode())
    write_atomically(folder / "report.md", render_markdown(sections, folder).encode())
