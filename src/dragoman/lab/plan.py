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

from dragoman.bench.machine import this_machine
from dragoman.errors import UserError, nearest
from dragoman.lab.laboratory import Laboratory, read_json
from dragoman.lab.material import Material
from dragoman.lab.report import Chapter, Json, Part, Picture, Report, Table, markdown, page
from dragoman.run import Run, make_folder, to_json, write_whole
from dragoman.tasks.events import Listen
from dragoman.tasks.train import cores
from dragoman.training.session import Notice, Stop

REFERENCE_SECONDS = 300  # of ninety minutes, for the model that `heads` and `alignment` look into
SECONDS = {  # of ninety minutes, for each experiment; in this order
    "complexity": 420, "scaling": 240, "schedule": 180, "masks": 180, "positions": 420, "normalisation": 360,
    "architectures": 1500, "variations": 1260, "heads": 180, "alignment": 30, "memory": 180,
}  # fmt: skip
TIMES = ("seconds", "reference_seconds")  # in a plan; all else says what the experiment is about
LEAST = 1 / 6  # of that: with less, no model would learn anything
LOOKING_IN = ("heads", "alignment")


class Experiment(Protocol):
    """A module of this package that makes one table or figure."""

    TITLE: str
    QUESTION: str
    CLAIM: str  # of the paper

    def run(self, lab: Laboratory) -> Report:
        """Make the experiment."""
        ...


@dataclass(frozen=True)
class Order:
    """What was asked for on the command line."""

    home: Path
    material: Material
    seed: int
    given: Run | None
    command: str
    overwrite: bool = False


def parsed_budget(text: str) -> float:
    """Read a time such as 90m, 2h, 1h30m or 45s; return its seconds."""
    found = re.fullmatch(r"(?:(\d+(?:\.\d+)?)h)?(?:(\d+(?:\.\d+)?)m)?(?:(\d+(?:\.\d+)?)s)?", text.strip().lower())
    if not found or not any(found.groups()):
        raise UserError(f'--budget "{text}" is no time; write it like 90m, 2h, 1h30m or 45s.')
    hours, minutes, seconds = (float(part or 0) for part in found.groups())
    return 3600 * hours + 60 * minutes + seconds


def needed(names: Mapping[str, Any]) -> float:
    """Return the seconds that some experiments get in ninety minutes for all."""
    shared = REFERENCE_SECONDS if any(name in LOOKING_IN for name in names) else 0
    return shared + sum(SECONDS[name] for name in names)


def refuse_unknown(name: str) -> None:
    """Say which experiments there are."""
    if name != "all" and name not in SECONDS:
        known = [*SECONDS, "all"]
        raise UserError(f'There is no experiment "{name}"; there are {", ".join(known)}.{nearest(name, known)}')


def refuse_short(names: Mapping[str, Any], budget_seconds: float) -> None:
    """Refuse a budget in which nothing could be trained."""
    least = LEAST * needed(names)
    if budget_seconds < least:
        what = "these experiments" if len(names) > 1 else next(iter(names))
        raise UserError(
            f"A budget of {budget_seconds:g} seconds is too small for {what}: with less than {least:.0f} seconds no "
            f"model learns anything; {needed(names) / 60:.0f} minutes give results like those in docs/results.md."
        )


def refuse_idle_model(names: Mapping[str, Any]) -> None:
    """Refuse a model that none of the experiments would look into."""
    if not any(name in LOOKING_IN for name in names):
        alone = next(iter(names))
        raise UserError(f"--run names a model for {' and '.join(LOOKING_IN)} to look into; {alone} trains its own.")


def carry_out(
    experiments: Mapping[str, Experiment], order: Order, budget_seconds: float, listen: Listen, stop: Stop
) -> list[Chapter]:
    """Make experiments one after the other within a time for all; what one leaves over goes to those after it."""
    refuse_short(experiments, budget_seconds)
    torch.set_num_threads(cores())
    left, chapters = dict(experiments), []
    until = time.monotonic() + budget_seconds
    for name, experiment in experiments.items():
        remaining = max(until - time.monotonic(), LEAST * needed(left))
        rate = remaining / needed(left)
        lab = laboratory(name, order, rate, listen, stop)
        chapters.append(chapter(experiment, lab, order))
        del left[name]
    if len(chapters) > 1:
        write_reports("The paper’s laboratory", chapters, order.home)
    return chapters


