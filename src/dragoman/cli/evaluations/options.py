"""The options of `dragoman evaluate`, shared by all tasks."""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dragoman.cli.progress import progress_bar
from dragoman.errors import UserError

if TYPE_CHECKING:
    from dragoman.tasks.sequence_model import SequenceModel
    from dragoman.tasks.task import Example


@dataclass(frozen=True)
class EvaluateOptions:
    """The options of one `dragoman evaluate` command."""

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
        """Raise a UserError if one of these options was given: the task does not support them."""
        _reject_given(self.task, {name: getattr(self, name) or None for name in names})

    def reject_search_options(self) -> None:
        """Raise a UserError if an option of the beam search was given."""
        _reject_given(self.task, self.decoding)

    def write_outputs(self, lines: Iterable[str]) -> None:
        """Write the outputs to --output, one per line, if it was given."""
        if self.output:
            self.output.write_text("".join(line.replace("\n", " ") + "\n" for line in lines), encoding="utf-8")

    def model_outputs(self, model: "SequenceModel", examples: "list[Example]") -> list[str]:
        """Return a model's outputs for the examples."""
        with progress_bar(f"{model.task.gerund} with {model.run}", len(examples)) as progress:
            found: list[str] = model.predict([one.source for one in examples], progress=progress, **self.decoding)
            return found


def _reject_given(task: str, options: dict[str, Any]) -> None:
    """Raise a UserError for the first option that has a value."""
    for name, value in options.items():
        if value is not None:
            raise UserError(f"--{name.replace('_', '-')} is not supported for --task {task}; remove it.")
