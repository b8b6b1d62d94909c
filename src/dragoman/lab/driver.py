"""Runs experiments within a time budget and writes their reports.

The seconds, seed and corpus of an experiment are stored when it starts. When it continues after an interruption, it
uses the stored values, so that finished measurements and models remain valid.
"""

import re
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from hashlib import file_digest
from pathlib import Path
from shutil import rmtree
from typing import Protocol

import torch

from dragoman.bench.machine import describe_machine
from dragoman.errors import UserError, did_you_mean
from dragoman.figures import default_style
from dragoman.lab import (
    alignment,
    architectures,
    complexity,
    heads,
    masks,
    memory,
    normalisation,
    positions,
    scaling,
    schedule,
    variations,
)
from dragoman.lab.corpus import SplitCorpus
from dragoman.lab.laboratory import Laboratory, read_json
from dragoman.processes import available_cores
from dragoman.report import ExperimentReport, ReportSection, write_reports
from dragoman.run import Run
from dragoman.storage import make_directory, to_json, write_atomically
from dragoman.tasks.events import Notice, OnEvent
from dragoman.training.events import StopRequest


class Experiment(Protocol):
    """A module of this package that reproduces a table or a figure."""

    TITLE: str
    QUESTION: str
    CLAIM: str  # of the paper, from its section on: "section 4: …"

    def run(self, lab: Laboratory) -> ExperimentReport:
        """Run the experiment."""
        ...


EXPERIMENTS: dict[str, Experiment] = {
    "complexity": complexity,
    "scaling": scaling,
    "schedule": schedule,
    "masks": masks,
    "positions": positions,
    "normalisation": normalisation,
    "architectures": architectures,
    "variations": variations,
    "heads": heads,
    "alignment": alignment,
    "memory": memory,
}
EXPERIMENT_SECONDS = {  # of the ninety minutes for all
    "complexity": 420, "scaling": 240, "schedule": 180, "masks": 180, "positions": 420, "normalisation": 360,
    "architectures": 1500, "variations": 1260, "heads": 180, "alignment": 30, "memory": 180,
}  # fmt: skip
_REFERENCE_SECONDS = 300  # of the ninety minutes, for training the model that `heads` and `alignment` inspect
_INSPECTING_EXPERIMENTS = ("heads", "alignment")
_MIN_BUDGET_SHARE = 1 / 6  # of the default budget; with less, no model learns anything
_TIME_KEYS = ("seconds", "reference_seconds")  # of plan.json; the other keys identify the experiment


@dataclass(frozen=True)
class LabOptions:
    """The options of `dragoman lab`."""

    root: Path
    corpus: SplitCorpus
    seed: int
    given_run: Run | None
    command: str
    overwrite: bool = False


def parse_budget(text: str) -> float:
    """Return the seconds of a duration such as 90m, 2h, 1h30m or 45s."""
    match = re.fullmatch(r"(?:(\d+(?:\.\d+)?)h)?(?:(\d+(?:\.\d+)?)m)?(?:(\d+(?:\.\d+)?)s)?", text.strip().lower())
    if not match or not any(match.groups()):
        raise UserError(f'--budget "{text}" is not a duration; expected a value such as 90m, 2h, 1h30m or 45s.')
    hours, minutes, seconds = (float(part or 0) for part in match.groups())
    return 3600 * hours + 60 * minutes + seconds


def plan_experiments(name: str, budget: str | None, *, has_model: bool = False) -> tuple[dict[str, Experiment], float]:
    """Return the experiment with this name, or all, and the seconds of the budget or else of the default.

    Raise for an unknown name, for a budget that is too small to train anything, and for a model that is not used.
    """
    if name not in (known := [*EXPERIMENTS, "all"]):
        raise UserError(f'Unknown experiment "{name}"; choose from {", ".join(known)}.{did_you_mean(name, known)}')
    experiments = EXPERIMENTS if name == "all" else {name: EXPERIMENTS[name]}
    default_seconds = _default_budget(experiments)
    seconds = default_seconds if budget is None else parse_budget(budget)
    minimum = _MIN_BUDGET_SHARE * default_seconds
    if seconds < minimum:
        subject = "these experiments" if name == "all" else name
        raise UserError(
            f"A budget of {seconds:g} seconds is too small for {subject}: at least {minimum:.0f} seconds are "
            f"needed, and {default_seconds / 60:.0f} minutes give results like those in docs/results.md."
        )
    if has_model and not experiments.keys() & set(_INSPECTING_EXPERIMENTS):
        users = " and ".join(_INSPECTING_EXPERIMENTS)
        raise UserError(f"--run is supported only by {users}; {name} trains its own models. Remove --run.")
    return experiments, seconds