def laboratory(name: str, order: Order, rate: float, listen: Listen, stop: Stop) -> Laboratory:
    """Return the place of an experiment, with the time it was given when it began."""
    folder = order.home / name
    if order.overwrite and folder.exists():
        rmtree(folder)
    make_folder(folder)
    file = folder / "plan.json"
    what = {"seed": order.seed, "corpus": order.material.name, "text": order.material.fingerprint}
    what |= looked_into(order.given) if order.given is not None and name in LOOKING_IN else {}
    plan = read_json(file)
    if not isinstance(plan, dict) or {key: plan[key] for key in plan if key not in TIMES} != what:
        plan = {"seconds": SECONDS[name] * rate, "reference_seconds": REFERENCE_SECONDS * rate, **what}
        (folder / "results.json").unlink(missing_ok=True)
        rmtree(folder / "parts", ignore_errors=True)  # measured with another text or another model
        write_whole(file, to_json(plan))
    return Laboratory(
        name, folder, order.home, plan["seconds"], order.seed, order.material, listen, stop,
        plan["reference_seconds"], order.given,
    )  # fmt: skip


def looked_into(model: Run) -> dict[str, str]:
    """Return what tells a model from any other: where it is, and a sum of its weights."""
    try:
        with model.weights_file.open("rb") as weights:
            return {"model": str(model), "weights": file_digest(weights, "sha256").hexdigest()[:16]}
    except OSError as error:
        raise UserError(
            f"{model.weights_file} cannot be read: {error.strerror}. --run names a trained model."
        ) from None


def chapter(experiment: Experiment, lab: Laboratory, order: Order) -> Chapter:
    """Make an experiment and write its report, or find it made."""
    there = read_json(lab.folder / "results.json")
    if isinstance(there, dict):
        lab.listen(Notice(f"{lab.folder} is finished already; --overwrite makes it again."))
        return chapter_of(experiment, lab, read_report(there), there["facts"])
    began_at = time.monotonic()
    report = experiment.run(lab)
    facts = {
        "command": order.command,
        "date": f"{datetime.now(UTC):%Y-%m-%d}",
        "corpus": f"{lab.material.name} (fingerprint {lab.material.fingerprint})",
        "seed": str(lab.seed),
        **({"model": str(lab.given)} if lab.given is not None and lab.name in LOOKING_IN else {}),
        "time given": f"{lab.budget_seconds:.0f} s",
        "time taken": f"{time.monotonic() - began_at:.0f} s, without what was kept from an earlier beginning",
        "machine": str(this_machine(torch.get_num_threads(), cores())),
    }
    made = chapter_of(experiment, lab, report, facts)
    write_reports(experiment.TITLE, [made], lab.folder)
    write_whole(lab.folder / "results.json", to_json(plain(made)))
    return made


def chapter_of(experiment: Experiment, lab: Laboratory, report: Report, facts: dict[str, str]) -> Chapter:
    """Put a report under the title of its experiment."""
    return Chapter(lab.name, experiment.TITLE, experiment.QUESTION, lab.folder, report, facts, experiment.CLAIM)


def plain(made: Chapter) -> dict[str, Json]:
    """Return all of a chapter that a program wants to read."""
    report = made.report
    return {
        "experiment": made.name, "facts": dict(made.facts), "results": report.results,
        "findings": list(report.findings), "parts": [plain_part(part) for part in report.parts],
    }  # fmt: skip


def plain_part(part: Part) -> Json:
    """Return a part as JSON, with a word for its kind."""
    return part if isinstance(part, str) else {"kind": type(part).__name__.lower(), **asdict(part)}


def read_report(there: dict[str, Json]) -> Report:
    """Read a report as it was written."""
    return Report(tuple(there["findings"]), tuple(map(read_part, there["parts"])), there["results"])


def read_part(part: Json) -> Part:
    """Read a part as it was written."""
    if isinstance(part, str):
        return part
    if part["kind"] == "picture":
        return Picture(part["file"], part["caption"])
    rows = tuple(tuple(row) for row in part["rows"])
    return Table(part["title"], tuple(part["header"]), rows, part["note"])


def write_reports(title: str, chapters: list[Chapter], folder: Path) -> None:
    """Write what was found as a page and as Markdown."""
    write_whole(folder / "report.html", page(title, chapters).encode())
    write_whole(folder / "report.md", markdown(chapters, folder).encode())
