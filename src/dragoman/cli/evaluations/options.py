"""What `dragoman evaluate` was asked, and what all answers to it share."""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dragoman.cli.progress import progress_bar
from dragoman.errors import UserError

if TYPE_CHECKING:
    from dragoman.tasks.task import Example
    from dragoman.tasks.translator import Translator


@dataclass(frozen=True)
class EvaluateOptions:
    """What was asked for on the command line."""

    task: str
    run: Path | None
    source: str | None
    reference: str | None
    hypotheses: str | None
    against: Path | None
    worst: int
    output: Path | None
    parameters: str | None
    sentences: bool
    ignore_stress: bool
    as_json: bool
    device: str
    decoding: dict[str, Any]

    def reject(self, *names: str) -> None:
        """Object to options of these names, if they were given: they mean nothing to the task."""
        _reject_given(self.task, {name: getattr(self, name) or None for name in names})

    def reject_search_options(self) -> None:
        """Object to options of the search, where nothing is searched for."""
        _reject_given(self.task, self.decoding)

    def write_outputs(self, lines: Iterable[str]) -> None:
        """Write the outputs where --output says, if it does, one a line."""
        if self.output:
            self.output.write_text("".join(line.replace("\n", " ") + "\n" for line in lines), encoding="utf-8")

    def model_outputs(self, model: "Translator", examples: "list[Example]") -> list[str]:
        """Return what a model makes of the examples."""
        with progress_bar(f"{model.task.gerund} with {model.run}", len(examples)) as progress:
            found: list[str] = model.translate([one.source for one in examples], progress=progress, **self.decoding)
            return found


def _reject_given(task: str, options: dict[str, Any]) -> None:
    """Object to the first option that has a value."""
    for name, value in options.items():
        if value is not None:
            raise UserError(f"--{name.replace('_', '-')} does not go with --task {task}; leave it out.")