def _default_budget(names: Iterable[str]) -> float:
    """Return the seconds that experiments get out of ninety minutes for all."""
    names = list(names)
    reference = _REFERENCE_SECONDS if any(name in _INSPECTING_EXPERIMENTS for name in names) else 0
    return reference + sum(EXPERIMENT_SECONDS[name] for name in names)


def run_experiments(
    experiments: Mapping[str, Experiment],
    options: LabOptions,
    budget_seconds: float,
    on_event: OnEvent,
    stop: StopRequest,
    *,
    now: Callable[[], float] = time.monotonic,
) -> list[ReportSection]:
    """Run experiments in order within a common budget; the later ones get the time that the earlier ones left."""
    torch.set_num_threads(available_cores())
    remaining, sections = list(experiments), []
    deadline = now() + budget_seconds
    for name, experiment in experiments.items():
        default_seconds = _default_budget(remaining)
        remaining_seconds = max(deadline - now(), _MIN_BUDGET_SHARE * default_seconds)
        lab = _open_laboratory(name, options, remaining_seconds / default_seconds, on_event, stop)
        sections.append(_run_experiment(experiment, lab, options))
        remaining.remove(name)
    if len(sections) > 1:
        write_reports("The paper’s experiments on this machine", sections, options.root)
    return sections


def _open_laboratory(
    name: str, options: LabOptions, time_scale: float, on_event: OnEvent, stop: StopRequest
) -> Laboratory:
    """Return the laboratory of an experiment; one that was started before keeps the budget stored in its folder."""
    folder = options.root / name
    if options.overwrite and folder.exists():
        rmtree(folder)
    make_directory(folder)
    given_run = options.given_run if name in _INSPECTING_EXPERIMENTS else None
    identity = {"seed": options.seed, "corpus": options.corpus.name, "text": options.corpus.fingerprint}
    identity |= {} if given_run is None else _model_fingerprint(given_run)
    file = folder / "plan.json"
    plan = read_json(file)
    if not isinstance(plan, dict) or {key: plan[key] for key in plan if key not in _TIME_KEYS} != identity:
        times = EXPERIMENT_SECONDS[name] * time_scale, _REFERENCE_SECONDS * time_scale
        plan = {**dict(zip(_TIME_KEYS, times, strict=True)), **identity}
        (folder / "results.json").unlink(missing_ok=True)
        rmtree(folder / "parts", ignore_errors=True)  # measured with another text or another model
        write_atomically(file, to_json(plan))
    return Laboratory(
        name, folder, options.root, plan["seconds"], options.seed, options.corpus, on_event, stop,
        plan["reference_seconds"], given_run,
    )  # fmt: skip


def _model_fingerprint(run: Run) -> dict[str, str]:
    try:
        with run.open_file(run.weights_file) as weights:
            return {"model": str(run), "weights": file_digest(weights, "sha256").hexdigest()[:16]}
    except OSError as error:
        raise UserError(
            f"{run.weights_file} cannot be read: {error.strerror}. --run must name a trained model."
        ) from None


def _run_experiment(experiment: Experiment, lab: Laboratory, options: LabOptions) -> ReportSection:
    """Run an experiment and write its report, or read the stored results if it is finished."""
    section = partial(
        ReportSection, lab.name, experiment.TITLE, experiment.QUESTION, lab.folder, claim=experiment.CLAIM
    )
    stored = read_json(lab.folder / "results.json")
    if isinstance(stored, dict):
        lab.on_event(Notice(f"{lab.folder} is already finished; use --overwrite to run it again."))
        return section(ExperimentReport.from_json(stored), stored["facts"])
    started_at = time.monotonic()
    with default_style():
        report = experiment.run(lab)
    facts = {
        "command": options.command,
        "date": f"{datetime.now(UTC):%Y-%m-%d}",
        "corpus": f"{lab.corpus.name} (fingerprint {lab.corpus.fingerprint})",
        "seed": str(lab.seed),
        **({} if lab.given_run is None else {"model": str(lab.given_run)}),
        "budget": f"{lab.budget_seconds:.0f} s",
        "time taken": f"{time.monotonic() - started_at:.0f} s, without the parts that an earlier run had finished",
        "machine": str(describe_machine(torch.get_num_threads(), available_cores())),
    }
    write_reports(experiment.TITLE, [section(report, facts)], lab.folder)
    write_atomically(lab.folder / "results.json", to_json({"experiment": lab.name, "facts": facts, **report.to_json()}))
    return section(report, facts)
